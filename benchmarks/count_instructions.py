"""Count the instructions of kernels, which do not depend on other load.

    python benchmarks/count_instructions.py [PART ...]

where PART is one of the functions below; the default is all. The script needs valgrind
with its headers, and a C compiler. To compare two versions of the package, run the
script with each of them on PYTHONPATH: only public names are used. valgrind supports
AVX2 but not AVX-512, so it counts the AVX2 version of loops that have one per
instruction set.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import sparse

COLLECT = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""


def make_rows(n_rows, *, n_words=20_000, n_per_row=40, n_topics=50):
    """Return sparse rows; half of their words depend on a topic."""
    rng = np.random.default_rng(0)
    words = (n_words * rng.random((n_rows, n_per_row)) ** 3).astype(np.int32)
    topic = rng.integers(n_topics, size=(n_rows, 1))
    half = n_per_row // 2
    words[:, :half] = topic * 100 + 100 * rng.random((n_rows, half)) ** 2
    X = sparse.csr_array(
        (
            rng.random(words.size, dtype=np.float32) + 0.5,
            words.ravel(),
            np.arange(0, words.size + 1, n_per_row),
        ),
        shape=(n_rows, n_words),
    )
    X.sum_duplicates()
    return X, topic.ravel()


def search(X, Q):
    from sklearn_simlearn.index import SimilarityIndex
    from sklearn_simlearn.similarities import CosineSimilarity

    index = SimilarityIndex(CosineSimilarity(), n_jobs=1).fit(X)
    return lambda: index.search(Q, k=10)


def sparse_long():
    """Search of 60,000 sparse items, by all words of the queries."""
    X, _ = make_rows(60_000)
    return search(X, X[:50])


def sparse_short():
    """Search of 60,000 sparse items, by five words."""
    X, _ = make_rows(60_000)
    Q = X[:50].copy()
    Q.data[np.arange(Q.nnz) % 8 > 0] = 0
    Q.eliminate_zeros()
    return search(X, Q)


def dense_single():
    """Search of 20,000 dense items, by 8 queries."""
    X = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    return search(X, X[:8])


def dense_many():
    """Search of 20,000 dense items, by 64 queries."""
    X = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    return search(X, X[:64])


def mahalanobis():
    """Fit of SparseMahalanobisLearner."""
    from sklearn_simlearn import SparseMahalanobisLearner

    X, topic = make_rows(200, n_words=5000)
    model = SparseMahalanobisLearner(holdout=None, max_iter=3, random_state=0)
    return lambda: model.fit(X, topic)


def histogram():
    """Fit of HistogramRankSVM."""
    from sklearn_simlearn import HistogramRankSVM

    X, topic = make_rows(300, n_words=5000)
    X.data[:] = 1 + np.arange(X.nnz) % 3
    model = HistogramRankSVM(holdout=None, max_iter=5, random_state=0)
    return lambda: model.fit(X, topic)


def ranks():
    """Mean average precision of 500 queries among 2,000 items."""
    from sklearn_simlearn.metrics import mean_average_precision

    rng = np.random.default_rng(0)
    y, S = rng.integers(20, size=2000), rng.random((500, 2000))
    relevant = y[:500, None] == y
    return lambda: mean_average_precision(relevant, S)


def verification():
    """Spatial verification of 200 pairs of images."""
    from sklearn_simlearn.feature_extraction import LocalFeatures
    from sklearn_simlearn.reranking import SpatialVerification

    rng, n = np.random.default_rng(0), 300
    images = LocalFeatures(
        np.arange(0, 21 * n, n),
        x=rng.uniform(0, 500, 20 * n),
        y=rng.uniform(0, 500, 20 * n),
        scale=rng.uniform(1, 4, 20 * n),
        angle=rng.uniform(0, 360, 20 * n),
        words=rng.integers(200, size=20 * n),
        image_sizes=np.full((20, 2), 500),
    )
    model = SpatialVerification(n_jobs=1, refine="affine").fit(images)
    ids = np.tile(np.arange(20), (20, 1))[:, :10]
    return lambda: model.verify(images, ids)


PARTS = [
    sparse_long,
    sparse_short,
    dense_single,
    dense_many,
    mahalanobis,
    histogram,
    ranks,
    verification,
]


def run(part, library):
    """Run one part, once to warm up and once under instrumentation."""
    collect, call = ctypes.CDLL(library), part()
    call()
    collect.start()
    call()
    collect.stop()


def main():
    by_name = {part.__name__: part for part in PARTS}
    if len(sys.argv) == 4 and sys.argv[1] == "--run":
        run(by_name[sys.argv[2]], sys.argv[3])
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "collect.c"), str(Path(folder, "collect.so"))
        source.write_text(COLLECT)
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run(
            [*compiler, "-shared", "-fPIC", source, "-o", library], check=True
        )
        for name in sys.argv[1:] or by_name:
            out = Path(folder, name)
            command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
            command += [f"--callgrind-out-file={out}", sys.executable, __file__]
            subprocess.run(
                [*command, "--run", name, library],
                check=True,
                capture_output=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            )
            counted = sum(
                map(int, re.findall(r"^totals: (\d+)", out.read_text(), re.M))
            )
            print(f"{counted / 1e6:10.2f} million  {name}", flush=True)


if __name__ == "__main__":
    main()
