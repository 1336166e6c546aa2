"""ColorHistograms: bins, cells, and images that cannot be read."""

import colorsys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_simlearn.feature_extraction import ColorHistograms, ImageReader

pytest.importorskip("cv2")


def find_bin(color, bins):
    """Return the bin of a colour by the standard library."""
    values = colorsys.rgb_to_hsv(*(c / 255 for c in color))
    places = [min(int(v * n), n - 1) for v, n in zip(values, bins, strict=True)]
    return (places[0] * bins[1] + places[1]) * bins[2] + places[2]


def test_histograms_of_cells_by_the_definition():
    colors = [(250, 20, 30), (40, 200, 60), (20, 40, 220), (120, 110, 100)]
    bins, size = (8, 3, 3), 12
    image = np.array(colors, dtype=np.uint8).reshape(2, 2, 3)
    image = image.repeat(size // 2, axis=0).repeat(size // 2, axis=1)
    (found,) = ColorHistograms(size, bins=bins, grids=(1, 2)).fit_transform([image])
    expected = np.zeros((5, 72))
    for cell, color in enumerate(colors):
        place = find_bin(color, bins)
        expected[0, place] += 1 / 4
        expected[1 + cell, place] = 1 / 4
    assert_allclose(found.reshape(5, 72), np.sqrt(expected), rtol=1e-6)


def test_cells_of_unequal_size_have_equal_weight(rng):
    image = rng.integers(0, 256, size=(7, 7, 3), dtype=np.uint8)
    (found,) = ColorHistograms(7, bins=(2, 2, 2), grids=(3,)).fit_transform([image])
    assert_allclose(np.square(found.reshape(9, 8)).sum(axis=1), 1 / 9, rtol=1e-6)


def test_place_of_a_colour_matters_with_cells_only(rng):
    image = rng.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)
    mirrored = image[:, ::-1]
    whole = ColorHistograms(16, grids=(1,)).fit_transform([image, mirrored])
    assert_array_equal(whole[0], whole[1])
    cells = ColorHistograms(16).fit_transform([image, mirrored])
    assert not np.array_equal(cells[0], cells[1])
    assert_array_equal(cells[:, :72], whole)


def test_unreadable_image_is_a_row_of_zeros(rng):
    image = rng.integers(0, 256, size=(16, 20), dtype=np.uint8)
    images = ImageReader(on_error="skip").fit_transform([b"no image", image])
    colors = ColorHistograms(n_jobs=2)
    found = colors.fit_transform(images)
    assert found.dtype == np.float32
    assert not found[0].any()
    assert_allclose(np.square(found[1]).sum(), 2, rtol=1e-6)
    assert len(colors.get_feature_names_out()) == found.shape[1]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bins": (8, 3)}, "three integers"),
        ({"bins": (8, 3, 257)}, "from 1 to 256"),
        ({"grids": ()}, "grids must be integers"),
        ({"image_size": 8, "grids": (9,)}, "from 1 to image_size=8"),
        ({"grids": (1.5,)}, "grids must be integers"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        ColorHistograms(**params).fit([np.zeros((4, 4))])
