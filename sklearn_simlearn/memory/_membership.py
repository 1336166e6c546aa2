"""The membership test: is an item related to a query of a set?"""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.groups import read_groups
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.rows import row_dots
from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.memory._memory import MemoryVectorQuery
from sklearn_simlearn.memory._weights import unit_scale


@validate_params(
    {
        "memory": [MemoryVectorQuery],
        "X": ["array-like", "sparse matrix"],
        "Y": ["array-like", "sparse matrix"],
        "groups": ["array-like", None],
        "cosine": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def set_membership(
    memory: MemoryVectorQuery,
    X: MatrixLike,
    Y: MatrixLike,
    groups: ArrayLike | None = None,
    *,
    cosine: float = 0.5,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Test whether items are related to a query of a set.

    Under H1 an item :math:`y` is a random direction in d dimensions. Under H2 it is
    :math:`y = \rho x_i + \sqrt{1 - \rho^2} z` with a random direction :math:`z`. The
    score :math:`m^\top y` is then close to normal with known mean and variance under
    either, for the memory vector and for the sum; see the :ref:`User Guide <memory>`.

    Parameters
    ----------
    memory : MemoryVectorQuery
        Fitted, with ``base_similarity=None`` and ``normalize=True``, and any method but
        "max".

    X : {array-like, sparse matrix} of shape (n_queries, n_features)
        Queries.

    Y : {array-like, sparse matrix} of shape (n_items, n_features)
        Items.

    groups : array-like of shape (n_queries,), default=None
        Set of each query; each is a set of its own if None.

    cosine : float, default=0.5
        The cosine :math:`\rho` of a related item with its query.

    Returns
    -------
    score : ndarray of shape (n_sets, n_items)
        The similarity.

    log_likelihood_ratio : ndarray of shape (n_sets, n_items)
        Logarithm of the density of the score under H2 over that under H1. Positive
        speaks for a relation.

    Examples
    --------
    >>> from sklearn_simlearn import MemoryVectorQuery, set_membership
    >>> X = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    >>> Y = [[0.9, 0.1, 0.1, 0.1], [0.0, 0.0, 1.0, 0.0]]
    >>> memory = MemoryVectorQuery().fit(X)
    >>> score, ratio = set_membership(memory, X, Y, groups=[0, 0], cosine=0.9)
    >>> ratio > 0
    array([[ True, False]])
    """
    check_is_fitted(memory)
    if memory.base_similarity is not None or not memory.normalize:
        raise ValueError(
            "The membership test is one of directions in the space of X: it goes with "
            "base_similarity=None and normalize=True only."
        )
    if memory.method == "max":
        raise ValueError(
            'The maximum of scores is not normal: method="max" has no membership test.'
        )
    X, Y = memory._check_rows(X), memory._check_rows(Y)
    sets = read_groups(groups, X.shape[0])

    # From here on the inputs are sound.
    space = memory._space(X)
    M = memory.encoder_.vectors(space, sets)
    score = inner_products(M, memory.encoder_.items(Y))

    # Mean under H2, variance under H1, and what H2 leaves of it.
    n = sets.sizes
    remains = np.full(len(n), 1 - cosine**2)
    if memory.method == "memory":
        # (memory-h1), (memory-h2); X m = 1 but for a ridge or linear dependence.
        total = space.sums(lambda block: unit_scale(space, block.rows), sets)
        mean = cosine * row_dots(M, total) / n
        variance = row_dots(M, M) / X.shape[1]
    else:
        # (sum-h1), (sum-h2); a single query is its own memory vector.
        divisor = n if memory.method == "average" else np.ones(len(n))
        mean = cosine / divisor
        variance = n / X.shape[1] / divisor**2
        remains[n > 1] = 1 - 1 / n[n > 1]
    ratio = _log_ratio(score, mean[:, None], variance[:, None], remains[:, None])
    return score, ratio.astype(score.dtype, copy=False)


def _log_ratio(score, mean, variance, remains):
    """log N(score; mean, remains * variance) - log N(score; 0, variance)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (score**2 - (score - mean) ** 2 / remains) / variance - np.log(remains)
    # The vector of an empty set says nothing.
    return np.where(variance > 0, ratio / 2, 0)
