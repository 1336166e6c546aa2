"""Memory vectors: speed, and comparison of all methods.

Run one part with ``python benchmarks/bench_memory.py speed`` or ``strategies``. Without
an argument, both run. Strategies read the data that `SIMLEARN_DATA` names. The tables
of the paper are in ``python -m benchmarks.papers sicre``.

Every table compares methods on the same sets of queries. The p-value is that of the
mean difference under all changes of sign, or 20,000 random ones. The interval is a
bootstrap over the sets. If it contains 0, the gain may be due to chance.
"""

import sys
import time
from functools import partial

import numpy as np
from _common import load, print_table
from _sets import available_sets, load_set
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.metrics import average_precision, precision_at_k
from sklearn_simlearn.model_selection import make_query_sets
from sklearn_simlearn.similarities import CosineSimilarity

# -- speed --


def loop_of_pinv(X, n):
    """Baseline: a loop over the sets with one pseudo-inverse each."""
    M = np.empty((len(X) // n, X.shape[1]), dtype=X.dtype)
    for s in range(len(M)):
        rows = X[s * n : (s + 1) * n]
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        M[s] = np.linalg.pinv(rows).sum(axis=1)
    return M


def batched_numpy(X, n, sets_at_a_time=500):
    """Compute the same by stacked matrix products and solves in double precision."""
    X = X.reshape(-1, n, X.shape[1])
    M = np.empty((len(X), X.shape[2]), dtype=X.dtype)
    for s in range(0, len(X), sets_at_a_time):
        rows = X[s : s + sets_at_a_time].astype(np.float64)
        K = rows @ rows.transpose(0, 2, 1)
        norm = np.sqrt(np.einsum("sii->si", K))
        K /= norm[:, :, None] * norm[:, None]
        w = np.linalg.solve(K, np.ones((len(K), n, 1)))[..., 0] / norm
        M[s : s + sets_at_a_time] = (w[:, None] @ rows)[:, 0]
    return M


def cpu_seconds(contenders, rounds=3):
    """Return the shortest time of several rounds, in which the functions alternate.

    The time is CPU time on one thread, so that other processes on the machine disturb
    all functions equally.
    """
    seconds = dict.fromkeys(contenders, np.inf)
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def bench_speed(n_sets=100_000, n=5, d=512):
    print(f"\n{n_sets:,} sets of {n} vectors of {d} dimensions, float32, one thread")
    X = np.random.default_rng(0).standard_normal((n_sets * n, d), dtype=np.float32)
    groups = np.repeat(np.arange(n_sets), n)
    starts = np.arange(0, n_sets * n, n)
    stacked = X.reshape(n_sets, n, d)
    memory = MemoryVectorQuery(alpha=0).fit(X[:n])
    with threadpool_limits(1):
        error = np.abs(
            memory.transform(X[:5000], groups[:5000]) - loop_of_pinv(X[:5000], n)
        )
        contenders = {
            "MemoryVectorQuery.transform": lambda: memory.transform(X, groups),
            "np.add.reduceat (average)": lambda: np.add.reduceat(X, starts, axis=0),
            "X.reshape(...).sum(axis=1), sets in order": lambda: stacked.sum(axis=1),
            "np.matmul of the Gram matrices, float32": (
                lambda: stacked @ stacked.transpose(0, 2, 1)
            ),
            "batched NumPy": lambda: batched_numpy(X, n),
            "loop of numpy.linalg.pinv": lambda: loop_of_pinv(X, n),
        }
        seconds = cpu_seconds(contenders)
    ours, average, _, gram, _, loop = seconds.values()
    print_table(
        ["", "seconds", "of ours"],
        [[name, f"{s:.3f}", f"{s / ours:.2f}"] for name, s in seconds.items()],
    )
    print(f"largest difference from pinv on 1,000 sets: {error.max():.1e}")
    print(f"{loop / ours:.1f} times as fast as the loop (target 20)")
    print(f"{ours / (2 * average + gram):.2f} of 2 x reduceat + Gram (target 1)")

    print("\nOther inputs, seconds of `transform` for a tenth of the sets")
    few = slice(0, n_sets * n // 10)
    sizes = np.random.default_rng(0).integers(1, 10, size=n_sets)
    mixed = np.repeat(np.arange(n_sets), sizes)[few]
    double, copies = X[few].astype(np.float64), X[few].copy()
    copies[1::n] = copies[::n]  # every set singular
    with threadpool_limits(1):
        inputs = {
            "float32": (X[few], groups[few]),
            "float64": (double, groups[few]),
            "sets of 1 to 9": (X[few], mixed),
            "in random order": (X[few], np.random.default_rng(0).permutation(mixed)),
            "a duplicate in every set": (copies, groups[few]),
        }
        seconds = cpu_seconds(
            {name: partial(memory.transform, *args) for name, args in inputs.items()}
        )
    print_table(["", "seconds"], [[name, f"{s:.3f}"] for name, s in seconds.items()])


def bench_wide(n=20_000, n_features=500_000, n_stored=50):
    print(f"\n{n:,} CSR rows of {n_features:,} features, {n_stored} of them stored")
    rng = np.random.default_rng(0)
    columns = rng.integers(0, n_features, size=n * n_stored)
    X = sparse.csr_array(
        (rng.random(len(columns)), columns, n_stored * np.arange(n + 1)),
        shape=(n, n_features),
    )
    X.sum_duplicates()
    memory = MemoryVectorQuery().fit(X)
    cosine = CosineSimilarity(use_idf=False).fit(X)
    with threadpool_limits(1):
        seconds = cpu_seconds(
            {
                "sets of 1": lambda: memory.transform(X),
                "sets of 5": lambda: memory.transform(X, np.arange(n) // 5),
                "cosine": lambda: cosine.transform(X),
            }
        )
    print_table(["", "seconds"], [[name, f"{s:.3f}"] for name, s in seconds.items()])


# -- quality --

METHODS = {
    "sum": MemoryVectorQuery(method="sum"),
    "alpha=0": MemoryVectorQuery(alpha=0),
    "alpha=1": MemoryVectorQuery(alpha=1),
    "default": MemoryVectorQuery(),
    "max": MemoryVectorQuery(method="max"),
}


def rank_sets(memory, X, y, groups, in_set):
    """Return AP and P@1 of each set, which searches all items outside the set."""
    S = memory.similarity(X[in_set], X, groups[in_set])
    _, first, number = np.unique(groups[in_set], return_index=True, return_inverse=True)
    relevant = (y[in_set][first, None] == y).astype(np.int8)
    relevant[number, np.flatnonzero(in_set)] = -1
    return average_precision(relevant, S), precision_at_k(relevant, S, k=1)


def paired(first, second, seed=0):
    """Return the gain of the second, its 95% interval, and its p-value."""
    gain = second - first
    if not gain.any():
        return 0.0, 0.0, 0.0, 1.0
    test = stats.permutation_test(
        (gain,), np.mean, permutation_type="samples", n_resamples=20_000, rng=seed
    )
    low, high = stats.bootstrap(
        (gain,), np.mean, method="percentile", n_resamples=2000, rng=seed
    ).confidence_interval
    return gain.mean(), low, high, test.pvalue


# -- comparison of the methods --

# Sets that hold counts, which are compared by tf-idf.
OF_COUNTS = {"digit words", "Office", "Caltech", "Reuters", "Paris words"}
OF_COUNTS |= {"UKbench words"}


def strategy_inputs(n_per_class=100):
    """Yield name, samples and labels of every set; add embeddings after PCA."""
    for name in available_sets():
        X, y = load_set(name)
        if name == "UKbench VLAD":
            X = load("ukbench1000_vlad64.npz")["pca512"]
            y = load("ukbench1000_vlad64.npz")["group"].astype(np.int64)
        place = np.empty(len(y), dtype=np.int64)
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            place[rows] = np.arange(len(rows))
        X, y = X[place < n_per_class], y[place < n_per_class]
        yield name, X, y
        if name not in OF_COUNTS:
            for d in (32, 64, 128, 256):
                if d < X.shape[1] and (d < 128 or name == "UKbench VLAD"):
                    X = X.astype(np.float64)
                    yield f"{name} {d}", PCA(d, random_state=0).fit_transform(X), y


def bench_strategies(sizes=(2, 3, 5, 10), n_seeds=3, n_sets=250):
    print(
        f"\nSets of n samples, at most {n_sets} for each of {n_seeds} seeds: mAP, P@1"
    )
    rows = []
    for name, X, y in strategy_inputs():
        words = any(name.startswith(counts) for counts in OF_COUNTS)
        base = CosineSimilarity(power=0.75) if words else None
        fitted = {
            m: clone(memory).set_params(base_similarity=base).fit(X)
            for m, memory in METHODS.items()
        }
        n_of_class = np.unique(y, return_counts=True)[1]
        for n in sizes:
            if np.median(n_of_class) <= n:
                continue
            results = {m: [] for m in METHODS}
            for seed in range(n_seeds):
                groups = make_query_sets(y, n, random_state=seed)
                rng = np.random.default_rng(seed)
                drawn = rng.permutation(groups.max() + 1)[:n_sets]
                in_set = np.isin(groups, drawn)
                for m, memory in fitted.items():
                    results[m].append(rank_sets(memory, X, y, groups, in_set))
            ap, first = (
                {m: np.concatenate([r[k] for r in results[m]]) for m in METHODS}
                for k in (0, 1)
            )
            gain, low, high, p = paired(ap["sum"], ap["default"])
            row = [name, n, len(ap["sum"])]
            row += [f"{ap[m].mean():.3f}" for m in METHODS]
            row += [f"{first[m].mean():.3f}" for m in METHODS]
            row += [f"{gain:+.4f} [{low:+.4f}, {high:+.4f}]", f"{p:.3f}"]
            rows.append(row)
    print_table(
        ["", "n", "sets", *METHODS, *METHODS, "default - sum, mAP [95%]", "p"], rows
    )


if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else "all"
    if part in ("speed", "all"):
        bench_speed()
        bench_wide()
    if part in ("strategies", "all"):
        bench_strategies()
