"""Data set of photographs of places, with several views of each spot."""

from functools import lru_cache
from importlib import resources
from io import BytesIO
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn.datasets._patches import count_words

HEIGHT, WIDTH = 96, 128
N_SPOTS, N_VIEWS = 3, 5  # spots per place, views per spot
PLACES = [
    "apartment",
    "bridge",
    "plaza",
    "badlands",
    "mall",
    "pine wood",
    "hall",
    "laboratory",
    "lobby",
    "savanna",
    "park",
    "palace",
    "sea wall",
    "warehouse",
    "workshop",
    "car park",
    "courtyard",
    "garden",
    "hotel room",
    "golf course",
    "studio",
    "meadow",
    "quay",
]

CELL = 6  # pixels; a patch has 3 x 3 cells
PATCH = 3  # cells
N_ORIENTATIONS = 8
MIN_CONTRAST = 0.02  # of a patch, against grey levels from 0 to 1
N_TRAINING_PATCHES = 10_000  # of 75,000

DESCR = """\
Photographs of places
---------------------

:Number of photographs: 345, of 96 x 128 pixels, in colour
:Number of words: {n_words}
:Different words per photograph: {n_nonzero:.0f} on average
:Places: 23, indoors and outdoors
:Spots: 69, three directions at each place, 120 degrees apart
:Views: 5 of each spot

Which photographs show the same spot? The five views of a spot differ in direction (up
to 20 degrees to either side, 8 up or down), in rotation (up to 12 degrees), in the
angle of view (50 to 75 degrees) and in exposure (up to 0.7 stops). Views of the same
spot overlap. Views of different spots overlap at most at their edges.

The sources are 23 panoramas with the full range of light of the scene, photographed
for Poly Haven (https://polyhaven.com) and published under CC0 1.0, which places them
in the public domain. Fifteen are from the npm package @pmndrs/assets 1.7.0 (512 x 256
pixels, CC0 1.0), eight from the package bpy 5.0.1 of Blender on PyPI (1024 x 512, by
Greg Zaal, CC0). A panorama shows all directions from one point.
``benchmarks/embedded_data.py`` of the source distribution computes the views from it by
central projection, exposure by the mean of the frame and conversion to sRGB. Light,
colours and details are therefore those of real photographs; rotation, zoom and exposure
are computed. The camera is at the same point for all views of a place, and nothing
moves.

The words describe patches of 18 x 18 grey pixels every 6 pixels: square roots of
histograms of the gradient's orientation (8 bins) in 3 x 3 cells. k-means groups the
patches into visual words; patches without contrast have no word. A photograph is the
histogram of its words.
"""


@validate_params(
    {
        "n_words": [Interval(Integral, 1, 5000, closed="both")],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_places(*, n_words: int = 200, return_X_y: bool = False) -> Any:
    """Load small photographs of places, with several views of each spot.

    A retrieval problem on photographs: given a photograph, find the other four that
    show the same spot. The cosine of the counts reaches a mean average precision of
    about 0.7, the cosine of their square roots 0.8, because words of repeated patterns
    such as brick walls get less weight.

    Parameters
    ----------
    n_words : int, default=200
        Number of visual words, at most 5000.

    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes. They are copies and may
        be modified.

        data : csr_array of shape (345, n_words), float64
            Counts of the words in each photograph.
        target : ndarray of shape (345,), int64
            The spots, from 0 to 68.
        target_names : ndarray of shape (69,)
            A name for each spot, such as "garden 2".
        place : ndarray of shape (345,), int64
            The places, from 0 to 22. Spots of a place have the same light and
            materials.
        place_names : ndarray of shape (23,)
            A name for each place.
        images : ndarray of shape (345, 96, 128, 3), uint8
            The photographs, in sRGB.
        DESCR : str
            Origin of the photographs, and construction of views and words.

    (data, target) : tuple if `return_X_y` is True
        The counts and the spots.

    See Also
    --------
    load_digit_words : Handwritten digits, with many images of few classes.

    Notes
    -----
    Pillow is required (``pip install pillow``); Matplotlib installs it, too. The first
    call for a vocabulary clusters the patches, which takes about a second. The last few
    vocabularies are cached. Another version of Pillow may decode a pixel with a
    difference of one grey level, which changes the words of a few patches.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_places
    >>> places = load_places()
    >>> places.data.shape, places.images.shape
    ((345, 200), (345, 96, 128, 3))
    >>> print(places.target_names[places.target[:6]])
    ['apartment 1' 'apartment 1' 'apartment 1' 'apartment 1' 'apartment 1'
     'apartment 2']
    """
    X = _count_words(n_words)
    target = np.repeat(np.arange(X.shape[0] // N_VIEWS), N_VIEWS)
    if return_X_y:
        return X.copy(), target
    return Bunch(
        data=X.copy(),
        target=target,
        target_names=np.array(
            [f"{name} {i + 1}" for name in PLACES for i in range(N_SPOTS)]
        ),
        place=target // N_SPOTS,
        place_names=np.array(PLACES),
        images=_photographs().copy(),
        DESCR=DESCR.format(n_words=n_words, n_nonzero=X.nnz / X.shape[0]),
    )


# Callers get copies of the cached arrays.
@lru_cache(maxsize=1)
def _photographs():
    """Return the photographs, which are stored as tiles of one image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("load_places requires Pillow: pip install pillow.") from error
    file = resources.files("sklearn_simlearn.datasets") / "data" / "places.jpg"
    with Image.open(BytesIO(file.read_bytes())) as sheet:
        pixels = np.asarray(sheet)
    rows, columns = pixels.shape[0] // HEIGHT, pixels.shape[1] // WIDTH
    tiles = pixels.reshape(rows, HEIGHT, columns, WIDTH, 3).swapaxes(1, 2)
    return tiles.reshape(rows * columns, HEIGHT, WIDTH, 3)


@lru_cache(maxsize=8)
def _count_words(n_words):
    """Return the counts of the words in each photograph."""
    images = _photographs()
    image_of, descriptors = _describe(images)
    kmeans = KMeans(n_words, init="random", n_init=1, max_iter=10)
    return count_words(descriptors, image_of, len(images), kmeans, N_TRAINING_PATCHES)[
        0
    ]


def _describe(images):
    """Return the descriptors of patches with contrast, and the image of each."""
    cells = np.stack([_orientations(image) for image in images])
    n_rows, n_columns = (n - PATCH + 1 for n in cells.shape[1:3])
    patches = np.concatenate(
        [
            cells[:, i : i + n_rows, j : j + n_columns]
            for i in range(PATCH)
            for j in range(PATCH)
        ],
        axis=3,
    )
    norms = np.linalg.norm(patches, axis=3)
    worth = norms >= MIN_CONTRAST
    descriptors = np.sqrt(patches[worth])
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    return np.nonzero(worth)[0], descriptors


def _orientations(image):
    """Return the histograms of gradient orientations in the cells of an image."""
    n_rows, n_columns = image.shape[0] // CELL, image.shape[1] // CELL
    image = image[: n_rows * CELL, : n_columns * CELL]
    along_y, along_x = np.gradient(image @ (np.array([0.299, 0.587, 0.114]) / 255))
    strength = np.hypot(along_x, along_y)
    turn = np.arctan2(along_y, along_x) / (2 * np.pi) * N_ORIENTATIONS
    low = np.floor(turn)
    share = turn - low  # of the next bin
    row, column = np.indices(strength.shape) // CELL
    cell = row * n_columns + column
    histograms = np.zeros(n_rows * n_columns * N_ORIENTATIONS)
    for step, weight in ((0, 1 - share), (1, share)):
        bins = cell * N_ORIENTATIONS + (low.astype(np.int64) + step) % N_ORIENTATIONS
        histograms += np.bincount(
            bins.ravel(), (strength * weight).ravel(), minlength=len(histograms)
        )
    return histograms.reshape(n_rows, n_columns, N_ORIENTATIONS) / CELL**2
