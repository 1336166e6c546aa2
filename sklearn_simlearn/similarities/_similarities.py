"""Hand-made similarities of bags of words."""

from numbers import Integral, Real
from typing import Any

import numpy as np

from sklearn_simlearn._core.counts import CountsMixin, NonNegativeMixin
from sklearn_simlearn._core.rows import (
    document_frequency,
    inverse_document_frequency,
    power,
    scale_columns,
)
from sklearn_simlearn._core.sklearn import Interval, Options, StrOptions
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn.similarities._encoders import (
    AdaptivePenalty,
    Burstiness,
    CentredCosine,
    UnaryCounts,
    WeightedCosine,
    clip_counts,
    write_unary,
)
from sklearn_simlearn.similarities._hand_made import (
    HandMadeSimilarity,
)


class CosineSimilarity(HandMadeSimilarity):
    r"""Cosine of tf-idf vectors.

    .. math::

        s(q, d) = \cos\big((w \odot q)^p,\; (w \odot d)^p\big),
        \qquad w_i = \log \frac{n}{n_i},

    where :math:`n_i` of the :math:`n` training samples contain word :math:`i`.

    Parameters
    ----------
    use_idf : bool, default=True
        Whether to weight the words by idf. False gives the plain cosine, the baseline
        for embeddings.

    power : float, default=1.0
        Exponent :math:`p` of the weighted values. Signs are kept. A value below 1
        reduces the weight of repeated words and of very rare words. The learners use
        0.75 for their start.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights of the words. A word that does not occur in the training data has the
        weight of a word that occurs once. If idf would set more than half of the values
        to 0, all weights are 1 and `fit` warns. This happens with embeddings, whose
        features are non-zero in every sample.

    Examples
    --------
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> CosineSimilarity(use_idf=False).fit(X).similarity(X[:1], X).round(3)
    array([[1.   , 0.632, 0.141]])
    """

    _parameter_constraints: dict[str, Any] = {
        "use_idf": ["boolean"],
        "power": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, use_idf: bool = True, power: float = 1.0):
        self.use_idf = use_idf
        self.power = power

    def _gather(self, X: Matrix) -> dict[str, Any]:
        idf = _weigh_words(X, self)
        return {"encoder_": WeightedCosine(idf, self.power), "idf_": idf}


class NegativeEvidenceSimilarity(HandMadeSimilarity):
    r"""Cosine of tf-idf vectors minus a part of their mean.

    If a word occurs in neither of two samples, this is evidence of their similarity
    [1]_. The similarity takes it into account by subtracting :math:`\beta` times the
    mean :math:`m` of the training data:

    .. math::

        s(q, d) = \cos(w \odot (q - \beta m),\; w \odot (d - \beta m)).

    Parameters
    ----------
    beta : float, default=0.5
        Share of the mean that is subtracted; 0 is the cosine of tf-idf.

    use_idf : bool, default=True
        Whether to weight the words by :math:`w_i = \log(n / n_i)`. Otherwise the
        weights are 1.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights of the words; all 1 if idf would set more than half of the values to 0,
        as in :class:`CosineSimilarity`.

    mean_ : ndarray of shape (n_features,)
        Mean of the weighted training data.

    Notes
    -----
    Sparse data stays sparse. For weighted samples with mean :math:`m`,

    .. math::

        \langle q - \beta m,\, d - \beta m \rangle = \langle q, d \rangle
        - \beta \langle m, d \rangle
        + \beta (\beta \lVert m \rVert^2 - \langle q, m \rangle),

    so the mean is stored in two additional columns. This sum loses precision if the
    mean is much larger than the differences between samples; in this case, subtract the
    mean from the data, and use :class:`CosineSimilarity`.

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

    _parameter_constraints: dict[str, Any] = {
        "beta": [Interval(Real, 0, None, closed="left")],
        "use_idf": ["boolean"],
    }

    def __init__(self, beta: float = 0.5, *, use_idf: bool = True):
        self.beta = beta
        self.use_idf = use_idf

    def _gather(self, X: Matrix) -> dict[str, Any]:
        idf = _weigh_words(X, self)
        mean = scale_columns(X, idf).mean(axis=0, dtype=np.float64)
        mean = np.asarray(mean).ravel()
        encoder = CentredCosine(idf, mean, self.beta)
        return {"encoder_": encoder, "idf_": idf, "mean_": mean}


class BurstinessSimilarity(NonNegativeMixin, HandMadeSimilarity):
    r"""Similarity that discounts repeated words.

    A word that is repeated within an item [1]_, or that occurs in many items, counts
    less than in proportion to its frequency. This is Eq. 3 of [2]_:

    .. math::

        s(q, d) = \sum_i w_i^2\, \frac{q_i \sqrt[4]{d_i}}{\sqrt{\sum_j \sqrt{x_{ji}}}},
        \qquad w_i = \log \frac{n}{n_i},

    with :math:`j` over the training samples :math:`x_j`.

    Parameters
    ----------
    normalize : bool, default=True
        Whether to divide by the length of :math:`\sqrt[4]{d}`, so that items with many
        words have no advantage. False is the published formula.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights :math:`w` of the words; all 1 if idf would set more than half of the
        values to 0, as in :class:`CosineSimilarity`.

    burst_ : ndarray of shape (n_features,)
        Denominators. It is 1 for a word that does not occur in the training data, as if
        it occurred once.

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

    _parameter_constraints: dict[str, Any] = {"normalize": ["boolean"]}

    def __init__(self, *, normalize: bool = True):
        self.normalize = normalize

    def _gather(self, X: Matrix) -> dict[str, Any]:
        total = np.asarray(power(X, 0.5).sum(axis=0, dtype=np.float64)).ravel()
        idf, burst = _weigh_words(X, self), np.sqrt(np.where(total > 0, total, 1))
        encoder = Burstiness(idf**2 / burst, self.normalize)
        return {"encoder_": encoder, "idf_": idf, "burst_": burst}


class AsymmetricSimilarity(CountsMixin, HandMadeSimilarity):
    r"""Similarity of counts with different penalties for query and item.

    If a word is more frequent in the query than in the item, the difference is
    penalised :math:`\lambda` times as much as in the opposite case [1]_:

    .. math::

        s(q, d) = -\sum_{d_i > q_i} (d_i - q_i)^p
                  - \lambda \sum_{q_i > d_i} (q_i - d_i)^p .

    Parameters
    ----------
    p : {1, 2}, default=1
        Power of the differences.

    lam : float or "adaptive", default="adaptive"
        The factor :math:`\lambda`. It should be large if queries show only the object,
        but items show more. "adaptive" sets it for each query, by the overlap of the
        query with the training samples :math:`x_j`. It requires ``p=1``:

        .. math::

            \lambda(q) = \alpha\, \frac{\sum_j \sum_i x_{ji}}
                                       {\sum_j \sum_i \min(q_i, x_{ji})} - 1 .

    factor : float, default=1.0
        Factor :math:`\alpha` of an adaptive :math:`\lambda`.

    max_count : int, default=None
        Largest count. Larger counts are truncated to it. If None, the largest count of
        the training data. It bounds the number of columns of the encodings.

    Attributes
    ----------
    max_count_ : int
        The largest count that was used.

    Notes
    -----
    With counts in unary, :math:`u_{ij}(x) = [x_i \ge j]`, the similarity is an inner
    product, because :math:`\min(q_i, d_i) = \sum_j u_{ij}(q) u_{ij}(d)`. The encodings
    are therefore sparse, even for dense `X`. They have `max_count_` columns per word
    and one entry per unit of every count. If the sum of all counts is too large, an
    error is raised. A smaller `max_count` prevents this.

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

    _parameter_constraints: dict[str, Any] = {
        "p": [Options(Real, {1, 2})],
        "lam": [Interval(Real, 0, None, closed="neither"), StrOptions({"adaptive"})],
        "factor": [Interval(Real, 0, None, closed="neither")],
        "max_count": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        p: int = 1,
        *,
        lam: float | str = "adaptive",
        factor: float = 1.0,
        max_count: int | None = None,
    ):
        self.p = p
        self.lam = lam
        self.factor = factor
        self.max_count = max_count

    def _gather(self, X: Matrix) -> dict[str, Any]:
        if self.lam == "adaptive" and self.p != 1:
            raise ValueError('lam="adaptive" needs p=1. For p=2, set lam to a number.')
        max_count = self.max_count or max(1, int(X.max()))
        if self.lam == "adaptive":
            # Number of training samples that have each word at least j times. Its sum
            # over the counts of a query is the sum of minima with all samples.
            unary = write_unary(clip_counts(X, max_count), max_count)
            penalty: float | AdaptivePenalty = AdaptivePenalty(
                self.factor, *np.unique(unary.indices, return_counts=True)
            )
        else:
            penalty = float(self.lam)
        encoder = UnaryCounts(self.p, penalty, max_count)
        return {"encoder_": encoder, "max_count_": max_count}


def _weigh_words(X: Matrix, estimator: HandMadeSimilarity) -> np.ndarray:
    """Return idf; ones if idf is not used or would set most values to 0."""
    if not getattr(estimator, "use_idf", True):
        return np.ones(X.shape[1])
    idf = inverse_document_frequency(X)
    n_entries = document_frequency(X)
    taken = n_entries[idf == 0].sum() / max(n_entries.sum(), 1)
    if taken <= 0.5:
        return idf
    warn_user(
        f"{type(estimator).__name__} does not use idf, which would set {taken:.0%} of "
        "the values in X to 0: these features are non-zero in every sample, as in "
        "embeddings."
    )
    return np.ones(X.shape[1])
