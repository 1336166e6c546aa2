"""Selective match kernel: images compared word by word, selectively."""

from numbers import Integral, Real
from typing import Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import Interval, fit_context, get_chunk_n_rows
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.base import SimilarityMixin, replacing_state

# Pairs of words of the same kind, one of a query and one of an item, that are compared
# at a time.
PAIRS = 2**18


class SelectiveMatchKernel(SimilarityMixin, BaseEstimator):
    r"""Selective match kernel of aggregated residuals (ASMK).

    The local descriptors of an image that fall into visual word :math:`c` are pooled
    into one residual, the sum of their differences from the word, and images are
    compared word by word [1]_:

    .. math::

        s(q, d) = \gamma(q)\, \gamma(d) \sum_c w_c\,
            \sigma\big(\langle \hat q_c, \hat d_c \rangle\big), \qquad
        \sigma(u) = \begin{cases} \operatorname{sign}(u) |u|^\alpha & u \ge \tau \\
                                  0 & \text{else,} \end{cases}

    over the words that both have. The residuals :math:`\hat q_c` are of unit length, or
    binarised, and :math:`\gamma` makes :math:`s(x, x) = 1`. The power :math:`\alpha`
    and the threshold :math:`\tau` let few good matches outweigh many poor ones.

    Parameters
    ----------
    n_dims : int, default=128
        Dimensions of a residual, so that `X` has ``n_words * n_dims`` columns: those of
        the first word, of the second, and so on. 128 are those of SIFT.

    alpha : float, default=3.0
        Selectivity :math:`\alpha`.

    tau : float, default=0.0
        Similarity :math:`\tau` of two residuals below which a word does not count.

    binarize : bool, default=True
        Keep only the signs of a residual, which makes :math:`\langle \hat q_c, \hat d_c
        \rangle` one minus twice the share of bits that differ. A zero counts as
        negative.

    use_idf : bool, default=False
        Weight the words by :math:`w_c = \log(n / n_c)^2`, where :math:`n_c` of the
        :math:`n` training images have word :math:`c`; else by 1.

    Attributes
    ----------
    idf_ : ndarray of shape (n_words,)
        Weights :math:`w_c`. A word that the training data lacks is taken to occur once.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn_simlearn.MemoryVectorQuery : Queries it with several images at once.

    Notes
    -----
    `X` is a VLAD matrix before any normalisation. A word whose columns are all zero is
    one that the image does not have, so CSR is the natural form.

    The selection is not linear: there is no vector that an inner-product index could
    store, so this is a similarity without `transform`. Queries and items cost memory
    for their residuals, ``n_dims / 8`` bytes each if binarised, and time for each word
    that a query and an item share.

    References
    ----------
    .. [1] G. Tolias, Y. Avrithis and H. Jegou. "To aggregate or not to aggregate:
       selective match kernels for image search". ICCV, 2013.

    Examples
    --------
    Three images, two words, residuals of two dimensions. The second image agrees with
    the first in one word of two, the third in half of the bits of one word:

    >>> from sklearn_simlearn.similarities import SelectiveMatchKernel
    >>> X = [[1.0, 2.0, -1.0, 1.0], [2.0, 1.0, 1.0, -1.0], [1.0, -1.0, 0.0, 0.0]]
    >>> SelectiveMatchKernel(n_dims=2).fit(X).similarity(X)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """

    _parameter_constraints: dict = {
        "n_dims": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "tau": [Interval(Real, -1, 1, closed="both")],
        "binarize": ["boolean"],
        "use_idf": ["boolean"],
    }

    def __init__(
        self,
        n_dims: int = 128,
        *,
        alpha: float = 3.0,
        tau: float = 0.0,
        binarize: bool = True,
        use_idf: bool = False,
    ):
        self.n_dims = n_dims
        self.alpha = alpha
        self.tau = tau
        self.binarize = binarize
        self.use_idf = use_idf

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y=None) -> Self:
        """Count the words.

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
                    f"X has {X.shape[1]} columns, which is no multiple of "
                    f"n_dims={self.n_dims}: every word has that many."
                )
            idf = np.ones(n_words)
            if self.use_idf:
                _, word = _find_words(X, self.n_dims)
                n_images = np.maximum(np.bincount(word, minlength=n_words), 1)
                idf = np.log(X.shape[0] / n_images) ** 2
            self.idf_ = idf
        return self

    def similarity(self, X: MatrixLike, Y: MatrixLike | None = None) -> np.ndarray:
        """Similarity of every row of `X` to every row of `Y`.

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

        # Items by word, so that those of one word lie together.
        order = np.argsort(word, kind="stable")
        image, residual = image[order], residual[order]
        n_images = np.bincount(word, minlength=len(self.idf_))
        first = np.cumsum(n_images) - n_images

        S = np.zeros((n_queries, n_items), dtype=X.dtype)
        n_pairs = np.cumsum(n_images[q_word])
        start = 0
        while start < len(q_word):
            spent = n_pairs[start - 1] if start else 0
            stop = int(np.searchsorted(n_pairs, spent + PAIRS, side="right"))
            stop = max(stop, start + 1)
            length = n_images[q_word[start:stop]]
            q = np.repeat(np.arange(start, stop), length)
            within = np.arange(len(q)) - np.repeat(np.cumsum(length) - length, length)
            d = first[q_word[q]] + within
            score = self.idf_[q_word[q]] * self._select(q_residual[q], residual[d])
            # Pairs of a query and an item recur, once for each word they share.
            low, high = q_image[start], q_image[stop - 1] + 1
            cell = (q_image[q] - low) * n_items + image[d]
            total = np.bincount(cell, score, minlength=(high - low) * n_items)
            S[low:high] += total.reshape(-1, n_items)
            start = stop
        S *= q_gamma[:, None]
        S *= gamma
        return S

    def _residuals(self, X):
        """Image, word and residual of every word of every image; gamma of the images.

        Sorted by image. Residuals have unit length, or are bits packed into bytes.
        """
        parts = []
        n_rows = get_chunk_n_rows(8 * X.shape[1], max_n_rows=X.shape[0])
        for batch in gen_batches(X.shape[0], n_rows):
            image, word = _find_words(X[batch], self.n_dims)
            residual = _take_words(X[batch], image, word, self.n_dims)
            if self.binarize:
                residual = np.packbits(residual > 0, axis=1)
                # Whole machine words, for the population count.
                padding = -residual.shape[1] % 8
                residual = np.pad(residual, [(0, 0), (0, padding)]).view(np.uint64)
            else:
                # Divided by the largest first: squares of small ones underflow.
                residual = residual / np.abs(residual).max(axis=1, keepdims=True)
                residual /= np.linalg.norm(residual, axis=1, keepdims=True)
            parts.append((image + batch.start, word, residual))
        image, word, residual = (np.concatenate(p) for p in zip(*parts, strict=True))
        own = np.bincount(image, self.idf_[word], minlength=X.shape[0])
        gamma = np.zeros(len(own))
        gamma[own > 0] = 1 / np.sqrt(own[own > 0])
        return image, word, residual, gamma

    def _select(self, q, d):
        """sigma of the similarity of paired residuals."""
        if self.binarize:
            n_differ = np.bitwise_count(q ^ d).sum(axis=1, dtype=np.int64)
            u = (self.n_dims - 2 * n_differ) / self.n_dims
        else:
            u = np.einsum("ij,ij->i", q, d, dtype=np.float64)
        return np.where(u >= self.tau, np.sign(u) * np.abs(u) ** self.alpha, 0.0)


def _find_words(X, n_dims):
    """Image and word wherever an image has a word, sorted by image, then by word."""
    n_words = X.shape[1] // n_dims
    if not sparse.issparse(X):
        return np.nonzero((X != 0).reshape(X.shape[0], n_words, n_dims).any(axis=2))
    row, column, _ = _entries(X)
    return np.divmod(np.unique(row * n_words + column // n_dims), n_words)


def _take_words(X, image, word, n_dims):
    """The dense residuals of these words of these images."""
    n_words = X.shape[1] // n_dims
    if not sparse.issparse(X):
        return X.reshape(X.shape[0], n_words, n_dims)[image, word]
    row, column, value = _entries(X)
    slot = np.searchsorted(image * n_words + word, row * n_words + column // n_dims)
    residual = np.zeros((len(image), n_dims), dtype=X.dtype)
    np.add.at(residual, (slot, column % n_dims), value)
    return residual


def _entries(X):
    """Row, column and value of what is stored in a CSR matrix and not zero."""
    X = X.tocoo()
    stored = X.data != 0
    row, column = X.row[stored].astype(np.int64), X.col[stored].astype(np.int64)
    return row, column, X.data[stored]
