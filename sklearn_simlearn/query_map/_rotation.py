"""Closed-form linear maps between two spaces."""

import numpy as np
from scipy import linalg


def find_rotation(cross: np.ndarray) -> np.ndarray:
    """Return the orthogonal map A that maps rows of X closest to rows of Y.

    (model-map-rotation)  A = U V' with X'Y = U S V'. If X and Y differ in their number
    of columns, only the rows or only the columns of A are orthonormal.

    Parameters
    ----------
    cross : ndarray of shape (n_features_X, n_features_Y)
        The products X'Y.
    """
    U, _, Vt = linalg.svd(cross, full_matrices=False)
    return U @ Vt


class ShrunkenMaps:
    """Least-squares maps from rows of X to rows of Y, shrunk towards the rotation A.

    (model-map)  B = A + (X'X + alpha I)^-1 X'(Y - XA).

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features_X)
        Rows to map.

    Y : ndarray of shape (n_samples, n_features_Y)
        Targets of the mapped rows.
    """

    def __init__(self, X: np.ndarray, Y: np.ndarray):
        cross = X.T @ Y
        self.gram = X.T @ X
        self.rotation = find_rotation(cross)
        self.rest = cross - self.gram @ self.rotation

    def find(self, alpha: float) -> np.ndarray:
        """Return the map B; an infinite alpha gives the rotation."""
        if np.isinf(alpha):
            return self.rotation
        shrunk = self.gram + alpha * np.eye(len(self.gram))
        return self.rotation + linalg.solve(shrunk, self.rest, assume_a="pos")
