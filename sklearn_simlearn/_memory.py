"""Several images of one object as one query (memory vectors)."""

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._chunking import get_chunk_n_rows
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    validate_params,
)
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from sklearn_simlearn._memory_fast import (
    dense_grams,
    dense_sums,
    solve_grams,
    sparse_grams,
)
from sklearn_simlearn._relevance import Relevance, check_relevance
from sklearn_simlearn.base import SimilarityMixin, all_or_nothing
from sklearn_simlearn.metrics import average_precision
from sklearn_simlearn.metrics._ranking import mean_over_queries, rows_per_block
from sklearn_simlearn.metrics._scorer import check_query_mask, refuse_perfect

# Numbers that a call of a kernel works on, so that a set is still in the cache when its
# weights are known; also what bounds the memory and lets Ctrl-C through.
BLOCK = 2**21

# Eigenvalues of a Gram matrix, relative to the largest and to its size, that are noise:
# of the order of its own rounding in double precision, or of the square of the rounding
# of the queries in single precision, which happens to be the same.
NOISE = 64 * np.finfo(np.float64).eps


class MemoryVectorQuery(SimilarityMixin, BaseEstimator):
    r"""Several images of one object, queried by a single vector.

    The memory vector [1]_ of a set of queries :math:`x_1, \dots, x_n`, the rows of
    :math:`X`, is the shortest vector that is equally similar to all of them:

    .. math::

        m = X^\top w = \sum_i w_i x_i, \qquad w = (X X^\top)^{+} \mathbf{1},
        \qquad\text{so that}\quad X m = \mathbf{1}

    where the queries are linearly independent, and :math:`X m` comes closest to it in
    least squares where they are not. Queries that resemble each other share their
    weight, so what is rare in the set counts as much as what is frequent. The average
    query, :math:`w = \mathbf{1}`, is the baseline it improves on. Read more in the
    :ref:`User Guide <memory>`.

    Parameters
    ----------
    base_similarity : similarity estimator, "precomputed" or None, default=None
        What the Gram matrix and the scores come from: a learner, a hand-made similarity
        or any estimator with a method `similarity`. It is cloned and fitted by `fit`;
        wrap a fitted one in :class:`~sklearn.frozen.FrozenEstimator` to use it as it
        is. None is the inner product of the rows. With "precomputed" the rows of a
        square `X` hold the similarities of the queries to each other.

    method : {"memory", "sum", "average", "max"}, default="memory"
        What a set of queries scores an item: the inner product with the memory vector,
        the sum, the average or the maximum of the scores of its queries. The sum and
        the average rank as the average query does. The maximum has no vector: it has
        `similarity` and `score`, but `transform` takes sets of one query only.

    alpha : float, default=0.0
        Ridge that draws the memory vector towards the sum, as in generalised max
        pooling [2]_: :math:`w = (1 + \alpha) (X X^\top + \alpha I)^{-1} \mathbf{1}`.
        The factor leaves the ranking alone and makes ``alpha=inf`` the sum itself.

    normalize : bool, default=True
        Scale queries and items to unit length. With a `base_similarity`, queries are
        scaled to a self-similarity of 1 and items are left as they are.

    queries_per_set : int, default=5
        Number of queries in the sets that `score` draws when it is given no groups.
        With 1, each sample is a query of its own, as for the other learners.

    random_state : int, RandomState instance or None, default=0
        Decides which sets `score` draws. The int makes the candidates of a search
        compete on the same sets.

    Attributes
    ----------
    base_similarity_ : object
        The fitted `base_similarity`, if that is an estimator.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn_simlearn.similarities.SelectiveMatchKernel : A similarity of local
        descriptors that memory weights extend to.

    Notes
    -----
    Nothing is learned in `fit` unless by the `base_similarity`; labels serve to score.

    A set of n queries with d features costs ``O(n ** 2 * d + n ** 3)`` time, or
    ``O(n * d ** 2 + d ** 3)`` where n exceeds d and there is no `base_similarity`. The
    system is solved in double precision whatever the data. Where it is close to
    singular its eigenvalues decide: those within rounding of zero are left out, which
    is the pseudo-inverse. So are negative ones, of a similarity that is no kernel; if
    none is left, the weights are those of the sum. Of a similarity that is not
    symmetric, the mean of both directions is used.

    References
    ----------
    .. [1] R. Sicre and H. Jegou. "Memory vectors for particular object retrieval with
       multiple queries". ICMR, 2015.
    .. [2] N. Murray and F. Perronnin. "Generalized max pooling". CVPR, 2014.

    Examples
    --------
    Two of the three queries are nearly the same and share the weight of one:

    >>> from sklearn_simlearn import MemoryVectorQuery
    >>> X = [[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0]]
    >>> memory = MemoryVectorQuery().fit(X)
    >>> memory.query_weights(X, groups=["a", "a", "a"]).round(2)
    array([0.5, 0.5, 1. ])
    >>> memory.similarity(X, X, groups=["a", "a", "a"]).round(2)
    array([[1., 1., 1.]])

    Digits searched by sets of five, which `score` draws:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(PCA(16, random_state=0), MemoryVectorQuery(alpha=1))
    >>> round(model.fit(X).score(X, y), 2)
    0.86
    """

    _parameter_constraints: dict = {
        "base_similarity": [HasMethods(["fit", "similarity"]), None]
        + [StrOptions({"precomputed"})],
        "method": [StrOptions({"memory", "sum", "average", "max"})],
        "alpha": [Interval(Real, 0, None, closed="both")],
        "normalize": ["boolean"],
        "queries_per_set": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        base_similarity=None,
        *,
        method="memory",
        alpha=0.0,
        normalize=True,
        queries_per_set=5,
        random_state=0,
    ):
        self.base_similarity = base_similarity
        self.method = method
        self.alpha = alpha
        self.normalize = normalize
        self.queries_per_set = queries_per_set
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    @all_or_nothing
    def fit(self, X, y=None):
        """Fit the base similarity, if there is one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples; square with ``base_similarity="precomputed"``.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), default=None
            Labels or relevance matrix for a `base_similarity` that learns from them.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = validate_data(
            self,
            X,
            accept_sparse=False if self._is_precomputed else "csr",
            dtype=[np.float64, np.float32],
        )
        if self._is_precomputed:
            _check_square(X)
        n_features_out = X.shape[1]
        if not (self.base_similarity is None or self._is_precomputed):
            self.base_similarity_ = clone(self.base_similarity).fit(X, y)
            n_features_out = getattr(self.base_similarity_, "_n_features_out", None)
        self._n_features_out = n_features_out
        return self

    def fit_transform(self, X, y=None, *, groups=None):
        """Fit, then `transform` the same samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        y : array-like of shape (n_queries,) or (n_queries, n_columns), default=None
            Labels or relevance matrix for a `base_similarity` that learns from them.

        groups : array-like of shape (n_queries,), default=None
            Set of each query.

        Returns
        -------
        M : {ndarray, sparse matrix} of shape (n_sets, n_features_out)
            See `transform`.
        """
        return self.fit(X, y).transform(X, groups=groups)

    def transform(self, X, groups=None):
        """One vector for each set of queries.

        Its inner products with the rows of `transform_database` are the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        groups : array-like of shape (n_queries,), default=None
            Set of each query: integers, strings, anything that can be sorted. Each
            query is a set of its own if None.

        Returns
        -------
        M : {ndarray, sparse matrix} of shape (n_sets, n_features_out)
            One row for each group, in the sorted order of ``np.unique(groups)``, which
            is also the index of a pandas frame; in the order of `X` without groups.
            Sparse if `X` is. With ``base_similarity="precomputed"``, the weights of the
            queries, zero for those of other sets.
        """
        check_is_fitted(self)
        X = self._validate_rows(X)
        sets = _read_groups(groups, X.shape[0])
        M = self._memory_vectors(self._space(X), sets)
        wants_frame = _get_output_config("transform", self)["dense"] == "pandas"
        if groups is not None and wants_frame and not sparse.issparse(M):
            import pandas as pd

            # Scikit-learn would give it the index of X, which has other rows.
            index = pd.Index(sets.names, name=getattr(groups, "name", None))
            return pd.DataFrame(M, index=index)
        return M

    def similarity(self, X, Y=None, groups=None):
        """Similarity of every set of queries to every item.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_features), default=None
            Items; `X` itself if None.

        groups : array-like of shape (n_queries,), default=None
            Set of each query; each is a set of its own if None.

        Returns
        -------
        S : ndarray of shape (n_sets, n_items)
            Larger is more similar. One row for each group, in sorted order.
        """
        check_is_fitted(self)
        X = self._validate_rows(X)
        Y = X if Y is None else self._validate_rows(Y)
        sets = _read_groups(groups, X.shape[0])
        space = self._space(X)
        return self._similarity(space, self._items(space, Y), sets)

    def query_weights(self, X, groups=None, *, return_gram=False):
        """Weight of each query in the vector of its set.

        The smaller the weight, the more of the query is in the rest of its set. The
        weights belong to the queries after normalisation.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        groups : array-like of shape (n_queries,), default=None
            Set of each query; each is a set of its own if None.

        return_gram : bool, default=False
            Return the Gram matrices too.

        Returns
        -------
        weights : ndarray of shape (n_queries,)
            In the order of `X`.

        grams : list of ndarray of shape (set size, set size)
            Similarities of the queries of each set, in the order of `X`, the sets in
            sorted order. Only with `return_gram`.
        """
        check_is_fitted(self)
        X = self._validate_rows(X)
        sets = _read_groups(groups, X.shape[0])
        space = self._space(X)
        weights, grams = np.empty(len(sets.rows)), []
        for _, block in space.blocks(sets):
            weights[block.rows], scale = self._weights(space, block)
            if return_gram:
                last = np.cumsum(block.sizes**2)[:-1]
                for s, gram in enumerate(np.split(space.grams(block), last)):
                    part = scale[block.offsets[s] : block.offsets[s + 1], None]
                    grams.append(gram.reshape(len(part), len(part)) * part * part.T)
        return (weights, grams) if return_gram else weights

    @validate_params(
        {
            "X": ["array-like", "sparse matrix"],
            "Y": ["array-like", "sparse matrix"],
            "groups": ["array-like", None],
            "cosine": [Interval(Real, 0, 1, closed="neither")],
        },
        prefer_skip_nested_validation=True,
    )
    def membership(self, X, Y, groups=None, *, cosine=0.5):
        r"""Test whether items are related to a query of a set.

        Under H1 an item :math:`y` is a random direction in d dimensions. Under H2 it is
        :math:`y = \rho x_i + \sqrt{1 - \rho^2} z` with a random direction :math:`z`.
        The score :math:`m^\top y` is then close to normal with known mean and variance
        under either, for the memory vector and for the sum; see the
        :ref:`User Guide <memory>`.

        Parameters
        ----------
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
        """
        check_is_fitted(self)
        if self.base_similarity is not None or not self.normalize:
            raise ValueError(
                "The membership test is one of directions in the space of X: it goes "
                "with base_similarity=None and normalize=True only."
            )
        if self.method == "max":
            raise ValueError(
                'The maximum of scores is not normal: method="max" has no membership '
                "test."
            )
        X, Y = self._validate_rows(X), self._validate_rows(Y)
        sets = _read_groups(groups, X.shape[0])
        space = self._space(X)
        M = self._memory_vectors(space, sets)
        score = safe_sparse_dot(M, self._encode_items(Y).T, dense_output=True)

        # Mean under H2, variance under H1, and what H2 leaves of it.
        n = sets.sizes
        remains = np.full(len(n), 1 - cosine**2)
        if self.method == "memory":
            # (memory-h1), (memory-h2); X m = 1 but for a ridge or linear dependence.
            total = space.sums(lambda block: self._scale(space, block), sets)
            mean = cosine * _row_products(M, total) / n
            variance = _row_products(M, M) / X.shape[1]
        else:
            # (sum-h1), (sum-h2); a single query is its own memory vector.
            divisor = n if self.method == "average" else np.ones(len(n))
            mean = cosine / divisor
            variance = n / X.shape[1] / divisor**2
            remains[n > 1] = 1 - 1 / n[n > 1]
        ratio = _log_ratio(score, mean[:, None], variance[:, None], remains[:, None])
        return score, ratio.astype(score.dtype, copy=False)

    def score(self, X, y, sample_weight=None, *, groups=None, query_mask=None):
        """Mean average precision, each set of queries searching what is outside it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples: queries and items alike.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive where a sample is relevant, negative where it is junk. A set is
            relevant to what all its queries are relevant to.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries. That of a set is their mean; samples of
            weight 0 do not query.

        groups : array-like of shape (n_samples,), default=None
            Set of each sample. If None, sets of `queries_per_set` samples with the same
            labels are drawn, as many as there are without overlap. A class of fewer
            samples makes one set and leaves one of its samples to be found.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; the others are searched, even if they belong to a group.

        Returns
        -------
        score : float
            Between 0 and 1.
        """
        if groups is None and self.queries_per_set == 1 and not self._is_precomputed:
            return super().score(X, y, sample_weight, query_mask=query_mask)
        check_is_fitted(self)
        X = self._validate_rows(X)
        n_samples = X.shape[0]
        relevance = check_relevance(y, n_samples=n_samples)
        can_query = relevance.can_query
        if query_mask is not None:
            can_query = can_query & check_query_mask(query_mask, n_samples)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
            can_query = can_query & (sample_weight > 0)
        if not can_query.any():
            raise ValueError(
                "There is no query: every sample is a distractor or left out by "
                "query_mask or a weight of 0."
            )
        if groups is None:
            rng = check_random_state(self.random_state)
            sets = _draw_sets(relevance, can_query, self.queries_per_set, rng)
        else:
            sets = _read_groups(groups, n_samples, can_query)
        relevance = _with_sets(relevance, sets)

        # From here on the inputs are sound.
        space = self._space(X)
        items = self._items(space, X)
        n_sets, values = len(sets.sizes), []
        n_rows = rows_per_block(n_samples, n_sets)
        for start in range(0, n_sets, n_rows):
            block = sets.block(start, start + n_rows)
            stop = start + len(block.sizes)
            relevant = relevance.block(
                slice(start, stop), slice(n_sets, n_sets + n_samples)
            )
            relevant[block.of_row, block.rows] = -1
            refuse_perfect(relevant)
            similarity = self._similarity(space, items, block)
            values.append(average_precision(relevant, similarity))
        weight = None
        if sample_weight is not None:
            weight = np.bincount(sets.of_row, sample_weight[sets.rows]) / sets.sizes
        return mean_over_queries(np.concatenate(values), weight)

    # -- on checked input --

    def _encode_items(self, X):
        if self._is_precomputed:
            return X
        if self.base_similarity is None:
            return normalize(X) if self.normalize else X
        base = self.base_similarity_
        if not hasattr(base, "_encode_items"):
            raise ValueError(
                f"{base!r} is no inner product, so an item has no vector to be stored. "
                "Use `similarity`."
            )
        return base._encode_items(base._validate_rows(X))

    def _space(self, X):
        """Where the queries live: among vectors, or known by similarities only."""
        if self._is_precomputed:
            _check_square(X)
            return _Kernel(lambda rows, items: items[:, rows].T, X)
        if self.base_similarity is None:
            return _Vectors(X, X)
        base = self.base_similarity_
        if hasattr(base, "_encode_queries"):
            X = base._validate_rows(X)
            return _Vectors(base._encode_queries(X), base._encode_items(X))
        return _Kernel(lambda rows, items: base.similarity(X[rows], items), X)

    def _items(self, space, X):
        """Items in the form that the space of the queries compares them in."""
        return self._encode_items(X) if isinstance(space, _Vectors) else X

    def _memory_vectors(self, space, sets):
        if self.method == "max" and sets.sizes.max() > 1:
            raise ValueError(
                'The maximum of scores is no inner product: with method="max" use '
                "`similarity`, or `transform` without groups."
            )
        if self._is_precomputed:
            M = np.zeros((len(sets.sizes), space.X.shape[0]), dtype=space.dtype)
            for start, block in space.blocks(sets):
                M[start + block.of_row, block.rows] = self._factors(space, block)
            return M
        if not isinstance(space, _Vectors):
            raise ValueError(
                f"{self.base_similarity_!r} is no inner product, so a set of queries "
                "has no vector. Use `similarity`, or `query_weights`."
            )
        return space.sums(lambda block: self._factors(space, block), sets)

    def _similarity(self, space, items, sets):
        if isinstance(space, _Vectors) and self.method != "max":
            M = self._memory_vectors(space, sets)
            return safe_sparse_dot(M, items.T, dense_output=True)
        n_items = _num_samples(items)
        S = np.empty((len(sets.sizes), n_items), dtype=space.dtype)
        n_rows = get_chunk_n_rows(16 * n_items, max_n_rows=len(sets.rows))
        pool = np.maximum if self.method == "max" else np.add
        for start, block in sets.blocks(sets.sizes, n_rows):
            scores = space.scores(block.rows, items)
            scores = scores * self._factors(space, block)[:, None]
            stop = start + len(block.sizes)
            S[start:stop] = pool.reduceat(scores, block.offsets[:-1], axis=0)
        return S

    def _factors(self, space, sets):
        """What the queries are multiplied by before they are pooled."""
        weights, scale = self._weights(space, sets)
        return weights * scale

    def _weights(self, space, sets):
        """Weights of the queries of all sets, and the factors that normalise them."""
        if self.method == "memory":
            shrinkage = 1 - 1 / (1 + self.alpha)
            return _memory_weights(space, sets, shrinkage, self.normalize)
        weights = np.ones(len(sets.rows))
        if self.method == "average":
            weights /= np.repeat(sets.sizes, sets.sizes)
        return weights, self._scale(space, sets)

    def _scale(self, space, sets):
        scale = np.ones(len(sets.rows))
        if self.normalize:
            own = space.grams(Sets(sets.rows, np.arange(len(sets.rows) + 1)))
            scale[own > 0] = 1 / np.sqrt(own[own > 0])
        return scale

    @property
    def _is_precomputed(self):
        return isinstance(self.base_similarity, str)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        if self._is_precomputed:
            tags.input_tags.pairwise = True
            tags.input_tags.sparse = False
        elif self.base_similarity is not None:
            base = get_tags(self.base_similarity)
            tags.input_tags = base.input_tags
            tags.target_tags.required = base.target_tags.required
        return tags


class Sets(NamedTuple):
    """Sets of rows of the data.

    Attributes
    ----------
    rows : ndarray of int64
        The rows of the first set, of the second, and so on.

    offsets : ndarray of shape (n_sets + 1,), int64
        Set s has the slots ``offsets[s]`` to ``offsets[s + 1] - 1`` of `rows`.

    names : ndarray of shape (n_sets,) or None
        What the user calls them.
    """

    rows: np.ndarray
    offsets: np.ndarray
    names: np.ndarray | None = None

    @property
    def sizes(self):
        return np.diff(self.offsets)

    @property
    def of_row(self):
        """Set of each slot of `rows`."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def block(self, start, stop):
        """The sets `start` to ``stop - 1``."""
        offsets = self.offsets[start : stop + 1]
        return Sets(self.rows[offsets[0] : offsets[-1]], offsets - offsets[0])

    def blocks(self, cost, limit):
        """Consecutive sets of limited total cost, or one, with the number of the first.

        Parameters
        ----------
        cost : ndarray of shape (n_sets,)
        limit : int
        """
        total, start = np.cumsum(cost), 0
        while start < len(total):
            spent = total[start - 1] if start else 0
            stop = int(np.searchsorted(total, spent + limit, side="right"))
            stop = max(stop, start + 1)
            yield start, self.block(start, stop)
            start = stop


def _sort_into_sets(group, rows):
    """Rows with the same group form a set; sets in sorted order, rows in their own."""
    order = np.argsort(group, kind="stable")
    group = group[order]
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    return Sets(rows[order], np.append(first, len(rows)), group[first])


def _read_groups(groups, n_samples, mask=None):
    """Check `groups`; the sets of its samples that are in the mask, if there is one."""
    if groups is None:
        return Sets(np.arange(n_samples), np.arange(n_samples + 1))
    groups = column_or_1d(groups)
    if len(groups) != n_samples:
        raise ValueError(
            f"groups and X must have the same number of samples; got {len(groups)} and "
            f"{n_samples}."
        )
    if groups.dtype.kind in "fO" and (
        any(group is None for group in groups.flat) or (groups != groups).any()
    ):
        raise ValueError("groups contains NaN or None: every query belongs to a set.")
    rows = np.arange(n_samples) if mask is None else np.flatnonzero(mask)
    try:
        return _sort_into_sets(groups[rows], rows)
    except TypeError:
        raise TypeError(
            "groups mixes labels of different types: use integers only, or strings "
            "only."
        ) from None


def _draw_sets(relevance, can_query, size, rng):
    """Disjoint sets of `size` samples that are relevant to the same."""
    if relevance.labels is not None:
        kind = relevance.labels
    else:
        columns = np.split(relevance.positive.indices, relevance.positive.indptr[1:-1])
        known = {}
        kind = np.array([known.setdefault(c.tobytes(), len(known)) for c in columns])
    rows = rng.permutation(np.flatnonzero(can_query))
    kinds = _sort_into_sets(kind[rows], rows)

    # One sample of a kind is left to be found; what makes no whole set does not query.
    n_of_kind = np.bincount(kind[relevance.can_query])[kinds.names]
    size = np.minimum(np.clip(n_of_kind - 1, 1, size), kinds.sizes)
    n_used = np.repeat(kinds.sizes // size * size, kinds.sizes)
    place = np.arange(len(rows)) - np.repeat(kinds.offsets[:-1], kinds.sizes)
    used = place < n_used
    starts_set = (place % np.repeat(size, kinds.sizes) == 0)[used]
    first = np.append(np.flatnonzero(starts_set), len(starts_set))
    return Sets(kinds.rows[used], first)


def _with_sets(relevance, sets):
    """Relevance of the sets, followed by that of the samples."""
    n_sets, n_samples = len(sets.sizes), len(relevance)
    member = sparse.csr_array(
        (np.ones(len(sets.rows)), sets.rows, sets.offsets), shape=(n_sets, n_samples)
    )
    shared = sparse.csr_array(member @ relevance.positive.sign())
    n_members = np.repeat(sets.sizes, np.diff(shared.indptr))
    shared.data = (shared.data == n_members).astype(np.float64)
    shared.eliminate_zeros()
    if (np.diff(shared.indptr) == 0).any():
        raise ValueError(
            "groups puts samples into one set that have no label or column of y in "
            "common. A set of queries shows one object."
        )
    labels = junk = None
    if relevance.labels is not None:
        labels = np.append(
            relevance.labels[sets.rows[sets.offsets[:-1]]], relevance.labels
        )
    if relevance.junk is not None:
        nothing = sparse.csr_array((n_sets, relevance.junk.shape[1]))
        junk = sparse.vstack([nothing, relevance.junk], format="csr")
    positive = sparse.vstack([shared, relevance.positive], format="csr")
    return Relevance(positive, junk, labels)


class _Vectors:
    """Queries as vectors Q, compared by inner product with items D."""

    def __init__(self, Q, D):
        self.is_symmetric = D is Q
        if sparse.issparse(Q) or sparse.issparse(D):
            self.Q, self.D = sparse.csr_array(Q), sparse.csr_array(D)
        else:
            self.Q = np.ascontiguousarray(Q)
            self.D = self.Q if D is Q else np.ascontiguousarray(D)
        self.dtype = Q.dtype
        self.width = Q.shape[1]
        self.noise = NOISE

    def blocks(self, sets):
        return sets.blocks(sets.sizes * (sets.sizes + self.width), BLOCK)

    def grams(self, sets):
        """Gram matrices of all sets, one after the other."""
        grams = np.empty(np.sum(sets.sizes**2))
        if sparse.issparse(self.Q):
            arrays = [
                getattr(matrix, name)
                for matrix in (self.Q, self.D)
                for name in ("data", "indices", "indptr")
            ]
            index_dtype = np.result_type(*arrays[1:3], *arrays[4:])
            for i in (1, 2, 4, 5):
                arrays[i] = arrays[i].astype(index_dtype, copy=False)
            sparse_grams(*arrays, self.width, sets.rows, sets.offsets, grams)
        else:
            dense_grams(self.Q, self.D, sets.rows, sets.offsets, grams)
        return grams

    def sums(self, factors, sets):
        """Sum of the queries of each set, each times the factor for some sets."""
        if not sparse.issparse(self.Q):
            M = np.empty((len(sets.sizes), self.width), dtype=self.dtype)
            for start, block in self.blocks(sets):
                out = M[start : start + len(block.sizes)]
                dense_sums(self.Q, block.rows, block.offsets, factors(block), out)
            return M
        M = []
        for _, block in self.blocks(sets):
            pool = sparse.csr_array(
                (factors(block), block.rows, block.offsets),
                shape=(len(block.sizes), self.Q.shape[0]),
            )
            M.append((pool @ self.Q).astype(self.dtype))
        return sparse.vstack(M, format="csr")

    def scores(self, rows, items):
        return safe_sparse_dot(self.Q[rows], items.T, dense_output=True)


class _Kernel:
    """Queries X known by their similarities to each other and to the items."""

    is_symmetric = False

    def __init__(self, scores, X):
        self.scores = scores
        self.X = X
        self.dtype = X.dtype
        self.noise = 64 * np.finfo(self.dtype).eps

    def blocks(self, sets):
        return sets.blocks(sets.sizes**2, BLOCK)

    def grams(self, sets):
        # Several small sets at a time: a call costs more than the numbers that are
        # computed in vain.
        grams = []
        for _, block in sets.blocks(sets.sizes, 256):
            K = self.scores(block.rows, self.X[block.rows]).astype(np.float64)
            K = (K + K.T) / 2
            edges = zip(block.offsets[:-1], block.offsets[1:], strict=True)
            grams += [K[low:high, low:high].ravel() for low, high in edges]
        return np.concatenate(grams)


def _memory_weights(space, sets, shrinkage, normalize):
    """(memory-ridge) for all sets, and the factors that normalise the queries."""
    # With more queries than features, the matrix of the features is the smaller one.
    if not (space.is_symmetric and sets.sizes.max() > space.width):
        return _gram_weights(space.grams(sets), sets, shrinkage, normalize, space.noise)
    weights, scale = np.empty((2, len(sets.rows)))
    for s, one in sets.blocks(sets.sizes, 1):
        part = slice(sets.offsets[s], sets.offsets[s + 1])
        if len(one.rows) > space.width:
            found = _tall_weights(space.Q[one.rows], shrinkage, normalize)
        else:
            found = _gram_weights(
                space.grams(one), one, shrinkage, normalize, space.noise
            )
        weights[part], scale[part] = found
    return weights, scale


def _gram_weights(grams, sets, shrinkage, normalize, noise):
    weights, scale = np.empty((2, len(sets.rows)))
    solved = np.empty(len(sets.sizes), dtype=bool)
    solve_grams(
        grams, sets.offsets, shrinkage, normalize, scale, weights, solved.view(np.uint8)
    )
    # What Cholesky could not be trusted with, one size of sets at a time.
    first = np.append(0, np.cumsum(sets.sizes**2))
    for n in np.unique(sets.sizes[~solved]):
        left = np.flatnonzero(~solved & (sets.sizes == n))
        K = grams[first[left, None] + np.arange(n * n)].reshape(-1, n, n)
        slots = sets.offsets[left, None] + np.arange(n)
        weights[slots] = _pseudo_solve(K, shrinkage, noise)
    return weights, scale


def _pseudo_solve(K, shrinkage, noise):
    """(memory-pinv)  K^+ 1 of several matrices, of their positive part."""
    n = K.shape[-1]
    eigenvalues, U = np.linalg.eigh(K)
    eigenvalues = (1 - shrinkage) * np.maximum(eigenvalues, 0) + shrinkage
    largest = eigenvalues.max(axis=1, keepdims=True)
    inverse = np.zeros_like(eigenvalues)
    np.divide(1, eigenvalues, out=inverse, where=eigenvalues > n * noise * largest)
    weights = np.einsum("sij,sj->si", U, inverse * U.sum(axis=1))
    # 1' K^+ 1 is at least n / largest where 1 is not in the part that was left out.
    empty = weights.sum(axis=1) * largest[:, 0] <= 1e-9 * n
    weights[empty] = 1
    return weights


def _tall_weights(X, shrinkage, normalize):
    """The same for one set of more queries than features, by the matrix X' X."""
    n = X.shape[0]
    X = X.astype(np.float64)
    own = _row_products(X, X)
    scale = np.ones(n)
    if normalize:
        scale[own > 0] = 1 / np.sqrt(own[own > 0])
        X = sparse.diags_array(scale) @ X
    eigenvalues, V = np.linalg.eigh(safe_sparse_dot(X.T, X, dense_output=True))
    keep = eigenvalues > n * NOISE * eigenvalues[-1]
    if not keep.any():
        return np.ones(n), scale
    eigenvalues, V = eigenvalues[keep], V[:, keep]
    # In the span of the queries U = X V / sqrt(eigenvalues), then outside it.
    on_features = V.T @ np.asarray(X.sum(axis=0)).ravel() / eigenvalues
    inverse = 1 / ((1 - shrinkage) * eigenvalues + shrinkage)
    weights = X @ (V @ (inverse * on_features))
    if shrinkage > 0:
        weights += (1 - X @ (V @ on_features)) / shrinkage
    return weights, scale


def _row_products(A, B):
    """a_i' b_i of each row, in double precision."""
    if sparse.issparse(A):
        return np.asarray(A.multiply(B).sum(axis=1, dtype=np.float64)).ravel()
    return np.einsum("ij,ij->i", A, B, dtype=np.float64)


def _log_ratio(score, mean, variance, remains):
    """log N(score; mean, remains * variance) - log N(score; 0, variance)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (score**2 - (score - mean) ** 2 / remains) / variance - np.log(remains)
    # The vector of an empty set says nothing.
    return np.where(variance > 0, ratio / 2, 0)


def _check_square(X):
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            'With base_similarity="precomputed", X must hold the similarities of the '
            f"queries to each other, so be square; got shape {X.shape}."
        )
