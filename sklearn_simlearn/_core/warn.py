"""Warnings that point at the user's own line."""

import contextlib
import sys
import warnings
from pathlib import Path

import sklearn

# What may lie between the user's line and the one that warns.
OURS = (
    str(Path(__file__).parents[1]),
    str(Path(sklearn.__file__).parent),
    contextlib.__file__,
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is neither ours nor scikit-learn's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
