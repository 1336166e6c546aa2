"""Tests of the base class: atomic fits, callbacks, warnings at the user's line."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.rows import scale_columns
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn.base import Encoder, SimilarityLearner, replacing_state
from sklearn_simlearn.contract import check_learner


class MeanWeights(SimilarityLearner):
    """Small learner: features are weighted by how often relevant samples share them.

    `step` is called while it learns.
    """

    def __init__(self, step=None):
        self.step = step

    def _learn(self, X, relevance, advance):
        M = relevance.memberships.sign()
        shared = np.asarray(abs(M.T @ X).sum(axis=0)).ravel()
        if self.step is not None:
            self.step(self)
        stopped = advance("step", lambda: describe(shared))
        return {**describe(1 + shared), "stopped_": stopped, "_private": len(shared)}


def describe(weights):
    return {"weights_": weights, "encoder_": Weighted(weights)}


class Weighted(Encoder):
    """Encoder that multiplies the columns of queries by weights."""

    def __init__(self, weights):
        self.weights = weights

    def queries(self, X):
        return scale_columns(X, self.weights)

    def items(self, X):
        return X


def test_the_smallest_learner_keeps_the_contract():
    check_learner(MeanWeights())


def test_width_of_the_encodings_is_derived(counts):
    X, y = counts
    assert MeanWeights().fit(X, y).get_feature_names_out().tolist()[-1] == (
        "meanweights39"
    )


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_a_fit_that_fails_leaves_all_state(error, counts):
    X, y = counts
    learner = MeanWeights().fit(X, y)
    learner.note = "the user's own"
    before = dict(vars(learner))

    def fail(self):
        self._private, self.n_features_in_, self.other_ = 1, 2, 3
        raise error

    learner.set_params(step=fail)
    with pytest.raises(error):
        learner.fit(X[:, :7], y)
    assert vars(learner) == before | {"step": fail}


def test_a_fit_keeps_only_attributes_of_the_user(counts):
    X, y = counts
    learner = MeanWeights().set_output(transform="pandas")
    learner.note, learner.old_, learner._old = "the user's own", 1, 2
    learner.fit(X.toarray(), y)
    assert learner.note == "the user's own"
    assert not hasattr(learner, "old_")
    assert not hasattr(learner, "_old")
    assert hasattr(learner.transform(X.toarray()), "columns")  # still pandas


def test_continuing_starts_from_the_old_state(counts):
    learner = MeanWeights().fit(*counts)
    with replacing_state(learner, afresh=False):
        learner.weights_ = learner.weights_ + 1
    kept = learner.weights_

    def fail():
        with replacing_state(learner, afresh=False):
            learner.weights_ = learner.weights_ + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert learner.weights_ is kept


class Recorder:
    """Callback that records its calls and can ask to stop."""

    def __init__(self, stop=False):
        self.heard, self.stop = [], stop

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context, **kwargs):
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.heard.append(f"end {context.task_name}")
        return self.stop


def test_callbacks_get_every_step(counts):
    recorder = Recorder(stop=True)
    learner = MeanWeights().set_callbacks(recorder).fit(*counts)
    assert recorder.heard == [
        "setup",
        "begin fit",
        "begin step",
        "end step",
        "end fit",
        "teardown",
    ]
    assert learner.stopped_


def test_a_learner_without_targets_is_refused(counts):
    X, _ = counts
    with pytest.raises(ValueError, match="y holds no triplet"):
        MeanWeights().fit(X, np.zeros(66, dtype=int))
    with pytest.raises(ValueError, match="requires y"):
        MeanWeights().fit(X, None)
    assert vars(clone(MeanWeights())) == {"step": None}


@pytest.mark.parametrize("types", [("float32", "float64"), ("float32", "float32")])
def test_inner_products_of_every_mixture(types, rng):
    Q, D = (
        rng.poisson(0.5, (n, 8)).astype(t) for n, t in zip((5, 9), types, strict=True)
    )
    for A in (Q, sparse.csr_array(Q)):
        for B in (D, sparse.csr_array(D)):
            S = inner_products(A, B, 2)
            assert isinstance(S, np.ndarray)
            assert_allclose(S, Q @ D.T)
            assert S.dtype == np.result_type(Q, D)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64])
def test_inner_products_of_sparse_integers_are_floats(dtype, rng):
    A = rng.poisson(0.5, (5, 8)).astype(dtype)
    S = inner_products(sparse.csr_array(A), sparse.csr_array(A))
    assert S.dtype.kind == "f"
    assert_allclose(S, A.astype(int) @ A.T.astype(int))


def test_warnings_point_at_the_users_line(counts):
    X, y = counts

    def warn(self):
        warn_user("look here")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MeanWeights(step=warn).fit(X, y)
    [warning] = caught
    assert Path(warning.filename).name == Path(__file__).name
    assert_array_equal(warning.message.args, ["look here"])
