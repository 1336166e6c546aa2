"""Warnings that are shown at the line of the user."""

import contextlib
import sys
import warnings
from pathlib import Path

import sklearn

# Packages between the user's line and the line that warns.
OURS = (
    str(Path(__file__).parents[1]),
    str(Path(sklearn.__file__).parent),
    contextlib.__file__,
)


class StartKeptWarning(UserWarning):
    """Warning of a fit that keeps its start.

    The hold-out found no candidate that ranks better than the start, or there were too
    few classes, samples or queries to hold some out.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn import OASIS, StartKeptWarning
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", StartKeptWarning)
    ...     oasis = OASIS().fit(*load_iris(return_X_y=True))
    >>> caught[0].category.__name__
    'StartKeptWarning'
    """


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package and scikit-learn."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
