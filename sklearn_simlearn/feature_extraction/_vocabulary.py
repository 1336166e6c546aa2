"""Vocabulary of visual words, and histograms of them."""

from numbers import Integral, Real
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_array, check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import (
    DocLinkMixin,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn.base import replacing_state
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._words import (
    StackedRows,
    WordSearch,
    choose_library,
    float_blocks,
    learn_words,
    learn_words_by_cell,
    take_floats,
)

# Default width of soft assignment relative to the distance to the nearest word, and
# number of descriptors from which this distance is estimated.
SIGMA, MAX_SIGMA_SAMPLE = 0.25, 2**16

# Largest number of bytes of descriptors for k-means that are kept in memory.
MAX_MEMORY = 2**32


class VisualVocabulary(
    DocLinkMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Histograms of visual words.

    The words are the centres of a k-means clustering of the descriptors of the training
    images. An image is represented by a histogram: for each word, the number of its
    descriptors whose nearest word it is.

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
        Iterations of k-means.

    points_per_word : int or None, default=256
        Largest number of training descriptors per word for k-means, drawn at random. If
        None, all descriptors are used.

    library : {"auto", "faiss", "sklearn"}, default="auto"
        Library for k-means and search. "auto" selects FAISS if it is installed, and
        scikit-learn otherwise.

    n_jobs : int, default=None
        Number of threads.

    random_state : int, RandomState instance or None, default=None
        Random state of the selection of descriptors and of the start of k-means. Pass
        an int for reproducible words.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, n_components), dtype float32
        The words. They can be passed to
        :class:`~sklearn_simlearn.SparseMahalanobisLearner` as `words`.

    library_ : {"faiss", "sklearn"}
        Library that was used for k-means.

    sigma_ : float
        Width of soft assignment, if the assignment is soft.

    n_features_in_ : int
        Number of components of a descriptor.

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
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "points_per_word": [Interval(Integral, 1, None, closed="left"), None],
        "library": [StrOptions({"auto", "faiss", "sklearn"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
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
        library: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.n_words = n_words
        self.assignment = assignment
        self.search = search
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.max_iter = max_iter
        self.points_per_word = points_per_word
        self.library = library
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def from_words(cls, words: ArrayLike, **params) -> Self:
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
        self = cls(**{**params, "n_words": len(words)})
        self._validate_params()
        if self.assignment == "soft" and self.sigma is None:
            raise ValueError(
                "sigma=None is estimated from descriptors, which are not available "
                "here. Pass a number."
            )
        self._set_words(words, choose_library(self.library, self.search), self.sigma)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Learn the words.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of the training images. Their division into arrays has no effect
            on the words. Arrays may be mapped from files.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The vocabulary itself.
        """
        library = choose_library(self.library, self.search)
        descriptors = check_descriptors(X, join=False)[1]
        if len(descriptors) < self.n_words:
            raise ValueError(
                f"n_words={self.n_words} requires at least as many descriptors; got "
                f"{len(descriptors)}. Lower n_words, or fit on more images."
            )
        with replacing_state(self):
            rng = check_random_state(self.random_state)
            options = {
                "max_iter": self.max_iter,
                "seed": rng.randint(np.iinfo(np.int32).max),
                "n_threads": count_threads(self.n_jobs),
            }
            rows = self._draw(len(descriptors), rng)
            if self.search == "exact":
                X = gather(descriptors, rows)
                words = learn_words(X, self.n_words, library=library, **options)
            else:
                words = learn_words_by_cell(descriptors, rows, self.n_words, **options)
            self._set_words(words, library, self.sigma)
            if self.assignment == "soft" and self.sigma is None:
                self.sigma_ = self._estimate_sigma(descriptors, rows)
        return self

    def transform(self, X) -> sparse.csr_array:
        """Return histograms of words.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of images.

        Returns
        -------
        H : csr_array of shape (n_images, n_words), dtype float32
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
        return histograms.tocsr()

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

    def _set_words(self, words, library, sigma):
        self.words_, self.library_ = words, library
        self.n_features_in_ = words.shape[1]
        if self.assignment == "soft":
            self.sigma_ = sigma
        if self.search != "exact":
            self._index = WordSearch(words, library=library, search=self.search)

    def _find(self, block, n_neighbors):
        if not hasattr(self, "_index"):
            self._index = WordSearch(
                self.words_,
                library=self.library_,
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


def gather(
    descriptors: np.ndarray | StackedRows, rows: np.ndarray | None
) -> np.ndarray:
    """Return descriptors in float32, without a copy if possible.

    A large copy is a temporary file.
    """
    is_array = isinstance(descriptors, np.ndarray)
    if rows is None and is_array and descriptors.dtype == np.float32:
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


def check_descriptors(X, n_components: int | None = None, *, join: bool = True):
    """Return the offsets of images among the descriptors, and the descriptors.

    Parameters
    ----------
    X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)

    n_components : int, default=None
        Required number of components; any number if None.

    join : bool, default=True
        Concatenate the arrays of several images; otherwise use them without a copy.

    Returns
    -------
    offsets : ndarray of shape (n_images + 1,)

    descriptors : ndarray or StackedRows of shape (n_points, n_components)
    """
    if isinstance(X, LocalFeatures):
        if X.descriptors is None:
            raise ValueError(
                "The features have no descriptors. Extract or load them with "
                "descriptors."
            )
        offsets, descriptors = X.offsets, X.descriptors
    else:
        if isinstance(X, np.ndarray) and X.ndim == 2:
            raise ValueError(
                "X is one array of 2 dimensions, but descriptors must be grouped by "
                "image. Pass LocalFeatures, or a list with one array per image."
            )
        parts = [_check_part(part, i) for i, part in enumerate(X)]
        if num_samples(parts) == 0:
            raise ValueError("There are no images: X is empty.")
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise ValueError(
                "All descriptors must have the same number of components; got "
                f"{sorted(widths)}."
            )
        offsets = np.append(0, np.cumsum([len(part) for part in parts]))
        if len(parts) == 1:
            descriptors = parts[0]
        else:
            descriptors = np.concatenate(parts) if join else StackedRows(parts)
    if n_components is not None and descriptors.shape[1] != n_components:
        raise ValueError(
            f"The descriptors have {descriptors.shape[1]} components, but those of the "
            f"training images had {n_components}."
        )
    return offsets, descriptors


def _check_part(part, i):
    part = np.asarray(part)
    if part.ndim != 2 or part.dtype.kind not in "biuf" or part.shape[1] == 0:
        raise ValueError(
            "Descriptors of an image must be numbers of shape (n_points, "
            f"n_components); got {part.dtype} of shape {part.shape} for image {i}."
        )
    return part
