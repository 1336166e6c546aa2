"""Exact search of sparse and dense items, beside SciPy, scikit-learn and others.

    python benchmarks/bench_search.py [PART ...] [--items N] [--queries N]

where PART is sparse, growth, dense or changes; all of them if there is none. The
default of 1,000,000 items needs 16 GB of memory and some 20 minutes; --items 100000
gives a quick look. Everything runs on one thread but for the line that says two. All
times are the best of several runs, and CPU time where one thread is timed, so that what
else runs on the machine matters less. Ratios are those of one run.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS

import time
from functools import partial
from importlib.util import find_spec

import numpy as np
from _common import print_table
from scipy import sparse

from sklearn_simlearn.index._dense import DenseItems
from sklearn_simlearn.index._inverted import InvertedFile

N_WORDS = 100_000
N_TOPICS = 500


def make_texts(n_items, *, structured, seed=0):
    """tf-idf rows of unit length: 200 words by Zipf's law, half of them by topic."""
    rng, shared = np.random.default_rng(seed), np.random.default_rng(12345)
    frequency = 1 / np.arange(1, N_WORDS + 1)
    up_to = np.cumsum(frequency / frequency.sum())
    topic_words = shared.integers(0, N_WORDS, (N_TOPICS, 400))
    parts = []
    for first in range(0, n_items, 20_000):
        n = min(20_000, n_items - first)
        words = np.searchsorted(up_to, rng.random((n, 200))).clip(max=N_WORDS - 1)
        if structured:
            topic = rng.integers(0, N_TOPICS, (n, 1))
            of_topic = (400 * rng.random((n, 100)) ** 2).astype(np.int64)
            words[:, :100] = topic_words[topic, of_topic]
        rows = np.repeat(np.arange(n, dtype=np.int32), 200)
        ones = np.ones(words.size, dtype=np.float32)
        part = sparse.coo_array(
            (ones, (rows, words.ravel().astype(np.int32))), shape=(n, N_WORDS)
        )
        parts.append(part.tocsr())
    X = sparse.vstack(parts, format="csr")
    X.sort_indices()
    n_with = np.bincount(X.indices, minlength=N_WORDS)
    idf = np.log((1 + n_items) / (1 + n_with)).astype(np.float32) + 1
    X.data = (1 + np.log(X.data)) * idf[X.indices]
    length = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
    X.data /= np.repeat(length, np.diff(X.indptr))
    return X


def flip_signs(Q):
    """Every other weight of the queries negative, at random."""
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), Q.nnz)
    return sparse.csr_array((Q.data * signs, Q.indices, Q.indptr), shape=Q.shape)


def seconds(function, *, repeat=3, clock=time.process_time):
    """CPU time of the shortest of several runs."""
    spent = []
    for _ in range(repeat):
        start = clock()
        function()
        spent.append(clock() - start)
    return min(spent)


def ask_scipy(queries, transposed, k):
    for query in queries:
        scores = (query @ transposed).toarray()[0]
        best = np.argpartition(-scores, k)[:k]
        best[np.argsort(-scores[best], kind="stable")]


def ask(queries, items, k):
    for query in queries:
        items.search(query, k)


def ask_topn(queries, transposed, k):
    from sparse_dot_topn import sp_matmul_topn

    for query in queries:
        sp_matmul_topn(sparse.csr_matrix(query), transposed, top_n=k, sort=True)


def ask_neighbors(queries, neighbors, k):
    for query in queries:
        neighbors.kneighbors(query, k)


def split(Q):
    return [Q[[i]] for i in range(Q.shape[0])]


def time_others(D, Q, *, with_all):
    """CPU time of SciPy's transpose, and of each way to search per query and k."""
    start = time.process_time()
    transposed = D.T.tocsr()
    of_transpose = time.process_time() - start
    ways = {"SciPy": (ask_scipy, transposed)}
    if with_all:
        from sklearn.neighbors import NearestNeighbors

        brute = NearestNeighbors(metric="cosine", algorithm="brute").fit(D)
        ways["NearestNeighbors"] = ask_neighbors, brute
        if find_spec("sparse_dot_topn") is not None:
            ways["sparse_dot_topn"] = ask_topn, sparse.csr_matrix(transposed)
        else:
            print("sparse_dot_topn is not installed: left out.")
    return of_transpose, {
        (name, k): seconds(partial(search, split(Q[:5]), stored, k), repeat=2) / 5
        for name, (search, stored) in ways.items()
        for k in (10, 100)
    }


def compare(n_items, n_queries, structured, *, with_all):
    """Rows of the table for one kind of texts."""
    X = make_texts(n_items + n_queries, structured=structured)
    D, Q = X[:n_items], X[n_items:]
    del X
    of_transpose, spent = time_others(D, Q, with_all=with_all)
    start = time.process_time()
    items = InvertedFile(D)
    of_build = time.process_time() - start
    kind = "topics" if structured else "independent words"
    size = D.data.nbytes + D.indices.nbytes + D.indptr.nbytes
    print(
        f"{n_items:,} items, {kind}: build {of_build:.1f} s, "
        f"{of_build / of_transpose:.2f} of SciPy's transpose; memory "
        f"{items.nbytes / size:.2f} of the CSR"
    )
    for k in (10, 100):
        for name, queries in (
            ("inverted", split(Q)),
            ("inverted, signed queries", split(flip_signs(Q))),
        ):
            total = seconds(partial(ask, queries, items, k))
            spent[name, k] = total / n_queries
        total = seconds(partial(items.search, Q, k))
        spent["inverted, all queries at once", k] = total / n_queries
    return [
        [f"{kind}: {name}", k, f"{1e3 * t:.2f}", f"{spent['SciPy', k] / t:.1f}"]
        for (name, k), t in sorted(spent.items(), key=lambda pair: pair[0][1])
    ]


def sparse_part(options):
    """One query at a time among many texts."""
    for structured in (True, False):
        rows = compare(options.items, options.queries, structured, with_all=True)
        print_table(["", "k", "ms per query", "times faster than SciPy"], rows)
        print()


def growth(options):
    """How the time grows with the number of items."""
    n_items = [n for n in (10_000, 100_000, 1_000_000, 3_000_000) if n <= options.most]
    rows = []
    for structured in (True, False):
        for n in n_items:
            rows += [
                [f"{n:,} {row[0]}", *row[1:]]
                for row in compare(n, options.queries, structured, with_all=False)
            ]
    print_table(["", "k", "ms per query", "times faster than SciPy"], rows)
    print()


def dense(options):
    """Batches of queries among vectors of 128 numbers, beside FAISS."""
    import faiss

    rng = np.random.default_rng(0)
    D = rng.standard_normal((options.items, 128), dtype=np.float32)
    Q = rng.standard_normal((256, 128), dtype=np.float32)
    items, flat = DenseItems(D), faiss.IndexFlatIP(128)
    flat.add(D)
    faiss.omp_set_num_threads(1)
    rows = []
    for n_queries in (1, 16, 256):
        for k in (10, 100):
            q = Q[:n_queries]
            ours = seconds(lambda q=q, k=k: items.search(q, k))
            theirs = seconds(lambda q=q, k=k: flat.search(q, k))
            wall = [
                seconds(
                    lambda q=q, k=k, n=n: items.search(q, k, n_threads=n),
                    clock=time.perf_counter,
                )
                for n in (1, 2)
            ]
            rows.append(
                [
                    f"{n_queries} queries",
                    k,
                    f"{1e3 * ours:.1f}",
                    f"{1e3 * theirs:.1f}",
                    f"{ours / theirs:.2f}",
                    f"{wall[0] / wall[1]:.2f}",
                ]
            )
    header = ["", "k", "dense, ms", "FAISS, ms", "ratio", "two threads, times faster"]
    print_table(header, rows)
    print()


def changes(options):
    """Adding 1,000 items beside building anew."""
    X = make_texts(options.items + 1_000, structured=True)
    D, more = X[: options.items], X[options.items :]
    start = time.process_time()
    items = InvertedFile(D)
    of_build = time.process_time() - start
    start = time.process_time()
    items.add(more)
    of_add = time.process_time() - start
    print(
        f"add 1,000 to {options.items:,}: {1e3 * of_add:.1f} ms, "
        f"{of_add / of_build:.2%} of building anew"
    )
    arrays = items.to_arrays()
    start = time.process_time()
    InvertedFile.from_arrays(arrays)
    print(f"open its arrays: {1e3 * (time.process_time() - start):.1f} ms")
    print()


PARTS = {"sparse": sparse_part, "growth": growth, "dense": dense, "changes": changes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--most", type=int, default=3_000_000, help="items of growth")
    parser.add_argument("--queries", type=int, default=40)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
