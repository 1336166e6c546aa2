"""Encoders with separate maps of queries and items, and with shifted documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Composite, Encoder, Encodings, storable
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.rows import (
    BLOCK,
    canonical_csr,
    inverse,
    row_dots,
    scale_rows,
    unit_rows,
)
from sklearn_simlearn._core.typing import Matrix

# Part of the way that the map of documents moves new documents. With 0 to 0.5, lists of
# new documents gain; with 1, they lose.
SHARE_OF_NEW = 0.25

# Constants that are added to an entry before it is mixed, one per word of a digest.
SEEDS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)


@storable
@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows that are recognised by their values.

    Attributes
    ----------
    digests : ndarray of shape (n_rows, 2), dtype uint64
        One digest per row, sorted by the first word.
    """

    digests: np.ndarray

    @classmethod
    def of(cls, digests: np.ndarray) -> Self:
        """Return the rows with these digests. Equal rows are stored once."""
        return cls(np.unique(digests, axis=0))

    @classmethod
    def judged(
        cls, digests: np.ndarray, relevance: JudgedRelevance
    ) -> tuple[Self, sparse.csr_array]:
        """Return the documents that are relevant to at least one query.

        Parameters
        ----------
        digests : ndarray of shape (n_samples, 2)
            Digests of the documents among the samples.

        relevance : JudgedRelevance
            Relevance of the documents to the queries.

        Returns
        -------
        known : KnownRows
            The documents. Equal documents are stored once.

        weights : csr_array of shape (n_rows, n_samples)
            Relevance of each document to the queries among the samples.
        """
        weights = canonical_csr(relevance.pairs.maximum(0).T)
        judged = np.flatnonzero(np.diff(weights.indptr))
        found, group = np.unique(digests[judged], axis=0, return_inverse=True)
        members = sparse.csr_array(
            (np.ones(len(judged)), (group.ravel(), np.arange(len(judged)))),
            shape=(len(found), len(judged)),
        )
        return cls(found), canonical_csr(members @ weights[judged])

    def find(self, X: Matrix) -> np.ndarray:
        """Return the index of each row among the known rows, or -1."""
        return self._look_up(digest_rows(X))

    def find_among(self, rows: Encodings) -> np.ndarray:
        """Return the same for rows to encode, whose digests are computed once."""
        digests = rows.value(digest_rows, digest_rows)
        return rows.value(self, lambda X: self._look_up(digests))

    def _look_up(self, wanted):
        place = np.full(len(wanted), -1)
        if len(self.digests):
            near = np.searchsorted(self.digests[:, 0], wanted[:, 0])
            near = np.minimum(near, len(self.digests) - 1)
            is_known = (self.digests[near] == wanted).all(axis=1) & wanted.any(axis=1)
            place[is_known] = near[is_known]
        return place


@dataclass(frozen=True, eq=False)
class Maps(Composite):
    """Linear maps of encoded queries and items.

    (query-map-new)  The map of items is learned from the documents of a fit. Documents
    that are not among them move only a part of the way.

    Attributes
    ----------
    base : Encoder
        Encoder before the maps.

    of_queries : ndarray of shape (n_features, n_features)
        Queries are multiplied by it, and scaled to unit length.

    of_items : ndarray of shape (n_features, n_features) or None
        Map of the items; None if items are not mapped.

    known : KnownRows or None
        Items that the maps are learned from; None if all items are mapped fully.
    """

    base: Encoder
    of_queries: np.ndarray
    of_items: np.ndarray | None
    known: KnownRows | None

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the base if items are not mapped."""
        return self.base.name_columns(names) if self.of_items is None else ()

    def combine(self, rows: Encodings) -> Matrix:
        """Return mapped rows of unit length, or the items of the base."""
        Z = rows(self.base)
        A = self.of_queries if rows.side == "queries" else self.of_items
        if A is None:
            return Z
        mapped = (Z @ A.astype(Z.dtype, copy=False)).astype(Z.dtype, copy=False)
        if rows.side == "items" and self.known is not None:
            new = np.flatnonzero(self.known.find_among(rows) < 0)
            mapped[new] -= Z.dtype.type(1 - SHARE_OF_NEW) * (mapped[new] - Z[new])
        return unit_rows(mapped)


@dataclass(frozen=True, eq=False)
class Shifted(Composite):
    r"""Encoder that moves known documents towards the queries they are relevant to.

    (query-map-shift)  An encoded document d becomes (d + g m) / |d + g m|. The unit
    vector m has the direction of the mean of these encoded queries.

    Attributes
    ----------
    base : Encoder
        Encoder of the queries and of the other documents.

    known : KnownRows
        Documents that are moved.

    directions : ndarray or csr_array of shape (n_rows, n_columns)
        The vectors m.

    amount : float
        The factor g.
    """

    base: Encoder
    known: KnownRows
    directions: Matrix
    amount: float

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the base."""
        return self.base.name_columns(names)

    def combine(self, rows: Encodings) -> Matrix:
        """Return the rows of the base; known items are moved."""
        Z = rows(self.base)
        if rows.side == "queries":
            return Z
        place = self.known.find_among(rows)
        found = np.flatnonzero(place >= 0)
        if len(found) == 0:
            return Z
        moved = self._move(Z[found], place[found])
        if not sparse.issparse(Z):
            Z = Z.copy()
            Z[found] = moved
            return Z
        order = np.arange(Z.shape[0])
        order[found] = Z.shape[0] + np.arange(len(found))
        return canonical_csr(sparse.vstack([Z, moved], format="csr")[order])

    def _move(self, Z, place):
        """Return the moved encodings of documents, of unit length."""
        steps = self.directions[place].astype(Z.dtype, copy=False)
        if sparse.issparse(Z):
            steps = sparse.csr_array(steps)
        elif sparse.issparse(steps):
            steps = steps.toarray()
        Z = Z + steps * Z.dtype.type(self.amount)
        length = np.sqrt(row_dots(Z, Z))
        return scale_rows(Z, inverse(length))


def digest_rows(X: Matrix) -> np.ndarray:
    """Return a digest of 128 bits per row, equal for dense and sparse rows.

    The digest has two words of 64 bits. A word is the sum over the non-zero entries of
    the row, each rounded to single precision and mixed into 64 bits. The digest
    therefore does not depend on the order of entries or on stored zeros. A row of zeros
    has the digest (0, 0).

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_rows, n_features)
        Checked rows.

    Returns
    -------
    digests : ndarray of shape (n_rows, 2), dtype uint64
    """
    digests = np.zeros((X.shape[0], 2), dtype=np.uint64)
    if not isinstance(X, np.ndarray):
        occupied = np.flatnonzero(np.diff(X.indptr))
        for k, seed in enumerate(SEEDS):
            mixed = np.empty(X.nnz, dtype=np.uint64)
            for start in range(0, X.nnz, BLOCK):
                part = slice(start, start + BLOCK)
                mixed[part] = _mix_entries(X.data[part], X.indices[part], seed)
            if len(occupied):
                digests[occupied, k] = np.add.reduceat(mixed, X.indptr[occupied])
        return digests
    columns = np.arange(X.shape[1])
    n_rows = max(1, BLOCK // X.shape[1])
    for start in range(0, X.shape[0], n_rows):
        block = X[start : start + n_rows]
        for k, seed in enumerate(SEEDS):
            mixed = _mix_entries(block, columns, seed)
            digests[start : start + n_rows, k] = mixed.sum(axis=1, dtype=np.uint64)
    return digests


def _mix_entries(values, columns, seed):
    """Return 64 bits for each value and its column, by the finaliser of SplitMix64."""
    with np.errstate(over="ignore", under="ignore"):
        values = values.astype(np.float32)
    z = values.view(np.uint32).astype(np.uint64)
    z |= columns.astype(np.uint64) << np.uint64(32)
    z += np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    z[values == 0] = 0
    return z
