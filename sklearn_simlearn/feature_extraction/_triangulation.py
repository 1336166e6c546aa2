"""Triangulation embedding and democratic aggregation of local descriptors."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.rows import power
from sklearn_simlearn._core.sklearn import Interval, get_chunk_n_rows
from sklearn_simlearn.feature_extraction._descriptors import (
    DescriptorTransformer,
    check_descriptors,
)
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._vocabulary import OF_KMEANS, fit_vocabulary

MAX_POINTS = 100_000  # largest number of descriptors for the covariance
N_BALANCINGS = 10  # iterations for the democratic weights, as in the paper


class TriangulationEmbedding(DescriptorTransformer):
    r"""Triangulation embedding of local descriptors, with democratic aggregation.

    A descriptor :math:`x` is described by its directions from all words [1]_,

    .. math::
        R(x) = \left(\frac{x - c_1}{|x - c_1|}, \dots, \frac{x - c_n}{|x - c_n|}\right),
        \qquad \phi(x) = \Lambda^{-1/2} U^T (R(x) - \bar{R}),

    where :math:`\bar{R}` and :math:`U \Lambda U^T` are the mean and the covariance of
    :math:`R` over the training descriptors. The axes with the largest variances are
    left out; their number is the number of components of a descriptor. Each
    :math:`\phi(x)` is scaled to unit length and multiplied by a weight
    :math:`\lambda_x`; their sum is the vector of the image. With these weights, all
    descriptors contribute equally to the similarity of the image with itself:

    .. math:: \lambda_x \sum_z \lambda_z \max(0, \phi(x)^T \phi(z)) = 1.

    Parameters
    ----------
    n_words : int, default=16
        Number of words. The covariance has (`n_words` * n_components)² values.

    power : float, default=0.5
        Exponent of the magnitudes of the components, which keep their signs. With 1,
        components are unchanged.

    max_iter : int, default=20
        Largest number of iterations of k-means.

    backend : {"auto", "faiss", "sklearn"}, default="auto"
        Library for k-means, as in :class:`VisualVocabulary`.

    random_state : int, RandomState instance or None, default=None
        Random state of the start of k-means, and of the choice of 100,000 descriptors
        for the covariance if there are more.

    Attributes
    ----------
    vocabulary_ : VisualVocabulary
        The words.

    mean_ : ndarray of shape (n_words * n_components,)
        Mean of the directions :math:`R(x)`.

    axes_ : ndarray of shape (n_words * n_components, n_axes)
        Whitening matrix :math:`U \Lambda^{-1/2}`. Axes along which the training
        descriptors do not vary are left out.

    See Also
    --------
    VLAD : Sums of differences from the nearest word; faster to fit and to compute.

    Notes
    -----
    Memory vectors [2]_ were evaluated with these vectors as well. The paper of the
    embedding also rotates the vectors by PCA before the power: use ``power=1``,
    followed by :class:`~sklearn.decomposition.PCA` and :class:`PowerNormalizer`.

    References
    ----------
    .. [1] H. Jegou and A. Zisserman. Triangulation embedding and democratic aggregation
       for image search. CVPR, 2014.

    .. [2] R. Sicre and H. Jegou. Memory vectors for particular object retrieval with
       multiple queries. ICMR, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import TriangulationEmbedding
    >>> descriptors = np.split(np.random.default_rng(0).random((60, 4)), [20, 30])
    >>> TriangulationEmbedding(3, random_state=0).fit_transform(descriptors).shape
    (3, 8)
    """

    _parameter_constraints: dict = {
        "n_words": [Interval(Integral, 2, None, closed="left")],
        "power": [Interval(Real, 0, None, closed="neither")],
        **OF_KMEANS,
    }

    def __init__(
        self,
        n_words: int = 16,
        *,
        power: float = 0.5,
        max_iter: int = 20,
        backend: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ):
        self.n_words = n_words
        self.power = power
        self.max_iter = max_iter
        self.backend = backend
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X):
        rng = check_random_state(self.random_state)
        descriptors = check_descriptors(X)[1]
        self.vocabulary_ = fit_vocabulary(self, descriptors, rng)
        if len(descriptors) > MAX_POINTS:
            rows = rng.choice(len(descriptors), MAX_POINTS, replace=False)
            descriptors = descriptors[np.sort(rows)]
        self.mean_, self.axes_ = self._whiten(descriptors)
        self.n_features_in_ = descriptors.shape[1]

    def _whiten(self, descriptors):
        """Return the mean and the whitening axes of the directions of descriptors."""
        n_points, n_components = descriptors.shape
        width = self.n_words * n_components
        total, products = np.zeros(width), np.zeros((width, width))
        for rows in self._batches(n_points, width):
            directions = self._directions(descriptors[rows]).astype(np.float64)
            total += directions.sum(axis=0)
            products += directions.T @ directions
        mean = total / n_points
        products /= n_points
        products -= np.outer(mean, mean)
        variances, axes = linalg.eigh(products, overwrite_a=True, check_finite=False)
        # Smaller variances are due to the rounding of directions to float32.
        varies = variances > width * np.finfo(np.float32).eps ** 2 * variances[-1]
        varies[-n_components:] = False
        if not varies.any():
            raise ValueError(
                f"{n_points} descriptors of {n_components} components vary along at "
                f"most {n_components} axes of the embedding, which are left out. Pass "
                "more descriptors, or increase n_words."
            )
        axes = axes[:, varies] / np.sqrt(variances[varies])
        return mean.astype(np.float32), axes.astype(np.float32)

    def _batches(self, n_points, width):
        # Directions in float32 and in float64.
        return gen_batches(n_points, get_chunk_n_rows(16 * width, max_n_rows=n_points))

    def _directions(self, descriptors):
        """Return the unit vectors from all words to descriptors, side by side."""
        words = self.vocabulary_.words_
        offsets = descriptors[:, None].astype(np.float32) - words
        lengths = np.linalg.norm(offsets, axis=2, keepdims=True)
        offsets /= np.where(lengths == 0, 1, lengths)
        return offsets.reshape(len(descriptors), -1)

    def transform(self, X: LocalFeatures | Sequence[ArrayLike]) -> np.ndarray:
        """Return the vectors of images.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of images.

        Returns
        -------
        V : ndarray of shape (n_images, n_axes)
            Vectors of unit length in float32; zeros for an image without descriptors.
        """
        check_is_fitted(self)
        offsets, descriptors = check_descriptors(X, self.n_features_in_)
        V = np.zeros((len(offsets) - 1, self._n_features_out), dtype=np.float32)
        for i in np.flatnonzero(np.diff(offsets)):
            V[i] = self._aggregate(descriptors[offsets[i] : offsets[i + 1]])
        if self.power != 1:
            V = power(V, self.power)
        return normalize(V, copy=False)

    def _aggregate(self, descriptors):
        """Return the weighted sum of the embedded descriptors of one image."""
        embedded = np.empty((len(descriptors), self._n_features_out), dtype=np.float32)
        for rows in self._batches(len(descriptors), len(self.mean_)):
            directions = self._directions(descriptors[rows])
            embedded[rows] = (directions - self.mean_) @ self.axes_
        embedded = normalize(embedded, copy=False)
        return democratic_weights(embedded) @ embedded

    @property
    def _n_features_out(self):
        return self.axes_.shape[1]


def democratic_weights(embedded: np.ndarray) -> np.ndarray:
    """Return weights such that all rows contribute equally to the norm of their sum.

    The weights scale the matrix of inner products, without its negative values, to
    equal sums of rows, by Sinkhorn's iteration with square roots. If the matrix exceeds
    scikit-learn's `working_memory`, its rows are computed again in each iteration.
    """
    n = len(embedded)
    batches = list(gen_batches(n, get_chunk_n_rows(4 * n, max_n_rows=n)))

    def products(rows):
        return np.maximum(embedded[rows] @ embedded.T, 0)

    kept = products(batches[0]) if len(batches) == 1 else None
    weights = np.ones(n, dtype=np.float32)
    for _ in range(N_BALANCINGS):
        sums = np.concatenate(
            [(products(rows) if kept is None else kept) @ weights for rows in batches]
        )
        weights = np.sqrt(weights / np.where(sums == 0, 1, sums))
    return weights
