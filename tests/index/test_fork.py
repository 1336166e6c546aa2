"""Search in forked processes after searches with threads in their parent."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
from scipy import sparse
from sklearn.preprocessing import Normalizer
from sklearn_simlearn.index import SimilarityIndex

rng = np.random.default_rng(0)
dense = rng.random((4000, 64)).astype(np.float32)
for backend in sys.argv[1:]:
    X = sparse.csr_array(dense * (dense > 0.7)) if backend == "inverted" else dense
    index = SimilarityIndex(Normalizer(), backend=backend, n_jobs=2).fit(X)
    expected = index.search(X[:300])  # matrix products, and kernels by codes
    few = index.search(X[:10])
    child = os.fork()
    if child == 0:
        signal.alarm(90)
        for queries, answer in ((X[:300], expected), (X[:10], few)):
            found = index.search(queries)
            np.testing.assert_array_equal(found.ids, answer.ids)
        index.add(X[:1]).remove([0])
        np.testing.assert_array_equal(index.search(X[:1], 1).ids, [[4000]])
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"the process with the backend {backend} failed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_can_search():
    installed = [name for name in ("faiss", "usearch") if find_spec(name)]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, "inverted", "dense", *installed],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert process.returncode == 0, process.stderr
