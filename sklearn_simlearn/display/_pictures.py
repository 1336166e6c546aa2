"""Conversion of images to arrays of bytes, and of texts to single lines."""

import numpy as np

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.sklearn import num_samples


def check_length(name: str, values, length: int, of: str) -> None:
    """Raise unless there is an image or a text for each row."""
    if values is not None and num_samples(values) != length:
        raise ValueError(
            f"{name} must have one entry for each of the {length} rows of {of}; got "
            f"{num_samples(values)}."
        )


def as_sequence(values):
    """Return a sequence that can be indexed by row; for a column, its values."""
    return list(values) if hasattr(values, "iloc") else values


def read_pictures(images, rows) -> dict[int, np.ndarray]:
    """Return some images as uint8 arrays, grey (h, w) or in colour (h, w, 3 or 4).

    Bytes are unchanged. Floats from 0 to 1 are scaled to the range from 0 to 255. Other
    numbers are scaled so that their minimum is 0 and their maximum 255.
    """
    arrays = {int(row): np.asarray(images[int(row)]) for row in np.unique(rows)}
    for row, array in arrays.items():
        is_grey = array.ndim == 2
        if not (is_grey or (array.ndim == 3 and array.shape[2] in (3, 4))):
            raise ValueError(
                "An image must have shape (height, width) or (height, width, 3 or 4); "
                f"image {row} has shape {array.shape}."
            )
        if array.size == 0 or array.dtype.kind not in "buif":
            raise ValueError(
                f"An image must hold numbers; image {row} has shape {array.shape} and "
                f"dtype {array.dtype}."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"Image {row} holds NaN or infinite values.")
    if all(array.dtype == np.uint8 for array in arrays.values()):
        return arrays
    low = min(float(array.min()) for array in arrays.values())
    high = max(float(array.max()) for array in arrays.values())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scale = 255 / (high - low) if high > low else 0.0
    return {
        row: np.rint((array.astype(np.float64) - low) * scale).astype(np.uint8)
        for row, array in arrays.items()
    }


def shorten(text, n_characters: int) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(str(text).split())
    if len(line) <= n_characters:
        return line
    return line[: max(n_characters - 1, 0)].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def find_texts(X, y, texts, document_texts):
    """Return texts of the queries and of the items; None if there are none."""
    if not isinstance(y, Judgements):
        texts = as_sequence(texts)
        return texts, texts
    if texts is None and _are_texts(X):
        texts = X
    if document_texts is None and _are_texts(y.documents):
        document_texts = y.documents
    return as_sequence(texts), as_sequence(document_texts)


def _are_texts(X):
    return num_samples(X) > 0 and isinstance(X, list) and isinstance(X[0], str)
