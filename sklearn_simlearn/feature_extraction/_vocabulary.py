"""Vocabulary of visual words, and histograms of them."""

from collections.abc import Sequence
from numbers import Integral, Real
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array, check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import (
    Interval,
    StrOptions,
    as_configured,
    num_samples,
)
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.typing import SparseRows
from sklearn_simlearn.feature_extraction._descriptors import (
    DescriptorTransformer,
    check_descriptors,
)
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._words import (
    StackedRows,
    WordSearch,
    choose_backend,
    float_blocks,
    learn_words,
    learn_words_by_cell,
    take_floats,
)

# Constraints of the parameters of k-means, for all transformers that learn words.
OF_KMEANS = {
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "backend": [StrOptions({"auto", "faiss", "sklearn"})],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
}

# Default width of soft assignment relative to the distance to the nearest word, and
# number of descriptors from which this distance is estimated.
SIGMA, MAX_SIGMA_SAMPLE = 0.25, 2**16

# Largest number of bytes of descriptors for k-means that are kept in memory.
MAX_MEMORY = 2**32


class VisualVocabulary(DescriptorTransformer):
    r"""Histograms of visual words.

    The words are the centres of a k-means clustering of the descriptors of the training
    images. An image is represented by a histogram, which counts for each word the
    descriptors of the image that are nearest to this word.

    Parameters
    ----------
    n_words : int, default=20_000
        Size of the vocabulary.

    assignment : {"hard", "soft"}, default="hard"
        "hard" counts the nearest word of each descriptor. "soft" distributes a
        descriptor over its `n_neighbors` nearest words [1]_, with weights

        .. math:: w_i \propto \exp\left(-\frac{d_i^2}{2 \sigma^2}\right),
            \qquad \sum_i w_i = 1,

        of their distances :math:`d_i`.

    search : {"exact", "hnsw", "ivf"}, default="exact"
        Search for the nearest words: exact, with a graph, or with an inverted file.
        "hnsw" and "ivf" are for large vocabularies and require FAISS. With them,
        k-means has two levels: about :math:`\sqrt{n}` cells for n words, and then the
        words of each cell.

    n_neighbors : int, default=3
        Number of words per descriptor if the assignment is soft.

    sigma : float or None, default=None
        Width of soft assignment. If None, a quarter of the root mean square of the
        distances between training descriptors and their nearest words.

    max_iter : int, default=20
        Largest number of iterations of k-means.

    points_per_word : int or None, default=256
        Largest number of training descriptors per word for k-means, drawn at random. If
        None, all descriptors are used.

    backend : {"auto", "faiss", "sklearn"}, default="auto"
        Library for k-means and search. "auto" selects FAISS if it is installed, and
        scikit-learn otherwise.

    random_state : int, RandomState instance or None, default=None
        Random state of the selection of descriptors and of the start of k-means. Pass
        an int for reproducible words.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, n_components), dtype float32
        The words. They can be passed to
        :class:`~sklearn_simlearn.SparseMahalanobisLearner` as `words`.

    backend_ : {"faiss", "sklearn"}
        Library that was used for k-means.

    sigma_ : float
        Width of soft assignment, if the assignment is soft.

    Notes
    -----
    Descriptors may be larger than the memory if they are mapped from one or more files,
    for example by :meth:`LocalFeatures.load` or ``numpy.load(..., mmap_mode="r")``.
    With "hnsw" and "ivf", k-means reads them in blocks and holds half a GiB of
    descriptors at a time, in addition to the words. Use this for large vocabularies,
    for example of 500,000 words. With ``search="exact"``, FAISS does not copy
    descriptors if they are one array in float32 and all of them are used. Otherwise,
    they are copied; if the copy is larger than 4 GiB, it is a temporary file. With
    scikit-learn, descriptors must fit into memory.

    References
    ----------
    .. [1] J. Philbin, O. Chum, M. Isard, J. Sivic and A. Zisserman. Lost in
       quantization: improving particular object retrieval in large scale image
       databases. CVPR, 2008.

    Examples
    --------
    Descriptors of two images, of which the second has only one:

    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import VisualVocabulary
    >>> descriptors = [np.array([[0.0, 0], [5, 5], [5, 6]]), np.array([[0.0, 1]])]
    >>> vocabulary = VisualVocabulary(2, random_state=0).fit(descriptors)
    >>> np.sort(vocabulary.transform(descriptors).toarray(), axis=1)
    array([[1., 2.],
           [0., 1.]], dtype=float32)
    """

    _parameter_constraints: dict = {
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "assignment": [StrOptions({"hard", "soft"})],
        "search": [StrOptions({"exact", "hnsw", "ivf"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
        "points_per_word": [Interval(Integral, 1, None, closed="left"), None],
        **OF_KMEANS,
    }

    def __init__(
        self,
        n_words: int = 20_000,
        *,
        assignment: str = "hard",
        search: str = "exact",
        n_neighbors: int = 3,
        sigma: float | None = None,
        max_iter: int = 20,
        points_per_word: int | None = 256,
        backend: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ):
        self.n_words = n_words
        self.assignment = assignment
        self.search = search
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.max_iter = max_iter
        self.points_per_word = points_per_word
        self.backend = backend
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def from_words(cls, words: ArrayLike, **params: Any) -> Self:
        """Return a fitted vocabulary of given words.

        Parameters
        ----------
        words : array-like of shape (n_words, n_components)
            The words.

        **params : dict
            Parameters of the vocabulary. Soft assignment requires `sigma`.

        Returns
        -------
        vocabulary : VisualVocabulary
            Fitted vocabulary. To use it in a pipeline that is fitted, wrap it in a
            :class:`~sklearn.frozen.FrozenEstimator`.
        """
        words = check_array(words, dtype=np.float32, order="C")
        self = cls(**{**params, "n_words": num_samples(words)})
        self._validate_params()
        if self.assignment == "soft" and self.sigma is None:
            raise ValueError(
                "sigma=None is estimated from descriptors, which are not available "
                "here. Pass a number."
            )
        self._set_words(words, choose_backend(self.backend, self.search), self.sigma)
        return self

    def _fit(self, X):
        backend = choose_backend(self.backend, self.search)
        descriptors = check_descriptors(X, join=False)[1]
        if len(descriptors) < self.n_words:
            raise ValueError(
                f"n_words={self.n_words} requires at least as many descriptors; got "
                f"{len(descriptors)}. Lower n_words, or fit on more images."
            )
        rng = check_random_state(self.random_state)
        options = {
            "max_iter": self.max_iter,
            "seed": rng.randint(np.iinfo(np.int32).max),
            "n_threads": count_threads(self.n_jobs),
        }
        rows = self._draw(len(descriptors), rng)
        if self.search == "exact":
            X = gather(descriptors, rows)
            words = learn_words(X, self.n_words, backend=backend, **options)
        else:
            words = learn_words_by_cell(descriptors, rows, self.n_words, **options)
        self._set_words(words, backend, self.sigma)
        if self.assignment == "soft" and self.sigma is None:
            self.sigma_ = self._estimate_sigma(descriptors, rows)

    def transform(self, X: LocalFeatures | Sequence[ArrayLike]) -> SparseRows:
        """Return histograms of words.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of images.

        Returns
        -------
        H : sparse CSR of shape (n_images, n_words), dtype float32
            Counts, or sums of weights if the assignment is soft.
        """
        check_is_fitted(self)
        offsets, descriptors = check_descriptors(X, self.n_features_in_)
        n_images, n_words = len(offsets) - 1, len(self.words_)
        is_soft = self.assignment == "soft"
        n_neighbors = min(self.n_neighbors, n_words) if is_soft else 1
        shape = (len(descriptors), n_neighbors)
        words = np.empty(shape, dtype=np.int32)
        weights = np.ones(shape, dtype=np.float32)
        for start, block in float_blocks(descriptors):
            part = slice(start, start + len(block))
            squares, words[part] = self._find(block, n_neighbors)
            if is_soft:
                weights[part] = soften(squares, self.sigma_)
        images = np.repeat(np.arange(n_images), np.diff(offsets) * n_neighbors)
        histograms = sparse.coo_array(
            (weights.ravel(), (images, words.ravel())), shape=(n_images, n_words)
        )
        return as_configured(histograms.tocsr())

    def assign(self, X: LocalFeatures) -> LocalFeatures:
        """Return the same features with their nearest words.

        Parameters
        ----------
        X : LocalFeatures
            Features with descriptors.

        Returns
        -------
        features : LocalFeatures
            Features with `words`, which share all other arrays with `X`.
        """
        check_is_fitted(self)
        return X.replace_words(self.find_words(check_descriptors(X)[1]))

    def find_words(self, descriptors: np.ndarray) -> np.ndarray:
        """Return the nearest word of each descriptor.

        Parameters
        ----------
        descriptors : ndarray of shape (n_points, n_components)
            Descriptors of any number of images.

        Returns
        -------
        words : ndarray of shape (n_points,), dtype int32
        """
        check_is_fitted(self)
        descriptors = check_descriptors([descriptors], self.n_features_in_)[1]
        words = np.empty(len(descriptors), dtype=np.int32)
        for start, block in float_blocks(descriptors):
            words[start : start + len(block)] = self._find(block, 1)[1].ravel()
        return words

    # -- private methods, with valid inputs --

    def _draw(self, n_points, rng):
        """Return the sorted numbers of the training descriptors; None for all."""
        if self.points_per_word is None:
            return None
        n = self.points_per_word * self.n_words
        if n >= n_points:
            return None
        return np.sort(sample_without_replacement(n_points, n, random_state=rng))

    def _estimate_sigma(self, descriptors, rows):
        rows = np.arange(len(descriptors)) if rows is None else rows
        step = -(-len(rows) // MAX_SIGMA_SAMPLE)
        squares = self._find(take_floats(descriptors, rows[::step]), 1)[0]
        rms = np.sqrt(squares.mean(dtype=np.float64))
        return float(max(SIGMA * rms, np.finfo(np.float32).tiny))

    def _set_words(self, words, backend, sigma):
        self.words_, self.backend_ = words, backend
        self.n_features_in_ = words.shape[1]
        if self.assignment == "soft":
            self.sigma_ = sigma
        if self.search != "exact":
            self._index = WordSearch(words, backend=backend, search=self.search)

    def _find(self, block, n_neighbors):
        if not hasattr(self, "_index"):
            self._index = WordSearch(
                self.words_,
                backend=self.backend_,
                search=self.search,
                graph=getattr(self, "_graph", None),
            )
        return self._index.find(block, n_neighbors, count_threads(self.n_jobs))

    @property
    def _n_features_out(self):
        return len(self.words_)

    def __getstate__(self):
        # An index of FAISS cannot be pickled. It is opened again when it is needed.
        state = dict(super().__getstate__())
        index = state.pop("_index", None)
        if index is not None and self.search != "exact":
            state["_graph"] = index.to_bytes()
        return state


def gather(
    descriptors: np.ndarray | StackedRows, rows: np.ndarray | None
) -> np.ndarray:
    """Return descriptors in float32, without a copy if possible.

    A large copy is a temporary file.
    """
    if (
        rows is None
        and isinstance(descriptors, np.ndarray)
        and descriptors.dtype == np.float32
    ):
        for _ in float_blocks(descriptors):
            pass  # checks that all of them are finite
        return descriptors
    rows = np.arange(len(descriptors)) if rows is None else rows
    shape = (len(rows), descriptors.shape[1])
    if 4 * shape[0] * shape[1] <= MAX_MEMORY:
        return take_floats(descriptors, rows)
    with TemporaryFile() as file:
        out = np.memmap(file, dtype=np.float32, shape=shape)
    return take_floats(descriptors, rows, out=out)


def soften(squares: np.ndarray, sigma: float) -> np.ndarray:
    """Return exp(-d^2 / 2 sigma^2) of squared distances, divided by their sum."""
    with np.errstate(under="ignore", over="ignore"):
        # Distances are relative to the nearest word, so that its weight is 1 before
        # scaling.
        weights = np.exp((squares[:, :1] - squares) / (2 * sigma) / sigma)
    return weights / weights.sum(axis=1, keepdims=True)


def fit_vocabulary(
    transformer: Any, descriptors: np.ndarray, rng: np.random.RandomState
) -> VisualVocabulary:
    """Return a vocabulary of all descriptors, with the parameters of a transformer."""
    return VisualVocabulary(
        transformer.n_words,
        max_iter=transformer.max_iter,
        points_per_word=None,
        backend=transformer.backend,
        n_jobs=transformer.n_jobs,
        random_state=rng.randint(np.iinfo(np.int32).max),
    ).fit([descriptors])
