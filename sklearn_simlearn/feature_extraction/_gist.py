"""Gist: energies of Gabor filters in the cells of a grid."""

from functools import lru_cache
from numbers import Integral

import numpy as np
from scipy import fft

from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn.feature_extraction._decode import scale_to_square
from sklearn_simlearn.feature_extraction._reader import ImageVectors

# Frequency of the finest filters in cycles per pixel, and the factor between scales.
FREQUENCY = 0.3
FACTOR = 1.85

# Contrast normalisation: frequency in cycles per image below which brightness is
# removed, and the smallest contrast that is scaled up.
CUTOFF = 4
MIN_CONTRAST = 0.2


class GistDescriptors(ImageVectors):
    r"""Gist descriptors of images: texture by frequency, orientation and position.

    An image is scaled to a square of grey pixels, and its local contrast is normalised.
    The magnitudes of Gabor filters of several scales and orientations are averaged over
    the cells of a grid [1]_. In polar coordinates :math:`f, \varphi` of the frequency
    plane, the filter at scale :math:`s` and orientation :math:`k` of :math:`n` is

    .. math::

        \exp\Bigl(-3.5 \Bigl(\frac{f}{f_s} - 1\Bigr)^2
            - \frac{\pi n^2}{32} \Bigl(\varphi - \frac{\pi k}{n}\Bigr)^2\Bigr),
        \qquad f_s = \frac{0.3}{1.85^s} .

    The default has 20 filters and 4 x 4 cells, which gives 320 numbers, as for the
    CIFAR-10 images of [2]_.

    Parameters
    ----------
    image_size : int, default=128
        Side of the square to which images are scaled, in pixels. Use 32 for the
        pictures of CIFAR-10.

    orientations : tuple of int, default=(8, 8, 4)
        Number of orientations at each scale, the finest scale first.

    n_cells : int, default=4
        Number of cells along each side of the grid.

    References
    ----------
    .. [1] A. Oliva and A. Torralba. Modeling the shape of the scene: a holistic
       representation of the spatial envelope. International Journal of Computer Vision
       42, 2001.
    .. [2] Z. Kuang, J. Sun and K.-Y. K. Wong. Learning regularized, query-dependent
       bilinear similarities for large scale image retrieval. CVPR Workshops, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import GistDescriptors
    >>> images = np.random.default_rng(0).random((3, 32, 32, 3))
    >>> GistDescriptors(image_size=32).fit_transform(images).shape
    (3, 320)
    """

    _parameter_constraints: dict = {
        "image_size": [Interval(Integral, 8, None, closed="left")],
        "orientations": [tuple, list],
        "n_cells": [Interval(Integral, 1, None, closed="left")],
        **ImageVectors._parameter_constraints,
    }

    def __init__(
        self,
        image_size: int = 128,
        *,
        orientations: tuple[int, ...] = (8, 8, 4),
        n_cells: int = 4,
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.image_size = image_size
        self.orientations = orientations
        self.n_cells = n_cells
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _prepare(self):
        numbers = self.orientations
        if not numbers or not all(isinstance(n, Integral) and n > 0 for n in numbers):
            raise ValueError(
                f"orientations must be positive integers, one per scale; got {numbers}."
            )
        if self.n_cells > self.image_size:
            raise ValueError(
                f"n_cells={self.n_cells} is larger than image_size={self.image_size}."
            )

    def _transform(self, images):
        found = list(self._map(images, self._describe, "Gist", mode="gray"))
        return np.array(found, dtype=np.float32).reshape(-1, self._n_features_out)

    def _describe(self, pixels):
        size = self.image_size
        if pixels.size == 0:
            return np.zeros(self._n_features_out, dtype=np.float32)
        square = scale_to_square(pixels, size)
        # Reflect the borders, because the Fourier transform is periodic.
        border = size // 4
        padded = np.pad(square.astype(np.float64), border, mode="symmetric")
        spectrum = fft.fft2(normalize_contrast(padded))
        filters = make_filters(len(padded), tuple(self.orientations))
        energy = np.abs(fft.ifft2(spectrum * filters))
        return average_cells(
            energy[:, border : border + size, border : border + size], self.n_cells
        ).ravel()

    @property
    def _n_features_out(self):
        return int(sum(self.orientations)) * self.n_cells**2


def normalize_contrast(pixels: np.ndarray) -> np.ndarray:
    """Return the log brightness minus that of the surroundings, divided by contrast.

    A Gaussian low-pass filter, which halves amplitudes at `CUTOFF` cycles per image,
    computes the brightness of the surroundings.
    """
    radius, _ = _polar_frequencies(len(pixels))
    low_pass = np.exp2(-((radius * len(pixels) / CUTOFF) ** 2))

    def blur(image):
        return fft.ifft2(fft.fft2(image) * low_pass).real

    logarithm = np.log1p(pixels)
    difference = logarithm - blur(logarithm)
    contrast = np.sqrt(np.maximum(blur(difference**2), 0))
    return difference / (MIN_CONTRAST + contrast)


@lru_cache(maxsize=4)
def make_filters(size: int, orientations: tuple[int, ...]) -> np.ndarray:
    """Return transfer functions of Gabor filters, by scale and then by orientation.

    Returns
    -------
    filters : ndarray of shape (n_filters, size, size), dtype float64
        Filters in SciPy's order of frequencies. The array is shared and read-only.
    """
    radius, angle = _polar_frequencies(size)
    filters = []
    for scale, n in enumerate(orientations):
        across = radius / (FREQUENCY / FACTOR**scale) - 1
        for k in range(n):
            turn = (angle - np.pi * k / n + np.pi) % (2 * np.pi) - np.pi
            exponent = 3.5 * across**2 + np.pi * n**2 / 32 * turn**2
            filters.append(np.exp(-exponent))
    stack = np.array(filters)
    # Zero frequency, the mean brightness, has no orientation.
    stack[:, 0, 0] = 0
    stack.flags.writeable = False
    return stack


def average_cells(images: np.ndarray, n_cells: int) -> np.ndarray:
    """Return means over the cells of a grid, of shape (n_images, n_cells, n_cells)."""
    size = images.shape[1]
    edges = np.arange(n_cells + 1) * size // n_cells
    sums = np.add.reduceat(images, edges[:-1], axis=1)
    sums = np.add.reduceat(sums, edges[:-1], axis=2)
    return sums / np.outer(np.diff(edges), np.diff(edges))


def _polar_frequencies(size):
    """Return radius, in cycles per pixel, and angle of each frequency."""
    frequency = fft.fftfreq(size)
    down, right = frequency[:, None], frequency
    return np.hypot(down, right), np.arctan2(down, right)
