"""Cost of serving and learning on more than one machine.

    python benchmarks/bench_scale.py PART ... --folder FOLDER [--items N]

where PART is

overhead  a batch of 100 queries among 1,000,000 dense and 1,000,000 sparse items: two
          workers compared with one process with two threads
cost      the constants of the model of cost: bytes per item and per posting, time per
          query and million items, time of a call by number of shards
check     predictions of the model against runs with 1, 2 and 4 workers
plan      the machines that the model predicts
train     OASIS on a Dask array of 200,000 x 1,000 that no worker could hold
mnist     OASIS on partitions of MNIST against OASIS on one machine (SIMLEARN_DATA)

FOLDER keeps the items between runs, about 7 GB for all parts. Times are the best of
several runs. Runs that are compared alternate.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS

import resource
import time
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from _common import load_mnist, print_table
from _search_data import make_texts
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import OASIS
from sklearn_simlearn.index import ShardedIndex, SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

N_DIMS = 128
N_QUERIES = 100
K = 10
N_CORES = os.cpu_count()


@contextmanager
def cluster(n_workers, memory_limit=0):
    """Start workers of one thread each."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=memory_limit,
            dashboard_address=":0",
            silence_logs="ERROR",
        ) as processes,
        Client(processes) as client,
    ):
        yield client


def draw(kind, n_items, seed):
    if kind == "sparse":
        return make_texts(n_items, structured=True, seed=seed)
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_items, N_DIMS), dtype=np.float32)


def write_files(options, kind, n_items, n_parts):
    """Write files with items, one per shard; reuse existing files."""
    paths = []
    for i in range(n_parts):
        n = n_items // n_parts
        name = f"{kind}-{n}-{i}.{'npz' if kind == 'sparse' else 'npy'}"
        path = options.folder / name
        if not path.exists():
            part = draw(kind, n, seed=i)
            if kind == "sparse":
                sparse.save_npz(path, part, compressed=False)
            else:
                np.save(path, part)
        paths.append(path)
    return paths


def make_queries(kind):
    if kind == "sparse":
        return make_texts(N_QUERIES, structured=True, seed=999)
    return draw(kind, N_QUERIES, seed=999)


def fit_one(paths, n_jobs):
    """Return one index over all files, which are read one by one."""
    from sklearn_simlearn.index.sharded._sources import read_file

    index = SimilarityIndex(Normalizer(), n_jobs=n_jobs)
    for i, path in enumerate(paths):
        part = read_file(str(path))
        index = index.add(part) if i else index.fit(part)
    return index


def best_in_turn(functions, repeat):
    """Return the shortest time of each function; the functions alternate."""
    best = [np.inf] * len(functions)
    for _ in range(repeat):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def overhead(options):
    """Compare two workers with one process with two threads."""
    rows = []
    for kind in options.kinds:
        paths = write_files(options, kind, options.items, 2)
        Q = make_queries(kind)
        with cluster(2):
            shards = ShardedIndex(Normalizer()).fit(paths)
            one = fit_one(paths, n_jobs=2)
            found, expected = shards.search(Q, K), one.search(Q, K)
            assert np.array_equal(found[1], expected[1])
            assert np.array_equal(found[0], expected[0])
            here, there = best_in_turn(
                [partial(one.search, Q, K), partial(shards.search, Q, K)],
                options.repeat,
            )
            del shards, one
        rows.append(
            [
                f"{options.items:,} {kind} items",
                f"{1e3 * here:.0f}",
                f"{1e3 * there:.0f}",
                f"{there / here:.2f}",
            ]
        )
    header = [f"{N_QUERIES} queries", "1 process, ms", "2 workers, ms", "ratio"]
    print_table(header, rows)
    print()


def search_on_two_threads(index, Q):
    index.n_jobs = 2
    index.search(Q, K)
    index.n_jobs = 1


def cost(options):
    """Measure the constants of the model, and store them for the other parts."""
    constants, rows = {}, []
    for kind in options.kinds:
        (path,) = write_files(options, kind, options.items // 2, 1)
        Q = make_queries(kind)
        index = fit_one([path], n_jobs=1)
        n_items = index.n_items_
        n_bytes = index.__sizeof__()
        few, many, half = best_in_turn(
            [
                partial(index.search, Q[:1], K),
                partial(index.search, Q, K),
                partial(search_on_two_threads, index, Q),
            ],
            options.repeat,
        )
        per_query = many / N_QUERIES / n_items * 1e6
        constants[kind] = {
            "bytes": n_bytes / n_items,
            "seconds": per_query,
            "efficiency": many / half / 2,
        }
        if kind == "sparse":
            n_postings = sum(block[1].size for block in index._state.items._blocks)
            rows.append(["bytes per posting", kind, f"{n_bytes / n_postings:.1f}"])
            rows.append(["postings per item", kind, f"{n_postings / n_items:.0f}"])
        rows += [
            ["bytes per item", kind, f"{n_bytes / n_items:.0f}"],
            ["ms per query and million items", kind, f"{1e3 * per_query:.2f}"],
            ["the same, one query", kind, f"{1e3 * few / n_items * 1e6:.2f}"],
            ["two cores, times one", kind, f"{many / half:.2f}"],
        ]
        del index
    Q = make_queries("dense")
    seconds = {}
    for n_workers in (1, 2, 4):
        with cluster(n_workers):
            tiny = ShardedIndex(Normalizer()).fit(draw("dense", 400, seed=0))
            tiny.search(Q, K)
            (seconds[n_workers],) = best_in_turn([partial(tiny.search, Q, K)], 20)
            del tiny
    slope, base = np.polyfit(list(seconds), list(seconds.values()), 1)
    constants["fan_out"] = {"base": base, "per_shard": slope}
    rows += [
        ["ms to ask a cluster", "", f"{1e3 * base:.1f}"],
        ["and for each shard", "", f"{1e3 * slope:.1f}"],
    ]
    print_table(["", "items", "measured"], rows)
    print()
    path = options.folder / "constants.json"
    known = read_constants(options) if path.exists() else {}
    path.write_text(json.dumps(known | constants))


def read_constants(options):
    return json.loads((options.folder / "constants.json").read_text())


def predict(constants, kind, n_items, n_shards, n_cores):
    """Return the seconds for a batch of queries: (scaling-time)."""
    fan_out = constants["fan_out"]
    work = N_QUERIES * constants[kind]["seconds"] * n_items / 1e6
    if n_cores > 1:
        work /= n_cores * constants[kind]["efficiency"]
    return fan_out["base"] + fan_out["per_shard"] * n_shards + work


def check(options):
    """Compare the predictions of the model with runs."""
    constants, rows = read_constants(options), []
    runs = product(options.kinds, options.sizes, (1, 2, 4))
    for kind, n_items, n_workers in runs:
        if kind == "sparse" and n_items > 1_000_000:
            continue
        n_parts = 4 if n_items > 1_000_000 else 2
        paths = write_files(options, kind, n_items, n_parts)
        Q = make_queries(kind)
        with cluster(n_workers) as client:
            index = ShardedIndex(Normalizer()).fit(paths)
            index.search(Q, K)
            (spent,) = best_in_turn([partial(index.search, Q, K)], options.repeat)
            keys = [future.key for future in index._state.futures]
            size = sum(client.nbytes(keys, summary=False).values())
            del index
        cores = min(n_workers, n_parts, N_CORES)
        expected = predict(constants, kind, n_items, n_parts, cores)
        rows.append(
            [
                f"{n_items:,} {kind}",
                n_workers,
                f"{size / 1e6:.0f}",
                f"{n_items * constants[kind]['bytes'] / 1e6:.0f}",
                f"{1e3 * spent:.0f}",
                f"{1e3 * expected:.0f}",
                f"{spent / expected:.2f}",
            ]
        )
    print_table(["", "workers", "MB", "model", "ms", "model", "ratio"], rows)
    print()


def plan(options):
    """Print the number of machines of 16 cores and 64 GB, with one shard each."""
    constants, rows = read_constants(options), []
    for kind in ("dense", "sparse"):
        for n_items in (10**8, 10**9):
            size = n_items * constants[kind]["bytes"]
            n_machines = int(np.ceil(size / 48e9))
            batch = predict(constants, kind, n_items, n_machines, 16 * n_machines)
            rows.append(
                [
                    f"{n_items:,} {kind}",
                    f"{size / 1e9:.0f}",
                    n_machines,
                    f"{batch:.2f}",
                    f"{N_QUERIES / batch:.0f}",
                    f"{n_machines * constants['fan_out']['per_shard']:.2f}",
                ]
            )
    header = ["", "GB", "machines", "s per batch", "queries/s", "s of it fan-out"]
    print_table(header, rows)
    print()


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def train(options):
    """Run OASIS on 200,000 x 1,000 numbers, more than a worker can hold."""
    import dask.array as da

    n_samples, n_features, n_classes = 200_000, 1000, 50
    chunk = 5000

    def make(block_info=None):
        ((start, _), _) = block_info[None]["array-location"]
        rng = np.random.default_rng(start)
        shared = np.random.default_rng(0)
        centres = shared.standard_normal((n_classes, n_features), dtype=np.float32)
        mixing = shared.standard_normal((60, n_features), dtype=np.float32)
        y = labels(start, chunk)
        noise = rng.standard_normal((chunk, 60), dtype=np.float32)
        return 0.3 * centres[y] + noise @ mixing

    def labels(start, n):
        return np.arange(start, start + n) // (n_samples // n_classes)

    X = da.map_blocks(
        make,
        chunks=((chunk,) * (n_samples // chunk), n_features),
        dtype=np.float32,
        meta=np.empty((0, 0), dtype=np.float32),
    )
    y = labels(0, n_samples)
    limit = 700 * 2**20
    with cluster(4, memory_limit=limit) as client:
        start = time.perf_counter()
        oasis = OASIS(holdout="samples", n_triplets=16_000, random_state=0).fit(X, y)
        spent = time.perf_counter() - start
        peak = max(client.run(peak_mib).values())
    test, y_test = X[:: n_samples // 2000].compute(), y[:: n_samples // 2000]
    models = oasis, CosineSimilarity(use_idf=False).fit(test)
    learned, start = (model.score(test, y_test) for model in models)
    print(
        f"OASIS on {n_samples:,} x {n_features:,} ({X.nbytes / 2**20:.0f} MiB), "
        f"4 workers of {limit / 2**20:.0f} MiB: {spent:.0f} s, largest peak "
        f"{peak:.0f} MiB; mAP {learned:.3f}, cosine {start:.3f}"
    )
    print()


def mnist(options):
    """Compare partitions of MNIST, sorted by class, with one machine."""
    import dask.array as da

    warnings.filterwarnings("ignore", "Sending large graph")
    X, y = load_mnist()
    X_test, y_test = X[60_000:65_000], y[60_000:65_000]
    order = np.argsort(y[:60_000], kind="stable")
    X_train, y_train = X[:60_000][order], y[:60_000][order]
    rows = []
    with cluster(2):
        for name, params in (
            ("plain", {"holdout": None, "n_triplets": 100_000}),
            ('holdout="samples"', {"holdout": "samples", "n_triplets": 16_000}),
        ):
            scores = {"one machine": [], "12 partitions": []}
            for seed in range(options.seeds):
                oasis = OASIS(random_state=seed, **params)
                oasis.fit(X_train, y_train)
                scores["one machine"].append(oasis.score(X_test, y_test))
                oasis.fit(da.from_array(X_train, chunks=(5000, -1)), y_train)
                scores["12 partitions"].append(oasis.score(X_test, y_test))
            for how, values in scores.items():
                error = np.std(values, ddof=1)
                rows.append(
                    [f"{name}, {how}", f"{np.mean(values):.4f}", f"{error:.4f}"]
                )
    print_table([f"mAP, {options.seeds} seeds", "mean", "deviation"], rows)
    print()


PARTS = {part.__name__: part for part in (overhead, cost, check, plan, train, mnist)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", metavar="PART", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[100_000, 1_000_000, 5_000_000],
        help="items of check",
    )
    parser.add_argument("--kinds", nargs="+", default=["dense", "sparse"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3, help="of mnist")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        PARTS[part](options)
