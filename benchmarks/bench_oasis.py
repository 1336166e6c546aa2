"""OASIS: speed compared with C, scale, cost of the hold-out, early stopping.

    SIMLEARN_DATA=... python benchmarks/bench_oasis.py [PART ...]

The parts are speed, scale, cost and stopping; without an argument all of them run. The
experiments of the paper are in ``python -m benchmarks.papers chechik``. Every figure is
measured in the run that prints it; compare the ratios, not the seconds. "speed" needs
gcc.
"""

import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _common import best_seconds, print_table
from _sets import available_sets, load_set, split_set
from scipy import sparse
from sklearn.preprocessing import normalize

from sklearn_simlearn import OASIS
from sklearn_simlearn._core.progress import timed_fit
from sklearn_simlearn.oasis._steps import INTERVAL
from sklearn_simlearn.similarities import CosineSimilarity

# The algorithm in its simplest form: one triplet at a time, float32, W row-major.
PLAIN_C = r"""
#include <stdint.h>

static float step(float margin, float norm2, float C) {
    if (margin >= 1 || norm2 <= 0) return 0;
    float tau = (1 - margin) / norm2;
    return tau < C ? tau : C;
}

void sweep_csr(float *W, int64_t d, const float *x, const int32_t *index,
               const int32_t *start, const int64_t *triplets, int64_t n, float C) {
    for (int64_t t = 0; t < n; t++) {
        int64_t q = triplets[3 * t], p = triplets[3 * t + 1], m = triplets[3 * t + 2];
        float margin = 0, q2 = 0, delta2 = 0;
        for (int32_t i = start[q]; i < start[q + 1]; i++) {
            const float *row = W + index[i] * d;
            float s = 0;
            for (int32_t j = start[p]; j < start[p + 1]; j++) s += x[j] * row[index[j]];
            for (int32_t j = start[m]; j < start[m + 1]; j++) s -= x[j] * row[index[j]];
            margin += x[i] * s;
            q2 += x[i] * x[i];
        }
        int32_t j = start[p], k = start[m];
        while (j < start[p + 1] || k < start[m + 1]) {
            float v;
            if (k == start[m + 1] || (j < start[p + 1] && index[j] < index[k]))
                v = x[j++];
            else if (j == start[p + 1] || index[k] < index[j])
                v = x[k++];
            else
                v = x[j++] - x[k++];
            delta2 += v * v;
        }
        float tau = step(margin, q2 * delta2, C);
        if (tau == 0) continue;
        for (int32_t i = start[q]; i < start[q + 1]; i++) {
            float *row = W + index[i] * d, a = tau * x[i];
            for (int32_t j = start[p]; j < start[p + 1]; j++) row[index[j]] += a * x[j];
            for (int32_t j = start[m]; j < start[m + 1]; j++) row[index[j]] -= a * x[j];
        }
    }
}

void sweep_dense(float *W, int64_t d, const float *X, const int64_t *triplets,
                 int64_t n, float C, float *delta, float *product) {
    for (int64_t t = 0; t < n; t++) {
        const float *q = X + triplets[3 * t] * d, *p = X + triplets[3 * t + 1] * d,
                    *m = X + triplets[3 * t + 2] * d;
        float margin = 0, q2 = 0, delta2 = 0;
        for (int64_t j = 0; j < d; j++) {
            delta[j] = p[j] - m[j];
            product[j] = 0;
        }
        /* q' W row by row, so that the compiler may vectorise without reordering. */
        for (int64_t i = 0; i < d; i++)
            for (int64_t j = 0; j < d; j++) product[j] += q[i] * W[i * d + j];
        for (int64_t j = 0; j < d; j++) {
            margin += product[j] * delta[j];
            q2 += q[j] * q[j];
            delta2 += delta[j] * delta[j];
        }
        float tau = step(margin, q2 * delta2, C);
        if (tau == 0) continue;
        for (int64_t i = 0; i < d; i++)
            for (int64_t j = 0; j < d; j++) W[i * d + j] += tau * q[i] * delta[j];
    }
}
"""


def compile_plain_c(folder):
    source, library = Path(folder) / "plain.c", Path(folder) / "plain.so"
    source.write_text(PLAIN_C)
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def zipf_rows(n_samples, n_features, n_nonzeros, rng):
    """Return unit rows with distinct columns drawn by Zipf's law, in random order."""
    frequency = 1 / np.arange(1, n_features + 1)
    cumulative = np.cumsum(frequency / frequency.sum())
    name = rng.permutation(n_features).astype(np.int32)
    indices = np.empty((n_samples, n_nonzeros), dtype=np.int32)
    for start in range(0, n_samples, 10_000):
        rows = indices[start : start + 10_000]
        draws = np.searchsorted(cumulative, rng.random((len(rows), 6 * n_nonzeros)))
        for row, drawn in zip(rows, draws, strict=True):
            distinct = np.unique(np.minimum(drawn, n_features - 1))
            if len(distinct) < n_nonzeros:
                rest = np.setdiff1d(np.arange(n_features), distinct)
                distinct = np.append(distinct, rest[: n_nonzeros - len(distinct)])
            row[:] = np.sort(name[rng.permutation(distinct)[:n_nonzeros]])
    data = np.abs(rng.standard_normal(indices.shape, dtype=np.float32))
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    indptr = np.arange(0, indices.size + 1, n_nonzeros, dtype=np.int32)
    return sparse.csr_array(
        (data.ravel(), indices.ravel(), indptr), shape=(n_samples, n_features)
    )


def speed():
    print("fit, sampling included, against a plain C loop (gcc -O3 -march=native)")
    rng = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        plain = compile_plain_c(folder)
        for n_features, n_triplets in [(1000, 60_000), (10_000, 20_000)]:
            X = zipf_rows(5000, n_features, 70, rng)
            y = rng.integers(50, size=5000)
            triplets = rng.integers(5000, size=(n_triplets, 3))

            def loop(X=X, triplets=triplets):
                W = np.eye(X.shape[1], dtype=np.float32)
                plain.sweep_csr(
                    pointer(W),
                    ctypes.c_int64(X.shape[1]),
                    pointer(X.data),
                    pointer(X.indices),
                    pointer(X.indptr),
                    pointer(triplets),
                    ctypes.c_int64(len(triplets)),
                    ctypes.c_float(0.1),
                )

            oasis = OASIS(holdout=None, n_triplets=n_triplets, random_state=0)
            rows.append(compare(f"CSR, d = {n_features}", oasis, X, y, loop))

        X, n_triplets = normalize(rng.standard_normal((5000, 260))), 50_000
        X, y = X.astype(np.float32), rng.integers(50, size=5000)
        triplets = rng.integers(5000, size=(n_triplets, 3))
        scratch = np.empty((2, 260), dtype=np.float32)

        def dense_loop():
            W = np.eye(260, dtype=np.float32)
            plain.sweep_dense(
                pointer(W),
                ctypes.c_int64(260),
                pointer(X),
                pointer(triplets),
                ctypes.c_int64(n_triplets),
                ctypes.c_float(0.1),
                pointer(scratch[0]),
                pointer(scratch[1]),
            )

        oasis = OASIS(holdout=None, n_triplets=n_triplets, random_state=0)
        rows.append(compare("dense, d = 260", oasis, X, y, dense_loop))
    print_table(["", "fit, us per triplet", "C loop", "fit / C loop"], rows)

    print("two rankers, one job against two")
    X, y = zipf_rows(5000, 1000, 70, rng), rng.integers(50, size=5000)
    seconds = {
        n_jobs: best_seconds(
            lambda n_jobs=n_jobs: OASIS(
                holdout=None,
                n_triplets=60_000,
                n_models=2,
                n_jobs=n_jobs,
                random_state=0,
            ).fit(X, y)
        )
        for n_jobs in (1, 2)
    }
    print(f"{seconds[1] / seconds[2]:.2f} times faster on two")


def compare(name, oasis, X, y, loop):
    ours = best_seconds(lambda: oasis.fit(X, y)) / oasis.n_triplets * 1e6
    plain = best_seconds(loop) / oasis.n_triplets * 1e6
    return [name, f"{ours:.2f}", f"{plain:.2f}", f"{ours / plain:.2f}"]


def peak_memory():
    """Return the largest resident set of this process, in bytes (Linux)."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure_scale(n_samples, n_features, n_triplets, n_nonzeros=70):
    """Measure triplets per second on sparse float32 rows, and the memory.

    Returns the `rate`; `steady`, the rate of the last third of the triplets divided by
    that of the first; the bytes of `X` and `W`; `grew`, the growth of the peak of the
    process; and `beyond`, the additional memory as a share of X and W.
    """
    rng = np.random.default_rng(0)
    X = zipf_rows(n_samples, n_features, n_nonzeros, rng)
    y = rng.integers(1000, size=n_samples)
    X_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    W_bytes = n_features**2 * 4
    # Reset the peak after the data is made (Linux), to measure learning only.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    oasis, times = OASIS(holdout=None, n_triplets=n_triplets, random_state=0), []
    timed_fit(oasis, X, y, "OASIS", lambda *_: times.append(time.process_time()))
    grew = peak_memory() - before
    seconds = np.diff(times[:-1])
    third = max(1, len(seconds) // 3)
    return {
        "rate": INTERVAL / np.median(seconds),
        "steady": np.median(seconds[:third]) / np.median(seconds[-third:]),
        "X": X_bytes,
        "W": W_bytes,
        "grew": grew,
        "beyond": (grew - W_bytes) / (X_bytes + W_bytes),
    }


def scale():
    n_samples, n_features, n_nonzeros, n_triplets = 1_000_000, 10_000, 70, 150_000
    print(f"{n_samples} x {n_features} CSR, {n_nonzeros} non-zeros per row, float32")
    found = measure_scale(n_samples, n_features, n_triplets, n_nonzeros)
    print(
        f"{found['rate']:.0f} triplets per second; the last third of them at "
        f"{found['steady']:.2f} times the rate of the first"
    )
    print(
        f"X {found['X'] / 2**20:.0f} MiB, W {found['W'] / 2**20:.0f} MiB; the peak of "
        f"the process grew by {found['grew'] / 2**20:.0f} MiB during fit: W and "
        f"{found['beyond']:+.1%} of X + W"
    )
    print(
        f"160 million triplets at this rate: {160e6 / found['rate'] / 60:.0f} minutes"
    )


def cost():
    print("seconds of processor time to fit, and as a multiple of the plain form's")
    rows = []
    for name in ("MNIST", "UKbench words"):
        if name not in available_sets():
            continue
        X, y = load_set(name)
        train, _ = split_set(X, y, "samples", 0)
        plain = None
        for holdout in (None, "samples", "objects"):
            if holdout is None and sparse.issparse(X):
                continue  # a W of 20,000 words takes minutes
            start = time.process_time()
            OASIS(holdout=holdout, random_state=0).fit(X[train], y[train])
            seconds = time.process_time() - start
            plain = seconds if holdout is None else plain
            ratio = f"{seconds / plain:.1f}" if plain else ""
            rows.append([f"{name}, holdout={holdout}", f"{seconds:.1f}", ratio])
    print_table(["", "seconds", "ratio"], rows)


def stopping(n_runs=5):
    """Compare all triplets of the plain form with those that a validation set keeps."""
    X, y = load_set("Caltech")
    enough = np.flatnonzero(np.bincount(y[y >= 0]) >= 65)
    rows = []
    for n_classes in (10, 20):  # fewer than 50 classes have 65 images
        found = {None: [], 8: []}
        for seed in range(n_runs):
            rng = np.random.default_rng(seed)
            classes = rng.choice(enough, n_classes, replace=False)
            own = [rng.permutation(np.flatnonzero(y == c))[:65] for c in classes]
            train = np.concatenate([samples[:40] for samples in own])
            test = np.concatenate([samples[40:] for samples in own])
            tfidf = CosineSimilarity().fit(X[train])
            Z_train, Z_test = tfidf.transform(X[train]), tfidf.transform(X[test])
            for holdout, values in found.items():
                oasis = OASIS.from_paper(
                    holdout=holdout, n_triplets=300_000, random_state=seed
                ).fit(Z_train, y[train])
                values.append(
                    (
                        oasis.score(Z_test, y[test]),
                        oasis.n_triplets_,
                        oasis.symmetry_index_,
                    )
                )
        for holdout, values in found.items():
            score, n_triplets, symmetry = np.mean(values, axis=0)
            lead = np.subtract(values, found[None])[:, 0]
            error = lead.std(ddof=1) / np.sqrt(n_runs)
            rows.append(
                [
                    f"{n_classes} classes, holdout={holdout}",
                    f"{score:.3f}",
                    f"{lead.mean():+.3f} +- {error:.3f}",
                    f"{n_triplets:,.0f}",
                    f"{symmetry:.3f}",
                ]
            )
    print_table(["Caltech-101", "mAP", "gain", "triplets", "symmetry index"], rows)


if __name__ == "__main__":
    parts = [speed, scale, cost, stopping]
    names = sys.argv[1:] or [part.__name__ for part in parts]
    for part in parts:
        if part.__name__ in names:
            part()
            print()
