"""The list of checks. The first line of a check's docstring is the rule it checks."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator

CHECKS: list[Callable] = []


def check_learner(estimator: BaseEstimator) -> None:
    """Check that an estimator follows the contract of a learner.

    Parameters
    ----------
    estimator : object
        A learner or hand-made similarity, with parameters for a fast fit.

    Raises
    ------
    AssertionError
        If it breaks a rule. The message begins with the rule.

    Examples
    --------
    >>> from sklearn_simlearn.contract import check_learner
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> check_learner(CosineSimilarity())
    """
    for check in CHECKS:
        check(estimator)


def rule(check: Callable) -> Callable:
    """Add a check to the list, and let its errors begin with the rule."""
    statement = (check.__doc__ or "").partition("\n")[0]

    @wraps(check)
    def run(estimator):
        try:
            check(estimator)
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else type(error).__name__
            detail = f"{kind}: {error}" if kind else str(error).strip()
            message = f"{statement} {type(estimator).__name__} does not: {detail}"
            raise AssertionError(message) from error

    CHECKS.append(run)
    return run


def require(condition, detail: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise AssertionError(detail)


def require_equal(actual, expected, detail: str) -> None:
    """Raise unless two arrays are exactly equal."""
    assert_array_equal(actual, expected, err_msg=detail)


def require_close(actual, expected, detail: str, tolerance: float = 1e-9) -> None:
    """Raise unless two arrays are equal up to rounding."""
    assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, err_msg=detail)


def distance(A: np.ndarray, B: np.ndarray) -> float:
    """Return the root mean square of A - B, as a share of that of A and B."""
    size = np.sqrt(np.mean(A**2) + np.mean(B**2))
    return float(np.sqrt(np.mean((A - B) ** 2)) / size) if size > 0 else 0.0


@contextmanager
def raises(kind: type[Exception], what: str, match: str = "") -> Iterator[None]:
    """Require an error whose message matches the regular expression `match`."""
    try:
        yield
    except kind as error:
        message = str(error)
    else:
        raise AssertionError(f"{what} does not raise a {kind.__name__}.")
    require(
        re.search(match, message),
        f"{what} raises the message {message!r}, which does not contain {match!r}.",
    )
