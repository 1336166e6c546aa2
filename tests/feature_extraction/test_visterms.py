"""BlockVisterms: patterns, palette and blocks against naive references."""

import pickle

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_simlearn.feature_extraction import BlockVisterms, ImageReader
from sklearn_simlearn.feature_extraction._visterms import (
    block_histograms,
    local_binary_patterns,
)


def make_images(n=4, height=70, width=90, seed=0):
    rng = np.random.default_rng(seed)
    return [
        cv2.resize(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8), (width, height))
        for _ in range(n)
    ]


def naive_pattern(gray, y, x):
    """Return the number of the pattern of one pixel, computed by the definition."""
    height, width = gray.shape

    def value(v, u):
        return gray[min(max(v, 0), height - 1), min(max(u, 0), width - 1)]

    bits = []
    for k in range(8):
        v, u = y - 2 * np.sin(np.pi * k / 4), x + 2 * np.cos(np.pi * k / 4)
        v, u = round(v, 9), round(u, 9)
        v0, u0 = int(np.floor(v)), int(np.floor(u))
        b, a = v - v0, u - u0
        interpolated = (
            (1 - b) * (1 - a) * value(v0, u0)
            + (1 - b) * a * value(v0, u0 + 1)
            + b * (1 - a) * value(v0 + 1, u0)
            + b * a * value(v0 + 1, u0 + 1)
        )
        bits.append(int(interpolated > gray[y, x] - 1e-3))
    uniform = [
        code
        for code in range(256)
        if sum((code >> i & 1) != (code >> (i + 1) % 8 & 1) for i in range(8)) <= 2
    ]
    assert len(uniform) == 58
    code = sum(bit << k for k, bit in enumerate(bits))
    return uniform.index(code) if code in uniform else 58


def test_patterns_against_a_loop():
    for image in (make_images(1, 12, 15)[0], np.full((5, 7, 3), 77, dtype=np.uint8)):
        gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float64)
        found = local_binary_patterns(image)
        for y in range(gray.shape[0]):
            for x in range(gray.shape[1]):
                assert found[y, x] == naive_pattern(gray, y, x)


def test_pattern_of_flat_and_of_dark_centre():
    flat = np.full((5, 5, 3), 200, dtype=np.uint8)
    assert_array_equal(local_binary_patterns(flat), 57)  # all bits are set
    peak = flat.copy()
    peak[2, 2] = 255
    assert local_binary_patterns(peak)[2, 2] == 0


def test_histograms_of_blocks_against_a_loop():
    codes = np.random.default_rng(0).integers(0, 7, (23, 31))
    found = block_histograms(codes, 7, block_size=8, step=5)
    expected = []
    for top in range(0, 23 - 8 + 1, 5):
        for left in range(0, 31 - 8 + 1, 5):
            block = codes[top : top + 8, left : left + 8]
            expected.append(np.bincount(block.ravel(), minlength=7) / 64)
    assert_allclose(found, expected, rtol=1e-6)


def test_palette_and_blocks_against_a_loop():
    images = make_images(5, 80, 100)
    visterms = BlockVisterms(
        6, block_size=16, step=8, n_colors=5, random_state=0, n_jobs=2
    ).fit(images)
    palette = visterms.palette_
    assert palette.shape == (5, 3)
    assert palette.min() >= 0
    assert palette.max() <= 255
    pixels = images[0]
    # The first level, then smaller ones until there are fewer than 10 blocks.
    blocks = visterms._describe(pixels)
    colors = np.array(
        [
            [
                np.square(pixel.astype(float) - palette).sum(axis=1).argmin()
                for pixel in row
            ]
            for row in pixels
        ]
    )
    first = colors[:16, :16]
    assert_allclose(blocks[0, 59:], np.bincount(first.ravel(), minlength=5) / 256)
    assert_allclose(blocks.sum(axis=1), 2, rtol=1e-5)
    n_blocks, height, width = 0, 80, 100
    while True:
        n = ((height - 16) // 8 + 1) * ((width - 16) // 8 + 1)
        if n_blocks and (min(height, width) < 16 or n < 10):
            break
        n_blocks += n
        height, width = round(height / 1.25), round(width / 1.25)
    assert len(blocks) == n_blocks
    H = visterms.transform(images)
    assert_array_equal(H.sum(axis=1), n_blocks)
    words = visterms.vocabulary_.find_words(blocks)
    assert_array_equal(H[[0]].toarray()[0], np.bincount(words, minlength=6))


def test_small_long_and_unreadable_images():
    images = [*make_images(3), np.ones((1, 1)), np.ones((3, 200)), b"no image"]
    read = ImageReader(on_error="skip").fit_transform(images)
    visterms = BlockVisterms(4, n_colors=3, random_state=0)
    H = visterms.fit_transform(read)
    assert_array_equal(H.toarray().any(axis=1), [True] * 5 + [False])
    assert abs(visterms.transform(read) - H).max() == 0


def test_a_palette_of_more_colours_than_pixels():
    with pytest.raises(
        ValueError, match=r"n_colors=20 requires .* as many pixels; got 3"
    ):
        BlockVisterms(3).fit([np.zeros((1, 1, 3), dtype=np.uint8)] * 3)


def test_conventions_of_estimators():
    images = make_images()
    visterms = BlockVisterms(4, n_colors=3, random_state=0)
    with pytest.raises(NotFittedError):
        visterms.transform(images)
    for name in visterms.get_params():
        bad = clone(visterms).set_params(**{name: object()})
        with pytest.raises(ValueError, match=name):
            bad.fit(images)
    H = visterms.fit_transform(images)
    assert list(visterms.get_feature_names_out()) == [
        f"blockvisterms{i}" for i in range(4)
    ]
    copy = pickle.loads(pickle.dumps(visterms))
    assert abs(copy.transform(images) - H).max() == 0
    # A sparse result as a frame raises an error, but only in `transform`.
    framed = clone(visterms).set_output(transform="pandas").fit(images)
    with pytest.raises(ValueError, match="outputs a scipy sparse matrix"):
        framed.transform(images)
    again = clone(visterms).set_params(n_jobs=2).fit_transform(images)
    assert abs(again - H).max() == 0
