"""Test whether an item is related to a query of a set."""

from typing import Any

import numpy as np

from sklearn_simlearn._core.groups import Sets
from sklearn_simlearn._core.rows import row_dots
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.memory._weights import VectorSpace, unit_scale


def check_testable(memory: Any) -> None:
    """Raise unless the distributions of a MemoryVectorQuery's scores are known."""
    if memory.base_similarity is not None or not memory.normalize:
        raise ValueError(
            "The membership test needs base_similarity=None and normalize=True, since "
            "it compares directions in the space of X."
        )
    if memory.method == "max":
        raise ValueError(
            'The membership test is not available for method="max", since the maximum '
            "of scores is not normally distributed."
        )


def log_likelihood_ratio(
    score: np.ndarray,
    M: Matrix,
    space: VectorSpace,
    sets: Sets,
    method: str,
    cosine: float,
) -> np.ndarray:
    """Return the log ratio of the densities of a score if related and if unrelated.

    Parameters
    ----------
    score : ndarray of shape (n_sets, n_items)
        Inner products of the vectors of the sets with the items.

    M : ndarray or csr_array of shape (n_sets, n_features)
        Vectors of the sets.

    space : VectorSpace
        Space of the queries.

    sets : Sets
        Sets of queries.

    method : {"memory", "sum", "average"}
        Method that made the vectors.

    cosine : float
        Cosine of a related item with its query.

    Returns
    -------
    ratio : ndarray of shape (n_sets, n_items)
    """
    # Compute the mean under H2, the variance under H1, and the ratio of the variances.
    n, n_features = sets.sizes, M.shape[1]
    remains = np.full(len(n), 1 - cosine**2)
    if method == "memory":
        # (memory-h1), (memory-h2); X m = 1 if alpha is 0 and queries are independent.
        total = space.sums(lambda block: unit_scale(space, block.rows), sets)
        mean = cosine * row_dots(M, total) / n
        variance = row_dots(M, M) / n_features
    else:
        # (sum-h1), (sum-h2); a single query is its own memory vector.
        divisor = n if method == "average" else np.ones(len(n))
        mean = cosine / divisor
        variance = n / n_features / divisor**2
        remains[n > 1] = 1 - 1 / n[n > 1]
    ratio = _log_ratio(score, mean[:, None], variance[:, None], remains[:, None])
    return ratio.astype(score.dtype, copy=False)


def _log_ratio(
    score: np.ndarray, mean: np.ndarray, variance: np.ndarray, remains: np.ndarray
) -> np.ndarray:
    """Return log N(score; mean, remains * variance) - log N(score; 0, variance)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (score**2 - (score - mean) ** 2 / remains) / variance - np.log(remains)
    # The score of a zero vector has no variance and gives no evidence.
    return np.where(variance > 0, ratio / 2, 0)
