"""HistogramRankSVM: tuned accuracy on UKbench, settings, passes of the solver, speed.

    python benchmarks/bench_histogram.py [PART ...]

where PART is ukbench, ukbench50k, settings, penalty, limit, categories, solver or
speed. The default is all of them, which takes about 36 minutes on 2 cores. They read
ukbench1000_bovw20k.npz, ukbench1000_geometry.npz and office_caltech10_surf800.npz. The
tables of the paper are in ``python -m benchmarks.papers qin``.

All parts use ``HistogramRankSVM(holdout=None, length_slope=0)``, the model of the paper
with the penalty of this package, unless they name a parameter. bench_defaults.py
measures the default.
"""

import sys
import time
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
from _common import as_counts, best_seconds, load, print_table
from scipy import sparse
from sklearn.model_selection import GridSearchCV, train_test_split

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn.histogram._solver import Problem, Search, Solver
from sklearn_simlearn.histogram._table import find_length_factors, truncate
from sklearn_simlearn.metrics import RetrievalScorer, map_scorer
from sklearn_simlearn.model_selection import ObjectKFold, ObjectShuffleSplit
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

score_top4 = RetrievalScorer("top4")


def plain(*args, **options):
    """Return the learner without a hold-out and without a factor of the length."""
    options = {"holdout": None, "length_slope": 0.0} | options
    return HistogramRankSVM(*args, **options)


def load_ukbench():
    arrays = load("ukbench1000_bovw20k.npz")
    return as_counts(arrays), np.asarray(arrays["group"])


def load_ukbench50k():
    arrays = load("ukbench1000_geometry.npz")
    words = arrays["word_50k"]
    image = np.repeat(np.arange(1000), np.diff(arrays["offsets"]))
    X = sparse.coo_array((np.ones(len(words)), (image, words)), shape=(1000, 50_000))
    return X.tocsr(), np.asarray(arrays["group"])


def split_in_halves(X, y, n_splits=10):
    splits = ObjectShuffleSplit(n_splits=n_splits, test_size=0.5, random_state=0)
    return list(splits.split(X, y))


def ukbench():
    """Compare with 20,000 words: a word is in 13 training images on average."""
    compare_on_splits(*load_ukbench())


def ukbench50k():
    """Compare with 50,000 words: a word is in 5 training images on average."""
    compare_on_splits(*load_ukbench50k())


def compare_on_splits(X, y):
    """Compare on ten splits by object; choose parameters by cross-validation."""
    counts = {"max_count": [2, 4, None]}
    methods = {
        "cosine, tf-idf": (CosineSimilarity(), {}),
        "burstiness": (BurstinessSimilarity(), {"normalize": [True, False]}),
        "negative evidence": (
            NegativeEvidenceSimilarity(),
            {"beta": [0.1, 0.25, 0.5, 1.0], "use_idf": [True, False]},
        ),
        "asymmetric, adaptive": (
            AsymmetricSimilarity(),
            {"alpha": [0.1, 0.3, 1.0, 3.0]} | counts,
        ),
        "asymmetric, fixed lambda": (
            AsymmetricSimilarity(),
            {"lam": [1, 3, 10, 20, 30, 50, 70, 100]} | counts,
        ),
        "HistogramRankSVM, defaults": (plain(n_jobs=2), {}),
        "HistogramRankSVM": (
            plain(n_jobs=2),
            {
                "alpha": [0.3, 1.0, 3.0],
                "truncation": [2, 4],
                "cross_fit": [False, True],
                "weight_pattern": [None, "symmetric"],
                "length_slope": [0.0, 0.3],
            },
        ),
    }
    top4, mean_ap = {}, {}
    for train, test in split_in_halves(X, y):
        for name, (estimator, grid) in methods.items():
            search = GridSearchCV(
                estimator, grid, scoring=score_top4, cv=ObjectKFold(5)
            ).fit(X[train], y[train])
            top4.setdefault(name, []).append(score_top4(search, X[test], y[test]))
            mean_ap.setdefault(name, []).append(map_scorer(search, X[test], y[test]))
        print(*(f"{values[-1]:.3f}" for values in top4.values()), flush=True)

    hand_made = np.max([top4[name] for name in list(top4)[:5]], axis=0)
    ours = np.array(top4["HistogramRankSVM"])
    best = np.max([top4[name] for name in top4 if name[-5:] != "it is"], axis=0)
    print_table(
        [f"UKbench, {X.shape[1]} words, 10 splits", "N-S", "mAP", "best on"],
        [
            [
                name,
                f"{np.mean(top4[name]):.3f}",
                f"{np.mean(mean_ap[name]):.4f}",
                np.count_nonzero(np.array(top4[name]) >= best),
            ]
            for name in top4
        ],
    )
    gain = ours - hand_made
    four = np.max([top4[name] for name in list(top4)[:4]], axis=0)
    print(
        f"Gain over the best hand-made one of each split: {gain.mean():.3f} on average,"
        f" {gain.min():.3f} to {gain.max():.3f}; over the best of the first four "
        f"{(ours - four).mean():.3f}\n"
    )


def settings():
    """Print the N-S score of single changes to the default settings, on ten splits."""
    changes = [
        {},
        {"weight_pattern": "symmetric"},
        {"alpha": 0.1},
        {"alpha": 10.0},
        {"truncation": 1},
        {"truncation": 2},
        {"truncation": 10},
        {"loss": "pairwise"},
        {"loss": "pairwise", "alpha": 0.1},
        {"loss": "pairwise", "alpha": 0.01},
        {"n_word_groups": 1},
        {"n_word_groups": 10},
        {"cross_fit": False},
        {"cross_fit": True},
        {"length_slope": 0.2},
        {"length_slope": 0.3},
        {"length_slope": 0.5},
    ]
    rows = [[", ".join(f"{k}={v}" for k, v in change.items())] for change in changes]
    for X, y in (load_ukbench(), load_ukbench50k()):
        for row, change in zip(rows, changes, strict=True):
            values = [
                score_top4(
                    plain(n_jobs=2, **change).fit(X[train], y[train]),
                    X[test],
                    y[test],
                )
                for train, test in split_in_halves(X, y)
            ]
            row.append(f"{np.mean(values):.3f}")
    print_table(["N-S on UKbench", "20,000 words", "50,000 words"], rows)
    print()


def penalty():
    """Print the N-S score of the shared prior and of the paper's penalty."""
    X, y = load_ukbench()
    splits = split_in_halves(X, y)

    def measure(**options):
        model = plain(cross_fit=False, n_jobs=2, **options)
        return [
            score_top4(model.fit(X[train], y[train]), X[test], y[test])
            for train, test in splits
        ]

    ours, rows = np.array(measure()), []
    for name, alphas in (("shared", (0.1, 1.0, 10.0)), ("l2", (0.1, 0.3, 1.0, 10.0))):
        for truncation in (2, 4):
            for alpha in alphas:
                values = measure(penalty=name, alpha=alpha, truncation=truncation)
                lead = ours - values
                error = lead.std(ddof=1) / np.sqrt(len(lead))
                rows.append(
                    [
                        f"{name}, n={truncation}, alpha={alpha}",
                        f"{np.mean(values):.3f}",
                        f"{np.mean(values[:3]):.3f}",
                        f"{lead.mean():+.3f} +- {error:.3f}",
                    ]
                )
    header = ["UKbench, 20,000 words", "N-S", "first 3 splits", "lead of the default"]
    print_table(header, rows)
    print()


def limit():
    """Print the limit of the model: weights learned from the searched half itself."""
    X, y = load_ukbench()
    rows = []
    for slope in (0.0, 0.3):
        for alpha in (0.03, 0.1, 0.3, 1.0, 3.0):
            model = plain(alpha, length_slope=slope, n_jobs=2)
            values = []
            for train, test in split_in_halves(X, y):
                of_others = score_top4(model.fit(X[train], y[train]), X[test], y[test])
                solver = Solver(
                    pose(model, X[test], y[test]), model.weight_pattern_, alpha
                )
                solver.solve(model.tol, model.max_iter)
                model.encoder_ = replace(model.encoder_, weights=solver.weights())
                values.append((of_others, score_top4(model, X[test], y[test])))
            means = (f"{value:.3f}" for value in np.mean(values, axis=0))
            rows.append([f"length_slope={slope}, alpha={alpha}", *means])
    print_table(["N-S, weights learned from", "other half", "searched half"], rows)
    print()


def pose(model, X, y):
    """Return the problem of other samples, with groups and mean length of a model."""
    relevance = check_relevance(y)
    counts = truncate(X, model.truncation_)
    search = Search(
        counts,
        model.word_groups_,
        relevance,
        np.flatnonzero(relevance.find_queries()),
        find_length_factors(counts, model.length_slope, model.mean_length_),
        model.weights_.shape,
        2,
    )
    return Problem(
        [search],
        model.loss_ == "pairwise",
        model.word_groups_,
        model.mean_length_,
    )


def categories():
    """Measure Caltech in Office-Caltech10: ten classes instead of objects."""
    arrays = load("office_caltech10_surf800.npz")
    X_train, X_test, y_train, y_test = train_test_split(
        arrays["Caltech10_X"].astype(np.float64),
        arrays["Caltech10_y"],
        test_size=0.5,
        stratify=arrays["Caltech10_y"],
        random_state=0,
    )
    rows = []
    for model in (
        CosineSimilarity(),
        BurstinessSimilarity(),
        NegativeEvidenceSimilarity(),
        plain(),
        plain(loss="pairwise"),
        HistogramRankSVM(random_state=0),
        HistogramRankSVM(holdout="samples", random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No weights are better than 0")
            model.fit(X_train, y_train)
        objective = getattr(model, "objective_", np.nan)
        rows.append([model, f"{objective:.4f}", f"{model.score(X_test, y_test):.4f}"])
    print_table(["SURF-800, 10 classes", "objective", "mAP"], rows)
    print()


def solver():
    """Count passes to the same objective: bundles of planes and subgradient steps."""
    X, y = load_ukbench()
    train, _ = split_in_halves(X, y)[0]
    rows = []
    for loss in ("max", "pairwise"):
        for alpha in (0.1, 1.0):
            model = plain(alpha, loss=loss, cross_fit=False, tol=1e-2)
            model.fit(X[train], y[train])
            n_steps, reached = subgradient(model, X[train], y[train])
            rows.append(
                [
                    f"{loss}, alpha={alpha}",
                    f"{model.objective_:.4f}",
                    f"{model.dual_gap_ / model.objective_:.2%}",
                    model.n_iter_,
                    n_steps,
                    f"{reached:.4f}",
                ]
            )
    print_table(
        ["UKbench, 500 images", "objective", "gap", "passes", "subgradient", "reaches"],
        rows,
    )
    print()


def subgradient(model, X, y, max_steps=500):
    """Count steps of 1 / (alpha t) until the objective is within 1 %."""
    problem = pose(model, X, y)
    frame = Solver(problem, model.weight_pattern_, model.alpha)
    theta, best = np.zeros(frame.to_gain.shape[1]), np.inf
    for t in range(1, max_steps + 1):
        value, _, cuts = problem.cut(frame.find_gain(theta))
        best = min(best, frame.penalty(theta) + problem.capacity @ value)
        if best <= 1.01 * model.objective_:
            return t, best
        slope = problem.capacity @ cuts.reshape(len(cuts), -1) @ frame.to_gain
        theta = (1 - 1 / t) * theta - slope / (model.alpha * t)
        # (projection)  The minimum is at most the objective of weights of 0.
        norm = np.sqrt(theta @ theta * model.alpha / 2)
        theta /= max(norm, 1.0)
    return f"> {max_steps}", best


def make_objects(
    n_samples=5000, n_words=500_000, n_distinct=1000, share=0.1, random_state=0
):
    """Return histograms; groups of five show a share of the words of an object."""
    rng = np.random.default_rng(random_state)
    words = np.empty((n_samples, n_distinct), dtype=np.int32)
    for i in range(n_samples):
        if i % 5 == 0:
            of_object = rng.choice(n_words, n_distinct, replace=False)
        own = of_object[rng.random(n_distinct) < share]
        other = np.setdiff1d(rng.choice(n_words, n_distinct + 99, replace=False), own)
        words[i] = np.concatenate([own, rng.permutation(other)])[:n_distinct]
    words.sort(axis=1)
    counts = rng.geometric(0.6, size=words.size).astype(np.float64)
    indptr = np.arange(n_samples + 1, dtype=np.int32) * n_distinct
    X = sparse.csr_array((counts, words.ravel(), indptr), shape=(n_samples, n_words))
    return X, np.arange(n_samples) // 5


def speed():
    """Time 5,000 queries and items, 500,000 words, 1,000 in each, on one thread."""
    X, y = make_objects()
    Q, _ = make_objects(random_state=1)
    input_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    tracemalloc.start()
    start = time.perf_counter()
    model = plain(tol=1e-2).fit(X, y)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    def best_ten(S):
        for first in range(0, len(S), 500):
            np.argpartition(-S[first : first + 500], 10, axis=1)

    of_scipy = best_seconds(lambda: best_ten((Q @ X.T).toarray()))
    of_file = best_seconds(lambda: best_ten(model.similarity(Q, X)))
    one_pass = best_seconds(lambda: model.similarity(Q, X))
    products = products_with(model.transform_database(X))
    surrogates = model.transform(Q)
    of_stored = best_seconds(lambda: products(surrogates))
    print_table(
        ["5,000 x 5,000, 500,000 words", "seconds", "ratio"],
        [
            ["SciPy product, argpartition", f"{of_scipy:.2f}", "1.00"],
            [
                "similarity, argpartition",
                f"{of_file:.2f}",
                f"{of_file / of_scipy:.2f}",
            ],
            ["similarity alone", f"{one_pass:.2f}", f"{one_pass / of_scipy:.2f}"],
            [
                "scores of stored items",
                f"{of_stored:.2f}",
                f"{of_stored / of_scipy:.2f}",
            ],
        ],
    )
    print(
        f"fit: {model.n_iter_} passes to a gap of "
        f"{model.dual_gap_ / model.objective_:.2%}, {seconds:.1f} s; peak memory, with "
        f"the input, {1 + peak / input_bytes:.2f} times the input\n"
    )


PARTS = (
    ukbench,
    ukbench50k,
    settings,
    penalty,
    limit,
    categories,
    solver,
    speed,
)

if __name__ == "__main__":
    parts = {part.__name__: part for part in PARTS}
    for name in sys.argv[1:] or parts:
        parts[name]()
