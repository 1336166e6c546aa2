"""GistDescriptors: filters, cells, and images that have no descriptor."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.feature_extraction import GistDescriptors, ImageReader
from sklearn_simlearn.feature_extraction._gist import (
    average_cells,
    make_filters,
    normalize_contrast,
)

pytest.importorskip("cv2")

ORIENTATIONS = (8, 8, 4)


def grating(scale, angle, size=64):
    """Return a sine wave at the frequency of a scale."""
    frequency = 0.3 / 1.85**scale
    y, x = np.indices((size, size))
    wave = np.sin(2 * np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle)))
    return np.uint8(127 + 100 * wave)


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_each_filter_responds_to_its_own_frequency(scale):
    gist = GistDescriptors(image_size=64)
    first = sum(ORIENTATIONS[:scale])
    for k in range(ORIENTATIONS[scale]):
        wave = grating(scale, np.pi * k / ORIENTATIONS[scale])
        (found,) = gist.fit_transform([wave])
        assert found.reshape(20, 16).mean(axis=1).argmax() == first + k


def test_filters_against_the_formula():
    filters = make_filters(20, (3, 2))
    frequency = np.fft.fftfreq(20)
    assert filters.shape == (5, 20, 20)
    for index, (scale, n, k) in enumerate(
        [(0, 3, 0), (0, 3, 1), (0, 3, 2), (1, 2, 0), (1, 2, 1)]
    ):
        for i, j in [(0, 3), (4, 0), (5, 7), (18, 2), (10, 10)]:
            f = np.hypot(frequency[i], frequency[j])
            turn = np.arctan2(frequency[i], frequency[j]) - np.pi * k / n
            turn = min(abs(turn), 2 * np.pi - abs(turn))
            expected = np.exp(
                -3.5 * (f * 1.85**scale / 0.3 - 1) ** 2 - np.pi * n**2 / 32 * turn**2
            )
            assert_allclose(filters[index, i, j], expected)
    assert not filters[:, 0, 0].any()


def test_convolution_by_the_definition(rng):
    # The mean magnitude of a filtered image, with sums instead of Fourier transforms.
    pixels = rng.integers(0, 256, size=(8, 8), dtype=np.uint8)
    gist = GistDescriptors(image_size=8, orientations=(2,), n_cells=2)
    (found,) = gist.fit_transform([pixels])
    image = normalize_contrast(np.pad(pixels.astype(float), 2, mode="symmetric"))
    waves = np.exp(2j * np.pi * np.outer(np.arange(12), np.arange(12)) / 12)
    for transfer, expected in zip(
        make_filters(12, (2,)), found.reshape(2, 2, 2), strict=True
    ):
        spectrum = waves.conj() @ image @ waves.conj()
        energy = abs(waves @ (spectrum * transfer) @ waves / 144)[2:10, 2:10]
        means = [[energy[i : i + 4, j : j + 4].mean() for j in (0, 4)] for i in (0, 4)]
        assert_allclose(expected, means, rtol=1e-5)


def test_contrast_does_not_depend_on_brightness():
    wave = grating(0, 0.3).astype(float)
    slope = np.exp(-np.arange(64) / 200)
    plain, darker, sloping = (
        normalize_contrast((1 + wave) * factor - 1)[16:-16, 16:-16].ravel()
        for factor in (1, 0.5, slope)
    )
    assert_allclose(darker, plain, atol=1e-9)
    assert np.corrcoef(sloping, plain)[0, 1] > 0.999
    assert_allclose(normalize_contrast(np.full((16, 16), 80.0)), 0, atol=1e-12)


def test_cells_are_means_in_their_place(rng):
    images = rng.random((2, 10, 10))
    cells = average_cells(images, 3)
    assert_allclose(cells[1, 2, 0], images[1, 6:, :3].mean())
    texture = np.full((64, 64), 127, dtype=np.uint8)
    texture[48:, 16:32] = grating(0, 0.0)[48:, 16:32]
    (found,) = GistDescriptors(image_size=64).fit_transform([texture])
    assert found.reshape(20, 4, 4)[0].argmax() == 3 * 4 + 1


def test_sizes_colours_and_threads(rng):
    small = rng.random((20, 30, 3))
    images = [small, np.kron(rng.random((16, 16)), np.ones((20, 10)))]
    gist = GistDescriptors(32)
    found = make_pipeline(ImageReader(), gist).fit_transform(images)
    assert found.shape == (2, 320)
    assert found.dtype == np.float32
    assert (found > 0).all()
    assert_array_equal(clone(gist).set_params(n_jobs=2).fit_transform(images), found)
    assert len(gist.get_feature_names_out()) == 320


def test_images_without_texture_are_zeros(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    images = ImageReader(on_error="skip").fit_transform([tmp_path / "broken.png"])
    gist = GistDescriptors(16)
    assert_array_equal(gist.fit_transform(images), np.zeros((1, 320)))
    assert_allclose(gist.fit_transform([np.full((16, 16), 0.5)]), 0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"orientations": ()}, "orientations must be positive integers"),
        ({"orientations": (8, 0)}, "orientations must be positive integers"),
        ({"image_size": 8, "n_cells": 9}, "n_cells=9 is larger than image_size=8"),
        ({"image_size": 4}, "image_size"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        GistDescriptors(**options).fit([np.zeros((8, 8))])
