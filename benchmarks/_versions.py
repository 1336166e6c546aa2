"""Searches timed in two installations of the package, each in its own process.

`Installation` starts a process that imports the package of a folder, or the one that a
Python executable finds. Only names that all versions have are used there.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse


class Installation:
    """A process that times searches with one version of the package.

    Parameters
    ----------
    path : path-like
        Folder that holds `sklearn_simlearn` with compiled kernels, or a Python
        executable in whose environment the package is installed.
    """

    def __init__(self, path):
        path = Path(path)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)
        python = str(path.absolute())
        if path.is_dir():
            environment["PYTHONPATH"], python = python, sys.executable
        self._process = subprocess.Popen(
            [python, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **request):
        """Return the answer of `answer` in the other process."""
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit("The process of an installation ended; see the error above.")
        return json.loads(line)

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def write_rows(folder, name, X):
    """Write items or queries for the processes, which map them into memory."""
    if sparse.issparse(X):
        for part in ("data", "indices", "indptr"):
            np.save(Path(folder, f"{name}_{part}.npy"), getattr(X, part))
    else:
        np.save(Path(folder, f"{name}.npy"), X)


def _read_rows(folder, name, n_features):
    if Path(folder, f"{name}.npy").exists():
        return np.load(Path(folder, f"{name}.npy"), mmap_mode="r")
    parts = (
        np.load(Path(folder, f"{name}_{part}.npy"), mmap_mode="r")
        for part in ("data", "indices", "indptr")
    )
    data, indices, indptr = parts
    return sparse.csr_array(
        (data, indices, indptr), shape=(len(indptr) - 1, n_features)
    )


def _answer(state, request):
    """Build an index, or return the CPU times of searches in ms, one per batch."""
    from sklearn_simlearn.index import SimilarityIndex
    from sklearn_simlearn.similarities import CosineSimilarity

    folder, n_features = request["folder"], request["n_features"]
    if "build" in request:
        D = _read_rows(folder, request["build"], n_features)
        model = CosineSimilarity(use_idf=False).fit(D[:1000])
        state["index"] = SimilarityIndex(model, n_jobs=1).fit(D)
        return None
    Q = _read_rows(folder, request["queries"], n_features)
    Q = Q.copy() if sparse.issparse(Q) else np.array(Q)
    size = request["batch"]
    batches = [Q[i : i + size] for i in range(0, Q.shape[0], size)]
    spent = []
    for batch in batches:
        start = time.process_time()
        state["index"].search(batch, k=request["k"])
        spent.append(1e3 * (time.process_time() - start))
    return spent


if __name__ == "__main__":
    state: dict = {}
    for line in sys.stdin:
        print(json.dumps(_answer(state, json.loads(line))), flush=True)
