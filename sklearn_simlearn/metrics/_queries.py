"""Checks, blocks and means over queries that measures, scorer and report share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.sklearn import check_sample_weight, get_chunk_n_rows
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import Measure, Ranks, rank_relevant_items


def measure_matrices(
    measure: Measure,
    relevance: MatrixLike,
    similarity: ArrayLike,
    options: dict,
    *,
    ties: str,
    empty: str,
    junk: MatrixLike | None,
    average: bool,
    sample_weight: ArrayLike | None,
    n_jobs: int | None,
) -> np.ndarray | float:
    """Measure rankings that are given as matrices; the body of every public measure.

    Parameters
    ----------
    options : dict
        Options of this measure alone. The others are those that all measures share.

    Returns
    -------
    value : ndarray of shape (n_queries,) or float
        One value per query, or their mean with ``average=True``.
    """
    value = values_per_query(
        measure.bind(**options),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    if sample_weight is not None:
        sample_weight = check_query_weight(sample_weight, value)
    value = settle_empty(value, empty)
    return mean_over_queries(value, sample_weight) if average else value


def values_per_query(
    of_ranks: Callable[[Ranks], np.ndarray],
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    junk: MatrixLike | None,
    ties: str,
    n_jobs: int | None,
) -> np.ndarray:
    """Check the input and measure its ranks, in blocks that bound the scratch."""
    similarity = check_array(
        similarity,
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        input_name="similarity",
    )
    relevance = _check_mask(relevance, "relevance", similarity.shape)
    if junk is not None:
        if not sparse.issparse(junk) and np.ndim(junk) == 1:
            if len(junk) != similarity.shape[1]:
                raise ValueError(
                    f"junk has {len(junk)} entries for {similarity.shape[1]} items; "
                    "give one for each item, or a matrix of the shape of similarity."
                )
            junk = np.broadcast_to(junk, similarity.shape)
        junk = _check_mask(junk, "junk", similarity.shape)

    def measure_block(block):
        if np.isnan(similarity[block]).any():
            raise ValueError("similarity contains NaN: no rank can be given to it.")
        ranks = rank_relevant_items(
            _dense_rows(relevance, block),
            similarity[block],
            junk=None if junk is None else _dense_rows(junk, block),
            ties=ties,
            n_jobs=n_jobs,
        )
        return of_ranks(ranks)

    n_queries, n_items = similarity.shape
    blocks = gen_batches(n_queries, rows_per_block(n_items, n_queries))
    return np.concatenate([measure_block(block) for block in blocks])


def rows_per_block(n_items: int, n_queries: int) -> int:
    """Queries whose similarity, relevance and ranks fit in the working memory."""
    return get_chunk_n_rows(32 * n_items, max_n_rows=n_queries)


def _dense_rows(matrix, block):
    rows = matrix[block]
    rows = rows.toarray() if sparse.issparse(rows) else rows
    return rows.view(np.int8) if rows.dtype == bool else rows


def _check_mask(mask, name, shape):
    mask = check_array(mask, accept_sparse="csr", dtype=None, input_name=name)
    if mask.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold booleans or numbers; got {mask.dtype}.")
    if mask.shape != shape:
        raise ValueError(
            f"{name} and similarity must have the same shape; got {mask.shape} and "
            f"{shape}."
        )
    return mask


def check_query_weight(sample_weight: ArrayLike, X) -> np.ndarray:
    """Check weights of the samples as queries."""
    return check_sample_weight(sample_weight, X, ensure_non_negative=True)


def settle_empty(value: np.ndarray, empty: str) -> np.ndarray:
    """Values per query with those of no relevant item skipped, zero, or refused."""
    nothing = np.isnan(value) if value.ndim == 1 else np.isnan(value[:, 0])
    if empty == "error" and nothing.any():
        raise ValueError(
            f"{np.count_nonzero(nothing)} of {len(value)} queries have no relevant "
            'item. Pass empty="skip" to leave them out or empty="zero" to count them '
            "as 0."
        )
    if empty == "zero":
        value[nothing] = 0.0
    return value


def mean_over_queries(
    value: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """Mean over the queries that have a value; weighted if asked."""
    counts = ~np.isnan(value)
    if not counts.any():
        raise ValueError(
            "No query has a relevant item, so there is nothing to average: every "
            "label occurs once, or the relevance is all zero."
        )
    if sample_weight is None:
        return float(value[counts].mean())
    weight = sample_weight[counts]
    if not weight.any():
        raise ValueError("Every query with a relevant item has a sample_weight of 0.")
    return float(np.average(value[counts], weights=weight))
