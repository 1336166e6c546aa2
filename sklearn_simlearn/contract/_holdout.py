"""Checks of learners whose hold-out decides how far to move from the start."""

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Sides
from sklearn_simlearn._core.rows import check_rows
from sklearn_simlearn._core.start import Start
from sklearn_simlearn.contract._rules import require, rule
from sklearn_simlearn.contract._samples import (
    chosen,
    fit,
    has_holdout,
    samples,
    takes_sparse,
)
from sklearn_simlearn.metrics import average_precision

# Number of standard errors that the best of many candidates does not exceed by chance.
N_ERRORS = 5


@rule
def check_something_is_learned(estimator):
    """A learner with a hold-out leaves its start if most features are noise."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    # A start that the user chose may rank everything correctly.
    if has_holdout(fitted) and _measure_start(fitted) < 0.9:
        require(chosen(fitted) is not None, "the start is kept.")
        require(fitted.holdout_gain_ > 0, f"the gain is {fitted.holdout_gain_}.")


def _measure_start(model):
    """Return the mean average precision of the start on the held-out samples."""
    results = model.holdout_results_
    return results["mean_average_precision"][results["candidates"].index(None)]


@rule
def check_holdout_does_not_leak(estimator):
    """Held-out samples are not learned from: random labels give no gain."""
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, size=(120, 40)).astype(np.float64)
    X = sparse.csr_array(X) if takes_sparse(estimator) else X
    y = rng.permutation(np.repeat(np.arange(20), 6))
    kinds = [{}]
    if getattr(estimator, "holdout", None) is not None:
        kinds = [{"holdout": kind} for kind in ("objects", "samples")]
    for options in kinds:
        fitted = fit(estimator, X, y, options)
        if has_holdout(fitted):
            gain, error = fitted.holdout_gain_, fitted.holdout_error_
            require(
                gain <= N_ERRORS * error,
                f"random labels give a gain of {gain:.3f}, with error {error:.3f}.",
            )


@rule
def check_start_is_kept_where_learning_harms(estimator):
    """A learner for new classes does not rank them worse than its start."""
    if getattr(estimator, "holdout", None) not in ("auto", "objects"):
        return
    X, y, X_new, y_new = make_misleading_samples()
    if takes_sparse(estimator):
        X, X_new = sparse.csr_array(X), sparse.csr_array(X_new)
    fitted = fit(estimator, X, y)
    rows, new = (check_rows(fitted, Z, reset=False) for Z in (X, X_new))
    relevant = (y_new[:, None] == y_new).astype(float)
    np.fill_diagonal(relevant, -1)
    start, served = (
        average_precision(relevant, S).mean()
        for S in (Sides(new, new).similarity(Start.fit(rows)), fitted.similarity(X_new))
    )
    require(
        served > start - 0.02,
        f"mean average precision is {served:.3f}, that of the start {start:.3f}.",
    )


def make_misleading_samples():
    """Return samples of five classes, too few for a hold-out, and of new classes.

    The words that vary most within the five classes describe the new classes.
    """
    rng = np.random.default_rng(0)
    y, y_new = np.repeat(np.arange(5), 12), np.repeat(np.arange(20), 4)
    X = np.hstack(
        [
            rng.poisson(10 * np.eye(5)[y] + 0.2),
            rng.poisson(rng.gamma(0.3, 10.0, size=(len(y), 15))),
        ]
    )
    prototypes = rng.gamma(0.3, 10.0, size=(20, 15))
    X_new = np.hstack(
        [rng.poisson(2.0, size=(len(y_new), 5)), rng.poisson(prototypes[y_new])]
    )
    return X.astype(np.float64), y, X_new.astype(np.float64), y_new
