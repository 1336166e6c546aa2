"""Hand-made similarities of bags of words."""

from numbers import Integral, Real
from typing import Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_non_negative

from sklearn_simlearn._core.rows import (
    append_columns,
    canonical_csr,
    check_counts,
    inverse,
    inverse_document_frequency,
    power,
    scale_columns,
    unit_rows,
)
from sklearn_simlearn._core.sklearn import Interval, Options, StrOptions, fit_context
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn.base import EncodedSimilarityMixin, replacing_state

# Most entries that counts written in unary may have: 2 GiB of them.
MAX_UNARY = 2**27


class _HandMadeSimilarity(EncodedSimilarityMixin, BaseEstimator):
    """A similarity with statistics of the data, but nothing learned from labels.

    Subclasses implement `_gather`, which returns the statistics as fitted attributes.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y=None) -> Self:
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
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            self.__dict__.update(self._gather(rows))
        return self


class CosineSimilarity(_HandMadeSimilarity):
    r"""Cosine of tf-idf vectors.

    .. math::

        s(q, d) = \cos\big((w \odot q)^p,\; (w \odot d)^p\big),
        \qquad w_i = \log \frac{n}{n_i},

    where :math:`n_i` of the :math:`n` training samples contain word :math:`i`.

    Parameters
    ----------
    use_idf : bool, default=True
        Weight the words. False gives the plain cosine, the baseline for embeddings.

    power : float, default=1.0
        Exponent :math:`p` of the weighted values, whose signs are kept. Below 1 it
        dampens words that come in bursts and very rare words; 0.75 is where learners
        start from.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights of the words. One that the training data lacks is taken to occur once.
        All are 1 where idf would take away more than half of the data, as it does with
        embeddings, whose features are in every sample; a warning says so.

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

    _parameter_constraints: dict = {
        "use_idf": ["boolean"],
        "power": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, use_idf: bool = True, power: float = 1.0):
        self.use_idf = use_idf
        self.power = power

    def _gather(self, X: Matrix) -> dict:
        return {"idf_": _weigh_words(X, self)}

    def _encode_queries(self, X: Matrix) -> Matrix:
        X = scale_columns(X, self.idf_)
        return unit_rows(X if self.power == 1 else power(X, self.power))


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
        Weights of the words; all 1 where idf would take away more than half of the
        data, as in :class:`CosineSimilarity`.

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

    def __init__(self, beta: float = 0.5, *, use_idf: bool = True):
        self.beta = beta
        self.use_idf = use_idf

    def _gather(self, X):
        idf = _weigh_words(X, self)
        mean = scale_columns(X, idf).mean(axis=0, dtype=np.float64)
        return {"idf_": idf, "mean_": np.asarray(mean).ravel()}

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
        X = scale_columns(X, self.idf_)
        on_mean = X @ self.mean_
        norm2 = (
            row_norms(X, squared=True)
            - 2 * self.beta * on_mean
            + self.beta**2 * self.mean_ @ self.mean_
        )
        return X, on_mean, inverse(np.sqrt(np.maximum(norm2, 0)))


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
        Weights :math:`w` of the words; all 1 where idf would take away more than half
        of the data, as in :class:`CosineSimilarity`.

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

    def __init__(self, *, normalize: bool = True):
        self.normalize = normalize

    def _gather(self, X):
        total = np.asarray(power(X, 0.5).sum(axis=0, dtype=np.float64)).ravel()
        return {
            "idf_": _weigh_words(X, self),
            "burst_": np.sqrt(np.where(total > 0, total, 1)),
        }

    def _check_rows(self, X, *, reset=False):
        X = super()._check_rows(X, reset=reset)
        check_non_negative(X, type(self).__name__)
        return X

    def _encode_queries(self, X):
        return scale_columns(X, self.idf_**2 / self.burst_)

    def _encode_items(self, X):
        X = power(X, 0.25)
        return unit_rows(X) if self.normalize else X

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
    encodings are therefore sparse, with `max_count_` columns per word, for dense `X`
    too, and one entry per unit of every count: samples whose counts add up to too many
    are refused, and `max_count` is the remedy.

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

    def __init__(
        self,
        p: int = 1,
        *,
        lam: float | str = "adaptive",
        alpha: float = 1.0,
        max_count: int | None = None,
    ):
        self.p = p
        self.lam = lam
        self.alpha = alpha
        self.max_count = max_count

    def _gather(self, X):
        if self.lam == "adaptive" and self.p != 1:
            raise ValueError('lam="adaptive" goes with p=1 only: give lam a number.')
        max_count = self.max_count or max(1, int(X.max()))
        attributes = {"max_count_": max_count}
        if self.lam == "adaptive":
            # How many training samples reach each count of each word: a query's minima
            # with all of them sum up to the sum of these over its own counts.
            unary = _unary(_clip(X, max_count), max_count)
            attributes["_reached"], attributes["_n_reach"] = np.unique(
                unary.indices, return_counts=True
            )
        return attributes

    def _check_rows(self, X, *, reset=False):
        X = super()._check_rows(X, reset=reset)
        check_counts(X, type(self).__name__)
        return X

    def _encode_queries(self, X):
        X = _clip(X, self.max_count_)
        unary = _unary(X, self.max_count_)
        if self.lam == "adaptive":
            lam = self._adapt(unary)
        else:
            lam = np.full(X.shape[0], float(self.lam))
        own = np.asarray(power(X, self.p).sum(axis=1)).ravel()
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
        X = _clip(X, self.max_count_)
        unary = _unary(X, self.max_count_)
        own = np.asarray(power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([-own, np.ones(X.shape[0])])
        if self.p == 2:
            unary = sparse.hstack([unary, X], format="csr")
        return append_columns(unary, extra)

    def _adapt(self, unary):
        """Lambda of each query; alpha - 1 for one that shares nothing with training."""
        place = np.searchsorted(self._reached, unary.indices)
        place = np.minimum(place, len(self._reached) - 1)
        n_reach = np.zeros(len(place))
        if len(self._reached):
            is_reached = self._reached[place] == unary.indices
            n_reach = np.where(is_reached, self._n_reach[place], 0)
        row = np.repeat(np.arange(unary.shape[0]), np.diff(unary.indptr))
        common = np.bincount(row, n_reach, minlength=unary.shape[0])
        ratio = np.ones(unary.shape[0])
        np.divide(self._n_reach.sum(), common, out=ratio, where=common > 0)
        return self.alpha * ratio - 1

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # integers, in scikit-learn's vocabulary
        return tags


def _weigh_words(X, estimator):
    """idf, or ones where it is not wanted or would take away most of the data."""
    if not getattr(estimator, "use_idf", True):
        return np.ones(X.shape[1])
    idf = inverse_document_frequency(X)
    if sparse.issparse(X):
        taken = np.count_nonzero(idf[X.indices] == 0) / max(X.nnz, 1)
    else:
        n_entries = np.count_nonzero(X, axis=0)
        taken = n_entries[idf == 0].sum() / max(n_entries.sum(), 1)
    if taken <= 0.5:
        return idf
    warn_user(
        f"{type(estimator).__name__} does without idf: it would take away {taken:.0%} "
        "of the values in X, whose features are in every sample, as in embeddings."
    )
    return np.ones(X.shape[1])


def _clip(X, max_count):
    """Counts as CSR, larger ones taken as `max_count`."""
    X = canonical_csr(X)
    counts = np.minimum(X.data, max_count)
    return sparse.csr_array((counts, X.indices, X.indptr), shape=X.shape)


def _unary(X, max_count):
    """Counts in unary: column i * max_count + j - 1 is 1 where x_i >= j."""
    n_entries = X.data.sum(dtype=np.float64)
    if n_entries > MAX_UNARY:
        raise ValueError(
            f"The counts in X add up to {n_entries:.3g}, too many to be written in "
            f"unary: set max_count, which is {max_count} now, to a lower number."
        )
    counts = X.data.astype(np.int64)
    start = np.cumsum(counts) - counts
    level = np.arange(counts.sum()) - np.repeat(start, counts)
    column = np.repeat(X.indices.astype(np.int64), counts) * max_count + level
    indptr = np.concatenate([[0], np.cumsum(counts)])[X.indptr]
    return canonical_csr(
        sparse.csr_array(
            (np.ones(len(column), dtype=X.dtype), column, indptr),
            shape=(X.shape[0], X.shape[1] * max_count),
        )
    )
