"""Exact search of sparse and dense items, beside SciPy, scikit-learn and others.

    python benchmarks/bench_search.py [PART ...] [--items N] [--queries N]

where PART is sparse, growth, dense, changes, cycles or single; all if there is none.
The default of 1,000,000 items, and growth to 3,000,000, need 6 GB of memory; all parts
take some 30 minutes. --items 100000 --most 100000 gives a quick look.
Everything runs on one thread but for the column that says two. All times are the best
of several runs, and CPU time where one thread is timed, so that what else runs on the
machine matters less. Ratios are those of one run. `growth` writes its figures to the
file that --output names, which `doc/plots/search_growth.py` draws. `sparse` needs
sparse_dot_topn, and `dense` FAISS.
"""

import argparse
import os
import resource

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS

import csv
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from _common import print_table
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index.backends._dense import DenseItems
from sklearn_simlearn.index.backends._inverted import InvertedFile
from sklearn_simlearn.similarities import CosineSimilarity

N_WORDS = 100_000
N_TOPICS = 500
KINDS = "topics", "independent words"


def make_texts(n_items, *, structured, seed=0):
    """tf-idf rows of unit length: 200 words by Zipf's law, half of them by topic."""
    rng, shared = np.random.default_rng(seed), np.random.default_rng(12345)
    frequency = 1 / np.arange(1, N_WORDS + 1)
    up_to = np.cumsum(frequency / frequency.sum())
    topic_words = shared.integers(0, N_WORDS, (N_TOPICS, 400))
    # In place: two copies of the items are more than many machines hold.
    values = np.empty(200 * n_items, dtype=np.float32)
    columns, lengths = np.empty(200 * n_items, dtype=np.int32), []
    end, n_with = 0, np.zeros(N_WORDS, dtype=np.int64)
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
        ).tocsr()
        part.sort_indices()
        values[end : end + part.nnz] = part.data
        columns[end : end + part.nnz] = part.indices
        lengths.append(np.diff(part.indptr))
        n_with += np.bincount(part.indices, minlength=N_WORDS)
        end += part.nnz
    values.resize(end, refcheck=False)
    columns.resize(end, refcheck=False)
    start = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    if end <= np.iinfo(np.int32).max:
        start = start.astype(np.int32)
    X = sparse.csr_array((values, columns, start), shape=(n_items, N_WORDS))
    idf = np.log((1 + n_items) / (1 + n_with)).astype(np.float32) + 1
    for first in range(0, n_items, 20_000):
        rows = slice(start[first], start[min(first + 20_000, n_items)])
        part, offsets = X.data[rows], start[first : first + 20_001] - start[first]
        part[:] = (1 + np.log(part)) * idf[X.indices[rows]]
        lengths = np.diff(offsets)
        squares = np.add.reduceat(part**2, offsets[:-1][: len(lengths)])
        part /= np.repeat(np.sqrt(squares), lengths)
    return X


def cut(X, first, last):
    """Rows of X on the memory of X."""
    begin, end = X.indptr[first], X.indptr[last]
    arrays = X.data[begin:end], X.indices[begin:end], X.indptr[first : last + 1] - begin
    return sparse.csr_array(arrays, shape=(last - first, X.shape[1]))


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


def time_others(D, Q):
    """CPU time of SciPy's transpose, and of each way to search per query and k."""
    of_transpose = seconds(lambda: D.T.tocsr(), repeat=2)
    transposed = D.T.tocsr()
    brute = NearestNeighbors(metric="cosine", algorithm="brute").fit(D)
    ways = {
        "SciPy": (ask_scipy, transposed),
        "NearestNeighbors": (ask_neighbors, brute),
        "sparse_dot_topn": (ask_topn, sparse.csr_matrix(transposed)),
    }
    return of_transpose, {
        (name, k): seconds(partial(search, split(Q[:3]), stored, k), repeat=2) / 3
        for name, (search, stored) in ways.items()
        for k in (10, 100)
    }


def compare(D, Q):
    """CPU time per query of each way to search, by its name and k."""
    of_transpose, spent = time_others(D, Q)
    of_build = seconds(lambda: InvertedFile(D), repeat=2)
    items = InvertedFile(D)
    size = D.data.nbytes + D.indices.nbytes + D.indptr.nbytes
    print(
        f"{D.shape[0]:,} items: build {of_build:.1f} s, "
        f"{of_build / of_transpose:.2f} of SciPy's transpose; memory "
        f"{items.nbytes / size:.2f} of the CSR"
    )
    for k in (10, 100):
        for name, queries in (
            ("inverted", split(Q)),
            ("inverted, signed queries", split(flip_signs(Q))),
        ):
            total = seconds(partial(ask, queries, items, k))
            spent[name, k] = total / Q.shape[0]
        total = seconds(partial(items.search, Q, k))
        spent["inverted, all queries at once", k] = total / Q.shape[0]
    return spent


def make_sets(n_items, n_queries, structured):
    """Items, and queries of the same kind."""
    X = make_texts(n_items + n_queries, structured=structured)
    return cut(X, 0, n_items), cut(X, n_items, n_items + n_queries)


def sparse_part(options):
    """One query at a time among many texts."""
    for kind in KINDS:
        D, Q = make_sets(options.items, options.queries, kind == "topics")
        print(f"{kind}, ", end="")
        spent = compare(D, Q)
        rows = [
            [name, k, f"{1e3 * t:.2f}", f"{spent['SciPy', k] / t:.1f}"]
            for (name, k), t in sorted(spent.items(), key=lambda pair: pair[0][1])
        ]
        print_table([kind, "k", "ms per query", "times faster than SciPy"], rows)
        print()


def growth(options):
    """How the time grows with the number of items."""
    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
    sizes = [n for n in sizes if n <= options.most]
    rows = []
    for kind in KINDS:
        D, Q = make_sets(sizes[-1], options.queries, kind == "topics")
        for n in sizes:
            part = cut(D, 0, n)
            ways = {"inverted": (ask, InvertedFile(part))}
            if n <= 1_000_000:  # more would not fit into 6 GB
                ways["SciPy"] = ask_scipy, part.T.tocsr()
            for name, (search, stored) in ways.items():
                for k in (10, 100):
                    spent = seconds(partial(search, split(Q), stored, k)) / Q.shape[0]
                    rows.append([kind, n, name, k, f"{1e3 * spent:.3f}"])
            del ways, stored
        del D
    header = ["kind", "items", "search", "k", "ms"]
    print_table(header, rows)
    print()
    if options.output:
        with open(options.output, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])


def dense(options):
    """Batches of queries among vectors of 128 numbers, beside FAISS."""
    import faiss

    rng = np.random.default_rng(0)
    D = rng.standard_normal((options.items, 128), dtype=np.float32)
    Q = rng.standard_normal((256, 128), dtype=np.float32)
    items, flat = DenseItems(D), faiss.IndexFlatIP(128)
    flat.add(D)
    faiss.omp_set_num_threads(1)
    # From how many queries on FAISS uses BLAS: as it comes, and whenever it is faster.
    thresholds = faiss.cvar.distance_compute_blas_threshold, 1

    def ask_faiss(q, k, threshold):
        faiss.cvar.distance_compute_blas_threshold = threshold
        flat.search(q, k)

    rows = []
    for n_queries in (1, 16, 256):
        for k in (10, 100):
            q = Q[:n_queries]
            ours = seconds(partial(items.search, q, k))
            theirs = [seconds(partial(ask_faiss, q, k, least)) for least in thresholds]
            wall = [
                seconds(
                    partial(items.search, q, k, n_threads=n),
                    clock=time.perf_counter,
                    repeat=7,
                )
                for n in (1, 2)
            ]
            rows.append(
                [
                    f"{n_queries} queries",
                    k,
                    f"{1e3 * ours:.1f}",
                    *(f"{1e3 * t:.1f}" for t in theirs),
                    f"{ours / min(theirs):.2f}",
                    f"{wall[0] / wall[1]:.2f}",
                ]
            )
    header = ["", "k", "dense, ms", "FAISS, ms", "with BLAS", "ratio to the better"]
    header += ["two threads, times faster"]
    print_table(header, rows)
    codes = [a for name, a in items.to_arrays().items() if name.startswith("codes")]
    parts = np.array_split(np.concatenate(codes).ravel().view(np.int64), 64)
    wall = {"clock": time.perf_counter, "repeat": 7}
    alone = seconds(lambda: [part.max() for part in parts], **wall)
    with ThreadPoolExecutor(2) as pool:
        by_two = seconds(lambda: list(pool.map(np.max, parts)), **wall)
    print(
        f"Only to read the codes: {1e3 * alone:.1f} ms, two threads "
        f"{alone / by_two:.2f} times faster\n"
    )


def changes(options):
    """Adding 1,000 items beside building anew, and opening by memory map."""
    X = make_texts(options.items + 1_000, structured=True)
    D, more = cut(X, 0, options.items), cut(X, options.items, options.items + 1_000)
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
    del items
    estimator = CosineSimilarity(use_idf=False).fit(more)
    index = SimilarityIndex(estimator).fit(D)
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        load = partial(SimilarityIndex.load, folder, estimator=estimator)
        by_clock = seconds(load, repeat=5, clock=time.perf_counter)
        print(f"open {options.items:,}: {1e3 * by_clock:.1f} ms by the clock")
    print()


def cycles(options):
    """Add an item and remove another, again and again: time and memory stay flat."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 32), dtype=np.float32)
    n_cycles = options.cycles // 10
    rows = []
    for backend in ("dense", "inverted"):
        index = SimilarityIndex(
            CosineSimilarity(use_idf=False).fit(X), backend=backend, store_items=True
        ).fit(X)
        number, of_parts = 0, []
        for _ in range(10):
            start = time.process_time()
            for _ in range(n_cycles):
                index.add(X[[number % len(X)]]).remove([number])
                number += 1
            of_parts.append(1e6 * (time.process_time() - start) / n_cycles)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            rows.append(
                [backend, f"{number:,}", f"{of_parts[-1]:.0f}", f"{memory:.0f}"]
            )
    header = ["10,000 items", "cycles", "us per cycle", "most memory so far, MiB"]
    print_table(header, rows)
    print()


def single(options):
    """One query through the index beside one product with the stored items."""
    rng = np.random.default_rng(0)
    sets = {
        "texts of 160 words": make_sets(20_000, 20, True),
        "vectors of 128 numbers": rng.standard_normal((20_020, 128), dtype=np.float32),
        "vectors of 1,000 numbers": rng.standard_normal(
            (20_020, 1_000), dtype=np.float32
        ),
    }
    rows = []
    for name, data in sets.items():
        D, Q = data if isinstance(data, tuple) else (data[:20_000], data[20_000:])
        model = CosineSimilarity(use_idf=False).fit(D)
        index, stored = SimilarityIndex(model).fit(D), model.transform_database(D)
        stored = stored.T.tocsr() if sparse.issparse(stored) else stored.T
        queries = split(Q)
        encoded = [model.transform(query) for query in queries]
        spent = [
            seconds(lambda: [query @ stored for query in encoded], repeat=5),  # noqa: B023
            seconds(lambda: [model.transform(query) for query in queries], repeat=5),  # noqa: B023
            seconds(lambda: [index.search(query) for query in queries], repeat=5),  # noqa: B023
        ]
        times = [f"{1e3 * t / len(queries):.2f}" for t in spent]
        rows.append([name, *times, f"{spent[2] / spent[0]:.2f}"])
    header = [
        "20,000 items",
        "product, ms",
        "encoding the query",
        "index.search",
        "ratio",
    ]
    print_table(header, rows)
    print()


PARTS = {
    "sparse": sparse_part,
    "growth": growth,
    "dense": dense,
    "changes": changes,
    "cycles": cycles,
    "single": single,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--most", type=int, default=3_000_000, help="items of growth")
    parser.add_argument("--cycles", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--output", help="CSV file for the figures of growth")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
