"""Images of any kind as arrays of bytes, and texts as single lines."""

import numpy as np

from sklearn_simlearn._core.sklearn import num_samples


def check_length(name: str, values, length: int, of: str) -> None:
    """Check that there is an image or a text for each row."""
    if values is not None and num_samples(values) != length:
        raise ValueError(
            f"{name} must have one entry for each of the {length} rows of {of}; got "
            f"{num_samples(values)}."
        )


def as_sequence(values):
    """Something to index by row: the values of a column of a frame."""
    return list(values) if hasattr(values, "iloc") else values


def read_pictures(images, rows) -> dict[int, np.ndarray]:
    """Some of the images as uint8 arrays, grey (h, w) or in colour (h, w, 3 or 4).

    Bytes stay as they are, floats from 0 to 1 are stretched to 0 to 255, and other
    numbers from their smallest to their largest.
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
    """A text in one line of limited length."""
    line = " ".join(str(text).split())
    if len(line) <= n_characters:
        return line
    return line[: max(n_characters - 1, 0)].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
