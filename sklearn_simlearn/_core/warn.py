"""Warnings that are shown at the line of the user."""

import sys
import warnings

# Packages between the user's line and the line that warns. They are named instead of
# imported, so that a filter can use the class below before scikit-learn is loaded.
OURS = ("contextlib", "sklearn", "sklearn_simlearn")


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
    while frame.f_back is not None and _find_package(frame) in OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _find_package(frame):
    """Return the name of the package whose code a frame runs."""
    return frame.f_globals.get("__name__", "").partition(".")[0]
