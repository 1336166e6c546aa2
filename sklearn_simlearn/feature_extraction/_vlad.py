"""Vectors of locally aggregated descriptors, and power normalisation."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.rows import check_rows, power
from sklearn_simlearn._core.sklearn import (
    DocLinkMixin,
    Interval,
    StrOptions,
    as_configured,
    fit_context,
    get_chunk_n_rows,
)
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.feature_extraction._descriptors import (
    DescriptorTransformer,
    check_descriptors,
)
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._vocabulary import OF_KMEANS, fit_vocabulary


class VLAD(DescriptorTransformer):
    r"""Vectors of locally aggregated descriptors.

    For each word :math:`c_i`, the differences to all descriptors :math:`x` of an image
    whose nearest word is :math:`c_i` are summed [1]_:

    .. math:: v_i = \sum_{x :\, \mathrm{word}(x) = i} (x - c_i).

    The vector of the image is the normalised concatenation of all :math:`v_i`.

    Parameters
    ----------
    n_words : int, default=64
        Size of a vocabulary.

    n_vocabularies : int, default=1
        Number of vocabularies, from k-means with different starts. Their vectors are
        concatenated.

    power : float, default=0.5
        Exponent of the magnitudes of the components, which keep their signs. With 1,
        components are unchanged.

    intra_normalize : bool, default=True
        Whether to scale each :math:`v_i` to unit length, so that all words have the
        same weight [2]_. The whole vector always has unit length.

    max_iter : int, default=20
        Largest number of iterations of k-means.

    backend : {"auto", "faiss", "sklearn"}, default="auto"
        Library for k-means, as in :class:`VisualVocabulary`.

    random_state : int, RandomState instance or None, default=None
        Random state of the start of k-means.

    Attributes
    ----------
    vocabularies_ : list of VisualVocabulary
        The vocabularies.

    References
    ----------
    .. [1] H. Jegou, M. Douze, C. Schmid and P. Perez. Aggregating local descriptors
       into a compact image representation. CVPR, 2010.

    .. [2] R. Arandjelovic and A. Zisserman. All about VLAD. CVPR, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import VLAD
    >>> descriptors = np.split(np.random.default_rng(0).random((60, 4)), [20, 30])
    >>> VLAD(n_words=3, random_state=0).fit_transform(descriptors).shape
    (3, 12)
    """

    _parameter_constraints: dict = {
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "n_vocabularies": [Interval(Integral, 1, None, closed="left")],
        "power": [Interval(Real, 0, None, closed="neither")],
        "intra_normalize": ["boolean"],
        **OF_KMEANS,
    }

    def __init__(
        self,
        n_words: int = 64,
        *,
        n_vocabularies: int = 1,
        power: float = 0.5,
        intra_normalize: bool = True,
        max_iter: int = 20,
        backend: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ):
        self.n_words = n_words
        self.n_vocabularies = n_vocabularies
        self.power = power
        self.intra_normalize = intra_normalize
        self.max_iter = max_iter
        self.backend = backend
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X):
        rng = check_random_state(self.random_state)
        descriptors = check_descriptors(X)[1]
        self.vocabularies_ = [
            fit_vocabulary(self, descriptors, rng) for _ in range(self.n_vocabularies)
        ]
        self.n_features_in_ = descriptors.shape[1]

    def transform(self, X: LocalFeatures | Sequence[ArrayLike]) -> np.ndarray:
        """Return the vectors of images.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of images.

        Returns
        -------
        V : ndarray of shape (n_images, n_vocabularies * n_words * n_components)
            Vectors of unit length in float32; zeros for an image without descriptors.
        """
        check_is_fitted(self)
        offsets, descriptors = check_descriptors(X, self.n_features_in_)
        n_images = len(offsets) - 1
        width = self._n_features_out // self.n_vocabularies
        V = np.empty((n_images, self.n_vocabularies, width), dtype=np.float32)
        # A step stores the sums in float32, and a copy of them during normalisation.
        step = get_chunk_n_rows(8 * width, max_n_rows=n_images)
        for i, vocabulary in enumerate(self.vocabularies_):
            for start in range(0, n_images, step):
                rows = slice(start, min(start + step, n_images))
                points = slice(offsets[rows.start], offsets[rows.stop])
                V[rows, i] = self._aggregate(
                    np.diff(offsets[rows.start : rows.stop + 1]),
                    descriptors[points],
                    vocabulary,
                )
        return normalize(V.reshape(n_images, -1), copy=False)

    def _aggregate(self, counts, descriptors, vocabulary):
        """Return sums of differences: a sparse product minus words times counts."""
        n_words, n_components = vocabulary.words_.shape
        cells = np.repeat(np.arange(len(counts)) * n_words, counts)
        cells += vocabulary.find_words(descriptors)
        n_cells = len(counts) * n_words
        of_cell = sparse.csc_array(
            (
                np.ones(len(cells), dtype=np.float32),
                cells,
                np.arange(len(cells) + 1),
            ),
            shape=(n_cells, len(cells)),
        )
        sums = of_cell @ descriptors.astype(np.float32, copy=False)
        n_in_cell = np.bincount(cells, minlength=n_cells).astype(np.float32)
        sums = sums.reshape(len(counts), n_words, n_components)
        sums -= n_in_cell.reshape(len(counts), n_words, 1) * vocabulary.words_
        sums = sums.reshape(n_cells, n_components)
        if self.power != 1:
            sums = power(sums, self.power)
        if self.intra_normalize:
            sums = normalize(sums, copy=False)
        return sums.reshape(len(counts), -1)

    @property
    def _n_features_out(self):
        return self.n_vocabularies * self.n_words * self.n_features_in_


class PowerNormalizer(
    DocLinkMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator
):
    r"""Signed power of each value, followed by scaling of the rows.

    .. math:: x_i \mapsto \mathrm{sign}(x_i) |x_i|^p

    The power reduces the weight of features that occur many times in a sample. It is
    used for histograms, aggregated descriptors and activations [1]_.

    Parameters
    ----------
    power : float, default=0.5
        Exponent.

    norm : {"l1", "l2", "max"} or None, default="l2"
        Norm to which rows are scaled. With None, rows are not scaled. Rows of zeros are
        unchanged.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it has names.

    References
    ----------
    .. [1] F. Perronnin, J. Sanchez and T. Mensink. Improving the Fisher kernel for
       large-scale image classification. ECCV, 2010.

    Examples
    --------
    >>> from sklearn_simlearn.feature_extraction import PowerNormalizer
    >>> PowerNormalizer().fit_transform([[9.0, -16.0]])
    array([[ 0.6, -0.8]])
    """

    _parameter_constraints: dict = {
        "power": [Interval(Real, 0, None, closed="neither")],
        "norm": [StrOptions({"l1", "l2", "max"}), None],
    }

    def __init__(self, power: float = 0.5, *, norm: str | None = "l2"):
        self.power = power
        self.norm = norm

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: object = None) -> Self:
        """Check the parameters. Nothing is learned.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The transformer itself.
        """
        check_rows(self, X, reset=True)
        return self

    def transform(self, X: MatrixLike) -> Matrix:
        """Return the signed powers of the values, with scaled rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Z : ndarray or csr_array of shape (n_samples, n_features)
        """
        check_is_fitted(self, "n_features_in_")
        X = power(check_rows(self, X, reset=False), self.power)
        if self.norm is not None:
            X = normalize(X, self.norm, copy=False)
        return as_configured(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
