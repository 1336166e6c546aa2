"""Truncated counts, and the encoder that compares them by a table of weights.

Notation and equation labels are those of doc/learners/histogram.rst.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import gen_batches

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.products import N_ITEMS, N_QUERIES
from sklearn_simlearn._core.rows import side_by_side, sum_entries
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.histogram._histogram_fast import (
    COUNT_BITS,
    MAX_COUNT,
    Words,
    score_queries,
)


class Counts(NamedTuple):
    """Rows of truncated counts, in the types that kernels expect."""

    indptr: np.ndarray  # int64
    words: np.ndarray  # int32
    counts: np.ndarray  # uint8, from 1

    def take(self, rows: np.ndarray) -> "Counts":
        """Return some of the rows."""
        first, size = self.indptr[rows], self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(size)])
        place = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], size)
        return Counts(indptr, self.words[place], self.counts[place])

    def lengths(self) -> np.ndarray:
        """Return the sum of the counts of each row."""
        return sum_entries(self.counts, self.indptr, np.int64)


def truncate(X: sparse.csr_array, n: int) -> Counts:
    """Return rows of counts in which counts above n are replaced by n."""
    counts = np.empty(len(X.data), dtype=np.uint8)
    np.minimum(X.data, n, out=counts, casting="unsafe")
    return Counts(
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        counts,
    )


def find_gains(weights: np.ndarray) -> np.ndarray:
    """Return the gains, the parts of weights due to both counts: (histogram-gain)."""
    gain = weights - weights[:, :1, :] - weights[:, :, :1] + weights[:, :1, :1]
    gain[:, 0] = weights[:, 0] - weights[:, 0, :1]
    return np.ascontiguousarray(gain)


def find_length_factors(counts: Counts, slope: float, mean_length: float) -> np.ndarray:
    """Return the factor of the gains of each item: (histogram-length)."""
    return 1 / (1 - slope + slope * counts.lengths() / (mean_length or 1.0))


def invert(counts: Counts, n_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the inverted file: the start of each word's postings, and the postings."""
    shape = len(counts.indptr) - 1, n_words
    # SciPy would widen the indices to the type of the offsets.
    indptr = counts.indptr.astype(_index_type(len(counts.words)), copy=False)
    rows = sparse.csr_array((counts.counts, counts.words, indptr), shape=shape)
    columns = rows.tocsc()
    postings = columns.indices.astype(np.int32, copy=False).view(np.uint32)
    postings <<= COUNT_BITS
    postings |= columns.data
    return columns.indptr.astype(np.int64), postings


def make_pattern(weight_pattern: ArrayLike | str | None, n: int) -> np.ndarray:
    """Return the bin of each pair of counts, numbered from 0."""
    pattern = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    if isinstance(weight_pattern, str):  # "symmetric"
        pattern = np.minimum(pattern, pattern.T)
    elif weight_pattern is not None:
        pattern = np.asarray(weight_pattern)
    if pattern.shape != (n + 1, n + 1):
        raise ValueError(
            f"weight_pattern must have shape ({n + 1}, {n + 1}) for truncation {n}; "
            f"got {pattern.shape}."
        )
    bins, pattern = np.unique(pattern, return_inverse=True)
    if len(bins) < 2:
        raise ValueError(
            "weight_pattern has a single bin, so there is nothing to learn. Use two or "
            "more bins."
        )
    return pattern.reshape(n + 1, n + 1)


@dataclass(frozen=True, eq=False)
class WeightTable(Encoder):
    """Counts compared by a table of weights; encoded rows are CSR: (histogram-model).

    Attributes
    ----------
    weights : ndarray of shape (n_groups, n + 1, n + 1)
        Weight by group of the word, count in the query and count in the item.

    word_groups : ndarray of shape (n_words,)
        Group of each word.

    mean_length : float
        Mean of the sum of truncated counts over training samples.

    length_slope : float
        Slope of the length normalisation of items.
    """

    weights: np.ndarray
    word_groups: np.ndarray
    mean_length: float
    length_slope: float

    @property
    def truncation(self) -> int:
        """Largest count n."""
        return self.weights.shape[1] - 1

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return n names per word, and a name of the last two columns."""
        counts = np.repeat(names, self.truncation).tolist()
        return [*counts, "(unmatched)", "(unmatched)"]

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities, computed from postings: (histogram-inverted).

        Postings have one entry per word, while encoded queries have n.
        """
        X, Y, n = sides.queries.X, sides.items.X, self.truncation
        counts = truncate(X, n)
        gain = find_gains(self.weights)
        of_query = self._alone(counts, self.weights[:, :, 0])
        dtype = np.result_type(X.dtype, Y.dtype)
        out = np.empty((X.shape[0], Y.shape[0]), dtype=dtype)
        for items in gen_batches(Y.shape[0], N_ITEMS):
            of_block = truncate(Y[items], n)
            start, postings = invert(of_block, Y.shape[1])
            of_item = self._alone(of_block, self.weights[:, 0])
            factor = find_length_factors(of_block, self.length_slope, self.mean_length)
            for queries in gen_batches(X.shape[0], N_QUERIES):
                words = Words(
                    counts.indptr[queries.start : queries.stop + 1],
                    counts.words,
                    counts.counts,
                    start,
                    postings,
                    self.word_groups,
                )
                score_queries(
                    words,
                    gain,
                    of_query[queries],
                    of_item,
                    factor,
                    sides.n_threads,
                    out[queries, items],
                )
        return out

    def queries(self, X: Matrix) -> sparse.csr_array:
        """Encode each word of a query by its gains with the item counts 1 to n."""
        n = self.truncation
        counts = truncate(X, n)
        group = self.word_groups[counts.words]
        gain = find_gains(self.weights).astype(X.dtype)[group, counts.counts, 1:]
        alone = self._alone(counts, self.weights[:, :, 0])
        index = _index_type(n * X.shape[1] + 2)
        columns = counts.words[:, None].astype(index) * n + np.arange(n, dtype=index)
        return _assemble(
            X,
            n,
            gain.ravel(),
            columns.ravel(),
            n * counts.indptr,
            [np.ones_like(alone), alone],
        )

    def items(self, X: Matrix) -> sparse.csr_array:
        """Encode each word of an item by an indicator of its count, times a factor."""
        n = self.truncation
        counts = truncate(X, n)
        alone = self._alone(counts, self.weights[:, 0])
        factor = find_length_factors(counts, self.length_slope, self.mean_length)
        data = np.repeat(factor.astype(X.dtype), np.diff(counts.indptr))
        columns = counts.words.astype(_index_type(n * X.shape[1] + 2)) * n
        columns += counts.counts - np.uint8(1)
        return _assemble(
            X, n, data, columns, counts.indptr, [factor * alone, np.ones_like(alone)]
        )

    def _alone(self, counts: Counts, weights: np.ndarray) -> np.ndarray:
        """Return the part of the similarity that depends on one side only."""
        values = weights[self.word_groups[counts.words], counts.counts]
        return sum_entries(values, counts.indptr)


def _assemble(
    X: Matrix,
    n: int,
    data: np.ndarray,
    columns: np.ndarray,
    indptr: np.ndarray,
    more: list[np.ndarray],
) -> sparse.csr_array:
    """Return CSR rows with n columns per word, then the columns `more`."""
    shape = X.shape[0], n * X.shape[1]
    rows = sparse.csr_array((data, columns, indptr), shape=shape)
    return side_by_side(rows, np.column_stack(more))


def _index_type(largest: int) -> type[np.signedinteger]:
    """Return the narrowest index type that holds a number."""
    return np.int32 if largest < 2**31 else np.int64


def find_truncation(X: sparse.csr_array) -> int:
    """Return the smallest n that fewer than 10 % of the words exceed in some sample.

    Words that occur in no sample are ignored.
    """
    largest = np.zeros(X.shape[1], dtype=X.dtype)
    np.maximum.at(largest, X.indices, X.data)
    n_words = int(np.count_nonzero(largest))
    for n in range(1, MAX_COUNT):
        if np.count_nonzero(largest > n) < 0.1 * max(n_words, 1):
            return n
    return MAX_COUNT
