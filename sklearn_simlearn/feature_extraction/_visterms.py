"""Bags of visterms: blocks of an image, described by texture and colours."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.sklearn import Interval, fit_context
from sklearn_simlearn._core.typing import ImagesLike, SparseRows
from sklearn_simlearn.base import replacing_state
from sklearn_simlearn.feature_extraction._reader import ImageTransformer, as_images
from sklearn_simlearn.feature_extraction._vocabulary import OF_KMEANS, VisualVocabulary

N_PATTERNS = 59
RADIUS = 2

# Number of blocks below which an image is not scaled down further.
MIN_BLOCKS = 10

# Number of pixels of each training image from which the palette is learned.
PALETTE_PIXELS = 1000

# Smallest difference of brightness that counts. It is ten times the error of
# interpolation in single precision.
TOLERANCE = 1e-3

# Number of pixels that are compared with the palette at a time.
PIXELS = 2**16


class BlockVisterms(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Histograms of visual words of image blocks.

    An image is divided into overlapping square blocks. This is done at its original
    size and at smaller scales, until it has fewer than 10 blocks. A block is described
    by a histogram of uniform local binary patterns, 59 bins for 8 neighbours at a
    radius of 2 pixels, and by a histogram of the colours of a learned palette. Words
    are learned from the blocks by k-means, and their occurrences are counted [1]_.

    Parameters
    ----------
    n_words : int, default=10_000
        Size of the vocabulary.

    block_size : int, default=64
        Side of a block in pixels.

    step : int, default=32
        Distance of neighbouring blocks in pixels.

    scale_factor : float, default=1.25
        Factor by which an image is scaled down from level to level.

    n_colors : int, default=20
        Size of the palette.

    max_iter : int, default=20
        Largest number of iterations of k-means.

    backend : {"auto", "faiss", "sklearn"}, default="auto"
        Library for k-means, as in :class:`VisualVocabulary`.

    random_state : int, RandomState instance or None, default=None
        Random state of the start of k-means.

    Attributes
    ----------
    palette_ : ndarray of shape (n_colors, 3), dtype float32
        Colours of the palette: red, green and blue, from 0 to 255.

    vocabulary_ : VisualVocabulary
        Words of the blocks, which are described by 59 + `n_colors` numbers.

    References
    ----------
    .. [1] G. Chechik, V. Sharma, U. Shalit and S. Bengio. Large scale online learning
       of image similarity through ranking. JMLR 11, 2010, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import BlockVisterms
    >>> images = np.random.default_rng(0).random((3, 128, 160, 3))
    >>> visterms = BlockVisterms(n_words=5, n_colors=4, random_state=0)
    >>> visterms.fit_transform(images).toarray().sum(axis=1)
    array([12., 12., 12.], dtype=float32)
    """

    _parameter_constraints: dict = {
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "block_size": [Interval(Integral, 1, None, closed="left")],
        "step": [Interval(Integral, 1, None, closed="left")],
        "scale_factor": [Interval(Real, 1, None, closed="neither")],
        "n_colors": [Interval(Integral, 1, None, closed="left")],
        **OF_KMEANS,
        **ImageTransformer._parameter_constraints,
    }

    def __init__(
        self,
        n_words: int = 10_000,
        *,
        block_size: int = 64,
        step: int = 32,
        scale_factor: float = 1.25,
        n_colors: int = 20,
        max_iter: int = 20,
        backend: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.n_words = n_words
        self.block_size = block_size
        self.step = step
        self.scale_factor = scale_factor
        self.n_colors = n_colors
        self.max_iter = max_iter
        self.backend = backend
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ImagesLike, y: object = None) -> Self:
        """Learn the palette and the words.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Training images.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The transformer itself.
        """
        with replacing_state(self):
            self._fit(X)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: ImagesLike, y: object = None) -> SparseRows:
        """Learn the palette and the words, and describe the images.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Training images.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        H : csr_array of shape (n_images, n_words), dtype float32
            Counts of words.
        """
        with replacing_state(self):
            blocks = self._fit(X)
        return self.vocabulary_.transform(blocks)

    def transform(self, X: ImagesLike) -> SparseRows:
        """Return histograms of words.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Images. Other inputs than an :class:`ImageSequence` are read by
            :class:`ImageReader` with default parameters. An image that is smaller than
            a block is enlarged.

        Returns
        -------
        H : csr_array of shape (n_images, n_words), dtype float32
            Counts of words.
        """
        check_is_fitted(self)
        blocks = list(self._map(X, self._describe, "blocks"))
        return self.vocabulary_.transform(blocks)

    def _fit(self, X):
        """Set the fitted attributes; return the blocks of all images."""
        images = as_images(X)
        rng = check_random_state(self.random_state)
        seeds = rng.randint(np.iinfo(np.int32).max, size=2)
        pixels = list(self._map(images, _draw_pixels, "colours"))
        n_pixels = sum(map(len, pixels))
        if n_pixels < self.n_colors:
            raise ValueError(
                f"n_colors={self.n_colors} requires at least as many pixels; got "
                f"{n_pixels}. Lower n_colors, or fit on more images."
            )
        self.palette_ = self._learn(self.n_colors, pixels, seeds[0]).words_
        blocks = list(self._map(images, self._describe, "blocks"))
        self.vocabulary_ = self._learn(self.n_words, blocks, seeds[1])
        return blocks

    def _learn(self, n_words, descriptors, seed):
        return VisualVocabulary(
            n_words,
            max_iter=self.max_iter,
            backend=self.backend,
            n_jobs=self.n_jobs,
            random_state=int(seed),
        ).fit(descriptors)

    def _describe(self, pixels):
        """Return the histograms of all blocks, at all scales."""
        blocks = []
        while pixels.size and not (blocks and self._n_blocks(pixels) < MIN_BLOCKS):
            pixels = _enlarge(pixels, self.block_size)
            codes = (local_binary_patterns(pixels), self._find_colors(pixels))
            sizes = (N_PATTERNS, len(self.palette_))
            histograms = [
                block_histograms(code, size, self.block_size, self.step)
                for code, size in zip(codes, sizes, strict=True)
            ]
            blocks.append(np.hstack(histograms))
            pixels = _scale_down(pixels, self.scale_factor)
        width = N_PATTERNS + len(self.palette_)
        return np.concatenate([np.zeros((0, width), dtype=np.float32), *blocks])

    def _n_blocks(self, pixels):
        counts = ((n - self.block_size) // self.step + 1 for n in pixels.shape[:2])
        return np.prod([max(count, 0) for count in counts])

    def _find_colors(self, pixels):
        """Return the nearest colour of the palette for each pixel."""
        flat = pixels.reshape(-1, 3)
        colors = np.empty(len(flat), dtype=np.intp)
        half_squares = 0.5 * np.square(self.palette_).sum(axis=1)
        for start in range(0, len(flat), PIXELS):
            block = flat[start : start + PIXELS].astype(np.float32)
            nearness = block @ self.palette_.T - half_squares
            colors[start : start + PIXELS] = nearness.argmax(axis=1)
        return colors.reshape(pixels.shape[:2])

    @property
    def _n_features_out(self):
        return self.n_words

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "vocabulary_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        return tags


def local_binary_patterns(pixels: np.ndarray) -> np.ndarray:
    """Return the pattern of each pixel from 8 neighbours at a radius of 2 pixels.

    The bit of a neighbour is set if it is at least as bright as the pixel. The 58
    patterns with at most two changes around the circle have the numbers 0 to 57, in the
    order of their bits. All other patterns have the number 58. Pixels outside of the
    image have the values of the nearest edge.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3), dtype uint8

    Returns
    -------
    patterns : ndarray of shape (height, width), dtype uint8
    """
    cv2 = import_optional("cv2", "vision", "BlockVisterms")
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.float32)
    height, width = gray.shape
    padded = np.pad(gray, RADIUS, mode="edge")

    def shifted(down, right):
        top, left = RADIUS + down, RADIUS + right
        return padded[top : top + height, left : left + width]

    codes = np.zeros(gray.shape, dtype=np.uint8)
    threshold = gray - np.float32(TOLERANCE)
    for bit in range(8):
        down = -RADIUS * np.sin(np.pi * bit / 4)
        right = RADIUS * np.cos(np.pi * bit / 4)
        neighbour = np.zeros_like(gray)
        for y, weight_y in _split(down):
            for x, weight_x in _split(right):
                neighbour += np.float32(weight_y * weight_x) * shifted(y, x)
        codes |= (neighbour > threshold).astype(np.uint8) << np.uint8(bit)
    return _UNIFORM[codes]


def block_histograms(codes, n_codes, block_size, step) -> np.ndarray:
    """Return the relative frequency of each code in each block."""
    windows = sliding_window_view(codes, (block_size, block_size))[::step, ::step]
    n_blocks = windows.shape[0] * windows.shape[1]
    codes = windows.reshape(n_blocks, -1) + n_codes * np.arange(n_blocks)[:, None]
    counts = np.bincount(codes.ravel(), minlength=n_blocks * n_codes)
    return counts.reshape(n_blocks, n_codes).astype(np.float32) / block_size**2


def _make_uniform_table():
    """Return the number of each 8-bit pattern."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    is_uniform = (bits != np.roll(bits, 1, axis=1)).sum(axis=1) <= 2
    table = np.full(256, N_PATTERNS - 1, dtype=np.uint8)
    table[is_uniform] = np.arange(N_PATTERNS - 1)
    return table


_UNIFORM = _make_uniform_table()


def _split(shift):
    """Return integer shifts and their weights for a fractional shift."""
    shift = round(float(shift), 12)
    whole = int(np.floor(shift))
    rest = shift - whole
    return [(whole, 1 - rest)] + ([(whole + 1, rest)] if rest else [])


def _draw_pixels(pixels):
    """Return pixels at regular positions of an image."""
    flat = pixels.reshape(-1, 3)
    return flat[:: max(1, len(flat) // PALETTE_PIXELS)].astype(np.float32)


def _enlarge(pixels, smallest):
    """Return the image, enlarged if its shorter side is shorter than a block."""
    cv2 = import_optional("cv2", "vision", "BlockVisterms")
    if min(pixels.shape[:2]) >= smallest:
        return pixels
    height, width = (max(n, smallest) for n in pixels.shape[:2])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)


def _scale_down(pixels, factor):
    cv2 = import_optional("cv2", "vision", "BlockVisterms")
    height, width = (max(1, round(n / factor)) for n in pixels.shape[:2])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
