"""Selective match kernel, which compares images word by word."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.rows import bounded_blocks
from sklearn_simlearn._core.sklearn import Interval, fit_context, get_chunk_n_rows
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.base import SimilarityMixin, replacing_state

# Number of values of residuals that are compared at a time, so that they stay in the
# cache.
BLOCK = 2**18


class SelectiveMatchKernel(SimilarityMixin, BaseEstimator):
    r"""Selective match kernel of aggregated residuals (ASMK).

    The local descriptors of an image that belong to a visual word :math:`c` are pooled
    into one residual, the sum of their differences from the centre of the word. Images
    are compared word by word [1]_:

    .. math::

        s(q, d) = \gamma(q)\, \gamma(d) \sum_c w_c\,
            \sigma\big(\langle \hat q_c, \hat d_c \rangle\big), \qquad
        \sigma(u) = \begin{cases} \operatorname{sign}(u) |u|^\alpha & u \ge \tau \\
                                  0 & \text{else,} \end{cases}

    where the sum is over the words that occur in both images. The residuals
    :math:`\hat q_c` have unit length or are binarised, and :math:`\gamma` makes
    :math:`s(x, x) = 1`. With the power :math:`\alpha` and the threshold :math:`\tau`,
    few good matches outweigh many poor matches.

    Parameters
    ----------
    n_dims : int, default=128
        Number of dimensions of a residual; 128 for SIFT. `X` has ``n_words * n_dims``
        columns: those of the first word, then those of the second, and so on.

    selectivity : float, default=3.0
        Power :math:`\alpha`. Larger values reduce the weight of poor matches.

    tau : float, default=0.0
        Threshold :math:`\tau` of the similarity of two residuals. Words below it are
        ignored.

    binarize : bool, default=True
        Whether to keep only the signs of a residual. Then :math:`\langle \hat q_c, \hat
        d_c \rangle` is one minus twice the share of bits that differ. A zero counts as
        negative.

    use_idf : bool, default=False
        Whether to weight the words by :math:`w_c = \log(n / n_c)^2`, where word
        :math:`c` occurs in :math:`n_c` of the :math:`n` training images. Otherwise the
        weights are 1.

    Attributes
    ----------
    idf_ : ndarray of shape (n_words,)
        Weights :math:`w_c`. A word that does not occur in the training data has the
        weight of a word that occurs once.

    See Also
    --------
    sklearn_simlearn.MemoryVectorQuery : Queries with several images of one object.

    Notes
    -----
    `X` is a VLAD matrix before any normalisation. If all columns of a word are zero,
    the word does not occur in the image. `X` is usually sparse.

    The kernel is not an inner product of vectors. Therefore it has no `transform`, and
    an inner-product index cannot store its items. A binarised residual takes
    ``n_dims / 8`` bytes. The time grows with the number of words that queries and items
    share.

    References
    ----------
    .. [1] G. Tolias, Y. Avrithis and H. Jegou. "To aggregate or not to aggregate:
       selective match kernels for image search". ICCV, 2013.

    Examples
    --------
    Three images, two words, and residuals of two dimensions. The second image agrees
    with the first in one of two words, the third image in half of the bits of one word:

    >>> from sklearn_simlearn.similarities import SelectiveMatchKernel
    >>> X = [[1.0, 2.0, -1.0, 1.0], [2.0, 1.0, 1.0, -1.0], [1.0, -1.0, 0.0, 0.0]]
    >>> SelectiveMatchKernel(n_dims=2).fit(X).similarity(X)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """

    _parameter_constraints: dict[str, Any] = {
        "n_dims": [Interval(Integral, 1, None, closed="left")],
        "selectivity": [Interval(Real, 0, None, closed="neither")],
        "tau": [Interval(Real, -1, 1, closed="both")],
        "binarize": ["boolean"],
        "use_idf": ["boolean"],
    }

    def __init__(
        self,
        n_dims: int = 128,
        *,
        selectivity: float = 3.0,
        tau: float = 0.0,
        binarize: bool = True,
        use_idf: bool = False,
    ):
        self.n_dims = n_dims
        self.selectivity = selectivity
        self.tau = tau
        self.binarize = binarize
        self.use_idf = use_idf

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: object = None) -> Self:
        """Compute the weights of the words.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_words * n_dims)
            Pooled residuals of the training images.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self):
            X = self._check_rows(X, reset=True)
            n_words, rest = divmod(X.shape[1], self.n_dims)
            if rest:
                raise ValueError(
                    f"X has {X.shape[1]} columns, which is not a multiple of "
                    f"n_dims={self.n_dims}. Set n_dims to the number of columns per "
                    "word."
                )
            idf = np.ones(n_words)
            if self.use_idf:
                _, word = _find_words(X, self.n_dims)
                n_images = np.maximum(np.bincount(word, minlength=n_words), 1)
                idf = np.log(X.shape[0] / n_images) ** 2
            self.idf_ = idf
        return self

    def similarity(self, X: MatrixLike, Y: MatrixLike | None = None) -> np.ndarray:
        """Return the similarity of every row of `X` to every row of `Y`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_words * n_dims)
            Queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_words * n_dims), \
                default=None
            Items; `X` itself if None.

        Returns
        -------
        S : ndarray of shape (n_queries, n_items)
            At most 1; larger is more similar.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        queries = items = self._residuals(X)
        if Y is not None:
            items = self._residuals(self._check_rows(Y))
        q_image, q_word, q_residual, q_gamma = queries
        image, word, residual, gamma = items
        n_queries, n_items = len(q_gamma), len(gamma)

        # Sort items by word, so that the items of a word are consecutive.
        order = np.argsort(word, kind="stable")
        image, residual = image[order], residual[order]
        n_images = np.bincount(word, minlength=len(self.idf_))
        first = np.cumsum(n_images) - n_images

        S = np.zeros((n_queries, n_items), dtype=X.dtype)
        n_pairs = n_images[q_word]
        for part in bounded_blocks(n_pairs, BLOCK // residual.shape[1]):
            length = n_pairs[part]
            q = np.repeat(np.arange(part.start, part.stop), length)
            within = np.arange(len(q)) - np.repeat(np.cumsum(length) - length, length)
            d = first[q_word[q]] + within
            score = self.idf_[q_word[q]] * self._select(q_residual[q], residual[d])
            # A pair of a query and an item occurs once for each word that they share.
            low, high = q_image[part.start], q_image[part.stop - 1] + 1
            cell = (q_image[q] - low) * n_items + image[d]
            total = np.bincount(cell, score, minlength=(high - low) * n_items)
            S[low:high] += total.reshape(-1, n_items)
        S *= q_gamma[:, None]
        S *= gamma
        return S

    def _residuals(
        self, X: Matrix
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the image, the word and the residual of each word, and gamma.

        Words are sorted by image. Residuals have unit length, or are packed bits.
        """
        parts = []
        n_rows = get_chunk_n_rows(8 * X.shape[1], max_n_rows=X.shape[0])
        for batch in gen_batches(X.shape[0], n_rows):
            image, word = _find_words(X[batch], self.n_dims)
            residual = _take_words(X[batch], image, word, self.n_dims)
            if self.binarize:
                residual = np.packbits(residual > 0, axis=1)
                # Pad to whole machine words, for the population count.
                padding = -residual.shape[1] % 8
                residual = np.pad(residual, [(0, 0), (0, padding)]).view(np.uint64)
            else:
                # Divide by the largest value first: squares of small values underflow.
                residual = residual / np.abs(residual).max(axis=1, keepdims=True)
                residual /= np.linalg.norm(residual, axis=1, keepdims=True)
            parts.append((image + batch.start, word, residual))
        image, word, residual = (np.concatenate(p) for p in zip(*parts, strict=True))
        own = np.bincount(image, self.idf_[word], minlength=X.shape[0])
        gamma = np.zeros(len(own))
        gamma[own > 0] = 1 / np.sqrt(own[own > 0])
        return image, word, residual, gamma

    def _select(self, q: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return sigma of the similarity of paired residuals."""
        if self.binarize:
            n_differ = np.bitwise_count(q ^ d).sum(axis=1, dtype=np.int64)
            u = (self.n_dims - 2 * n_differ) / self.n_dims
        else:
            u = np.einsum("ij,ij->i", q, d, dtype=np.float64)
        return np.where(u >= self.tau, np.sign(u) * np.abs(u) ** self.selectivity, 0.0)


def _find_words(X: Matrix, n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the image and the number of each word, sorted by image, then by word."""
    n_words = X.shape[1] // n_dims
    if not sparse.issparse(X):
        has_word = (X != 0).reshape(X.shape[0], n_words, n_dims).any(axis=2)
        image, word = np.nonzero(has_word)
        return image, word
    row, column, _ = _entries(X)
    image, word = np.divmod(np.unique(row * n_words + column // n_dims), n_words)
    return image, word


def _take_words(
    X: Matrix, image: np.ndarray, word: np.ndarray, n_dims: int
) -> np.ndarray:
    """Return the dense residuals of given words of given images."""
    n_words = X.shape[1] // n_dims
    if not sparse.issparse(X):
        return X.reshape(X.shape[0], n_words, n_dims)[image, word]
    row, column, value = _entries(X)
    slot = np.searchsorted(image * n_words + word, row * n_words + column // n_dims)
    residual = np.zeros((len(image), n_dims), dtype=X.dtype)
    np.add.at(residual, (slot, column % n_dims), value)
    return residual


def _entries(X: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and value of the non-zero entries of a CSR matrix."""
    X = X.tocoo()
    stored = X.data != 0
    row, column = X.row[stored].astype(np.int64), X.col[stored].astype(np.int64)
    return row, column, X.data[stored]
