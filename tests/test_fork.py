"""Fits, measures and searches in forked processes, after threads in their parent."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import os, signal, sys, warnings
import numpy as np
from scipy import sparse
from sklearn.preprocessing import Normalizer
from sklearn_simlearn import (
    OASIS, AngularBilinearRanker, HistogramRankSVM, SparseMahalanobisLearner
)
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import RetrievalScorer

def run_in_child(what, work):
    child = os.fork()
    if child == 0:
        signal.alarm(90)
        work()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"the process of {what} failed")

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = np.arange(240) % 12
X = rng.poisson(np.where(np.arange(60) % 12 == y[:, None], 2.0, 0.3)).astype(float)
X = sparse.csr_array(X)
score = RetrievalScorer("map", n_jobs=2)

def learn(learner):
    learner.set_params(n_jobs=2, random_state=0).fit(X, y)
    return score(learner, X, y), learner.similarity(X[:50])

for learner in (
    OASIS(n_models=2, n_triplets=4000, holdout="samples"),
    AngularBilinearRanker(holdout=None),
    HistogramRankSVM(holdout=None),
    SparseMahalanobisLearner(holdout=None, max_iter=5),
):
    expected, S = learn(learner)

    def learn_again():
        found, other = learn(learner)
        assert found == expected
        np.testing.assert_array_equal(other, S)

    run_in_child(learner, learn_again)

vectors = rng.random((4000, 64)).astype(np.float32)
for backend in sys.argv[1:]:
    is_sparse = backend == "inverted"
    D = sparse.csr_array(vectors * (vectors > 0.7)) if is_sparse else vectors
    index = SimilarityIndex(Normalizer(), backend=backend, n_jobs=2).fit(D)
    expected = index.search(D[:300])  # matrix products, and kernels by codes
    few = index.search(D[:10])

    def search_again():
        for queries, answer in ((D[:300], expected), (D[:10], few)):
            found = index.search(queries)
            np.testing.assert_array_equal(found.ids, answer.ids)
        index.add(D[:1]).remove([0])
        np.testing.assert_array_equal(index.search(D[:1], 1).ids, [[4000]])

    run_in_child(f"the backend {backend}", search_again)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_can_learn_and_search():
    installed = [name for name in ("faiss", "usearch") if find_spec(name)]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, "inverted", "dense", *installed],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert process.returncode == 0, process.stderr
