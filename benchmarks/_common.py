"""Data and tables that the benchmark scripts share.

The data sets are not part of the project. `SIMLEARN_DATA` names the folder that holds
them. If a file that a script needs is missing, the script names it and stops.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse


def load(name):
    """Return the arrays of a data file."""
    folder = os.environ.get("SIMLEARN_DATA")
    path = Path(folder or ".") / name
    if folder is None or not path.exists():
        sys.exit(f"This benchmark reads {name}: set SIMLEARN_DATA to its folder.")
    return np.load(path)


def as_counts(arrays, dtype=np.float64):
    """Return the CSR matrix of a data file of word counts."""
    return sparse.csr_array(
        (arrays["data"].astype(dtype), arrays["indices"], arrays["indptr"]),
        shape=tuple(arrays["shape"]),
    )


def load_mnist(n_components=260, dtype=np.float32):
    """Return 70,000 images after PCA, of unit length, the 10,000 test images last."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    arrays = load("mnist.npz")
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).reshape(-1, 28 * 28)
    X = X.astype(dtype) / 255
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(X[:60_000])
    y = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(np.int64)
    return normalize(pca.transform(X)), y


def best_seconds(function, *, repeat=3):
    """Return the shortest time of several runs, which was disturbed least."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def print_table(header, rows):
    """Print aligned columns, the first to the left and the others to the right."""
    table = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *rest = (
            cell.rjust(w) if i else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]))
