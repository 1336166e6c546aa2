"""Encoders of sets of queries: as vectors, or as weights of the queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_simlearn._core.encoders import Encoder, storable
from sklearn_simlearn._core.groups import Sets, read_groups
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.memory._weights import (
    KernelSpace,
    VectorSpace,
    memory_weights,
    unit_scale,
)

Space = VectorSpace | KernelSpace


@storable
@dataclass(frozen=True, eq=False)
class Pooling:
    """Combination of the queries of a set; see `MemoryVectorQuery`."""

    method: str
    alpha: float
    normalize: bool

    def weights(self, space: Space, sets: Sets) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of all queries, and the factors that normalise them."""
        if self.method == "memory":
            shrinkage = 1 - 1 / (1 + self.alpha)
            return memory_weights(space, sets, shrinkage, normalize=self.normalize)
        weights = np.ones(len(sets.rows))
        if self.method == "average":
            weights /= np.repeat(sets.sizes, sets.sizes)
        if self.normalize:
            return weights, unit_scale(space, sets.rows)
        return weights, np.ones(len(sets.rows))

    def factors(self, space: Space, sets: Sets) -> np.ndarray:
        """Return the factors of the queries before they are pooled."""
        weights, scale = self.weights(space, sets)
        return weights * scale

    def scores(self, space: Space, sets: Sets, items: Matrix) -> np.ndarray:
        """Return the weighted sum, or the maximum, of the scores of each set."""
        compare, n_items = space.compare_with(items), items.shape[0]
        S = np.empty((len(sets.sizes), n_items), dtype=space.dtype)
        n_rows = get_chunk_n_rows(16 * n_items, max_n_rows=len(sets.rows))
        pool = np.maximum if self.method == "max" else np.add
        for start, block in sets.blocks(sets.sizes, n_rows):
            scores = compare(block.rows) * self.factors(space, block)[:, None]
            stop = start + len(block.sizes)
            S[start:stop] = pool.reduceat(scores, block.offsets[:-1], axis=0)
        return S


@dataclass(frozen=True, eq=False)
class MemoryEncoder(Encoder):
    """Encoder of each set of queries as one vector.

    Parameters
    ----------
    pooling : Pooling
        Combination of the queries of a set.

    base : Encoder or None
        Encoder of single queries and of items; None uses the rows.
    """

    pooling: Pooling
    base: Encoder | None

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the base, or of the features."""
        return names if self.base is None else self.base.name_columns(names)

    def space(self, X: Matrix) -> VectorSpace:
        """Return the vectors of the queries."""
        if self.base is None:
            return VectorSpace(X, X)
        return VectorSpace(self.base.queries(X), self.base.items(X))

    def queries(self, X: Matrix, groups: ArrayLike | None = None) -> Matrix:
        """Return one row per group, in sorted order; one per query without groups."""
        return self.vectors(self.space(X), read_groups(groups, X.shape[0]))

    def vectors(self, space: VectorSpace, sets: Sets) -> Matrix:
        """Return one row per set."""
        check_poolable(self.pooling, sets)
        return space.sums(lambda block: self.pooling.factors(space, block), sets)

    def items(self, X: Matrix) -> Matrix:
        """Return the items of the base, or the rows, scaled if `normalize` is True."""
        if self.base is not None:
            return self.base.items(X)
        return unit_rows(X) if self.pooling.normalize else X


@dataclass(frozen=True, eq=False)
class PrecomputedEncoder(Encoder):
    """Encoder of sets of queries that are given by their similarities only.

    A set is encoded as the weights of its queries. An item is a row of similarities to
    the queries.
    """

    pooling: Pooling

    def space(self, X: Matrix) -> KernelSpace:
        """Return the similarities of the queries to each other."""
        return KernelSpace(lambda rows, items: items[:, rows].T, X)

    def queries(self, X: Matrix, groups: ArrayLike | None = None) -> np.ndarray:
        """Return one row of weights per group, zero for queries of other groups."""
        space, sets = self.space(X), read_groups(groups, X.shape[0])
        check_poolable(self.pooling, sets)
        M = np.zeros((len(sets.sizes), X.shape[0]), dtype=space.dtype)
        for start, block in space.blocks(sets):
            factors = self.pooling.factors(space, block)
            M[start + block.of_row, block.rows] = factors
        return M

    def items(self, X: Matrix) -> Matrix:
        """Return the rows themselves."""
        return X


def check_poolable(pooling: Pooling, sets: Sets) -> None:
    """Raise if the sets cannot be encoded as one vector each."""
    if pooling.method == "max" and sets.sizes.max() > 1:
        raise ValueError(
            'The maximum of scores is not an inner product. With method="max", use '
            "`similarity`, or `transform` without groups."
        )
