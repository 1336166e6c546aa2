"""Search in a forked process after a search with threads in its parent."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
from scipy import sparse
from sklearn.preprocessing import Normalizer
from sklearn_simlearn.index import SimilarityIndex

rng = np.random.default_rng(0)
X = rng.random((4000, 64)).astype(np.float32)
if "{backend}" == "inverted":
    X = sparse.csr_array(X * (X > 0.7))
index = SimilarityIndex(Normalizer(), backend="{backend}", n_jobs=2).fit(X)
expected = index.search(X[:300])  # matrix products, and kernels by codes
few = index.search(X[:10])
child = os.fork()
if child == 0:
    signal.alarm(20)
    for queries, answer in ((X[:300], expected), (X[:10], few)):
        found = index.search(queries)
        np.testing.assert_array_equal(found.ids, answer.ids)
    index.add(X[:1]).remove([0])
    np.testing.assert_array_equal(index.search(X[:1], 1).ids, [[4000]])
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("backend", ["inverted", "dense", "faiss", "usearch"])
def test_a_forked_process_can_search(backend):
    if backend in ("faiss", "usearch"):
        pytest.importorskip(backend)
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(backend=backend)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
