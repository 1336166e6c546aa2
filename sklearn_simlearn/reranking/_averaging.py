"""Average of items and their neighbours (database-side augmentation)."""

from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import GivenSimilarities
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import inverse, row_dots, scale_rows
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn._folds import MAX_QUERIES, Fold
from sklearn_simlearn._holdout import START, Judge
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._rerank import Queries, stored_items
from sklearn_simlearn.reranking._base import IndexStep
from sklearn_simlearn.reranking._graph import as_matrix, as_queries, find_graph
from sklearn_simlearn.reranking._lists import sort_lists

# Share of the items that query the others, if labels are given.
SHARE = 0.2


class Candidate(NamedTuple):
    """Candidate that labelled items choose: the number of neighbours."""

    n_neighbors: int


class NeighborAveraging(IndexStep):
    r"""Rank candidates by the mean of each item and its nearest items.

    The encoded item :math:`d` is replaced by

    .. math:: \bar d = \frac{|d|}{|e|}\, e, \qquad
        e = d + \sum_{i=1}^{n} \Bigl(1 - \frac{i}{n + 1}\Bigr) d_i ,

    where :math:`d_i` is the i-th nearest item of :math:`d` in the index. This is the
    database-side augmentation of [1]_. It needs no labels and does not change queries.
    It usually improves the mean average precision, but may reduce the precision at rank
    1. With labels, `fit` measures both, and uses only as many neighbours as do not
    reduce the precision at rank 1. Read more in the
    :ref:`User Guide <neighbor_averaging>`.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbours :math:`n` of each item. With labels, this is an upper
        bound.

    Attributes
    ----------
    n_neighbors_ : int
        Number of neighbours in use; 0 if labels show that averaging does not help.

    index_ : SimilarityIndex
        Snapshot of the index at the time of the fit.

    holdout_gain_, holdout_error_ : float
        Gain in mean average precision by averaging, and its standard error. Set only
        with labels.

    holdout_results_ : dict
        All numbers of neighbours with their measures. Set only with labels.

    See Also
    --------
    QueryExpansion : Averages the query with its best candidates.

    References
    ----------
    .. [1] R. Arandjelovic and A. Zisserman. "Three things everyone should know to
       improve object retrieval". CVPR, 2012.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.reranking import NeighborAveraging
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digit_words(return_X_y=True)
    >>> index = SimilarityIndex(
    ...     CosineSimilarity(), rerank=[NeighborAveraging()], store_items=True
    ... )
    >>> scores, ids = index.fit(X[100:]).search(X[:100], k=20)
    >>> plain = index.set_params(rerank=[]).search(X[:100], k=20)[1]
    >>> def precision(ids):
    ...     return round(float((y[100:][ids] == y[:100, None]).mean()), 2)
    >>> precision(plain), precision(ids)
    (0.69, 0.74)
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_neighbors: int = 5):
        self.n_neighbors = n_neighbors

    def fit(self, database: SimilarityIndex, y: Any = None) -> Self:
        """Average the items of an index.

        Parameters
        ----------
        database : SimilarityIndex
            A fitted index with ``store_items=True``.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance of the items, in the order of `ids_` of the index. Then
            a fifth of the items query the others. They choose among `n_neighbors`, a
            half of it, a quarter of it and so on, and 0. If None, `n_neighbors`
            neighbours are used.

        Returns
        -------
        self : object
            The step itself.
        """
        super().fit(database)
        if y is not None:
            self._choose(check_relevance(y, n_samples=len(self._neighbors)))
        return self

    def _fit(self, index):
        graph = find_graph(index, 1 + self.n_neighbors)
        self.index_, self._ids = index, graph.ids
        self._neighbors = _without(graph.rows, np.arange(len(graph.rows))[:, None])
        self._encoded = index._find_encoded(index.ids_)[1]
        self._use(self.n_neighbors)

    def _use(self, n_neighbors):
        self.n_neighbors_ = n_neighbors
        self._items = average(self._encoded, self._neighbors[:, :n_neighbors])

    def _choose(self, relevance):
        """Choose the number of neighbours: some items search the others."""
        order = np.random.default_rng(0).permutation(len(relevance))
        n_queries = min(MAX_QUERIES, round(SHARE * len(order)))
        queries, items = np.sort(order[:n_queries]), np.sort(order[n_queries:])
        judge = Judge(np.arange(len(order))[:, None], relevance, by_class=False)
        judge.open(Fold(items, queries, items))
        place = np.full(len(order), -1)
        place[items] = np.arange(len(items))
        lists = self._neighbors[items]
        lists = _without(np.where(lists >= 0, place[lists], -1), -1)
        Q = Queries(self.index_, stored_items(self.index_).take(queries)).encode()
        row_of_query = np.searchsorted(queries, judge.sides.queries.X[:, 0])
        n = self.n_neighbors
        for candidate in (START, *(Candidate(n >> i) for i in range(n.bit_length()))):
            n_neighbors = 0 if candidate is START else candidate.n_neighbors
            averaged = average(self._encoded[items], lists[:, :n_neighbors])
            S = inner_products(Q[row_of_query], averaged)
            judge.record(candidate, GivenSimilarities(S))
        choice = judge.choose()
        self._use(0 if choice.candidate is START else choice.candidate.n_neighbors)
        self.__dict__.update(choice.attributes)

    def _rerank(self, queries, scores, ids, rows):
        Q = as_queries(queries, self.index_, len(ids)).encode()
        value = np.full(scores.shape, -np.inf)
        for i, row in enumerate(rows):
            found = row >= 0
            value[i, found] = inner_products(Q[i : i + 1], self._items[row[found]])[0]
        return sort_lists(value, ids, scores)


def average(encoded: Any, neighbors: np.ndarray) -> Any:
    """Return weighted means of items and their neighbours, scaled to the item's length.

    `neighbors` has one row per item, the nearest first; -1 if there are no more.
    """
    n_items, n_neighbors = neighbors.shape
    weight = 1 - np.arange(1, n_neighbors + 1) / (n_neighbors + 1)
    links = as_matrix(neighbors, np.broadcast_to(weight, neighbors.shape), n_items)
    mean = (links + sparse.eye_array(n_items, format="csr")).astype(encoded.dtype)
    mean = mean @ encoded
    length, new = (np.sqrt(row_dots(rows, rows)) for rows in (encoded, mean))
    return scale_rows(mean, length * inverse(new))


def _without(lists, left_out):
    """Return lists without some entries; fill them with -1 at the end."""
    lists = np.where(lists == left_out, -1, lists)
    order = np.argsort(lists < 0, axis=1, kind="stable")
    return np.take_along_axis(lists, order, axis=1)
