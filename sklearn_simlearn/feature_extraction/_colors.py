"""Histograms of colours in the image and in the cells of grids."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn.feature_extraction._decode import scale_to_square
from sklearn_simlearn.feature_extraction._reader import ImageVectors


class ColorHistograms(ImageVectors):
    r"""Histograms of hue, saturation and brightness, in the image and in its cells.

    An image is scaled to a square. Its colours are counted in the whole image and in
    the cells of grids, so the vector describes the colours of an image and their
    approximate positions [1]_. Nothing is learned. An image takes less than a
    millisecond.

    The vector consists of the square roots :math:`\sqrt{h_{cb} / n}` of the relative
    frequencies :math:`h_{cb}` of the colours :math:`b` in the cells :math:`c` of a grid
    with :math:`n` cells. The inner product of two vectors is therefore the sum over the
    grids of the mean Bhattacharyya coefficient of their cells. All vectors have the
    same length.

    Parameters
    ----------
    image_size : int, default=128
        Side of the square to which images are scaled, in pixels.

    bins : tuple of 3 ints, default=(8, 3, 3)
        Number of intervals of hue, saturation and brightness.

    grids : tuple of int, default=(1, 2)
        Number of cells along each side of the grids. 1 is the whole image.

    References
    ----------
    .. [1] S. Lazebnik, C. Schmid and J. Ponce. Beyond bags of features: spatial pyramid
       matching for recognizing natural scene categories. CVPR, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import ColorHistograms
    >>> red, blue = np.zeros((2, 32, 48, 3))
    >>> red[:, :, 0], blue[:, :, 2] = 1, 1
    >>> V = ColorHistograms().fit_transform([red, blue])
    >>> V.shape
    (2, 360)
    >>> V @ V.T
    array([[2., 0.],
           [0., 2.]], dtype=float32)
    """

    _parameter_constraints: dict = {
        "image_size": [Interval(Integral, 1, None, closed="left")],
        "bins": [tuple, list],
        "grids": [tuple, list],
        **ImageVectors._parameter_constraints,
    }

    def __init__(
        self,
        image_size: int = 128,
        *,
        bins: Sequence[int] = (8, 3, 3),
        grids: Sequence[int] = (1, 2),
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.image_size = image_size
        self.bins = bins
        self.grids = grids
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _prepare(self):
        if len(self.bins) != 3 or not _are_in(self.bins, 256):
            raise ValueError(
                "bins must be three integers from 1 to 256, for hue, saturation and "
                f"brightness; got {self.bins}."
            )
        if not self.grids or not _are_in(self.grids, self.image_size):
            raise ValueError(
                f"grids must be integers from 1 to image_size={self.image_size}; got "
                f"{self.grids}."
            )

    def _transform(self, images):
        found = list(self._map(images, self._describe, "colours"))
        return np.array(found, dtype=np.float32).reshape(-1, self._n_features_out)

    def _describe(self, pixels):
        if pixels.size == 0:
            return np.zeros(self._n_features_out, dtype=np.float32)
        codes = self._find_bins(pixels)
        n_bins = int(np.prod(self.bins))
        parts = []
        for n_cells in self.grids:
            edges = np.arange(n_cells + 1) * self.image_size // n_cells
            cell = np.repeat(np.arange(n_cells), np.diff(edges))
            places = (cell[:, None] * n_cells + cell) * n_bins + codes
            counts = np.bincount(places.ravel(), minlength=n_cells**2 * n_bins)
            n_pixels = np.outer(np.diff(edges), np.diff(edges)).ravel() * n_cells**2
            parts.append(np.sqrt(counts.reshape(-1, n_bins) / n_pixels[:, None]))
        return np.concatenate([part.ravel() for part in parts])

    def _find_bins(self, pixels):
        """Return the number of the bin of each pixel of the square."""
        cv2 = import_optional("cv2", "vision", "ColorHistograms")
        square = scale_to_square(pixels, self.image_size)
        channels = cv2.cvtColor(square, cv2.COLOR_RGB2HSV_FULL).astype(np.intp)
        hue, saturation, brightness = np.moveaxis(
            channels * np.array(self.bins) // 256, 2, 0
        )
        return (hue * self.bins[1] + saturation) * self.bins[2] + brightness

    @property
    def _n_features_out(self):
        return int(np.prod(self.bins)) * sum(n**2 for n in self.grids)


def _are_in(numbers, largest):
    return all(isinstance(n, Integral) and 1 <= n <= largest for n in numbers)
