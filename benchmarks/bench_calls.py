"""Cost of a call of `index.search`: one query or 60, with filters, and hybrid.

    python benchmarks/bench_calls.py [PART ...] [--scale S]

PART is calls, bmp, filters or hybrid; the default is all. All parts take about 6
minutes and 3 GB; --scale 0.1 takes a tenth of the items. Everything runs on one thread.
Times are CPU times of one run, the best of several repetitions. `bmp` compares one
query per call with the package bmp (block-max pruning), which it needs.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from functools import partial
from itertools import product

import numpy as np
from _bmp import BMP, to_impacts
from _common import print_table
from scipy import sparse

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index.backends._dense import DenseItems
from sklearn_simlearn.index.backends._hybrid import HybridItems
from sklearn_simlearn.index.backends._inverted import InvertedFile
from sklearn_simlearn.similarities import CosineSimilarity

N_WORDS = 30_000
N_TOPICS = 300


def make_texts(n_items, n_drawn, rng, *, in_topic_order=False):
    """Return word counts by Zipf's law, half of the words by topic.

    160 drawn words are 131 different ones on average.
    """
    up_to = np.cumsum(1 / np.arange(1, N_WORDS + 1))
    words = np.searchsorted(up_to / up_to[-1], rng.random((n_items, n_drawn)))
    topic_words = np.random.default_rng(7).integers(0, N_WORDS, (N_TOPICS, 300))
    topic = rng.integers(0, N_TOPICS, n_items)
    if in_topic_order:
        topic.sort()
    half = n_drawn // 2
    of_topic = (300 * rng.random((n_items, half)) ** 2).astype(np.int64)
    words[:, :half] = topic_words[topic[:, None], of_topic]
    rows = np.repeat(np.arange(n_items), n_drawn)
    counts = sparse.coo_array(
        (np.ones(words.size, dtype=np.float32), (rows, words.ravel())),
        shape=(n_items, N_WORDS),
    ).tocsr()
    counts.sum_duplicates()
    return counts


def make_vectors(n_items, n_features, rng, *, n_clusters=500):
    """Return unit vectors around random centres, with a falling spectrum."""
    scale = np.arange(1, n_features + 1) ** -0.5
    centres = np.random.default_rng(7).standard_normal((n_clusters, n_features))
    X = 0.7 * centres[rng.integers(0, n_clusters, n_items)]
    X = scale * (X + rng.standard_normal((n_items, n_features)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32)


def milliseconds(function, samples, *, repeat=5):
    """Return the CPU time of a function per sample, the best of several runs."""
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        for sample in samples:
            function(sample)
        best = min(best, time.process_time() - start)
    return 1e3 * best / len(samples)


def split(X):
    return [X[i : i + 1] for i in range(X.shape[0])]


def calls(options):
    """Time one query per call against 60 queries per call."""
    rng = np.random.default_rng(0)
    n_items = int(60_000 * options.scale)
    sets = {
        "words": {n: make_texts(60, n, rng) for n in (160, 40, 10)},
        "128 numbers": {"": make_vectors(60, 128, rng)},
        "384 numbers": {"": make_vectors(60, 384, rng)},
    }
    rows = []
    for kind, queries in sets.items():
        if kind == "words":
            X = make_texts(n_items, 160, rng)
        else:
            X = make_vectors(n_items, queries[""].shape[1], rng)
        model = CosineSimilarity(use_idf=kind == "words").fit(X)
        index = SimilarityIndex(model).fit(X)
        items = index._state.items
        for n_words, Q in queries.items():
            singles = split(Q)
            encoded = split(model.transform(Q))
            one = milliseconds(index.search, singles)
            batch = milliseconds(index.search, [Q]) / len(singles)
            kernel = milliseconds(partial(items.search, k=10), encoded)
            rows.append([f"{n_words} {kind}", one, batch, kernel, one - kernel])
    header = ["one query, ms", "60 queries", "kernel, one query", "cost of a call"]
    header = [f"{n_items:,} items", *header]
    print_table(header, [[row[0], *(f"{t:.3f}" for t in row[1:])] for row in rows])
    print()


def compare_with_bmp(options):
    """Time one query per call, and BMP without approximation of its 8-bit weights."""
    rng = np.random.default_rng(0)
    n_items, rows = int(60_000 * options.scale), []
    sets = {n: make_texts(60, n, rng) for n in (160, 40, 10)}
    for order in ("random", "by topic"):
        X = make_texts(n_items, 160, rng, in_topic_order=order == "by topic")
        model = CosineSimilarity().fit(X)
        index = SimilarityIndex(model).fit(X)
        bmp = BMP(model.transform_database(X))
        for n_words, Q in sets.items():
            impacts = list(to_impacts(model.transform(Q)))
            ask = partial(bmp.search, k=10)
            spent = milliseconds(index.search, split(Q)), milliseconds(ask, impacts)
            found = [set(map(int, ask(query)[0])) for query in impacts]
            ids = index.search(Q).ids
            common = [len(found[i] & set(ids[i].tolist())) / 10 for i in range(60)]
            times = [f"{spent[0]:.3f}", f"{spent[1]:.3f}", f"{spent[0] / spent[1]:.2f}"]
            rows.append([f"{n_words} words, {order}", *times, f"{np.mean(common):.3f}"])
    header = ["index.search, ms", "BMP", "ratio", "BMP: share of the exact top 10"]
    print_table([f"{n_items:,} items, order", *header], rows)
    print()


def filters(options):
    """Time filters that allow few items against no filter."""
    rng = np.random.default_rng(0)
    n_items = int(200_000 * options.scale)
    metadata = [{"group": i} for i in rng.integers(0, 100, n_items).tolist()]
    allowed = {
        "no filter, ms": None,
        "200 ids": np.sort(rng.choice(n_items, 200, replace=False)),
        "dict, 1 %": {"group": 3},
        "dict, 5 %": {"group": ("<", 5)},
        "dict, 20 %": {"group": ("<", 20)},
    }
    rows = []
    for make, sizes in ((make_texts, (160, 40, 10)), (make_vectors, (384,))):
        X = make(n_items, sizes[0], rng)
        model = CosineSimilarity(use_idf=False).fit(X[:1000])
        index = SimilarityIndex(model).fit(X, metadata=metadata)
        for n in sizes:
            Q = make(60, n, rng)
            index.search(Q[:1], filter={"group": 3})
            for queries in (split(Q), [Q]):
                spent = [
                    milliseconds(partial(index.search, filter=filter), queries)
                    * (len(queries) / 60)
                    for filter in allowed.values()
                ]
                ratios = [f"{t:.3f} ({spent[0] / t:.1f}x)" for t in spent[1:]]
                name = f"{n} words" if make is make_texts else f"{n} numbers"
                name += f", {60 // len(queries)} per call"
                rows.append([name, f"{spent[0]:.3f}", *ratios])
    print_table([f"{n_items:,} items", *allowed], rows)
    print()


def hybrid(options):
    """Time one search of words and vectors against a search of each.

    The last column is the time of two indexes for an approximate answer: 1,000 items of
    each, which have to be merged afterwards.
    """
    rng = np.random.default_rng(0)
    n_items, n_features = int(200_000 * options.scale), 384
    X, V = make_texts(n_items, 160, rng), make_vectors(n_items, n_features, rng)
    model = CosineSimilarity().fit(X)
    S = model.transform_database(X)
    words, vectors = InvertedFile(S), DenseItems(V)
    joined = sparse.hstack([S, sparse.csr_array(V)], format="csr")
    both = HybridItems(joined, is_dense=np.arange(joined.shape[1]) >= N_WORDS)
    del X, S, joined
    rows = []
    for n_words, weight in product((160, 40, 10), (0.5, 1, 3)):
        Q, P = model.transform(make_texts(40, n_words, rng)), make_vectors(40, 384, rng)
        joined = sparse.hstack([Q, sparse.csr_array(weight * P)], format="csr")
        searches = [(words, Q, 10), (vectors, P, 10), (both, joined, 10)]
        searches += [(words, Q, 1000), (vectors, P, 1000)]
        spent = [
            milliseconds(partial(items.search, k=k), split(queries), repeat=3)
            for items, queries, k in searches
        ]
        ratio = spent[2] / (spent[0] + spent[1])
        times = [*spent[:3], ratio, spent[3] + spent[4]]
        rows.append([f"{n_words} words, {weight}", *(f"{t:.2f}" for t in times)])
    header = ["words, ms", "vectors", "hybrid", "ratio to the sum", "two with k = 1000"]
    print_table([f"{n_items:,} items, weight of vectors", *header], rows)
    print()


PARTS = {"calls": calls, "bmp": compare_with_bmp, "filters": filters, "hybrid": hybrid}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
