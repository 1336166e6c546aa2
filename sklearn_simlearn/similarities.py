"""Hand-made similarities of bags of words, under the contract of the learners.

They are the baselines of the learners' papers: rows of every table, and estimators
that a grid search can tune.
"""

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.preprocessing import normalize
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_non_negative, validate_data

from sklearn_simlearn._counts import check_counts
from sklearn_simlearn._match_kernel import SelectiveMatchKernel
from sklearn_simlearn.base import SimilarityMixin, all_or_nothing, append_columns

__all__ = [
    "AsymmetricSimilarity",
    "BurstinessSimilarity",
    "CosineSimilarity",
    "NegativeEvidenceSimilarity",
    "SelectiveMatchKernel",
]


class _HandMadeSimilarity(SimilarityMixin, BaseEstimator):
    """A similarity with statistics of the data, but nothing learned from labels."""

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X, y=None):
        """Gather the statistics of the words.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        self._check_values(X)
        self._gather(X)
        return self

    def _validate_rows(self, X):
        X = super()._validate_rows(X)
        self._check_values(X)
        return X

    def _check_values(self, X):
        """Refuse values that the formula has no meaning for."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


class CosineSimilarity(_HandMadeSimilarity):
    r"""Cosine of tf-idf vectors.

    .. math::

        s(q, d) = \frac{\sum_i w_i^2 q_i d_i}
                       {\lVert w \odot q \rVert \, \lVert w \odot d \rVert},
        \qquad w_i = \log \frac{n}{n_i},

    where :math:`n_i` of the :math:`n` training samples contain word :math:`i`.

    Parameters
    ----------
    use_idf : bool, default=True
        Weight the words. False gives the plain cosine, the baseline for embeddings.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights of the words. One that the training data lacks is taken to occur once.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    Examples
    --------
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> CosineSimilarity(use_idf=False).fit(X).similarity(X[:1], X).round(3)
    array([[1.   , 0.632, 0.141]])
    """

    _parameter_constraints: dict = {"use_idf": ["boolean"]}

    def __init__(self, *, use_idf=True):
        self.use_idf = use_idf

    def _gather(self, X):
        self.idf_ = (
            inverse_document_frequency(X) if self.use_idf else np.ones(X.shape[1])
        )
        self._n_features_out = X.shape[1]

    def _encode_queries(self, X):
        return normalize(_scale_columns(X, self.idf_), copy=False)

    def _encode_items(self, X):
        return self._encode_queries(X)


class NegativeEvidenceSimilarity(_HandMadeSimilarity):
    r"""Cosine of tf-idf vectors less a part of their mean.

    A word that both samples lack speaks for their similarity [1]_. Subtracting
    :math:`\beta` times the mean :math:`m` of the training data does that:

    .. math::

        s(q, d) = \cos(w \odot (q - \beta m),\; w \odot (d - \beta m)).

    Parameters
    ----------
    beta : float, default=0.5
        Share of the mean that is subtracted; 0 is the cosine of tf-idf.

    use_idf : bool, default=True
        Weight the words by :math:`w_i = \log(n / n_i)`, else by 1.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights of the words.

    mean_ : ndarray of shape (n_features,)
        Mean of the weighted training data.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    Notes
    -----
    Sparse data stays sparse: with :math:`x` weighted and :math:`m` its mean,

    .. math::

        \langle q - \beta m,\, d - \beta m \rangle = \langle q, d \rangle
        - \beta \langle m, d \rangle
        + \beta (\beta \lVert m \rVert^2 - \langle q, m \rangle),

    so two more columns beside the words carry the mean.

    References
    ----------
    .. [1] H. Jegou and O. Chum. "Negative evidences and co-occurrences in image
       retrieval: the benefit of PCA and whitening". ECCV, 2012.

    Examples
    --------
    >>> from sklearn_simlearn.similarities import NegativeEvidenceSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> similarity = NegativeEvidenceSimilarity(use_idf=False).fit(X)
    >>> similarity.similarity(X[:1], X).round(3)
    array([[ 1.   ,  0.251, -0.424]])
    """

    _parameter_constraints: dict = {
        "beta": [Interval(Real, 0, None, closed="left")],
        "use_idf": ["boolean"],
    }

    def __init__(self, beta=0.5, *, use_idf=True):
        self.beta = beta
        self.use_idf = use_idf

    def _gather(self, X):
        self.idf_ = (
            inverse_document_frequency(X) if self.use_idf else np.ones(X.shape[1])
        )
        mean = _scale_columns(X, self.idf_).mean(axis=0, dtype=np.float64)
        self.mean_ = np.asarray(mean).ravel()
        self._n_features_out = X.shape[1] + 2

    def _encode_queries(self, X):
        X, on_mean, scale = self._centre(X)
        rest = self.beta * (self.beta * self.mean_ @ self.mean_ - on_mean)
        extra = np.column_stack([np.ones(len(scale)), rest])
        return append_columns(X, extra, scale)

    def _encode_items(self, X):
        X, on_mean, scale = self._centre(X)
        extra = np.column_stack([-self.beta * on_mean, np.ones(len(scale))])
        return append_columns(X, extra, scale)

    def _centre(self, X):
        """Weighted rows, their products with the mean, one over their norm less it."""
        X = _scale_columns(X, self.idf_)
        on_mean = X @ self.mean_
        norm2 = (
            row_norms(X, squared=True)
            - 2 * self.beta * on_mean
            + self.beta**2 * self.mean_ @ self.mean_
        )
        norm = np.sqrt(np.maximum(norm2, 0))
        return X, on_mean, np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)


class BurstinessSimilarity(_HandMadeSimilarity):
    r"""Similarity that discounts words which come in bursts.

    A word repeated within an item [1]_, or in many items, counts less than
    proportionally, here in the form of Eq. 3 of [2]_:

    .. math::

        s(q, d) = \sum_i w_i^2\, \frac{q_i \sqrt[4]{d_i}}{\sqrt{\sum_j \sqrt{x_{ji}}}},
        \qquad w_i = \log \frac{n}{n_i},

    with :math:`j` over the training samples :math:`x_j`.

    Parameters
    ----------
    normalize : bool, default=True
        Divide by the length of :math:`\sqrt[4]{d}`, so that items with many words have
        no advantage. False is the formula to the letter.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights :math:`w` of the words.

    burst_ : ndarray of shape (n_features,)
        Denominators. A word that the training data lacks has 1, as if it occurred once.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    References
    ----------
    .. [1] H. Jegou, M. Douze and C. Schmid. "On the burstiness of visual elements".
       CVPR, 2009.
    .. [2] D. Qin, Y. Chen, M. Guillaumin and L. Van Gool. "Learning to rank
       bag-of-word histograms for large-scale object retrieval". BMVC, 2014.

    Examples
    --------
    >>> from sklearn_simlearn.similarities import BurstinessSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> similarity = BurstinessSimilarity(normalize=False).fit(X)
    >>> similarity.similarity(X[:1], X).round(3)
    array([[0.368, 0.212, 0.116]])
    """

    _parameter_constraints: dict = {"normalize": ["boolean"]}

    def __init__(self, *, normalize=True):
        self.normalize = normalize

    def _gather(self, X):
        self.idf_ = inverse_document_frequency(X)
        total = np.asarray(np.sqrt(X).sum(axis=0, dtype=np.float64)).ravel()
        self.burst_ = np.sqrt(np.where(total > 0, total, 1))
        self._n_features_out = X.shape[1]

    def _check_values(self, X):
        check_non_negative(X, type(self).__name__)

    def _encode_queries(self, X):
        return _scale_columns(X, self.idf_**2 / self.burst_)

    def _encode_items(self, X):
        X = _power(X, 0.25)
        return normalize(X, copy=False) if self.normalize else X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


class AsymmetricSimilarity(_HandMadeSimilarity):
    r"""Similarity of counts that treats what only one side has unequally.

    A word that the query shows more often than the item costs :math:`\lambda` times as
    much as one that the item shows more often [1]_:

    .. math::

        s(q, d) = -\sum_{d_i > q_i} (d_i - q_i)^p
                  - \lambda \sum_{q_i > d_i} (q_i - d_i)^p .

    Parameters
    ----------
    p : {1, 2}, default=1
        Power of the differences.

    lam : float or "adaptive", default="adaptive"
        The factor :math:`\lambda`; large where queries show the object alone and items
        show more than it. "adaptive" sets it for each query, from how much of the query
        the training samples :math:`x_j` contain; for ``p=1`` only:

        .. math::

            \lambda(q) = \alpha\, \frac{\sum_j \sum_i x_{ji}}
                                       {\sum_j \sum_i \min(q_i, x_{ji})} - 1 .

    alpha : float, default=1.0
        The factor :math:`\alpha` of an adaptive :math:`\lambda`.

    max_count : int, default=None
        Counts above this are taken as this; the largest count of the training data if
        None. It bounds the width of the encodings.

    Attributes
    ----------
    max_count_ : int
        The cap on counts.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    Notes
    -----
    With the counts written in unary, :math:`u_{ij}(x) = [x_i \ge j]`, the similarity is
    an inner product, because :math:`\min(q_i, d_i) = \sum_j u_{ij}(q) u_{ij}(d)`. The
    encodings are therefore sparse, with `max_count_` columns a word, for dense `X` too.

    References
    ----------
    .. [1] C.-Z. Zhu, H. Jegou and S. Satoh. "Query-adaptive asymmetrical
       dissimilarities for visual object retrieval". ICCV, 2013.

    Examples
    --------
    >>> from sklearn_simlearn.similarities import AsymmetricSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> AsymmetricSimilarity(lam=2).fit(X).similarity(X[:1], X)
    array([[ 0., -5., -7.]])
    """

    _parameter_constraints: dict = {
        "p": [Options(Real, {1, 2})],
        "lam": [Interval(Real, 0, None, closed="neither"), StrOptions({"adaptive"})],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "max_count": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(self, p=1, *, lam="adaptive", alpha=1.0, max_count=None):
        self.p = p
        self.lam = lam
        self.alpha = alpha
        self.max_count = max_count

    def _gather(self, X):
        if self.lam == "adaptive" and self.p != 1:
            raise ValueError('lam="adaptive" goes with p=1 only: give lam a number.')
        self.max_count_ = self.max_count or max(1, int(X.max()))
        if self.lam == "adaptive":
            # How many training samples reach each count of each word: a query's minima
            # with all of them sum up to the sum of these over its own counts.
            unary = _unary(self._clip(X), self.max_count_)
            reached, n_reach = np.unique(unary.indices, return_counts=True)
            # A sentinel below all columns, so that every look-up lands somewhere.
            self._reached = np.concatenate([[-1], reached])
            self._n_reach = np.concatenate([[0], n_reach])
        n_blocks = self.max_count_ + (1 if self.p == 2 else 0)
        self._n_features_out = X.shape[1] * n_blocks + 2

    def _check_values(self, X):
        check_counts(X, type(self).__name__)

    def _encode_queries(self, X):
        X = self._clip(X)
        unary = _unary(X, self.max_count_)
        if self.lam == "adaptive":
            lam = self._adapt(unary)
        else:
            lam = np.full(X.shape[0], float(self.lam))
        own = np.asarray(_power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([np.ones(len(lam)), -lam * own])

        # What (q, d) gain over (q, 0) and (0, d) together, as a sum over j <= d: with
        # p = 1 it is 1 + lambda for each j <= q; with p = 2 it is 2 q for each j, and
        # (1 - lambda) (2 j - 1) - 2 (1 - lambda) q more for each j <= q.
        lam = np.repeat(lam, np.diff(unary.indptr))
        if self.p == 1:
            unary.data[:] = 1 + lam
            return append_columns(unary, extra)
        level = unary.indices % self.max_count_ + 1
        count = np.repeat(X.data, X.data.astype(np.int64))
        unary.data[:] = (1 - lam) * (2 * level - 1 - 2 * count)
        return append_columns(sparse.hstack([unary, 2 * X], format="csr"), extra)

    def _encode_items(self, X):
        X = self._clip(X)
        unary = _unary(X, self.max_count_)
        own = np.asarray(_power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([-own, np.ones(X.shape[0])])
        if self.p == 2:
            unary = sparse.hstack([unary, X], format="csr")
        return append_columns(unary, extra)

    def _adapt(self, unary):
        """Lambda of each query; alpha - 1 for one that shares nothing with training."""
        place = np.searchsorted(self._reached, unary.indices, side="right") - 1
        n_reach = self._n_reach[place] * (self._reached[place] == unary.indices)
        row = np.repeat(np.arange(unary.shape[0]), np.diff(unary.indptr))
        common = np.bincount(row, n_reach, minlength=unary.shape[0])
        ratio = np.ones(unary.shape[0])
        np.divide(self._n_reach.sum(), common, out=ratio, where=common > 0)
        return self.alpha * ratio - 1

    def _clip(self, X):
        X = sparse.csr_array(X, copy=True)
        X.eliminate_zeros()
        np.minimum(X.data, self.max_count_, out=X.data)
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # integers, in scikit-learn's vocabulary
        return tags


def inverse_document_frequency(X):
    """log(n / n_i), with n_i at least 1."""
    n_samples, n_features = X.shape
    if sparse.issparse(X):
        frequency = np.bincount(X.indices[X.data != 0], minlength=n_features)
    else:
        frequency = np.count_nonzero(X, axis=0)
    return np.log(n_samples) - np.log(np.maximum(frequency, 1))


def _scale_columns(X, scale):
    """A copy of X with each column multiplied, of the dtype of X."""
    scale = scale.astype(X.dtype, copy=False)
    if not sparse.issparse(X):
        return X * scale
    X = X.copy()
    X.data *= scale[X.indices]
    return X


def _power(X, p):
    return X.power(p) if sparse.issparse(X) else X**p


def _unary(X, max_count):
    """Counts in unary: column i * max_count + j - 1 is 1 where x_i >= j."""
    counts = X.data.astype(np.int64)
    start = np.cumsum(counts) - counts
    level = np.arange(counts.sum()) - np.repeat(start, counts)
    column = np.repeat(X.indices.astype(np.int64), counts) * max_count + level
    indptr = np.concatenate([[0], np.cumsum(counts)])[X.indptr]
    return sparse.csr_array(
        (np.ones(len(column), dtype=X.dtype), column, indptr),
        shape=(X.shape[0], X.shape[1] * max_count),
    )
