"""Re-ranking by diffusion on the graph of nearest neighbours."""

from numbers import Integral, Real
from typing import Self

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import DocLinkMixin, Interval, fit_context
from sklearn_simlearn.reranking._graph import as_matrix, check_index, find_graph
from sklearn_simlearn.reranking._lists import (
    affinities,
    fractions,
    read_candidates,
    sort_lists,
)

# Affinities to this power are the weights of edges, as is usual for descriptors.
POWER = 3

# Where conjugate gradients stop: relative residual, and iterations at most.
TOLERANCE = 1e-6
MAX_ITERATIONS = 200


class Diffusion(DocLinkMixin, BaseEstimator):
    r"""Candidates that a random walk from the query's neighbours reaches come first.

    With :math:`S = D^{-1/2} W D^{-1/2}`, where :math:`W` weighs the edges between items
    that are among the nearest of each other, the scores are the solution of

    .. math:: (I - \alpha S) f = y ,

    where :math:`y` weighs the best candidates of the query [1]_. Read more in the
    :ref:`User Guide <graph_reranking>`.

    Parameters
    ----------
    n_neighbors : int, default=20
        Number of nearest items per item, and of candidates that the walk starts from.

    alpha : float in [0, 1), default=0.9
        How far the walk goes.

    Attributes
    ----------
    n_items_ : int
        Number of items in the graph.

    See Also
    --------
    KReciprocal : Compares neighbourhoods.

    Notes
    -----
    Weights are third powers of affinities, which are 1 for the best neighbour of an
    item and 0 for the last of the `n_candidates` of the index. So scores may be
    negative or of any length.

    The neighbours of the items are those that the index finds with the re-ranking steps
    before this one. The graph takes at most `n_neighbors` numbers per item.

    References
    ----------
    .. [1] A. Iscen, G. Tolias, Y. Avrithis, T. Furon, O. Chum, "Efficient Diffusion on
       Region Manifolds: Recovering Small Objects with Compact CNN Representations",
       CVPR 2017.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.reranking import Diffusion
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digit_words(return_X_y=True)
    >>> index = SimilarityIndex(
    ...     CosineSimilarity(), rerank=[Diffusion()], store_items=True
    ... )
    >>> scores, ids = index.fit(X[100:]).search(X[:100], k=20)
    >>> plain = index.set_params(rerank=[]).search(X[:100], k=20)[1]
    >>> def precision(ids):
    ...     return round(float((y[100:][ids] == y[:100, None]).mean()), 2)
    >>> precision(plain), precision(ids)
    (0.69, 0.78)
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(self, n_neighbors=20, alpha=0.9):
        self.n_neighbors = n_neighbors
        self.alpha = alpha

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, database, y=None) -> Self:
        """Find the graph of the items.

        Parameters
        ----------
        database : SimilarityIndex
            A fitted one with ``store_items=True``.

        y : Ignored
            Not used.

        Returns
        -------
        self : object
            The step itself.
        """
        check_index(database, self)
        graph = find_graph(database, 1 + self.n_neighbors)
        n_items = len(graph.rows)
        # Relative to the best of the others: an item's affinity to itself says nothing.
        is_other = graph.rows != np.arange(n_items)[:, None]
        affinity = np.where(is_other, graph.affinities, 0)
        best = affinity.max(axis=1, keepdims=True)
        affinity = np.divide(affinity, best, out=affinity, where=best > 0)
        W = as_matrix(np.where(is_other, graph.rows, -1), affinity**POWER, n_items)
        W = W.minimum(W.T)
        degree = W.sum(axis=1)
        root = np.sqrt(np.divide(1, degree, out=np.zeros(n_items), where=degree > 0))
        self._ids = graph.ids
        self._S = sparse.csr_array(
            sparse.diags_array(root) @ W @ sparse.diags_array(root)
        )
        self.n_items_ = n_items
        return self

    def rerank(self, queries, ids, scores) -> tuple[np.ndarray, np.ndarray]:
        """Rank candidates by what reaches them.

        Parameters
        ----------
        queries : Ignored
            The candidates say all.

        ids : array-like of shape (n_queries, n_candidates)
            Ids of the candidates, the best first; -1 or "" where there are no more.

        scores : array-like of shape (n_queries, n_candidates)
            Their scores.

        Returns
        -------
        ids : ndarray of shape (n_queries, n_candidates)
            The candidates in their new order; those that nothing reaches as before.

        scores : ndarray of shape (n_queries, n_candidates)
            What reaches them; negative where nothing does.
        """
        check_is_fitted(self)
        ids, scores, rows = read_candidates(self._ids, ids, scores, self)
        weight = affinities(scores) ** POWER
        weight[:, 1 + self.n_neighbors :] = 0
        value = np.full(scores.shape, -np.inf)
        # Conjugate gradients keep five numbers per item and query.
        memory = get_config()["working_memory"] * 2**20
        length = int(max(1, memory // (40 * self.n_items_)))
        for start in range(0, len(rows), length):
            part = slice(start, start + length)
            Y = as_matrix(rows[part], weight[part], self.n_items_).T.toarray()
            F = _solve(self._S, self.alpha, Y)
            found = np.take_along_axis(F.T, np.maximum(rows[part], 0), axis=1)
            # What nothing reaches keeps its order, below zero.
            found = np.where(found > 0, found, fractions(scores[part]) - 1)
            value[part] = np.where(rows[part] >= 0, found, -np.inf)
        return sort_lists(ids, value, scores)


def _solve(S, alpha, Y):
    """(I - alpha S)^-1 Y by conjugate gradients, all columns at once."""
    F = Y.copy()
    R = alpha * (S @ Y)  # Y - (I - alpha S) F
    P = R.copy()
    square = np.einsum("ij,ij->j", R, R)
    enough = TOLERANCE**2 * np.einsum("ij,ij->j", Y, Y)
    for _ in range(MAX_ITERATIONS):
        if (square <= enough).all():
            break
        AP = P - alpha * (S @ P)
        curvature = np.einsum("ij,ij->j", P, AP)
        step = np.divide(
            square, curvature, out=np.zeros_like(square), where=curvature > 0
        )
        F += step * P
        R -= step * AP
        before, square = square, np.einsum("ij,ij->j", R, R)
        P *= np.divide(square, before, out=np.zeros_like(square), where=before > 0)
        P += R
    return F
