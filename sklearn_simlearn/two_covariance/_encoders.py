"""Encoders of the two-covariance model, for single queries and for sets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from sklearn_simlearn._core.encoders import (
    Chain,
    Composite,
    Encoder,
    Encodings,
    Mixture,
    Sides,
)
from sklearn_simlearn._core.groups import Sets, read_groups
from sklearn_simlearn._core.rows import side_by_side
from sklearn_simlearn._core.typing import Matrix

# Set sizes whose coefficients span, approximately, those of all sizes in between.
SIZES = np.unique(np.rint(np.geomspace(1, 1000, 40)))

# Largest error of this approximation, relative to the largest coefficient.
TOLERANCE = 1e-11


def quadratic_weights(beta: np.ndarray, n: ArrayLike) -> np.ndarray:
    """Return the weights of the squares in (two-covariance-ratio), one row per n."""
    n = np.asarray(n, dtype=np.float64)[:, None]
    return n * beta**2 / ((1 + beta) * (1 + (n + 1) * beta))


def span_of_weights(beta: np.ndarray, sizes: np.ndarray = SIZES) -> np.ndarray:
    """Return an orthonormal basis of the quadratic weights of sets of these sizes.

    The default sizes are 1 to 1,000 queries. The first size must be 1, so the first
    column has the direction of the weights of a single query.
    """
    weights = quadratic_weights(beta, sizes)
    length = np.linalg.norm(weights[0])
    if length == 0:
        return np.eye(len(beta), 1)
    first = weights[0] / length
    if len(weights) == 1:
        return first[:, None]
    rest = weights - np.outer(weights @ first, first)
    _, strength, directions = np.linalg.svd(rest, full_matrices=False)
    keep = strength > TOLERANCE * strength.max(initial=length)
    return np.linalg.qr(np.column_stack([first, directions[keep].T]))[0]


@dataclass(frozen=True, eq=False)
class LikelihoodRatio(Encoder):
    """Log likelihood ratio of "same class", up to constants: (two-covariance-ratio).

    Rows are coordinates in which W is the identity and B is diagonal. A single query
    needs only the first of the columns for squares.

    Parameters
    ----------
    beta : ndarray of shape (n_components,)
        Variances between classes.

    basis : ndarray of shape (n_components, n_columns)
        Basis of the weights of the squares, from `span_of_weights`.

    length : float
        Length to which rows of unit length are scaled before they are compared.
    """

    beta: np.ndarray
    basis: np.ndarray
    length: float = 1.0

    def items(self, X: Matrix) -> np.ndarray:
        """Return the coordinates and weighted sums of their squares."""
        X = self.length * X
        return side_by_side(X, np.square(X) @ self.basis.astype(X.dtype))

    def queries(self, X: Matrix, groups: ArrayLike | None = None) -> np.ndarray:
        """Return the coefficients of one set of queries per row."""
        sets = read_groups(groups, X.shape[0])
        n = sets.sizes.astype(np.float64)[:, None]
        mean = X if groups is None else average(X, sets)
        total = self.length * n * mean
        linear = total * (self.beta / (1 + (n + 1) * self.beta))
        squares = -0.5 * quadratic_weights(self.beta, sets.sizes) @ self.basis
        return np.hstack([linear, squares]).astype(X.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class QuerySets(Composite):
    """Encoder that also encodes sets of queries, each as one row.

    Parameters
    ----------
    base : Encoder
        Encoder of single queries. A part that is a likelihood ratio uses the ratio of
        the whole set; any other part uses the mean of the encoded queries.
    """

    base: Encoder

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the base."""
        return self.base.name_columns(names)

    @property
    def is_symmetric(self) -> bool:
        """Return whether the base is symmetric."""
        return self.base.is_symmetric

    def combine(self, rows: Encodings) -> Matrix:
        """Return the rows of the base."""
        return rows(self.base)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities of the base."""
        return sides.similarity(self.base)

    def queries(self, X: Matrix, groups: ArrayLike | None = None) -> Matrix:
        """Return one row per group, in sorted order; one per query without groups."""
        if groups is None:
            return super().queries(X)
        return _encode_sets(self.base, X, groups)


def _encode_sets(encoder, X, groups):
    if isinstance(encoder, Mixture):
        start, learned = (
            _encode_sets(part, X, groups) for part in (encoder.start, encoder.learned)
        )
        a = encoder.share
        return side_by_side((a**0.5) * start, ((1 - a) ** 0.5) * learned)
    if isinstance(encoder, Chain) and isinstance(encoder.then, LikelihoodRatio):
        return encoder.then.queries(encoder.first.queries(X), groups)
    return average(encoder.queries(X), read_groups(groups, X.shape[0]))


def average(X: Matrix, sets: Sets) -> Matrix:
    """Return the mean row of each set."""
    weights = (1 / sets.sizes)[sets.of_row].astype(X.dtype)
    shape = (len(sets.sizes), X.shape[0])
    return sparse.csr_array((weights, sets.rows, sets.offsets), shape=shape) @ X
