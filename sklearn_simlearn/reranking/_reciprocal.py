"""Re-ranking by shared neighbours."""

from numbers import Integral, Real
from typing import Literal

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn.reranking._base import IndexStep
from sklearn_simlearn.reranking._graph import (
    as_links,
    as_matrix,
    estimate_group_size,
    find_graph,
    scale_to_sum_one,
)
from sklearn_simlearn.reranking._lists import affinities, sort_lists

# Smallest share of the neighbours of a neighbour that must be neighbours already. Then
# the others are added.
OVERLAP = 2 / 3

# Size of a neighbourhood relative to the size of a group. This factor was best on all
# data sets of `benchmarks/bench_reranking.py sizes`.
GROWTH = 1.5

# Number of items whose neighbourhoods are computed at a time.
N_ROWS = 4096


class KReciprocal(IndexStep):
    r"""Rank candidates by the neighbours that they share with the query.

    Two items are reciprocal neighbours if each is among the `k1` nearest items of the
    other. The neighbourhood of an item consists of its reciprocal neighbours. The
    reciprocal neighbours of a neighbour are added if at least two thirds of them are in
    the neighbourhood already. A neighbourhood is a vector :math:`v` of weights with sum
    1, averaged over the `k2` nearest items. Candidates are ranked by

    .. math:: (1 - \text{mix}) \frac{\sum_j \min(v_{qj}, v_{ij})}
        {\sum_j \max(v_{qj}, v_{ij})} + \text{mix} \; a_i ,

    where :math:`a_i` is 1 for the score of the best candidate and 0 for that of the
    last [1]_. New scores are between 0 and 1. Read more in the :ref:`User Guide
    <graph_reranking>`.

    Parameters
    ----------
    k1 : int or "auto", default="auto"
        Number of nearest items in a neighbourhood. It should be about the number of
        relevant items per query, or slightly more if this number is small. "auto"
        estimates this number from the share of nearest items that find each other.

    k2 : int or None, default=None
        Number of items, including the item itself, over which neighbourhoods are
        averaged. None means a third of `k1`, but at least 3.

    mix : float in [0, 1], default=0.3
        Weight of the original scores of the candidates.

    Attributes
    ----------
    k1_ : int
        The `k1` that was used.

    k2_ : int
        The `k2` that was used.

    n_items_ : int
        Number of items in the graph.

    See Also
    --------
    Diffusion : Follows the graph beyond neighbours of neighbours.

    Notes
    -----
    The neighbours of an item are found by the index, including earlier re-ranking
    steps. The graph takes about `k1` times `k2` numbers per item. With "auto", `k1` is
    at most half of the `n_candidates` of the index, and `fit` temporarily stores
    `n_candidates` neighbours per item.

    References
    ----------
    .. [1] Z. Zhong, L. Zheng, D. Cao, S. Li, "Re-ranking Person Re-identification with
       k-reciprocal Encoding", CVPR 2017.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.reranking import KReciprocal
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digit_words(return_X_y=True)
    >>> index = SimilarityIndex(
    ...     CosineSimilarity(), rerank=[KReciprocal(20, 6)], store_items=True
    ... )
    >>> scores, ids = index.fit(X[100:]).search(X[:100], k=20)
    >>> plain = index.set_params(rerank=[]).search(X[:100], k=20)[1]
    >>> def precision(ids):
    ...     return round(float((y[100:][ids] == y[:100, None]).mean()), 2)
    >>> precision(plain), precision(ids)
    (0.69, 0.78)
    """

    _parameter_constraints: dict = {
        "k1": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "k2": [Interval(Integral, 1, None, closed="left"), None],
        "mix": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        k1: int | Literal["auto"] = "auto",
        k2: int | None = None,
        mix: float = 0.3,
    ):
        self.k1 = k1
        self.k2 = k2
        self.mix = mix

    def _fit(self, index):
        if self.k1 == "auto":
            graph = find_graph(index)
            k1 = round(GROWTH * estimate_group_size(graph.rows))
        else:
            k1 = self.k1
            graph = find_graph(index, max(2 * (1 + k1), self.k2 or 0))
        k2 = max(3, round(k1 / 3)) if self.k2 is None else self.k2
        n_near = 1 + k1  # an item is its own nearest neighbour
        n_half = 1 + round(k1 / 2)
        n_items = len(graph.rows)
        near = as_links(graph.rows[:, :n_near], n_items)
        half = as_links(graph.rows[:, :n_half], n_items)
        half = sparse.csr_array(half.multiply(half.T))
        reciprocal = sparse.csr_array(near.multiply(near.T))
        known = np.s_[:, : max(2 * n_near, k2)]
        weight = as_matrix(
            graph.rows[known], _weights(graph.affinities[known]), n_items
        )
        parts = [
            _neighborhoods(reciprocal[i : i + N_ROWS], half, weight[i : i + N_ROWS])
            for i in range(0, n_items, N_ROWS)
        ]
        self._ids, self._half = graph.ids, half
        self._limit = graph.scores[:, :n_near].min(axis=1)
        self._vectors = sparse.vstack(parts, format="csr")
        mean = scale_to_sum_one(as_links(graph.rows[:, :k2], n_items))
        self._means = sparse.csr_array(mean @ self._vectors)
        self.k1_, self.k2_, self.n_items_ = k1, k2, n_items

    def _rerank(self, queries, scores, ids, rows):
        affinity = affinities(scores)
        vectors = self._find_vectors(rows, scores, affinity)
        value = np.full(scores.shape, -np.inf)
        dense = np.zeros(self.n_items_, dtype=np.float32)
        for i in range(len(rows)):
            there = rows[i] >= 0
            own = slice(vectors.indptr[i], vectors.indptr[i + 1])
            dense[vectors.indices[own]] = vectors.data[own]
            shared = _shared(dense, self._means, rows[i, there])
            dense[vectors.indices[own]] = 0
            # The sums of both are 1, so the sum of the maxima is 2 - shared.
            value[i, there] = (1 - self.mix) * shared / (2 - shared)
            value[i, there] += self.mix * affinity[i, there]
        return sort_lists(value, ids, scores)

    def _find_vectors(self, rows, scores, affinity):
        """Return averaged neighbourhoods of queries, which are not in the graph."""
        near = rows[:, : 1 + self.k1_]
        # A query is near an item if its score is at least that of the last of the
        # item's near neighbours.
        is_near = scores[:, : 1 + self.k1_] >= self._limit[near]
        reciprocal = as_links(np.where(is_near, near, -1), self.n_items_)
        weight = as_matrix(rows, _weights(affinity), self.n_items_)
        own = _neighborhoods(reciprocal, self._half, weight)
        others = as_links(rows[:, : self.k2_ - 1], self.n_items_) @ self._vectors
        return scale_to_sum_one(sparse.csr_array(own + others))


def _weights(affinity):
    return np.exp(affinity - 1).astype(np.float32)


def _neighborhoods(reciprocal, half, weight):
    """Return rows of weights with sum 1, for items or queries.

    Parameters
    ----------
    reciprocal : csr_array of shape (n_rows, n_items)
        Reciprocal neighbours.

    half : csr_array of shape (n_items, n_items)
        Reciprocal neighbours of the items, for neighbourhoods of half the size.

    weight : csr_array of shape (n_rows, n_items)
        Weights of the items that were found. Other items get the smallest weight.
    """
    n_shared = sparse.csr_array((reciprocal @ half.T).multiply(reciprocal))
    size = half.sum(axis=1)
    n_shared.data = (n_shared.data >= OVERLAP * size[n_shared.indices]).astype(
        np.float32
    )
    members = sparse.csr_array(reciprocal + n_shared @ half)
    members.data[:] = 1
    members.eliminate_zeros()
    least = _weights(0.0)
    above = weight.copy()
    above.data -= least
    return scale_to_sum_one(sparse.csr_array(members * least + members.multiply(above)))


def _shared(dense, vectors, rows):
    """Return the sums of the minima of a dense vector and each of the given rows."""
    part = vectors[rows]
    smaller = np.minimum(part.data, dense[part.indices])
    total = np.concatenate([[0], np.cumsum(smaller, dtype=np.float64)])
    return total[part.indptr[1:]] - total[part.indptr[:-1]]
