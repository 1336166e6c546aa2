"""Fits, comparisons and measures in a forked process, after threads in its parent."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, warnings
import numpy as np
from scipy import sparse
from sklearn_simlearn import {learner}
from sklearn_simlearn.metrics import RetrievalScorer

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = np.arange(240) % 12
X = rng.poisson(np.where(np.arange(60) % 12 == y[:, None], 2.0, 0.3)).astype(float)
X = sparse.csr_array(X)
score = RetrievalScorer("map", n_jobs=2)

def work():
    model = {learner}({parameters}, n_jobs=2, random_state=0).fit(X, y)
    return score(model, X, y), model.similarity(X[:50])

expected, S = work()
child = os.fork()
if child == 0:
    signal.alarm(30)
    found, other = work()
    assert found == expected
    np.testing.assert_array_equal(other, S)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("learner", "parameters"),
    [
        ("OASIS", "n_models=2, holdout='samples'"),
        ("AngularBilinearRanker", "holdout=None"),
        ("HistogramRankSVM", "holdout=None"),
        ("SparseMahalanobisLearner", "holdout=None, max_iter=5"),
    ],
)
def test_a_forked_process_can_learn(learner, parameters):
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(learner=learner, parameters=parameters)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
