"""Data and tables that the benchmark scripts share.

The data sets are not part of the project. `SIMLEARN_DATA` names the folder that holds
them. At its start, a script names the files and packages of its parts that are missing.
A part that needs a missing file stops.
"""

import ast
import csv
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy import sparse


def find_missing(script):
    """Return the data files and packages in the code of a script that are missing."""
    names = set()
    for node in ast.walk(ast.parse(Path(script).read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name("load"), args=[ast.Constant(str(name))]):
                names.add(name)
            case ast.Call(func=ast.Name("load_mnist")):
                names.add("mnist.npz")
            case ast.Import(names=imported):
                names.update(alias.name.split(".")[0] for alias in imported)
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module.split(".")[0])
    return sorted(name for name in names if not _exists(name))


def _exists(name):
    if name.endswith(".npz"):
        return _find_file(name) is not None
    return find_spec(name) is not None


def _find_file(name):
    """Return the path of a data file; None if it does not exist."""
    folder = os.environ.get("SIMLEARN_DATA")
    path = Path(folder or "", name)
    return path if folder and path.exists() else None


def load(name):
    """Return the arrays of a data file."""
    path = _find_file(name)
    if path is None:
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


def update_csv(path, row, n_keys=1):
    """Write a row, a dict, to the CSV file of a table of the documentation.

    The first `n_keys` columns identify a row. If the file has the row, it gets the new
    cells. The columns and the other rows of the file stay. Calls in the first column
    are marked as code.
    """
    path = Path(path)
    old = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            old = list(csv.DictReader(file))
    columns = list(old[0] if old else row)
    name = re.sub(r"[A-Z]\w+\(.*?\)", r"``\g<0>``", row[columns[0]])
    rows = {}
    for cells in [*old, row | {columns[0]: name}]:
        key = tuple(str(cells[column]) for column in columns[:n_keys])
        rows[key] = rows.get(key, {}) | cells
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, columns, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows.values())


_script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
if _script.name.startswith("bench_") and (_missing := find_missing(_script)):
    print(
        f"Missing files of SIMLEARN_DATA, and packages: {', '.join(_missing)}. Parts "
        "that need them will stop.",
        file=sys.stderr,
    )
