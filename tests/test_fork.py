"""Fits, comparisons and measures in forked processes, after threads in their parent."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, warnings
import numpy as np
from scipy import sparse
from sklearn_simlearn import (
    OASIS, AngularBilinearRanker, HistogramRankSVM, SparseMahalanobisLearner
)
from sklearn_simlearn.metrics import RetrievalScorer

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = np.arange(240) % 12
X = rng.poisson(np.where(np.arange(60) % 12 == y[:, None], 2.0, 0.3)).astype(float)
X = sparse.csr_array(X)
score = RetrievalScorer("map", n_jobs=2)

def work(learner):
    learner.set_params(n_jobs=2, random_state=0).fit(X, y)
    return score(learner, X, y), learner.similarity(X[:50])

for learner in (
    OASIS(n_models=2, n_triplets=4000, holdout="samples"),
    AngularBilinearRanker(holdout=None),
    HistogramRankSVM(holdout=None),
    SparseMahalanobisLearner(holdout=None, max_iter=5),
):
    expected, S = work(learner)
    child = os.fork()
    if child == 0:
        signal.alarm(90)
        found, other = work(learner)
        assert found == expected
        np.testing.assert_array_equal(other, S)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"the process of {learner} failed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_can_learn():
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=110
    )
    assert process.returncode == 0, process.stderr
