"""Checks of `score`, and of the input of fitted estimators."""

import numpy as np

from sklearn_simlearn.contract._rules import (
    raises,
    require_close,
    require_equal,
    rule,
)
from sklearn_simlearn.contract._samples import dense, fit, samples, with_row
from sklearn_simlearn.metrics import average_precision


@rule
def check_score_takes_masks_and_weights(estimator):
    """The score is the weighted mean of average precision; a mask is weights 0, 1."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    relevant = ((y[:, None] == y) & (y >= 0)).astype(float)
    np.fill_diagonal(relevant, -1)
    values = average_precision(relevant[:60], fitted.similarity(X[:60], X))
    mask = np.arange(len(y)) % 5 == 0
    weights = np.linspace(1, 2, len(y))
    for name, options, expected in [
        ("alone", {}, values.mean()),
        ("with query_mask", {"query_mask": mask}, values[mask[:60]].mean()),
        ("with a mask as weights", {"sample_weight": 1.0 * mask}, values[::5].mean()),
        (
            "with sample_weight",
            {"sample_weight": weights},
            np.average(values, weights=weights[:60]),
        ),
    ]:
        require_close(
            fitted.score(X, y, **options),
            expected,
            f"score {name} is not the mean over those queries.",
            1e-6,
        )


@rule
def check_perfect_fold_is_refused(estimator):
    """A fold of one class raises: any similarity would score 1 on it."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    with raises(ValueError, "score on samples of one class", match="StratifiedKFold"):
        fitted.score(X[:5], y[:5])


@rule
def check_bad_input_is_named(estimator):
    """Invalid input raises a ValueError that names it, and changes nothing."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    before = fitted.similarity(X)
    for name, bad, message in [
        ("a NaN", with_row(X, 0, np.nan), "NaN"),
        ("too few features", X[:, :5], "5 features"),
        ("one dimension", dense(X)[0], "2D array"),
        ("a huge value", with_row(X, 0, 1e160), "row 0 of X is 1e\\+160"),
        ("a tiny value", with_row(X, 1, 1e-160), "row 1 of X is 1e-160"),
    ]:
        with raises(ValueError, f"similarity of X with {name}", match=message):
            fitted.similarity(bad)
        with raises(ValueError, f"transform_database with {name}", match=message):
            fitted.transform_database(bad)
    with raises(ValueError, "score with a y that is too short", match="65 and 66"):
        fitted.score(X, y[:-1])
    require_equal(fitted.similarity(X), before, "the similarity changes.")
