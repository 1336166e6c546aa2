"""Weights of the queries in sets: Gram matrices, linear systems and weighted sums.

Notation and equation labels are those of doc/learners/memory.rst.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._core.groups import SETS_TOGETHER, Sets, sets_of_one
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.rows import canonical_csr, row_dots, scale_rows
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.memory._memory_fast import (
    dense_grams,
    dense_sums,
    solve_grams,
    sparse_grams,
)

# Number of values that a call of a kernel processes. It is small, so that a dense set
# is still in the cache when its weights are known, memory is bounded, and Ctrl-C is
# handled soon.
NUMBERS_PER_CALL = 2**21

# Eigenvalues of a Gram matrix below this, times the largest one and the size of the
# matrix, count as zero. This is the order of rounding errors in double precision, and
# of squared rounding errors of queries in single precision.
NOISE = 64 * np.finfo(np.float64).eps


class VectorSpace:
    """Queries that are vectors.

    Parameters
    ----------
    Q : ndarray or csr_array of shape (n_queries, n_features)
        The queries.

    D : ndarray or csr_array of shape (n_queries, n_features)
        The queries encoded as items, for their similarities to each other. It may be
        `Q` itself.
    """

    noise = NOISE

    def __init__(self, Q: Matrix, D: Matrix):
        self.is_symmetric = D is Q
        self.is_sparse = sparse.issparse(Q) or sparse.issparse(D)
        clean = canonical_csr if self.is_sparse else np.ascontiguousarray
        self.Q: Any = clean(Q)
        self.D: Any = self.Q if self.is_symmetric else clean(D)
        self.dtype = Q.dtype
        self.width = Q.shape[1]

    def blocks(self, sets: Sets) -> Iterator[tuple[int, Sets]]:
        """Yield blocks of sets whose Gram matrices one call of a kernel computes."""
        if self.is_sparse:
            stored = np.diff(self.Q.indptr) + np.diff(self.D.indptr)
            per_query = np.add.reduceat(stored[sets.rows], sets.offsets[:-1])
        else:
            per_query = self.width
        return sets.blocks(sets.sizes * (sets.sizes + per_query), NUMBERS_PER_CALL)

    def grams(self, sets: Sets) -> np.ndarray:
        """Return the Gram matrices of all sets, one after the other."""
        grams = np.empty(np.sum(sets.sizes**2))
        if not self.is_sparse:
            dense_grams(self.Q, self.D, sets.rows, sets.offsets, grams)
            return grams
        index = np.result_type(self.Q.indices, self.D.indices)
        arrays = []
        for matrix in (self.Q, self.D):
            arrays.append(matrix.data)
            arrays.append(matrix.indices.astype(index, copy=False))
            arrays.append(matrix.indptr.astype(index, copy=False))
        sparse_grams(*arrays, self.width, sets.rows, sets.offsets, grams)
        return grams

    def sums(self, factors: Callable[[Sets], np.ndarray], sets: Sets) -> Matrix:
        """Return the weighted sum of the queries of each set: (memory-dual)."""
        if not self.is_sparse:
            M = np.empty((len(sets.sizes), self.width), dtype=self.dtype)
            for start, block in self.blocks(sets):
                out = M[start : start + len(block.sizes)]
                dense_sums(self.Q, block.rows, block.offsets, factors(block), out)
            return M
        # Compute one product for all sets: a product allocates an array of full width.
        factor = np.concatenate([factors(block) for _, block in self.blocks(sets)])
        pool = sparse.csr_array(
            (factor, sets.rows, sets.offsets),
            shape=(len(sets.sizes), self.Q.shape[0]),
        )
        return canonical_csr((pool @ self.Q).astype(self.dtype))

    def compare_with(self, items: Matrix) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from row numbers to the products with all items."""
        products = products_with(items)
        return lambda rows: products(self.Q[rows])


class KernelSpace:
    """Queries that are given by their similarities to each other and to the items.

    Parameters
    ----------
    compare : callable
        Function that returns the similarities of rows of `X` to items.

    X : ndarray or csr_array of shape (n_queries, n_features)
        The queries.
    """

    is_symmetric = False

    def __init__(self, compare: Callable[..., np.ndarray], X: Matrix):
        self._compare = compare
        self.X = X
        self.dtype = X.dtype
        self.noise = 64 * np.finfo(self.dtype).eps

    def blocks(self, sets: Sets) -> Iterator[tuple[int, Sets]]:
        """Yield blocks of sets whose Gram matrices are computed together."""
        return sets.blocks(sets.sizes**2, NUMBERS_PER_CALL)

    def grams(self, sets: Sets) -> np.ndarray:
        """Return the Gram matrices of all sets, one after the other."""
        # Compare several small sets at a time. The similarities between different sets
        # are not used, but computing them costs less than more calls.
        grams = []
        for _, block in sets.blocks(sets.sizes, SETS_TOGETHER):
            K = self._compare(block.rows, self.X[block.rows]).astype(np.float64)
            K = (K + K.T) / 2
            edges = zip(block.offsets[:-1], block.offsets[1:], strict=True)
            grams += [K[low:high, low:high].ravel() for low, high in edges]
        return np.concatenate(grams)

    def compare_with(self, items: Matrix) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from row numbers to the similarities to all items."""
        return lambda rows: self._compare(rows, items)


def unit_scale(space: VectorSpace | KernelSpace, rows: np.ndarray) -> np.ndarray:
    """Return factors that scale queries to a self-similarity of 1.

    If the self-similarity of a query is not positive, its factor is 1.
    """
    scale = np.ones(len(rows))
    own = space.grams(sets_of_one(rows))
    scale[own > 0] = 1 / np.sqrt(own[own > 0])
    return scale


def memory_weights(
    space: VectorSpace | KernelSpace, sets: Sets, shrinkage: float, *, normalize: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Solve (memory-ridge) for all sets.

    Parameters
    ----------
    space : VectorSpace or KernelSpace
        Space of the queries.

    sets : Sets
        One of the blocks of sets that `space.blocks` yields.

    shrinkage : float
        The number h of (memory-ridge), from 0 to 1.

    normalize : bool
        Whether to scale queries to a self-similarity of 1.

    Returns
    -------
    weights, scale : ndarray
        Weight of each query in `sets`, and the factor that normalises the query.
    """
    # If there are more queries than features, X' X is smaller than X X'.
    if isinstance(space, KernelSpace) or not (
        space.is_symmetric and sets.sizes.max() > space.width
    ):
        return _gram_weights(space, sets, shrinkage, normalize)
    weights, scale = np.empty((2, len(sets.rows)))
    for s, one in sets.blocks(sets.sizes, 1):
        part = slice(sets.offsets[s], sets.offsets[s + 1])
        if len(one.rows) > space.width:
            found = _tall_weights(space.Q[one.rows], shrinkage, normalize)
        else:
            found = _gram_weights(space, one, shrinkage, normalize)
        weights[part], scale[part] = found
    return weights, scale


def _gram_weights(
    space: VectorSpace | KernelSpace, sets: Sets, shrinkage: float, normalize: bool
) -> tuple[np.ndarray, np.ndarray]:
    grams = space.grams(sets)
    weights, scale = np.empty((2, len(sets.rows)))
    solved = np.empty(len(sets.sizes), dtype=bool)
    solve_grams(
        grams, sets.offsets, shrinkage, normalize, scale, weights, solved.view(np.uint8)
    )
    # Solve systems that are close to singular, all sets of one size at a time.
    first = np.append(0, np.cumsum(sets.sizes**2))
    for n in np.unique(sets.sizes[~solved]):
        left = np.flatnonzero(~solved & (sets.sizes == n))
        K = grams[first[left, None] + np.arange(n * n)].reshape(-1, n, n)
        slots = sets.offsets[left, None] + np.arange(n)
        weights[slots] = _pseudo_solve(K, shrinkage, space.noise)
    return weights, scale


def _pseudo_solve(K: np.ndarray, shrinkage: float, noise: float) -> np.ndarray:
    """Return K^+ 1 for the positive part of several matrices: (memory-pinv)."""
    n = K.shape[-1]
    eigenvalues, U = np.linalg.eigh(K)
    eigenvalues = (1 - shrinkage) * np.maximum(eigenvalues, 0) + shrinkage
    largest = eigenvalues.max(axis=1, keepdims=True)
    inverse = np.zeros_like(eigenvalues)
    np.divide(1, eigenvalues, out=inverse, where=eigenvalues > n * noise * largest)
    weights = np.einsum("sij,sj->si", U, inverse * U.sum(axis=1))
    # Unless 1 is in the null space, 1' K^+ 1 is at least n / largest.
    empty = weights.sum(axis=1) * largest[:, 0] <= 1e-9 * n
    weights[empty] = 1
    return weights


def _tall_weights(
    X: Matrix, shrinkage: float, normalize: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of one set with more queries than features, from X' X."""
    n = X.shape[0]
    X = X.astype(np.float64)
    scale = np.ones(n)
    if normalize:
        own = row_dots(X, X)
        scale[own > 0] = 1 / np.sqrt(own[own > 0])
        X = scale_rows(X, scale)
    eigenvalues, V = np.linalg.eigh(safe_sparse_dot(X.T, X, dense_output=True))
    keep = eigenvalues > n * NOISE * eigenvalues[-1]
    if not keep.any():
        return np.ones(n), scale
    eigenvalues, V = eigenvalues[keep], V[:, keep]
    # Split 1 into its part in the column space of X, with the basis
    # U = X V / sqrt(eigenvalues), and the rest.
    on_features = V.T @ np.asarray(X.sum(axis=0)).ravel() / eigenvalues
    inverse = 1 / ((1 - shrinkage) * eigenvalues + shrinkage)
    weights = X @ (V @ (inverse * on_features))
    if shrinkage > 0:
        weights += (1 - X @ (V @ on_features)) / shrinkage
    return weights, scale


def scaled_grams(
    space: VectorSpace | KernelSpace, sets: Sets, scale: np.ndarray
) -> list[np.ndarray]:
    """Return the similarities of the queries of each set, after normalisation."""
    last = np.cumsum(sets.sizes**2)[:-1]
    parts = np.split(scale[:, None], sets.offsets[1:-1])
    grams = np.split(space.grams(sets), last)
    return [
        gram.reshape(len(part), len(part)) * part * part.T
        for gram, part in zip(grams, parts, strict=True)
    ]


def check_square(X: Matrix) -> None:
    """Raise unless the matrix of precomputed similarities is square."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            'With base_similarity="precomputed", X must be the square matrix of the '
            f"similarities of the queries to each other; got shape {X.shape}."
        )
