"""Several images of one object as one query (memory vectors)."""

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.groups import read_groups
from sklearn_simlearn._core.judgements import (
    Judgements,
    check_judgements,
    naming_documents,
)
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    validate_params,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._query_sets import QuerySetsMixin
from sklearn_simlearn.base import EncodedSimilarityMixin, replacing_state
from sklearn_simlearn.memory._encoder import MemoryEncoder, Pooling, PrecomputedEncoder
from sklearn_simlearn.memory._membership import check_testable, log_likelihood_ratio
from sklearn_simlearn.memory._weights import (
    KernelSpace,
    VectorSpace,
    check_square,
    scaled_grams,
)


def _has_vectors(memory: "MemoryVectorQuery") -> bool:
    """Return True if the similarity of single queries is an inner product."""
    base = getattr(memory, "base_similarity_", memory.base_similarity)
    return base is None or isinstance(base, str) or _has_encodings(base)


def _has_encodings(base: object) -> bool:
    return hasattr(base, "encoder_") or isinstance(base, EncodedSimilarityMixin)


class MemoryVectorQuery(PaperFormMixin, QuerySetsMixin, BaseEstimator):
    r"""One query vector for several images of one object.

    The memory vector [1]_ of a set of queries :math:`x_1, \dots, x_n`, the rows of
    :math:`X`, is the shortest vector that is equally similar to all of them:

    .. math::

        m = X^\top w = \sum_i w_i x_i, \qquad w = (X X^\top)^{+} \mathbf{1},
        \qquad\text{so that}\quad X m = \mathbf{1}

    if the queries are linearly independent. Otherwise, :math:`X m` is the least-squares
    approximation of :math:`\mathbf{1}`. Similar queries share their weight, so a rare
    view of the object counts as much as a frequent one. A ridge moves the vector
    towards the average query, which has equal weights. Read more in the
    :ref:`User Guide <memory>`.

    Parameters
    ----------
    base_similarity : similarity estimator, "precomputed" or None, default=None
        Similarity of single queries and items, for the Gram matrix and the scores: a
        learner, a hand-made similarity or any estimator with a method `similarity`.
        `fit` clones and fits it. To use a fitted estimator, wrap it in a
        :class:`~sklearn.frozen.FrozenEstimator`. None is the inner product of the rows.
        With "precomputed", `X` is the square matrix of the similarities of the queries
        to each other, and `transform` returns the weights of the queries, zero for
        queries of other sets.

    method : {"memory", "sum", "average", "max"}, default="memory"
        Score of an item for a set of queries: the inner product with the memory vector,
        or the sum, the average or the maximum of the scores of the queries. The sum and
        the average give the same ranking. The maximum is not an inner product:
        `similarity` and `score` support it, but `transform` accepts only sets of one
        query.

    alpha : float, default=3.0
        Ridge that moves the memory vector towards the sum, as in generalised max
        pooling [2]_: :math:`w = (1 + \alpha) (X X^\top + \alpha I)^{-1} \mathbf{1}`.
        The factor :math:`1 + \alpha` does not change the ranking; it makes
        ``alpha=inf`` the sum. 0 is the memory vector of [1]_, as in `from_paper`.

    normalize : bool, default=True
        Whether to scale queries and items to unit length. With a `base_similarity`,
        queries are scaled to a self-similarity of 1, and items are not scaled.

    Attributes
    ----------
    base_similarity_ : object
        The fitted `base_similarity`, if it is an estimator.

    See Also
    --------
    sklearn_simlearn.model_selection.make_query_sets : Draws sets to score.
    sklearn_simlearn.similarities.SelectiveMatchKernel : A `base_similarity` for sets of
        local descriptors.

    Notes
    -----
    A set of n queries with d features costs ``O(n ** 2 * d + n ** 3)`` time, or
    ``O(n * d ** 2 + d ** 3)`` if n exceeds d and there is no `base_similarity`. For
    sparse queries, d is the number of stored values per query. The linear system is
    solved in double precision for data of any type. If the system is close to singular,
    the pseudo-inverse is used. Negative eigenvalues, which occur if the similarity is
    not a kernel, are set to zero. If all eigenvalues are zero up to rounding, the
    weights are those of the sum. If a similarity is not symmetric, the mean of both
    directions is used.

    References
    ----------
    .. [1] R. Sicre and H. Jegou. "Memory vectors for particular object retrieval with
       multiple queries". ICMR, 2015.
    .. [2] N. Murray and F. Perronnin. "Generalized max pooling". CVPR, 2014.

    Examples
    --------
    Two of the three queries are nearly equal, so each gets half of the weight:

    >>> from sklearn_simlearn import MemoryVectorQuery
    >>> X = [[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0]]
    >>> memory = MemoryVectorQuery(alpha=0).fit(X)
    >>> memory.query_weights(X, groups=["a", "a", "a"]).round(2)
    array([0.5, 0.5, 1. ])
    >>> memory.similarity(X, X, groups=["a", "a", "a"]).round(2)
    array([[1., 1., 1.]])

    Search digits one by one, and by sets of five:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn.model_selection import make_query_sets
    >>> X, y = load_digits(return_X_y=True)
    >>> X, y = X[:600] - X.mean(axis=0), y[:600]
    >>> memory = MemoryVectorQuery().fit(X)
    >>> round(memory.score(X, y), 2)
    0.7
    >>> sets = make_query_sets(y, size=5, random_state=0)
    >>> round(memory.score(X, y, groups=sets), 2)
    0.89
    """

    _parameter_constraints: dict[str, Any] = {
        "base_similarity": [
            HasMethods(["fit", "similarity"]),
            StrOptions({"precomputed"}),
            None,
        ],
        "method": [StrOptions({"memory", "sum", "average", "max"})],
        "alpha": [Interval(Real, 0, None, closed="both")],
        "normalize": ["boolean"],
    }

    _paper_parameters = {"method": "memory", "alpha": 0.0, "normalize": True}

    def __init__(
        self,
        base_similarity: BaseEstimator | Literal["precomputed"] | None = None,
        *,
        method: str = "memory",
        alpha: float = 3.0,
        normalize: bool = True,
    ):
        self.base_similarity = base_similarity
        self.method = method
        self.alpha = alpha
        self.normalize = normalize

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: TargetLike | None = None) -> Self:
        """Fit the base similarity, if there is one. Nothing else is learned.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples; square with ``base_similarity="precomputed"``.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), default=None
            Labels, relevance matrix or judgements for a `base_similarity` that learns.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            if isinstance(y, Judgements):
                check_judgements(y, rows.shape[0])
                with naming_documents():
                    self._check_rows(y.documents)
            if self._is_precomputed:
                check_square(rows)
            elif self.base_similarity is not None:
                self.base_similarity_ = clone(self.base_similarity).fit(rows, y)
            self.encoder_ = self._make_encoder()
        return self

    def _make_encoder(self) -> Encoder | None:
        """Return the encoder, or None if the base is not an inner product."""
        pooling = self._pooling
        if self._is_precomputed:
            return PrecomputedEncoder(pooling)
        if self.base_similarity is None:
            return MemoryEncoder(pooling, None)
        if not _has_encodings(self.base_similarity_):
            return None
        return MemoryEncoder(pooling, self.base_similarity_.encoder_)

    def fit_transform(
        self,
        X: MatrixLike,
        y: TargetLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Matrix:
        """Fit, then transform the same samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        y : array-like of shape (n_queries,) or (n_queries, n_columns), default=None
            Labels, relevance matrix or judgements for a `base_similarity` that learns.

        groups : array-like of shape (n_queries,), default=None
            Set of each query.

        Returns
        -------
        M : ndarray or csr_array of shape (n_sets, n_features_out)
            See `transform`.
        """
        return self.fit(X, y).transform(X, groups=groups)

    def _encode_sets(self, X: Matrix, groups: ArrayLike | None) -> Matrix:
        if self._is_precomputed:
            check_square(X)
        if self.encoder_ is None:
            raise ValueError(
                f"{self.base_similarity_!r} is not an inner product, so a set of "
                "queries has no vector. Use `similarity` or `query_weights`."
            )
        return self.encoder_.queries(X, groups)

    @available_if(_has_vectors)
    def transform_database(self, X: MatrixLike) -> Matrix:
        """Encode items. Available if the base similarity is an inner product.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        Returns
        -------
        D : ndarray or csr_array of shape (n_items, n_features_out)
            The items to store.
        """
        return super().transform_database(X)

    def _compare_sets(
        self, X: Matrix, Y: Matrix, groups: ArrayLike | None
    ) -> np.ndarray:
        sets = read_groups(groups, X.shape[0])
        space = self._space(X)
        has_vectors = isinstance(space, VectorSpace)
        items = self.encoder_.items(Y) if has_vectors else Y
        if has_vectors and self.method != "max":
            return inner_products(self.encoder_.vectors(space, sets), items)
        return self._pooling.scores(space, sets, items)

    def query_weights(
        self,
        X: MatrixLike,
        groups: ArrayLike | None = None,
        *,
        return_gram: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, list[np.ndarray]]:
        """Return the weight of each query in the vector of its set.

        A small weight means that other queries of the set resemble this one. The
        weights apply to the queries after normalisation.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        groups : array-like of shape (n_queries,), default=None
            Set of each query. If None, each query is a separate set.

        return_gram : bool, default=False
            Whether to return the Gram matrices, too.

        Returns
        -------
        weights : ndarray of shape (n_queries,)
            Weights, in the order of `X`.

        grams : list of ndarray of shape (set size, set size)
            Similarities of the queries of each set, in the order of `X`. The sets are
            in sorted order. Only with `return_gram`.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        sets = read_groups(groups, X.shape[0])
        space = self._space(X)
        weights = np.empty(len(sets.rows))
        grams: list[np.ndarray] = []
        for _, block in space.blocks(sets):
            weights[block.rows], scale = self._pooling.weights(space, block)
            if return_gram:
                grams += scaled_grams(space, block, scale)
        return (weights, grams) if return_gram else weights

    @validate_params(
        {"cosine": [Interval(Real, 0, 1, closed="neither")]},
        prefer_skip_nested_validation=True,
    )
    def membership(
        self,
        X: MatrixLike,
        Y: MatrixLike,
        groups: ArrayLike | None = None,
        *,
        cosine: float = 0.5,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Test whether items are related to a query of a set.

        Hypothesis H1 is that an item is a random direction. Hypothesis H2 is that it
        has the given cosine with a query of the set; see the
        :ref:`User Guide <memory>`. The test requires ``base_similarity=None``,
        ``normalize=True`` and a method other than "max".

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        groups : array-like of shape (n_queries,), default=None
            Set of each query. If None, each query is a separate set.

        cosine : float, default=0.5
            Cosine of a related item with its query, under H2.

        Returns
        -------
        score : ndarray of shape (n_sets, n_items)
            Similarities of the sets to the items.

        log_likelihood_ratio : ndarray of shape (n_sets, n_items)
            Logarithm of the ratio of the densities of the score under H2 and H1. A
            positive value is evidence that the item is related.
        """
        check_is_fitted(self)
        check_testable(self)
        X, Y = self._check_rows(X), self._check_rows(Y)
        sets = read_groups(groups, X.shape[0])
        space = self.encoder_.space(X)
        M = self.encoder_.vectors(space, sets)
        score = inner_products(M, self.encoder_.items(Y))
        return score, log_likelihood_ratio(score, M, space, sets, self.method, cosine)

    def _check_rows(self, X: MatrixLike, *, reset: bool = False) -> Matrix:
        X = super()._check_rows(X, reset=reset)
        if self._is_precomputed:
            return X
        base: Any = None if reset else getattr(self, "base_similarity_", None)
        return base._check_rows(X) if hasattr(base, "_check_rows") else X

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_ if self._is_precomputed else super()._n_features_out

    @property
    def _pooling(self) -> Pooling:
        return Pooling(self.method, float(self.alpha), self.normalize)

    def _space(self, X: Matrix) -> VectorSpace | KernelSpace:
        """Return the queries as vectors, or as similarities."""
        if self._is_precomputed:
            check_square(X)
        if self.encoder_ is not None:
            return self.encoder_.space(X)
        base = self.base_similarity_
        return KernelSpace(lambda rows, items: base.similarity(X[rows], items), X)

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.base_similarity, str)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if self._is_precomputed:
            tags.input_tags.pairwise = True
            tags.input_tags.sparse = False
        elif self.base_similarity is not None:
            base = get_tags(self.base_similarity)
            tags.input_tags = base.input_tags
            tags.target_tags = base.target_tags
        return tags
