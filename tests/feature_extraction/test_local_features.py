"""LocalFeatures: images as rows, storage and errors."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

ARRAYS = ("offsets", "x", "y", "scale", "angle", "descriptors", "words", "image_sizes")


def make_features(counts=(3, 0, 2, 4), *, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    return LocalFeatures(
        np.append(0, np.cumsum(counts)),
        x=rng.uniform(0, 100, n),
        y=rng.uniform(0, 80, n),
        scale=rng.uniform(1, 9, n),
        angle=rng.uniform(0, 360, n),
        descriptors=(255 * rng.random((n, 5))).astype(dtype),
        words=rng.integers(0, 9, n),
        image_sizes=np.full((len(counts), 2), [100, 80]),
    )


def assert_equal_features(a, b):
    for name in ARRAYS:
        first, second = getattr(a, name), getattr(b, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.dtype == second.dtype
            assert_array_equal(first, second)


@pytest.mark.parametrize(
    "rows",
    [
        [2, 0],
        [],
        [1],
        slice(1, 3),
        slice(None, None, -1),
        np.array([True, False, False, True]),
        [0, 0, 3],
        np.array([-1, 1]),
    ],
    ids=str,
)
def test_rows_against_a_loop_over_images(rows):
    features = make_features()
    part = features[rows]
    images = np.arange(len(features))[rows]
    assert len(part) == num_samples(part) == len(images)
    assert_equal_features(part, safe_indexing(features, rows))
    for found, image in zip(part, images, strict=True):
        span = slice(features.offsets[image], features.offsets[image + 1])
        assert_array_equal(found.x, features.x[span])
        assert_array_equal(found.descriptors, features.descriptors[span])
        assert_array_equal(found.words, features.words[span])
        assert_array_equal(found.image_sizes, features.image_sizes[[image]])


def test_one_image_shares_memory():
    features = make_features()
    assert np.shares_memory(features[2].descriptors, features.descriptors)
    assert np.shares_memory(features[1:].x, features.x)
    with pytest.raises(IndexError):
        features[4]
    with pytest.raises(IndexError):
        features[[[0, 1]]]


def test_concatenate_undoes_slicing():
    features = make_features()
    assert_equal_features(LocalFeatures.concatenate(list(features)), features)
    bare = LocalFeatures([0, 1], [1], [1], [1], [1])
    both = LocalFeatures.concatenate([features, bare])
    assert both.words is None
    assert both.descriptors is None
    assert both.image_sizes is None
    assert both.n_points == features.n_points + 1
    with pytest.raises(ValueError, match="nothing to concatenate"):
        LocalFeatures.concatenate([])


def test_replace_words_and_repr():
    features = make_features()
    other = features.replace_words(np.arange(9))
    assert_array_equal(other.words, np.arange(9))
    assert other.x is features.x
    assert "n_images=4, n_points=9, n_components=5, words" in repr(features)
    assert_array_equal(features.image_of_point, [0, 0, 0, 2, 2, 3, 3, 3, 3])
    with pytest.raises(ValueError, match="words must hold 9 integers"):
        features.replace_words([1])


def test_no_image_and_no_feature():
    none = LocalFeatures([0], [], [], [], [])
    assert len(none) == none.n_points == 0
    assert list(none) == []
    empty = make_features((0, 0))
    assert [image.n_points for image in empty] == [0, 0]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_save_and_load(tmp_path, mmap, dtype):
    features = make_features(dtype=dtype)
    features.save(tmp_path / "features")
    opened = LocalFeatures.load(tmp_path / "features", mmap=mmap, verify=True)
    assert_equal_features(opened, features)
    assert not opened.x.flags.writeable
    assert_equal_features(pickle.loads(pickle.dumps(opened)), features)
    # A second save replaces the arrays even if the old ones are memory-mapped.
    opened[:2].save(tmp_path / "features")
    assert_equal_features(LocalFeatures.load(tmp_path / "features"), features[:2])
    assert_equal_features(opened, features)


def test_save_refuses_folders_with_other_content(tmp_path):
    index = SimilarityIndex(CosineSimilarity().fit(np.eye(3))).fit(np.eye(3))
    index.save(tmp_path, include_estimator=False)
    with pytest.raises(ValueError, match="in another folder"):
        make_features().save(tmp_path)
    with pytest.raises(ValueError, match="does not hold local features"):
        LocalFeatures.load(tmp_path)
    with pytest.raises(ValueError, match=r"has no index\.json"):
        LocalFeatures.load(tmp_path / "nowhere")


def test_interrupted_save_leaves_the_old_features(tmp_path, monkeypatch):
    features = make_features()
    features.save(tmp_path)

    def fail(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklearn_simlearn._core.storage.os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        features[:1].save(tmp_path)
    monkeypatch.undo()
    assert_equal_features(LocalFeatures.load(tmp_path), features)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["x", "words", "descriptors"])
def test_damage_is_found(tmp_path, name):
    make_features().save(tmp_path)
    (path,) = tmp_path.glob(f"arrays-*/{name}.npy")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="fails its checksum"):
        LocalFeatures.load(tmp_path, verify=name == "descriptors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 2, 1, 9, 9]}, "never descend"),
        ({"offsets": [1, 2, 3, 4, 9]}, "start at 0"),
        ({"offsets": np.array([], dtype=int)}, "array of n_images"),
        ({"offsets": [0.0, 9.0]}, "n_images . 1 integers"),
        ({"offsets": np.array([0, 5, 3, 4, 9], dtype=np.uint64)}, "never descend"),
        ({"x": [1.0]}, "x must hold 9 numbers"),
        ({"x": ["a"] * 9}, "x must hold 9 numbers"),
        ({"y": [np.nan] * 9}, "y must be finite"),
        ({"angle": [np.inf] * 9}, "angle must be finite"),
        ({"x": [1e300] * 9}, "x must be finite in single precision"),
        ({"scale": [0.0] * 9}, "scale must be positive"),
        ({"descriptors": np.zeros((8, 2))}, "descriptors must have 9 rows"),
        ({"descriptors": np.zeros(9)}, "descriptors must have 9 rows"),
        ({"descriptors": np.zeros((9, 2), dtype=int)}, "one of the types"),
        ({"words": [0.5] * 9}, "words must hold 9 integers"),
        ({"words": [-1] * 9}, "integers from 0"),
        ({"words": [2**31] * 9}, "integers from 0"),
        ({"image_sizes": [[1, 1]]}, "a width and a height"),
        ({"image_sizes": np.zeros((4, 2), dtype=int)}, "from 1 to"),
    ],
)
def test_bad_arrays_are_refused(change, message):
    features = make_features()
    arrays = {name: getattr(features, name) for name in ARRAYS}
    with pytest.raises(ValueError, match=message):
        LocalFeatures(**{**arrays, **change})
