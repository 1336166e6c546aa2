"""Truncated counts, and the similarity that a table of weights gives them.

Notation and equation labels are those of doc/learners/histogram.rst.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches

from sklearn_simlearn._core.products import N_ITEMS, N_QUERIES
from sklearn_simlearn._core.rows import append_columns, count_indices
from sklearn_simlearn.histogram._histogram_fast import (
    COUNT_BITS,
    MAX_COUNT,
    Words,
    score_queries,
)


class Counts(NamedTuple):
    """Rows of truncated counts, as the kernels take them."""

    indptr: np.ndarray  # int64
    words: np.ndarray  # int32
    counts: np.ndarray  # uint8, from 1

    def take(self, rows: np.ndarray) -> "Counts":
        """Some of the rows."""
        first, size = self.indptr[rows], self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(size)])
        place = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], size)
        return Counts(indptr, self.words[place], self.counts[place])

    def sums(self, values: np.ndarray, dtype: type) -> np.ndarray:
        """Sum per row of values that belong to the entries."""
        sums = np.zeros(len(self.indptr) - 1, dtype=dtype)
        occupied = np.flatnonzero(np.diff(self.indptr))
        if len(occupied):
            start = self.indptr[occupied]
            sums[occupied] = np.add.reduceat(values, start, dtype=dtype)
        return sums

    def lengths(self) -> np.ndarray:
        """Sum of the counts of each row."""
        return self.sums(self.counts, np.int64)


def truncate(X: sparse.csr_array, n: int) -> Counts:
    """Canonical rows of counts, larger ones taken as n."""
    counts = np.empty(len(X.data), dtype=np.uint8)
    np.minimum(X.data, n, out=counts, casting="unsafe")
    return Counts(
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        counts,
    )


def find_gains(weights: np.ndarray) -> np.ndarray:
    """(histogram-gain)  What a pair of counts adds to what each adds alone."""
    gain = weights - weights[:, :1, :] - weights[:, :, :1] + weights[:, :1, :1]
    gain[:, 0] = weights[:, 0] - weights[:, 0, :1]
    return np.ascontiguousarray(gain)


def find_length_factors(counts: Counts, slope: float, mean_length: float) -> np.ndarray:
    """(histogram-length)  What the words of each item are multiplied by."""
    return 1 / (1 - slope + slope * counts.lengths() / (mean_length or 1.0))


def group_words(counts: Counts, n_words: int, n_groups: int) -> np.ndarray:
    """Groups of words by how many rows have them, the rarest first."""
    frequency = count_indices(counts.words, n_words)
    seen = np.sort(frequency[frequency > 0])
    # With no word at all, every one is in the first group.
    edges = seen[len(seen) * np.arange(1, n_groups) // n_groups] if len(seen) else []
    return np.searchsorted(edges, frequency).astype(np.int32)


def invert(counts: Counts, n_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Inverted file: where the postings of each word start, and the postings."""
    shape = len(counts.indptr) - 1, n_words
    # SciPy widens all indices to those of the offsets.
    indptr = counts.indptr.astype(_index_type(len(counts.words)), copy=False)
    rows = sparse.csr_array((counts.counts, counts.words, indptr), shape=shape)
    columns = rows.tocsc()
    postings = columns.indices.astype(np.int32, copy=False).view(np.uint32)
    postings <<= COUNT_BITS
    postings |= columns.data
    return columns.indptr.astype(np.int64), postings


def make_pattern(weight_pattern, n: int) -> np.ndarray:
    """The bin of each pair of counts, numbered from 0."""
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
            "weight_pattern has a single bin, which leaves nothing to learn: give some "
            "pairs of counts a bin of their own."
        )
    return pattern.reshape(n + 1, n + 1)


class CountTable(NamedTuple):
    """(histogram-model)  The similarity as an inner product."""

    weights: np.ndarray  # group, count of the query, count of the item
    word_groups: np.ndarray
    mean_length: float
    length_slope: float

    def similarity(
        self, X: sparse.csr_array, Y: sparse.csr_array, n_threads: int = 1
    ) -> np.ndarray:
        """(histogram-inverted)  Similarity of the rows of X to those of Y.

        It is the product of the encodings, which are never made: they have n entries
        per word, the postings of a count have one.
        """
        n = self.weights.shape[1] - 1
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
                    n_threads,
                    out[queries, items],
                )
        return out

    def encode_queries(self, X: sparse.csr_array) -> sparse.csr_array:
        """Per word of a query, its gain with each count 1 to n of an item."""
        n = self.weights.shape[1] - 1
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

    def encode_items(self, X: sparse.csr_array) -> sparse.csr_array:
        """Per word of an item, the count it has, times the factor of the item."""
        n = self.weights.shape[1] - 1
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
        """What the words of each row add, whatever the other side has."""
        values = weights[self.word_groups[counts.words], counts.counts]
        return counts.sums(values, np.float64)


def _assemble(X, n, data, columns, indptr, more):
    """CSR rows with n columns per word and some more, of the dtype of X."""
    shape = X.shape[0], n * X.shape[1]
    rows = sparse.csr_array((data, columns, indptr), shape=shape)
    return append_columns(rows, np.column_stack(more))


def _index_type(largest):
    """The narrowest type of index that holds it."""
    return np.int32 if largest < 2**31 else np.int64


def find_truncation(counts: np.ndarray) -> int:
    """Smallest n that fewer than 10 % of the positive counts exceed."""
    for n in range(1, MAX_COUNT):
        if not len(counts) or np.count_nonzero(counts > n) < 0.1 * len(counts):
            return n
    return MAX_COUNT
