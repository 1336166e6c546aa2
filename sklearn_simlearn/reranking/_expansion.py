"""Query expansion: a second search with the query and its best results."""

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import HasMethods, Interval
from sklearn_simlearn.index._rerank import stored_items
from sklearn_simlearn.reranking._base import IndexStep
from sklearn_simlearn.reranking._graph import as_queries
from sklearn_simlearn.reranking._lists import affinities
from sklearn_simlearn.reranking._verification import SpatialVerification


class QueryExpansion(IndexStep):
    r"""Search again with the mean of the query and its best candidates.

    The mean is taken over encoded queries, the *surrogate queries* :math:`\phi`:

    .. math:: \frac{\phi(q) + \sum_i w_i \phi(x_i)}{1 + \sum_i w_i} .

    Therefore query expansion works with every similarity of this package, even if means
    of samples are not valid samples, such as means of counts. Read more in the
    :ref:`User Guide <query_expansion>`.

    Parameters
    ----------
    n_neighbors : int, default=3
        Largest number of candidates :math:`x_i`.

    exponent : float, default=0
        Exponent :math:`p` of the weights :math:`w_i = a_i^p`. The affinity :math:`a_i`
        is 1 for the score of the best candidate and 0 for that of the last. With 0, all
        candidates have the same weight.

    min_inliers : int, default=8
        Smallest number of inliers of a candidate. Used only with a `verifier`.

    verifier : SpatialVerification, default=None
        A fitted step that chooses the candidates with the most inliers. None uses the
        first candidates.

    Attributes
    ----------
    index_ : SimilarityIndex
        Snapshot of the index at the time of the fit, which is searched again.

    See Also
    --------
    SpatialVerification : Counts inliers.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.reranking import QueryExpansion
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digit_words(return_X_y=True)
    >>> index = SimilarityIndex(
    ...     CosineSimilarity(), rerank=[QueryExpansion(n_neighbors=5)], store_items=True
    ... )
    >>> scores, ids = index.fit(X[100:]).search(X[:100], k=20)
    >>> plain = index.set_params(rerank=[]).search(X[:100], k=20)[1]
    >>> def precision(ids):
    ...     return round(float((y[100:][ids] == y[:100, None]).mean()), 2)
    >>> precision(plain), precision(ids)
    (0.69, 0.76)
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "exponent": [Interval(Real, 0, None, closed="left")],
        "min_inliers": [Interval(Integral, 1, None, closed="left")],
        "verifier": [HasMethods(["verify"]), None],
    }

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        exponent: float = 0,
        min_inliers: int = 8,
        verifier: SpatialVerification | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.exponent = exponent
        self.min_inliers = min_inliers
        self.verifier = verifier

    def _fit(self, index):
        stored_items(index)
        if self.verifier is not None:
            check_is_fitted(self.verifier)
        self.index_, self._ids = index, index._state.ids

    def _rerank(self, queries, scores, ids, rows):
        queries = as_queries(queries, self.index_, len(ids))
        is_excluded = queries.is_excluded(ids)
        is_usable = (rows >= 0) & ~is_excluded
        order = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        if self.verifier is not None:
            n_inliers = self.verifier.verify(queries, ids).n_inliers
            is_usable &= n_inliers >= self.min_inliers
            order = np.lexsort((order, -n_inliers), axis=1)
        affinity = affinities(scores, is_excluded)
        weight = np.where(is_usable, affinity**self.exponent, 0)
        # Only the first n_neighbors usable candidates get a weight.
        place = np.cumsum(np.take_along_axis(weight > 0, order, axis=1), axis=1)
        is_late = np.empty(ids.shape, dtype=bool)
        np.put_along_axis(is_late, order, place > self.n_neighbors, axis=1)
        weight[is_late] = 0
        return queries.search(self._expand(queries, ids, rows, weight), ids.shape[1])

    def _expand(self, queries, ids, rows, weight):
        """Return weighted means of surrogate queries, one per list."""
        Q = queries.encode()
        which, place = np.nonzero(weight)
        total = 1 + weight.sum(axis=1)
        mean = sparse.diags_array((1 / total).astype(Q.dtype)) @ Q
        if len(which) == 0:
            return mean
        _, first, item = np.unique(
            rows[which, place], return_index=True, return_inverse=True
        )
        encoded = queries.encode_items(ids[which, place][first])
        share = sparse.csr_array(
            ((weight[which, place] / total[which]).astype(Q.dtype), (which, item)),
            shape=(len(ids), len(first)),
        )
        return mean + share @ encoded
