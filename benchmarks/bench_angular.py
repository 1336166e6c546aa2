"""AngularBilinearRanker: speed compared with LinearSVC, and risky parameters.

    SIMLEARN_DATA=... python benchmarks/bench_angular.py [speed] [query]
    SIMLEARN_DATA=... python benchmarks/bench_angular.py choices [SET ...]

Without arguments, the first two parts run. They use MNIST and the paper's plain form,
whose tables are in ``python -m benchmarks.papers kuang``. `choices` measures "hard"
candidates, and a hold-out by samples on new objects; `bench_defaults.py` measures the
defaults.
"""

import os
import sys
import time
import warnings
from functools import partial

# A waiting thread must not count as busy. OpenMP reads this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from _common import best_seconds, load_mnist, print_table
from _sets import available_sets, load_set, split_set
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from sklearn_simlearn import AngularBilinearRanker
from sklearn_simlearn.angular._dual import Dual, blocks_of_triplets
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.similarities import CosineSimilarity

N_QUERIES = 1000

# The paper's plain form: no hold-out, the mean over ten neighbours.
plain = partial(AngularBilinearRanker, holdout=None, n_neighbors=10)


def split():
    """Return 1,000 random queries, and the other 69,000 rows as training data."""
    X, y = load_mnist()
    order = np.random.RandomState(0).permutation(len(X))
    queries, rest = order[:N_QUERIES], np.sort(order[N_QUERIES:])
    return X[queries], y[queries], X[rest], y[rest]


# -- speed --


def speed(data):
    """Time 1,000 problems of 25 x 25 triplets in 260 dimensions, at sigma = 0."""
    *_, X, y = data
    X, y = X[:10_000].astype(np.float64), y[:10_000]
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(X), 1000, replace=False))
    problems = []
    for q in rows:
        relevant = rng.choice(np.flatnonzero(y == y[q]), 25, replace=False)
        irrelevant = rng.choice(np.flatnonzero(y != y[q]), 25, replace=False)
        i, j = (side.ravel() for side in np.meshgrid(relevant, irrelevant))
        problems.append(np.column_stack([np.full(625, q), i, j]))
    triplets = np.concatenate(problems)
    lines, checks = [], []
    for C in (1.0, 100.0):
        svc_seconds, svc_objective, converged = solve_by_liblinear(X, problems, C)
        ranker = plain(C=C, sigma=0)
        whole = best_seconds(lambda: ranker.fit_triplets(X, triplets))  # noqa: B023
        one, two, cpu_ratio = solver_seconds(X, rows, triplets, C)
        lines.append(
            [f"C = {C:g}"]
            + [f"{seconds:.3f} ms" for seconds in (svc_seconds, one, two, whole)]
            + [f"{svc_seconds / one:.1f}", f"{svc_seconds / whole:.1f}"]
            + [f"{one / two:.2f}", f"{cpu_ratio:.2f}"]
        )
        exact = plain(C=C, sigma=0, tol=1e-9).fit_triplets(X, triplets)
        optimum = exact.dual_objective_[converged]
        ours = ranker.dual_objective_[converged]
        theirs = svc_objective[converged]
        differences = [theirs / optimum - 1, 1 - ours / optimum, theirs / ours - 1]
        checks.append([f"C = {C:g}", *(f"{np.max(x):.1e}" for x in differences)])
        checks[-1] += [f"{np.mean(differences[-1]):.1e}", np.sum(~converged)]
        # LinearSVC's default tolerance is coarser, so it is also run with a finer one.
        _, fine, _ = solve_by_liblinear(
            X, problems[:100], C, tol=1e-6, max_iter=100_000
        )
        checks[-1].append(f"{np.max(fine / ranker.dual_objective_[:100] - 1):.1e}")
    print("\nOne problem of 625 triplets x 260 features, mean of 1,000")
    header = ["", "LinearSVC", "solver", "on 2 threads", "fit_triplets"]
    header += ["LinearSVC / solver", "/ fit_triplets", "1 / 2 threads", "CPU"]
    print_table(header, lines)
    print("\nRelative differences of the objectives where LinearSVC converged: the")
    print("largest, except for the column of means")
    header = ["", "LinearSVC above optimum", "ours below", "apart", "apart, mean"]
    header += ["LinearSVC late", "apart, LinearSVC tol=1e-6"]
    print_table(header, checks)


def solve_by_liblinear(X, problems, C, **options):
    """Return the total seconds, primal objectives, and a mask of convergence."""
    sign = np.where(np.arange(625) % 2, 1, -1)  # LinearSVC needs two classes
    svc = LinearSVC(C=C, loss="hinge", dual=True, fit_intercept=False, **options)
    warnings.simplefilter("ignore", ConvergenceWarning)  # counted instead
    seconds, objective, converged = 0.0, [], []
    for problem in problems:
        q, i, j = problem.T
        D = X[q] * (X[i] - X[j])
        signed = D * sign[:, None]
        start = time.perf_counter()
        svc.fit(signed, sign)
        seconds += time.perf_counter() - start
        w = svc.coef_[0]
        objective.append(w @ w / 2 + C * np.maximum(0, 1 - D @ w).sum())
        converged.append(svc.n_iter_ < svc.max_iter)
    return seconds, np.array(objective), np.array(converged)


def solver_seconds(X, rows, triplets, C):
    """Return the seconds for Gram matrices and SMO, on one thread and on two.

    The last figure is the CPU time on one thread, divided by that of the busier of two
    threads: the gain by the second thread if its core is free.
    """
    query = np.searchsorted(rows, triplets[:, 0])
    blocks = blocks_of_triplets(query, triplets[:, 1], triplets[:, 2])
    options = {"pooled": False, "diagonal": True, "kappa": 0.0, "C": C, "tol": 1e-3}
    options["max_iter"] = 1000

    def solve(n_threads):
        dual = Dual(X, X[rows], blocks, n_threads=n_threads, **options)
        for task in dual.tasks():
            task.advance()

    seconds, busiest = {1: [], 2: []}, {1: [], 2: []}
    with threadpool_limits(1, user_api="blas"):
        for _ in range(15):
            for n in (1, 2):
                start = np.array(
                    [time.perf_counter(), time.process_time(), time.thread_time()]
                )
                solve(n)
                wall, process, main = (
                    time.perf_counter(),
                    time.process_time(),
                    time.thread_time(),
                ) - start
                seconds[n].append(wall)
                busiest[n].append(max(main, process - main))
    return min(seconds[1]), min(seconds[2]), min(busiest[1]) / min(busiest[2])


# -- queries --


def query(data):
    """Time to compute surrogates, compared with the time of the search."""
    X_query, _, X, y = data
    ranker = plain(n_references=1000, n_jobs=2, random_state=0).fit(X, y)
    items = ranker.transform_database(X)
    raw = normalize(X_query)
    transform = best_seconds(lambda: ranker.transform(X_query), repeat=7)
    score = best_seconds(lambda: raw @ items.T, repeat=7)
    print(
        f"\n1,000 queries: surrogates {1e3 * transform:.1f} ms, scoring them against "
        f"{len(items)} items {1e3 * score:.1f} ms, ratio {transform / score:.3f}"
    )


# -- choices --

CHOICES = {
    "cosine": CosineSimilarity(use_idf=False),
    "default": AngularBilinearRanker(random_state=0),
    "samples": AngularBilinearRanker(holdout="samples", random_state=0),
}
CHOICES |= {
    f"{name}, hard": clone(CHOICES[name]).set_params(candidates="hard")
    for name in ("default", "samples")
}


def choices(names):
    """Measure on known classes and on new objects, over three splits."""
    warnings.simplefilter("ignore", UserWarning)  # too few classes keep the start
    lines = []
    for name in names or available_sets():
        X, y = load_set(name)
        for protocol in ("samples", "objects"):
            values = []
            for seed in range(3):
                train, test = split_set(X, y, protocol, seed)
                fitted = (clone(m).fit(X[train], y[train]) for m in CHOICES.values())
                values.append([measure(model, X[test], y[test]) for model in fitted])
            cells = [f"{m:.3f} / {p:.3f}" for m, p in np.mean(values, axis=0)]
            lines.append([name, protocol, *cells])
    print("\nmAP / precision at 1, mean of three splits")
    print_table(["", "split", *CHOICES], lines)


def measure(model, X, y):
    result = retrieval_report(model, X, y, k=(1,))
    return result.average_precision.mean(), result.precision_at_1.mean()


if __name__ == "__main__":
    if sys.argv[1:2] == ["choices"]:
        sys.exit(choices(sys.argv[2:]))
    parts = {"speed": speed, "query": query}
    data = split()
    for name in sys.argv[1:] or parts:
        parts[name](data)
