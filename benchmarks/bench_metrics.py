"""Mean average precision: speed compared with NumPy, ranx and pytrec_eval.

    pip install ranx pytrec-eval-terrier
    python benchmarks/bench_metrics.py [peers|memory]

All figures that are printed together are from one run. The inputs of the other packages
are built before the measurement, and ranx is compiled by a first call. "peers" runs on
one thread. "memory" scores 50,000 queries against 50,000 items.
"""

import resource
import sys
import time

import numpy as np
from _common import best_seconds, print_table
from threadpoolctl import threadpool_limits

from sklearn_simlearn.metrics import RetrievalScorer, mean_average_precision
from sklearn_simlearn.similarities import CosineSimilarity

N_QUERIES, N_ITEMS, N_CLASSES = 1000, 5000, 50


def numpy_map(relevance, similarity):
    """Compute mAP by NumPy: sort every list and accumulate the hits."""
    order = np.argsort(-similarity, axis=1)
    hits = np.take_along_axis(relevance, order, axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.mean((precision * hits).sum(axis=1) / hits.sum(axis=1))


def peers():
    rng = np.random.default_rng(0)
    items, queries = (rng.integers(N_CLASSES, size=n) for n in (N_ITEMS, N_QUERIES))
    relevance = queries[:, None] == items
    similarity = rng.standard_normal((N_QUERIES, N_ITEMS)) + relevance
    rows = []

    def add(name, function, repeat=5):
        value = function()  # the first call compiles
        rows.append([name, value, best_seconds(function, repeat=repeat)])

    with threadpool_limits(limits=1):
        add("ours, float64", lambda: mean_average_precision(relevance, similarity))
        single = similarity.astype(np.float32)
        add("ours, float32", lambda: mean_average_precision(relevance, single))
        add("NumPy argsort, float64", lambda: numpy_map(relevance, similarity))
        add("NumPy argsort, float32", lambda: numpy_map(relevance, single))
        add_ranx(add, relevance, similarity)
        add_pytrec_eval(add, relevance, similarity)

    ours = rows[0][2]
    print(
        f"mAP of {N_QUERIES} queries x {N_ITEMS} items, {N_CLASSES} classes, 1 thread"
    )
    print_table(
        ["", "mAP", "ms", "x ours"],
        [[n, f"{v:.6f}", f"{1e3 * s:.1f}", f"{s / ours:.1f}"] for n, v, s in rows],
    )


def add_ranx(add, relevance, similarity):
    try:
        import numba
        from ranx import Qrels, Run, evaluate
    except ImportError:
        print("ranx is not installed: left out")
        return
    numba.set_num_threads(1)
    query_names = [f"q{i}" for i in range(N_QUERIES)]
    item_names = np.array([f"d{i}" for i in range(N_ITEMS)])
    truth = Qrels(
        {
            name: dict.fromkeys(item_names[row].tolist(), 1)
            for name, row in zip(query_names, relevance, strict=True)
        }
    )
    run = Run(
        {
            name: dict(zip(item_names.tolist(), row.tolist(), strict=True))
            for name, row in zip(query_names, similarity, strict=True)
        }
    )
    add("ranx", lambda: evaluate(truth, run, "map"), repeat=2)


def add_pytrec_eval(add, relevance, similarity):
    try:
        import pytrec_eval
    except ImportError:
        print("pytrec_eval is not installed: left out")
        return
    truth = {
        f"q{i}": {f"d{j}": 1 for j in np.flatnonzero(row)}
        for i, row in enumerate(relevance)
    }
    run = {
        f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row)}
        for i, row in enumerate(similarity)
    }
    evaluator = pytrec_eval.RelevanceEvaluator(truth, {"map"})

    def measure():
        return np.mean([query["map"] for query in evaluator.evaluate(run).values()])

    add("pytrec_eval", measure, repeat=2)


def memory():
    rng = np.random.default_rng(0)
    n_samples = 50_000
    y = rng.integers(1000, size=n_samples)
    X = rng.standard_normal((1000, 32))[y] + rng.standard_normal((n_samples, 32))
    learner = CosineSimilarity(use_idf=False).fit(X)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    score = RetrievalScorer(n_jobs=-1)(learner, X, y)
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = f"{n_samples} queries x {n_samples} items"
    print(f"mAP of {size}: {score:.4f} in {seconds:.0f} s")
    print(
        f"peak memory grew by {grown / 2**20:.2f} GiB; the matrix of all similarities "
        f"would take {n_samples**2 * 8 / 2**30:.1f} GiB"
    )


if __name__ == "__main__":
    for part in (peers, memory):
        if part.__name__ in (sys.argv[1:] or ["peers", "memory"]):
            part()
