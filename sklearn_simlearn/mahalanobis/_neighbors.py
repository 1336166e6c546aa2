"""Words that may match: the support of the matrix."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.mahalanobis._neighbors_fast import find_common
from sklearn_simlearn.mahalanobis._problem import DENSE_FROM, MAX_SCORES, csr_arrays


def check_words(words: MatrixLike | None, n_words: int) -> Matrix | None:
    """Return `words` as checked: a CSR graph, an array of vectors, or None."""
    if words is None:
        return None
    checked = check_array(
        words,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        input_name="words",
    )
    if checked.shape[0] != n_words or (
        sparse.issparse(checked) and checked.shape[1] != n_words
    ):
        raise ValueError(
            f"words must have a row for each of the {n_words} features of X; a sparse "
            f"graph also needs a column for each. Got shape {checked.shape}."
        )
    return checked


def find_neighbors(
    X: sparse.csr_array,
    words: Matrix | None,
    n_neighbors: int,
    n_threads: int,
    advance: Callable[[str], bool],
) -> sparse.csr_array:
    """Return the graph of the words that may match.

    `words` holds vectors, or the graph itself. If `words` is None, words match if they
    occur in the same samples of `X`.
    """
    n_words = X.shape[1]
    n_neighbors = min(n_neighbors, n_words - 1)
    if n_neighbors == 0:
        return sparse.csr_array((n_words, n_words), dtype=bool)
    if words is not None and not isinstance(words, np.ndarray):
        return words.astype(bool)
    if words is None:
        is_dense = X.nnz >= DENSE_FROM * X.shape[0] * n_words
        blocks = (
            _find_common_dense(X, n_neighbors)
            if is_dense
            else _find_common(X, n_neighbors, n_threads)
        )
    else:
        blocks = _find_nearest(words, n_neighbors)
    found_in_blocks = []
    for block in blocks:
        found_in_blocks.append(block)
        advance("neighbours")
    nearest = np.concatenate(found_in_blocks)
    found = nearest >= 0
    parts = (
        np.ones(np.count_nonzero(found), dtype=bool),
        nearest[found],
        np.append(0, np.cumsum(np.count_nonzero(found, axis=1))),
    )
    return sparse.csr_array(parts, shape=(n_words, n_words))


def _find_common(
    X: sparse.csr_array, n_neighbors: int, n_threads: int, work_per_block: int = 2**28
) -> Iterator[np.ndarray]:
    """Yield blocks of words; each row lists the words that occur in the same samples.

    Rows with fewer than `n_neighbors` words are filled with -1.
    """
    words: sparse.csr_array = unit_rows(X.T.tocsr())
    samples = words.T.tocsr()
    # Work of a word: the number of entries of all samples that contain it.
    work = (words.astype(bool) @ np.diff(samples.indptr)).cumsum()
    edges = np.searchsorted(work, np.arange(work_per_block, work[-1], work_per_block))
    edges = np.unique([0, *edges, len(work)])
    arrays = *csr_arrays(words), *csr_arrays(samples)
    for first, last in pairwise(edges):
        nearest = np.empty((last - first, n_neighbors), dtype=np.int32)
        find_common(first, *arrays, n_threads, nearest)
        yield nearest


def _find_common_dense(X: sparse.csr_array, n_neighbors: int) -> Iterator[np.ndarray]:
    """Yield the same as `_find_common`, from dense products."""
    words = unit_rows(np.ascontiguousarray(X.toarray().T))
    for batch in gen_batches(len(words), max(1, MAX_SCORES // len(words))):
        cosines = words[batch] @ words.T
        own = np.arange(len(words))[batch]
        cosines[np.arange(len(own)), own] = 0
        order = np.argpartition(-cosines, n_neighbors - 1, axis=1)[:, :n_neighbors]
        found = np.take_along_axis(cosines, order, axis=1) > 0
        yield np.where(found, order, -1)


def _find_nearest(words: np.ndarray, n_neighbors: int) -> Iterator[np.ndarray]:
    """Yield blocks of words; each row lists the words with the nearest vectors."""
    n_words = len(words)
    search = NearestNeighbors().fit(words)
    for batch in gen_batches(n_words, 10_000):
        nearest = search.kneighbors(
            words[batch], n_neighbors + 1, return_distance=False
        )
        # Usually the nearest word is the word itself, but others may be equal to it.
        is_self = nearest == np.arange(n_words)[batch, None]
        is_self[~is_self.any(axis=1), -1] = True
        yield nearest[~is_self].reshape(-1, n_neighbors)
