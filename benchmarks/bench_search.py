"""Compare exact search of sparse and dense items with SciPy, scikit-learn and FAISS.

    python benchmarks/bench_search.py [PART ...] [--items N] [--queries N]
    python benchmarks/bench_search.py versions --against PATH

where PART is sparse, growth, words, vectors, dimensions, dense, changes, cycles or
single; the default is all. The default of 1,000,000 items, and growth to 3,000,000,
need 6 GB of memory; all parts take about 40 minutes. For a quick look, pass --items
100000 --most 100000. Everything runs on one thread, except for the column "two
threads". Each time is the best of several runs. A run on one thread is timed in CPU
time, so that other processes on the machine matter less. Ratios are within one run.
`growth`, `words`, `vectors` and `dimensions` write their figures to the file that
--output names, which `doc/plots/search_growth.py` draws. Figures of other parts stay in
this file. `sparse` needs sparse_dot_topn, `growth` and `words` need bmp (block-max
pruning), and the parts with vectors need FAISS.

`versions` compares two versions of the package, in turns and in one run. PATH is a
folder with the package and its compiled kernels, or the Python executable of an
environment in which the package is installed.
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
from itertools import product

import numpy as np
from _bmp import BMP, to_impacts
from _common import load, print_table
from _search_data import (
    cut,
    flip_signs,
    grow,
    make_sets,
    make_texts,
    make_vectors,
    pick_words,
)
from _versions import Installation, write_rows
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index.backends._dense import DenseItems
from sklearn_simlearn.index.backends._inverted import InvertedFile
from sklearn_simlearn.similarities import CosineSimilarity

KINDS = "topics", "independent words"


def seconds(function, *, repeat=3, clock=time.process_time):
    """Return the CPU time of the shortest of several runs."""
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


def ask_bmp(queries, items, k):
    for impacts in queries:
        items.search(impacts, k)


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
    """Return the CPU time of SciPy's transpose, and per query of each search and k."""
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
    """Return the CPU time per query of each search, by its name and k."""
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


def sparse_part(options):
    """Search with one query at a time among many texts."""
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


def record(options, by, rows):
    """Print figures, and replace those of the same part in the output file."""
    header = ["by", "kind", "x", "search", "k", "ms"]
    rows = [[by, *row[:-1], f"{row[-1]:.3f}"] for row in rows]
    print_table(header, rows)
    print()
    if options.output:
        if os.path.exists(options.output):
            with open(options.output, newline="") as file:
                others = [row for row in csv.reader(file) if row[0] not in ("by", by)]
            rows = others + rows
        with open(options.output, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])


def list_sizes(options):
    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
    return [n for n in sizes if n <= options.most]


def prepare(D):
    """Return searches among texts by name: function, items, and form of the queries."""
    searches = {"inverted": (ask, InvertedFile(D), split)}
    if D.shape[0] <= 1_000_000:  # more would not fit into 6 GB
        searches["SciPy"] = ask_scipy, D.T.tocsr(), split
    if D.shape[0] <= 300_000:  # it takes minutes to build more
        searches["BMP"] = ask_bmp, BMP(D), lambda Q: list(to_impacts(Q))
    return searches


def time_searches(searches, Q, k=10):
    """Yield the name, k and the time of one query in ms for each of the searches."""
    for name, (search, items, to_queries) in searches.items():
        spent = seconds(partial(search, to_queries(Q), items, k))
        yield name, k, 1e3 * spent / Q.shape[0]


def growth(options):
    """Time searches by number of texts."""
    rows = []
    for kind in KINDS:
        sizes = list_sizes(options)
        D, Q = make_sets(sizes[-1], options.queries, kind == "topics")
        for n in sizes:
            searches = prepare(cut(D, 0, n))
            for k in (10, 100):
                rows += [[kind, n, *row] for row in time_searches(searches, Q, k)]
            del searches
        del D
    record(options, "items", rows)


def words(options):
    """Time searches by number of words of a query."""
    rows = []
    n_items = min(options.items, 300_000)
    for kind in KINDS:
        D, Q = make_sets(n_items, options.queries, kind == "topics")
        searches = prepare(D)
        for n_words in (3, 10, 20, 40, 80, 160):
            queries = pick_words(Q, n_words)
            rows += [[kind, n_words, *row] for row in time_searches(searches, queries)]
    record(options, "words", rows)


def time_vectors(D, Q):
    """Yield the CPU time of single queries and of a batch, also of FAISS."""
    import faiss

    faiss.omp_set_num_threads(1)
    items, flat = DenseItems(D), faiss.IndexFlatIP(D.shape[1])
    flat.add(D)
    searches = {
        "dense": partial(items.search, k=10),
        "FAISS": partial(flat.search, k=10),
    }
    for name, search in searches.items():
        one = seconds(lambda: [search(q) for q in split(Q)])  # noqa: B023
        yield f"{name}, one query", 1e3 * one / len(Q)
        faiss.cvar.distance_compute_blas_threshold = 1
        yield f"{name}, {len(Q)} queries", 1e3 * seconds(partial(search, Q)) / len(Q)
        faiss.cvar.distance_compute_blas_threshold = 20


def vectors(options):
    """Time searches by number of vectors."""
    sizes = list_sizes(options)
    D, Q = make_vectors(sizes[-1], 128), make_vectors(options.queries, 128, seed=1)
    rows = [
        ["vectors", n, name, 10, ms]
        for n in sizes
        for name, ms in time_vectors(D[:n], Q)
    ]
    record(options, "vectors", rows)


def dimensions(options):
    """Time searches by number of dimensions."""
    rows = []
    for n_features in (32, 64, 128, 256, 512, 1024):
        D = make_vectors(min(options.items, 100_000), n_features)
        Q = make_vectors(options.queries, n_features, seed=1)
        rows += [
            ["vectors", n_features, name, 10, ms] for name, ms in time_vectors(D, Q)
        ]
    record(options, "dimensions", rows)


def list_comparisons(options):
    """Yield items, and pairs of a name and queries, for a comparison of versions."""
    for kind in KINDS:
        D, Q = make_sets(options.items, options.queries, kind == "topics")
        yield kind, D, {f"{n} words": pick_words(Q, n) for n in (160, 40, 10)}
    rng = np.random.default_rng(0)
    shape = options.items, 128
    Q = rng.standard_normal((options.queries, 128), dtype=np.float32)
    yield "Gaussian vectors", rng.standard_normal(shape, dtype=np.float32), {"128": Q}
    D, Q = make_vectors(options.items, 128), make_vectors(options.queries, 128, seed=1)
    yield "clusters of vectors", D, {"128": Q}
    if options.vectors:
        D = grow(load(options.vectors)[options.array], options.items // 5 + len(Q))
        yield "grown vectors", D[len(Q) :], {f"{D.shape[1]}": D[: len(Q)]}


def versions(options):
    """Compare searches of this version with those of another one, in turns."""
    if options.against is None:
        print("versions needs --against, which names another installation.\n")
        return
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths, rows = (here, options.against), []
    for kind, D, queries in list_comparisons(options):
        with tempfile.TemporaryDirectory() as folder:
            common = {"folder": folder, "n_features": D.shape[1]}
            write_rows(folder, "items", D)
            installations = [Installation(path) for path in paths]
            for each in installations:
                each.ask(build="items", **common)
            n_queries = options.queries
            for name, Q in queries.items():
                write_rows(folder, name, Q)
                for k, batch in product((10, 100), (1, 16, n_queries)):
                    ask = {"queries": name, "batch": batch, "k": k, **common}
                    spent = [
                        [each.ask(**ask) for each in installations] for _ in "12345"
                    ]
                    spent = np.min(spent, axis=0)
                    ours, theirs = spent.sum(axis=1) / n_queries
                    times = f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}"
                    worst = f"{np.max(spent[0] / spent[1]):.2f}"
                    rows.append([f"{kind}, {name}", k, batch, *times, worst])
            for each in installations:
                each.close()
    header = ["", "k", "queries per call", "ms per query", "other version", "ratio"]
    header += ["largest ratio of a call"]
    print_table(header, rows)
    print()


def dense(options):
    """Compare batches of queries among vectors of 128 numbers with FAISS."""
    import faiss

    rng = np.random.default_rng(0)
    D = rng.standard_normal((options.items, 128), dtype=np.float32)
    Q = rng.standard_normal((256, 128), dtype=np.float32)
    items, flat = DenseItems(D), faiss.IndexFlatIP(128)
    flat.add(D)
    faiss.omp_set_num_threads(1)
    # Number of queries from which FAISS uses BLAS: the default, and 1.
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
    """Compare adding 1,000 items with a new build; open by memory map."""
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
        f"{of_add / of_build:.2%} of a new build"
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
    """Add an item and remove another repeatedly: time and memory stay constant."""
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
    """Compare one query through the index with one product with the stored items."""
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
    "words": words,
    "vectors": vectors,
    "dimensions": dimensions,
    "versions": versions,
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
    parser.add_argument("--output", help="CSV file for the figures that are drawn")
    parser.add_argument("--against", metavar="PATH", help="other installation")
    parser.add_argument("--vectors", help="file of SIMLEARN_DATA to grow vectors from")
    parser.add_argument("--array", default="X", help="array of this file")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
