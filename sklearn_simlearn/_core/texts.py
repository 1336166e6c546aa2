"""Errors that name the row of a value that is not a text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn_simlearn._core.sklearn import num_samples

# Errors of vectorizers for values that are not texts.
ERRORS = (AttributeError, TypeError, ValueError)


@contextmanager
def naming_rows(X: Any = None, **others: Any) -> Iterator[None]:
    """If transformers raise, name the first value among texts that is not a text.

    Parameters
    ----------
    X : sequence, default=None
        Samples, which may be of any kind.

    **others : dict of sequences
        Other samples by the name that the error uses, such as `documents`.
    """
    try:
        yield
    except ERRORS as error:
        for name, samples in (others | {"": X}).items():
            row, place = _find_other(samples), f" of the {name}" if name else ""
            if row is not None:
                value = list(samples)[row]
                raise ValueError(
                    f"Row {row}{place} is {value!r:.100}, which is not a text. Replace "
                    "it with a text, such as '', or leave out the row."
                ) from error
        raise


def _find_other(samples):
    """Return the first row that is not a text; None if there are no texts."""
    is_sequence = isinstance(samples, list | tuple) or (
        getattr(samples, "ndim", None) == 1
    )
    if not is_sequence or num_samples(samples) == 0:
        return None
    is_text = [isinstance(value, str | bytes) for value in samples]
    return is_text.index(False) if any(is_text) and not all(is_text) else None
