"""Handwritten digits as bags of visual words."""

from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn.datasets._patches import count_words

PATCH_SIDE = 3  # pixels; with 4, the cosine reaches mAP 0.68
MIN_CONTRAST = 1.0  # standard deviation, in the images' grey levels 0..16
N_TRAINING_PATCHES = 10_000  # a sixth; all take four times as long and add 0.01 to mAP

DESCR = """\
Handwritten digits as bags of visual words
------------------------------------------

:Number of images: 1797
:Number of words: {n_words}
:Different words per image: {n_nonzero:.0f} on average
:Classes: the digits 0 to 9, about 180 images each

The images are the test part of the Optical Recognition of Handwritten Digits data
of E. Alpaydin and C. Kaynak (UCI Machine Learning Repository, 1998), 8 x 8 pixels
of 17 grey levels, from :func:`sklearn.datasets.load_digits`. An image has 36
overlapping patches of 3 x 3 pixels, which are centred. Patches with a standard
deviation below one grey level are dropped as background. The others are scaled to unit
length. k-means groups the patches into visual words. An image is represented by the
histogram of its words.
"""


@validate_params(
    {
        "n_words": [Interval(Integral, 1, 5000, closed="both")],
        "position": [Interval(Real, 0, None, closed="left")],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_digit_words(
    *, n_words: int = 200, position: float = 0.0, return_X_y: bool = False
) -> Any:
    """Load the digits as bags of visual words.

    A small retrieval problem on real images that needs neither a download nor an image
    library: given an image, find the others that show the same digit. The cosine of
    tf-idf vectors reaches a mean average precision of 0.47.

    Parameters
    ----------
    n_words : int, default=200
        Number of visual words, at most 5000.

    position : float, default=0.0
        Weight of the position of a patch in its descriptor. Patches have unit length,
        and positions are from -1 to 1 along both axes. With 0, the default, words do
        not depend on positions. With 0.3, the cosine reaches a mean average precision
        of 0.61.

    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes. They are copies and may
        be modified.

        data : csr_array of shape (1797, n_words), float64
            Counts of the words in each image.
        target : ndarray of shape (1797,), int64
            The digits.
        target_names : ndarray of shape (10,)
            The classes.
        images : ndarray of shape (1797, 8, 8)
            The images, for display; values from 0 to 16.
        words : ndarray of shape (n_words, 9) or (n_words, 11)
            The words: a flattened patch, followed by the weighted row and column of its
            position if `position` is positive.
        DESCR : str
            Origin of the images, and construction of the words.

    (data, target) : tuple if `return_X_y` is True
        The counts and the digits.

    See Also
    --------
    make_visual_words : Synthetic bags of words, up to millions of images.
    sklearn.datasets.load_digits : The same images, as pixels.

    Notes
    -----
    The first call for a vocabulary clusters the patches, which takes a fraction of a
    second for 200 words. The last few vocabularies are cached. The result does not
    depend on the number of threads.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> digits = load_digit_words()
    >>> digits.data.shape, digits.words.shape
    ((1797, 200), (200, 9))
    >>> int(digits.data.sum())  # one count for each patch
    62078
    >>> X, y = load_digit_words(n_words=50, return_X_y=True)
    >>> X.shape, y.shape
    ((1797, 50), (1797,))
    """
    digits = _digits()
    X, words = _count_words(n_words, position)
    if return_X_y:
        return X.copy(), digits.target.copy()
    return Bunch(
        data=X.copy(),
        target=digits.target.copy(),
        target_names=digits.target_names.copy(),
        images=digits.images.copy(),
        words=words.copy(),
        DESCR=DESCR.format(n_words=n_words, n_nonzero=X.nnz / X.shape[0]),
    )


# Callers get copies of the cached arrays.
_digits = lru_cache(maxsize=1)(load_digits)


@lru_cache(maxsize=8)
def _count_words(n_words, position):
    """Count the words in the images; return the counts and the words."""
    images = _digits().images
    image_of, descriptors = _describe(images, position)
    kmeans = KMeans(n_words, n_init=1, max_iter=20)
    return count_words(descriptors, image_of, len(images), kmeans, N_TRAINING_PATCHES)


def _describe(images, position):
    """Return the descriptors of patches with contrast, and the image of each."""
    windows = np.lib.stride_tricks.sliding_window_view(
        images, (PATCH_SIDE, PATCH_SIDE), axis=(1, 2)
    )
    n_images, n_places = windows.shape[:2]
    patches = windows.reshape(n_images, n_places**2, PATCH_SIDE**2)
    patches = patches - patches.mean(axis=2, keepdims=True)
    norms = np.linalg.norm(patches, axis=2)
    # |patch|^2 = n_pixels * variance
    image_of, place_of = np.nonzero(norms >= PATCH_SIDE * MIN_CONTRAST)
    descriptors = patches[image_of, place_of] / norms[image_of, place_of, None]
    if position > 0:
        axis = np.linspace(-1, 1, n_places)
        place = np.column_stack([axis[place_of // n_places], axis[place_of % n_places]])
        descriptors = np.hstack([descriptors, position * place])
    return image_of, descriptors
