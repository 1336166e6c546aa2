"""Labels of any kind, read as integers."""

from numbers import Integral, Real

import numpy as np

DISTRACTOR = -1


def as_array(y) -> np.ndarray:
    """`y` as an array of one or two dimensions."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None: give "
            "labels or a relevance matrix."
        )
    try:
        y = np.asarray(y)
    except ValueError:
        raise ValueError(
            "y is ragged: its rows differ in length. For several labels per sample "
            "pass a relevance matrix, such as MultiLabelBinarizer().fit_transform(y)."
        ) from None
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y must be 1-dimensional (labels) or 2-dimensional (a relevance matrix); "
            f"got shape {y.shape}."
        )
    if y.dtype.kind == "O" and any(isinstance(v, list | tuple | set) for v in y.flat):
        raise ValueError(
            "y holds lists. For several labels per sample pass a relevance matrix, "
            "such as MultiLabelBinarizer().fit_transform(y)."
        )
    return y


def read_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of any kind as the integers 0, 1, ..., and the classes they name.

    Labels of distractors become -1, which is not among the classes.
    """
    if y.dtype.kind == "O":
        y = _read_objects(y)
    kind = y.dtype.kind
    if kind == "f":
        y = _as_integers(y)
    elif kind == "c":
        raise ValueError("Complex data not supported: y must hold labels.")
    elif kind not in "ObiuSU":
        raise ValueError(f"Unknown label type: y has dtype {y.dtype}.")
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError(
            "y mixes labels of different types: use integers only, or strings only."
        ) from None

    labels = codes.astype(np.int64)
    if classes.dtype.kind == "i" or (
        classes.dtype.kind == "O" and all(isinstance(c, Integral) for c in classes)
    ):
        if len(classes) == 2 and classes[0] == DISTRACTOR and classes[1] == 1:
            raise ValueError(
                "The labels are -1 and 1 alone, which is ambiguous: -1 means a "
                "distractor, relevant to nothing. Use 0 and 1 for two classes, or any "
                "label but 1 for one class among distractors."
            )
        distractor = np.flatnonzero(classes == DISTRACTOR)
        if len(distractor):
            labels[codes == distractor[0]] = DISTRACTOR
            labels[codes > distractor[0]] -= 1
            classes = np.delete(classes, distractor[0])
    return labels, classes


def _read_objects(y):
    """Labels as Python objects; those that are numbers with a fraction as floats."""
    if any(_is_missing(label) for label in y):
        raise ValueError(
            "Input y contains NaN or None. Use the integer label -1 for samples that "
            "belong to no class."
        )
    if all(isinstance(v, Real) for v in y) and any(isinstance(v, float) for v in y):
        return _as_floats(y)
    return y


def _as_floats(y):
    floats = y.astype(np.float64)
    if (floats != y).any():
        raise ValueError("y mixes floats with integers too large for them.")
    return floats


def _is_missing(label):
    # The NA of pandas is neither equal to itself nor unequal.
    return label is None or type(label).__name__ == "NAType" or label != label


def _as_integers(y):
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity.")
    if (y != np.rint(y)).any():
        raise ValueError(
            "Unknown label type: y holds real numbers. Labels are integers or strings; "
            "for graded relevance pass a matrix of shape (n_samples, n_columns)."
        )
    n_bits = np.finfo(y.dtype).nmant + 1
    if (np.abs(y) >= 2.0**n_bits).any():
        raise ValueError(
            f"y holds labels of 2**{n_bits} or more as {y.dtype}, which cannot tell "
            "neighbouring integers apart. Pass them as integers or strings."
        )
    return y.astype(np.int64)
