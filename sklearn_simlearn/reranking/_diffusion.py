"""Re-ranking by diffusion on the graph of nearest neighbours."""

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn import get_config

from sklearn_simlearn._core.rows import inverse
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn.reranking._base import IndexStep
from sklearn_simlearn.reranking._graph import as_matrix, find_graph
from sklearn_simlearn.reranking._lists import affinities, fractions, sort_lists

# Exponent of affinities in the weights of edges, as is usual for descriptors.
POWER = 3

# Conjugate gradients: relative residual at the end, and largest number of iterations.
TOLERANCE = 1e-6
MAX_ITERATIONS = 200


class Diffusion(IndexStep):
    r"""Rank candidates by a random walk that starts at the neighbours of the query.

    In the graph, edges connect items that are among the nearest items of each other.
    Let :math:`W` hold the weights of the edges and :math:`D` its row sums, and let
    :math:`S = D^{-1/2} W D^{-1/2}`. The new scores are the solution :math:`f` of

    .. math:: (I - \alpha S) f = y ,

    where :math:`y` holds the weights of the best candidates of the query [1]_. Read
    more in the :ref:`User Guide <graph_reranking>`.

    Parameters
    ----------
    n_neighbors : int, default=20
        Number of nearest items per item, and of candidates from which the walk starts.

    damping : float in [0, 1), default=0.9
        Probability :math:`\alpha` that the walk continues.

    Attributes
    ----------
    n_items_ : int
        Number of items in the graph.

    See Also
    --------
    KReciprocal : Compares neighbourhoods.

    Notes
    -----
    Weights are third powers of affinities. The affinity of an item is 1 for its best
    neighbour and 0 for the last of the `n_candidates` of the index. Therefore scores
    may be negative and may have any scale. If the walk does not reach a candidate, its
    new score is negative.

    The neighbours of an item are found by the index, including earlier re-ranking
    steps. The graph takes at most `n_neighbors` numbers per item.

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
        "damping": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(self, n_neighbors: int = 20, damping: float = 0.9):
        self.n_neighbors = n_neighbors
        self.damping = damping

    def _fit(self, index):
        graph = find_graph(index, 1 + self.n_neighbors)
        n_items = len(graph.rows)
        # Scale affinities by the best other item: the item itself is not informative.
        is_other = graph.rows != np.arange(n_items)[:, None]
        affinity = np.where(is_other, graph.affinities, 0)
        best = affinity.max(axis=1, keepdims=True)
        affinity = np.divide(affinity, best, out=affinity, where=best > 0)
        W = as_matrix(np.where(is_other, graph.rows, -1), affinity**POWER, n_items)
        W = W.minimum(W.T)
        root = np.sqrt(inverse(W.sum(axis=1)))
        self._ids = graph.ids
        self._S = sparse.csr_array(
            sparse.diags_array(root) @ W @ sparse.diags_array(root)
        )
        self.n_items_ = n_items

    def _rerank(self, queries, scores, ids, rows):
        weight = affinities(scores) ** POWER
        weight[:, 1 + self.n_neighbors :] = 0
        value = np.full(scores.shape, -np.inf)
        # Conjugate gradients store five numbers per item and query.
        memory = get_config()["working_memory"] * 2**20
        length = int(max(1, memory // (40 * self.n_items_)))
        for start in range(0, len(rows), length):
            part = slice(start, start + length)
            Y = as_matrix(rows[part], weight[part], self.n_items_).T.toarray()
            F = _solve(self._S, self.damping, Y)
            found = np.take_along_axis(F.T, np.maximum(rows[part], 0), axis=1)
            # Candidates that the walk does not reach keep their order, below zero.
            found = np.where(found > 0, found, fractions(scores[part]) - 1)
            value[part] = np.where(rows[part] >= 0, found, -np.inf)
        return sort_lists(value, ids, scores)


def _solve(S, alpha, Y):
    """Return (I - alpha S)^-1 Y, by conjugate gradients for all columns at once."""
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
