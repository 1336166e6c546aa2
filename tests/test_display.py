"""Plots: the lines are the measures."""

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_simlearn import metrics
from sklearn_simlearn.display import (
    MeanPrecisionRecallDisplay,
    PrecisionAtRankDisplay,
)
from sklearn_simlearn.similarities import CosineSimilarity

matplotlib.use("Agg")


@pytest.fixture
def cosine(counts):
    X, y = counts
    learner = CosineSimilarity().fit(X)
    relevance = ((y[:, None] == y) & (y >= 0)).astype(np.int8)
    np.fill_diagonal(relevance, -1)
    return learner, X, y, (relevance[y >= 0], learner.similarity(X)[y >= 0])


def test_precision_recall(cosine):
    learner, X, y, pair = cosine
    display = MeanPrecisionRecallDisplay.from_estimator(learner, X, y, name="idf")
    precision, recall = metrics.precision_recall_curve(*pair)
    assert_allclose(display.line_.get_xdata(), recall)
    assert_allclose(display.line_.get_ydata(), precision)
    score = metrics.mean_average_precision(*pair)
    assert display.line_.get_label() == f"idf (mAP = {score:.3f})"
    second = MeanPrecisionRecallDisplay.from_estimator(
        learner, X, y, ax=display.ax_, color="red"
    )
    assert second.ax_ is display.ax_
    assert len(display.ax_.lines) == 2
    assert second.line_.get_color() == "red"


def test_precision_at_rank(cosine):
    learner, X, y, pair = cosine
    display = PrecisionAtRankDisplay.from_estimator(learner, X, y, max_rank=7)
    expected = [metrics.precision_at_k(*pair, k, average=True) for k in range(1, 8)]
    assert_allclose(display.line_.get_ydata(), expected)
    assert display.line_.get_label() == "CosineSimilarity"
    mask = np.arange(66) < 10
    masked = PrecisionAtRankDisplay.from_estimator(
        learner, X, y, max_rank=7, query_mask=mask
    )
    assert not np.allclose(masked.precision, display.precision)
