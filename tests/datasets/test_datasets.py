"""Data sets: documented properties and errors."""

import sys
import tracemalloc
import zipfile
from contextlib import contextmanager
from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg, sparse
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits

from sklearn_simlearn.datasets import (
    _digit_words,
    _places,
    _visual_words,
    load_definitions,
    load_digit_words,
    load_npz,
    load_places,
    make_visual_words,
)


def tfidf_cosine_map(X, y):
    """Return the leave-one-out mAP of the cosine of tf-idf vectors."""
    X = X.toarray()
    X *= np.log(len(X) / np.maximum(1, np.count_nonzero(X, axis=0)))
    X /= np.maximum(1e-12, np.linalg.norm(X, axis=1, keepdims=True))
    S = X @ X.T
    np.fill_diagonal(S, -np.inf)
    ranked = np.argsort(-S, axis=1, kind="stable")[:, :-1]
    relevant = (y[ranked] == y[:, None]) & (y >= 0)[:, None]
    precision = np.cumsum(relevant, axis=1) / np.arange(1, len(X))
    n_relevant = relevant.sum(axis=1)
    is_query = n_relevant > 0
    return np.mean((precision * relevant).sum(axis=1)[is_query] / n_relevant[is_query])


def assert_same_csr(A, B):
    assert A.shape == B.shape
    assert_array_equal(A.indptr, B.indptr)
    assert_array_equal(A.indices, B.indices)
    assert_array_equal(A.data, B.data)


# -- load_digit_words --


def test_digit_words_bunch():
    digits = load_digit_words(n_words=30)
    assert isinstance(digits.data, sparse.csr_array)
    assert digits.data.shape == (1797, 30)
    assert digits.data.dtype == np.float64
    assert digits.data.indices.dtype == np.int32
    assert digits.data.has_canonical_format
    assert_array_equal(digits.data.data, np.round(digits.data.data))
    assert digits.data.data.min() == 1
    assert digits.words.shape == (30, 9)
    assert digits.images.shape == (1797, 8, 8)
    assert_array_equal(np.unique(digits.target), digits.target_names)
    assert ":Number of words: 30" in digits.DESCR


def test_digit_words_tuple():
    digits = load_digit_words(n_words=30)
    X, y = load_digit_words(n_words=30, return_X_y=True)
    assert_same_csr(X, digits.data)
    assert_array_equal(y, digits.target)


@pytest.mark.parametrize("position", [0.0, 0.5])
def test_digit_words_counts_nearest_words(position):
    # Compute one image by the definition, patch by patch.
    digits = load_digit_words(n_words=40, position=position)
    expected = np.zeros(40)
    image = digits.images[3]
    for row in range(6):
        for column in range(6):
            patch = image[row : row + 3, column : column + 3].ravel()
            if patch.std() < 1:
                continue
            descriptor = patch - patch.mean()
            descriptor /= np.linalg.norm(descriptor)
            if position:
                place = np.array([row, column]) / 2.5 - 1
                descriptor = np.append(descriptor, position * place)
            distance = np.linalg.norm(digits.words - descriptor, axis=1)
            expected[distance.argmin()] += 1
    assert expected.sum() < 36  # the image has background to drop
    assert_array_equal(digits.data.toarray()[3], expected)


@pytest.mark.parametrize(("position", "expected"), [(0.0, 0.47), (0.3, 0.61)])
def test_digit_words_leave_room_to_learn(position, expected):
    # The figures of the docstring.
    X, y = load_digit_words(position=position, return_X_y=True)
    assert_allclose(tfidf_cosine_map(X, y), expected, atol=0.01)


def test_digit_words_do_not_depend_on_the_number_of_threads():
    digits = {}
    for n_threads in (1, 2):
        _digit_words._count_words.cache_clear()
        with threadpool_limits(limits=n_threads):
            digits[n_threads] = load_digit_words()
    assert_same_csr(digits[1].data, digits[2].data)
    assert_array_equal(digits[1].words, digits[2].words)


def test_digit_words_are_made_once_and_given_as_copies():
    first = load_digit_words(n_words=20)
    n_made = _digit_words._count_words.cache_info().misses
    for name in ("images", "target", "target_names", "words"):
        first[name][:] = -1
    first.data.data[:] = -1
    first.data.indices[:] = 0
    second = load_digit_words(n_words=20)
    assert _digit_words._count_words.cache_info().misses == n_made
    for name in ("images", "target", "target_names"):
        assert second[name].min() == 0
    assert not np.any(second.words == -1)
    assert second.data.data.min() == 1
    assert second.data.indices.max() == 19


@pytest.mark.parametrize("wrong", [{"n_words": 0}, {"position": -1.0}])
def test_digit_words_refuse_wrong_parameters(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        load_digit_words(**wrong)


# -- make_visual_words --

# With these parameters, every image shows exactly the words of its object.
PLAIN = {"visibility": 1.0, "burst": 0.0, "noise": 0.0, "n_clutter": 0}


def test_visual_words_bunch_and_tuple():
    scenes = make_visual_words(6, 4, n_distractors=5, random_state=0)
    assert isinstance(scenes.data, sparse.csr_array)
    assert scenes.data.shape == (29, 1000)
    assert scenes.data.indices.dtype == scenes.data.indptr.dtype == np.int32
    scenes.data.check_format(full_check=True)
    assert scenes.words.shape == (1000, 16)
    assert scenes.objects.shape == (6, 50)
    assert scenes.target.dtype == np.int64
    X, y = make_visual_words(6, 4, n_distractors=5, return_X_y=True, random_state=0)
    assert_same_csr(X, scenes.data)
    assert_array_equal(y, scenes.target)


def test_visual_words_have_sorted_indices_without_repeats():
    X, _ = make_visual_words(n_words=60, return_X_y=True, random_state=0)
    # Built again, because the flag of X was set without a check.
    X = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    assert X.has_canonical_format


@pytest.mark.parametrize("dtype", ["float32", np.float64])
def test_visual_words_dtype(dtype):
    scenes = make_visual_words(3, 2, dtype=dtype, random_state=0)
    assert scenes.data.dtype == scenes.words.dtype == np.dtype(dtype)
    assert_same_csr(scenes.data, make_visual_words(3, 2, random_state=0).data)


def test_visual_words_random_state():
    def make(random_state):
        return make_visual_words(3, (1, 9), n_distractors=4, random_state=random_state)

    first, second, other = make(7), make(7), make(8)
    assert_same_csr(first.data, second.data)
    for name in ("target", "words", "objects"):
        assert_array_equal(first[name], second[name])
        assert not np.array_equal(first[name], other[name])
    rng = np.random.RandomState(7)
    assert_same_csr(make(rng).data, first.data)
    assert not np.array_equal(make(rng).words, first.words)


def test_plain_images_are_their_objects(monkeypatch):
    # Small blocks, so that there are many borders of blocks.
    monkeypatch.setattr(_visual_words, "BLOCK_SIZE", 100)
    scenes = make_visual_words(
        20, (1, 9), n_words_per_object=12, random_state=0, **PLAIN
    )
    assert_array_equal(np.diff(scenes.data.indptr), 12)
    assert_array_equal(
        scenes.data.indices.reshape(-1, 12), scenes.objects[scenes.target]
    )
    assert_array_equal(scenes.data.data, 1)


def test_keys_beyond_32_bits():
    # With one word per image, blocks are so long that image * n_words exceeds 2 ** 31.
    scenes = make_visual_words(
        10, 14_000, n_words=20_000, n_words_per_object=1, random_state=0, **PLAIN
    )
    assert_array_equal(scenes.data.indices, scenes.objects[scenes.target, 0])


def test_shuffle_keeps_the_images():
    sorted_y = make_visual_words(5, 3, n_distractors=4, shuffle=False).target
    assert_array_equal(sorted_y, np.append(np.repeat(np.arange(5), 3), [-1] * 4))
    y = make_visual_words(5, 3, n_distractors=4, random_state=0).target
    assert not np.array_equal(y, sorted_y)
    assert_array_equal(np.bincount(y + 1), [4] + [3] * 5)


def test_number_of_images_per_object():
    def sizes(n_images_per_object, skew=0.0):
        scenes = make_visual_words(
            500, n_images_per_object, skew=skew, n_words_per_object=1, random_state=0
        )
        return np.bincount(scenes.target)

    assert_array_equal(sizes(3), 3)
    even, skewed = sizes((2, 6)), sizes((2, 6), skew=2.0)
    assert_array_equal(np.unique(even), [2, 3, 4, 5, 6])
    assert_allclose(np.bincount(even)[2:], 100, atol=40)
    assert_array_equal(np.unique(skewed), [2, 3, 4, 5, 6])
    assert np.mean(skewed == 2) > 0.5


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("n_words", [2, 3, 1000])
def test_alias_table_is_zipfs_law(n_words, exponent):
    zipf = _visual_words._Zipf(n_words, exponent)
    probability = zipf.keep + np.bincount(zipf.alias, 1 - zipf.keep, minlength=n_words)
    expected = np.arange(1, n_words + 1.0) ** -exponent
    assert_allclose(probability / n_words, expected / expected.sum(), rtol=1e-9)
    assert zipf.keep.min() >= 0
    assert zipf.keep.max() <= 1 + 1e-9


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0])
def test_clutter_follows_zipfs_law(exponent):
    scenes = make_visual_words(
        1,
        n_distractors=4000,
        burst=0.0,
        zipf_exponent=exponent,
        n_words=500,
        random_state=0,
    )
    total = scenes.data[scenes.target == -1].sum(axis=0)
    rank = np.arange(1, 501)
    slope = np.polyfit(np.log(rank), np.log(total), 1)[0]
    assert_allclose(slope, -exponent, atol=0.03)


def test_words_of_objects_are_drawn_by_frequency():
    scenes = make_visual_words(2000, 1, n_words_per_object=5, random_state=0)
    n_objects_with = np.bincount(scenes.objects.ravel(), minlength=1000)
    assert n_objects_with[0] > n_objects_with[10] > n_objects_with[100:110].mean()
    # Rare words are almost never drawn twice, so their frequencies in sets follow
    # Zipf's law.
    assert_allclose(
        n_objects_with[100:200].sum() / n_objects_with[400:800].sum(), 1, rtol=0.1
    )


@pytest.mark.parametrize("n_words_per_object", [1, 30, 60])
def test_objects_are_sets(n_words_per_object):
    objects = make_visual_words(
        40,
        1,
        n_words=60,
        n_words_per_object=n_words_per_object,
        zipf_exponent=2.0,
        random_state=0,
    ).objects
    assert objects.dtype == np.int32
    assert np.all(np.diff(objects, axis=1) > 0)
    assert objects.min() >= 0
    assert objects.max() < 60


def test_race_and_redraws_give_the_same_law(monkeypatch):
    def inclusion(n_redraws):
        monkeypatch.setattr(_visual_words, "N_REDRAWS", n_redraws)
        rng = np.random.default_rng(0)
        zipf = _visual_words._Zipf(20, 1.0)
        objects = _visual_words._draw_objects(4000, 6, zipf, rng)
        return np.bincount(objects.ravel(), minlength=20) / 4000

    assert_allclose(inclusion(0), inclusion(200), atol=0.04)


def test_visibility_is_the_share_of_words_shown():
    scenes = make_visual_words(200, 10, random_state=0, **PLAIN | {"visibility": 0.3})
    n_seen = np.diff(scenes.data.indptr)
    assert_allclose(n_seen.mean(), 0.3 * 50, rtol=0.02)
    assert_allclose(n_seen.var(), 0.3 * 0.7 * 50, rtol=0.1)
    belongs = [
        np.isin(scenes.data[[i]].indices, scenes.objects[scenes.target[i]]).all()
        for i in range(100)
    ]
    assert all(belongs)


def test_bursts_are_geometric():
    scenes = make_visual_words(100, 10, random_state=0, **PLAIN | {"burst": 0.4})
    share = np.bincount(scenes.data.data.astype(int)) / scenes.data.nnz
    assert share[0] == 0
    assert_allclose(share[1:5], 0.6 * 0.4 ** np.arange(4), atol=0.01)


@pytest.mark.parametrize("n_words", [1000, 1001, 1002])
def test_noise_goes_to_neighbours(n_words):
    # With noise 1, every word is replaced by a neighbour of a word of the object. The
    # last of 1001 words is alone in its group and is never replaced.
    scenes = make_visual_words(
        100,
        1,
        n_words=n_words,
        n_words_per_object=1,
        zipf_exponent=0.0,
        shuffle=False,
        random_state=0,
        **PLAIN | {"noise": 1.0},
    )
    true, seen = scenes.objects[:, 0], scenes.data.indices
    alone = (true == 1000) & (n_words == 1001)
    assert_array_equal(true == seen, alone)
    assert_array_equal(true // 4, seen // 4)


def test_noise_in_a_group_cut_short():
    # Seven words in groups of four: the last group has three.
    keys = np.repeat(np.arange(14, dtype=np.int32), 3000)
    noisy = keys.copy()
    _visual_words._mistake(noisy, 7, 4, 1.0, np.random.default_rng(0))
    moves = np.zeros((14, 14))
    np.add.at(moves, (keys, noisy), 1 / 3000)
    image = (np.ones((4, 4)) - np.eye(4)) / 3, (np.ones((3, 3)) - np.eye(3)) / 2
    expected = linalg.block_diag(*image * 2)
    assert_allclose(moves, expected, atol=0.04)
    assert_array_equal(moves > 0, expected > 0)


def test_noise_is_the_share_of_occurrences_moved():
    # In a large vocabulary, neighbours almost never belong to the object, too.
    scenes = make_visual_words(
        200,
        5,
        n_words=100_000,
        zipf_exponent=0.0,
        random_state=0,
        **PLAIN | {"noise": 0.3},
    )
    true = sparse.csr_array(
        (np.ones(10_000), scenes.objects.ravel(), np.arange(0, 10_001, 50)),
        shape=(200, 100_000),
    )
    kept = (scenes.data * true[scenes.target]).sum() / scenes.data.sum()
    assert_allclose(kept, 0.7, atol=0.01)


@pytest.mark.parametrize("n_dims", [1, 2, 16, 70])
@pytest.mark.parametrize("group_size", [1, 4, 7])
def test_nearest_words_are_the_group(n_dims, group_size):
    words = make_visual_words(
        1, 1, n_words=90, group_size=group_size, n_dims=n_dims, random_state=0
    ).words
    distance = np.linalg.norm(words[:, None] - words, axis=2)
    group = np.arange(90) // group_size
    ranked = np.argsort(distance, axis=1)
    for i in range(90):
        members = np.flatnonzero(group == group[i])
        assert ranked[i, 0] == i
        assert_array_equal(np.sort(ranked[i, : len(members)]), members)


def test_distractors_show_clutter_alone():
    # With many equally frequent words, objects have few words in common by chance.
    scenes = make_visual_words(
        10,
        20,
        n_distractors=200,
        n_words=20_000,
        zipf_exponent=0.0,
        noise=0.0,
        random_state=0,
    )
    objects = sparse.csr_array(
        (np.ones(500), scenes.objects.ravel(), np.arange(0, 501, 50)),
        shape=(10, 20_000),
    )
    overlap = ((scenes.data > 0) @ objects.T).toarray()
    is_distractor = scenes.target == -1
    assert np.count_nonzero(is_distractor) == 200
    assert overlap[is_distractor].max() <= 3
    own = overlap[~is_distractor, scenes.target[~is_distractor]]
    assert own.min() > 10
    # Distractors have the same length as other images.
    n_occurrences = scenes.data.sum(axis=1)
    assert_allclose(
        n_occurrences[is_distractor].mean(),
        n_occurrences[~is_distractor].mean(),
        rtol=0.05,
    )


def test_default_problem_is_of_medium_difficulty():
    X, y = make_visual_words(n_distractors=200, return_X_y=True, random_state=0)
    assert 0.3 < tfidf_cosine_map(X, y) < 0.7


def test_memory_is_that_of_the_result():
    tracemalloc.start()
    try:
        X, y = make_visual_words(
            1000,
            10,
            n_distractors=20_000,
            n_words=50_000,
            return_X_y=True,
            random_state=0,
        )
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    result = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
    assert result > 14e6  # large enough for a meaningful bound
    for part in (X.data, X.indices):
        whole = part if part.base is None else part.base
        assert whole.nbytes == part.nbytes  # no larger array is referenced
    assert held < result + 1e6
    # To resize an array, NumPy 2.5 and newer copy it.
    copied = X.data.nbytes if np.lib.NumpyVersion(np.__version__) >= "2.5.0" else 0
    assert peak < 1.1 * result + copied + 10e6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_images_per_object": (3, 2)}, "1 <= low <= high; got \\(3, 2\\)"),
        ({"n_images_per_object": (0, 2)}, "1 <= low <= high"),
        ({"n_images_per_object": (1, 2, 3)}, "two ints"),
        ({"n_images_per_object": (1.0, 2)}, "two ints"),
        ({"n_images_per_object": 0}, "n_images_per_object"),
        ({"n_words_per_object": 1001}, "at most n_words; got 1001 of 1000"),
        ({"dtype": int}, "float32 or float64; got int64"),
        ({"burst": 1.0}, "burst"),
        ({"visibility": 0.0}, "visibility"),
        ({"noise": 1.1}, "noise"),
    ],
)
def test_visual_words_refuse_wrong_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_visual_words(**wrong)


# -- load_npz --

X_CSR = sparse.csr_array(np.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 0], [0, 0, 0]]))
LABELS = np.array([0, 0, 1, -1])
PARTS = {
    "data": X_CSR.data,
    "indices": X_CSR.indices,
    "indptr": X_CSR.indptr,
    "shape": np.array(X_CSR.shape),
}
Y_PARTS = {"y_" + part: array for part, array in PARTS.items()}


@pytest.fixture
def save(tmp_path):
    def save(**arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        return path

    return save


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        (">f4", "float32"),
        ("float16", "float64"),
        ("int32", "float64"),
        ("uint8", "float64"),
        ("bool", "float64"),
    ],
)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_npz_samples(save, stored, expected, is_sparse):
    if is_sparse:
        path = save(**PARTS | {"data": X_CSR.data.astype(stored)}, y=LABELS)
    else:
        path = save(X=X_CSR.toarray().astype(stored), y=LABELS)
    data = load_npz(path)
    assert data.data.dtype == expected
    assert data.data.dtype.isnative
    assert sparse.issparse(data.data) == is_sparse
    X = data.data.toarray() if is_sparse else data.data
    assert_array_equal(X, X_CSR.toarray().astype(stored))
    assert_array_equal(data.target, LABELS)
    assert data.query_mask is None


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_npz_written_by_scipy(tmp_path, kind):
    path = tmp_path / "scipy.npz"
    sparse.save_npz(path, kind(X_CSR))
    with np.load(path) as parts:
        np.savez(path, **parts, y=LABELS)
    data = load_npz(str(path))
    assert isinstance(data.data, sparse.csr_array)
    assert_same_csr(data.data, X_CSR)


def test_npz_sums_repeated_entries(save):
    path = save(
        data=[1, 2, 4], indices=[1, 0, 1], indptr=[0, 3, 3], shape=[2, 2], y=[0, 1]
    )
    X = load_npz(path).data
    assert X.has_canonical_format
    assert_array_equal(X.toarray(), [[2, 5], [0, 0]])


@pytest.mark.parametrize("index_dtype", [np.int64, np.uint8, np.uint64])
def test_npz_index_types(save, index_dtype):
    parts = {
        part: array.astype(index_dtype)
        for part, array in PARTS.items()
        if part != "data"
    }
    data = load_npz(save(**PARTS | parts, y=LABELS))
    assert_same_csr(data.data, X_CSR)


@pytest.mark.parametrize(
    "y", [[3, 3, 0, -1], ["a", "a", "b", "ö"], [True, True, False, False]], ids=str
)
def test_npz_labels(save, y):
    target = load_npz(save(X=np.eye(4), y=y)).target
    assert_array_equal(target, y)
    assert target.dtype.kind in "iU"


@pytest.mark.parametrize("order", "<>")
def test_labels_that_are_not_characters(order, save):
    y = np.array([0x110000, 1, 2, 3], dtype=f"{order}u4").view(f"{order}U1")
    with pytest.raises(ValueError, match="'y' holds numbers that are not characters"):
        load_npz(save(X=np.eye(4), y=y))
    labels = ["\ud800", "a", "\ud800", "a"]  # escaped in messages
    assert load_npz(save(X=np.eye(4), y=labels)).target.tolist() == labels


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.float64])
def test_npz_relevance(save, dtype):
    relevance = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=dtype)
    target = load_npz(save(X=np.eye(4), y=relevance)).target
    assert_array_equal(target, relevance)
    assert target.dtype == (np.float32 if dtype == np.float32 else np.float64)


def test_npz_sparse_relevance(save):
    target = load_npz(save(**PARTS, **Y_PARTS)).target
    assert isinstance(target, sparse.csr_array)
    assert_same_csr(target, X_CSR)


def test_npz_query_mask(save):
    mask = np.array([True, False, True, False])
    data = load_npz(save(X=np.eye(4), y=LABELS, query_mask=mask))
    assert_array_equal(data.query_mask, mask)
    assert data.query_mask.dtype == bool


def test_npz_ignores_other_keys(save):
    data = load_npz(save(X=np.eye(4), y=LABELS, shape=[1], note="mine"))
    assert_array_equal(data.data, np.eye(4))


def without(parts, key):
    return {name: array for name, array in parts.items() if name != key}


with_nan = np.eye(4)
with_nan[1, 2] = np.nan
with_inf = PARTS["data"].copy()
with_inf[0] = np.inf
objects = np.array([None, "a", 1, 2.0], dtype=object)

# Each file, with the key, the fault and the remedy in the message.
BAD_FILES = {
    "no X": ({"Z": [1], "y": LABELS}, "X", "is missing", "under X, or a CSR"),
    "no y": ({"X": np.eye(4), "Y": [1]}, "y", "missing among.*'Y'", "under y"),
    "two X": (PARTS | {"X": np.eye(4), "y": LABELS}, "X", "conflicts with", "one of"),
    "two y": ({"X": np.eye(4), "y": LABELS} | Y_PARTS, "y", "conflicts with", "one of"),
    "object X": ({"X": objects, "y": LABELS}, "X", "Python objects", "by its parts"),
    "sparse X": ({"X": X_CSR, "y": LABELS}, "X", "Python objects", "by its parts"),
    "object y": ({"X": np.eye(4), "y": objects}, "y", "Python objects", "or strings"),
    "1-D X": ({"X": np.ones(4), "y": LABELS}, "X", r"1 dimension", "with 2"),
    "3-D y": ({"X": np.eye(4), "y": np.ones((4, 1, 1))}, "y", "3 dim", "1 or 2"),
    "0-D y": ({"X": np.eye(4), "y": 1}, "y", "0 dim", "1 or 2"),
    "no rows": ({"X": np.ones((0, 3)), "y": [1]}, "X", "empty, of sh", "one sample"),
    "text X": ({"X": [["a"]], "y": [1]}, "X", "of type <U1", "real numbers"),
    "complex X": ({"X": [[1j]], "y": [1]}, "X", "complex128", "real numbers"),
    "NaN": ({"X": with_nan, "y": LABELS}, "X", "NaN or infinity", "drop"),
    "inf": (PARTS | {"data": with_inf, "y": LABELS}, "data", "infinity", "drop"),
    "NaN in y": ({"X": np.eye(4), "y": with_nan}, "y", "NaN", "drop"),
    "text y": ({"X": [[1]], "y": [["a"]]}, "y", "of type <U1", "real numbers"),
    "float y": ({"X": np.eye(4), "y": np.ones(4)}, "y", "float64", "astype.int"),
    "bytes y": ({"X": [[1]], "y": [b"a"]}, "y", "type .S1", "astype.str"),
    "short y": (
        {"X": np.eye(4), "y": [1]},
        "y",
        "1 rows and X has 4",
        "one per sample",
    ),
    "int mask": (
        {"X": np.eye(4), "y": LABELS, "query_mask": [0, 1, 1, 0]},
        "query_mask",
        "int64",
        "astype.bool",
    ),
    "2-D mask": (
        {"X": np.eye(4), "y": LABELS, "query_mask": np.eye(4, dtype=bool)},
        "query_mask",
        "2 dim",
        "with 1",
    ),
    "short mask": (
        {"X": np.eye(4), "y": LABELS, "query_mask": [True]},
        "query_mask",
        "1 entries and X has 4",
        "one per sample",
    ),
}

# The same for the parts of a CSR array, used as X and as y.
BAD_PARTS = {
    "csc": ({"format": np.array(b"csc")}, "format", "is b'csc'", "tocsr"),
    "2-D": ({"data": np.ones((5, 1))}, "data", "2 dim", "with 1"),
    "text": ({"data": ["a"] * 5}, "data", "type <U1", "real numbers"),
    "float": ({"indices": PARTS["indices"] * 1.0}, "indices", "float64", "integers"),
    "3-D": ({"shape": [4, 3, 1]}, "shape", r"\[4, 3, 1\]", "rows and columns"),
    "negative": ({"shape": [4, -3]}, "shape", r"\[4, -3\]", "rows and columns"),
    "huge": ({"shape": np.uint64([4, 2**63])}, "shape", "922", "rows and columns"),
    "rows": ({"shape": [5, 3]}, "indptr", "5 entries for 5 rows", "one CSR"),
    "start": ({"indptr": [1, 2, 3, 5, 5]}, "indptr", "ascend from 0", "one CSR"),
    "order": ({"indptr": [0, 3, 2, 5, 5]}, "indptr", "ascend from 0", "one CSR"),
    "unsigned": (
        {"indptr": np.uint32([0, 3, 2, 5, 5])},
        "indptr",
        "ascend from 0",
        "one CSR",
    ),
    "end": ({"indptr": [0, 2, 3, 4, 4]}, "data", "5 entries, but .* 4", "one CSR"),
    "data": ({"data": np.ones(4)}, "data", "4 entries, but .* 5", "one CSR"),
    "indices": ({"indices": [0]}, "indices", "1 entries, but .* 5", "one CSR"),
    "above": ({"indices": [0, 2, 3, 0, 1]}, "indices", r"outside 0\.\.2", "one CSR"),
    "below": ({"indices": [0, 2, -1, 0, 1]}, "indices", r"outside 0\.\.2", "one CSR"),
}


def check_refused(path, key, fault, remedy, max_bytes=2**33):
    with pytest.raises(ValueError, match=f"'{key}' .*{fault}.*; .*{remedy}") as info:
        load_npz(path, max_bytes=max_bytes)
    message = str(info.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@pytest.mark.parametrize("name", BAD_FILES)
def test_npz_refuses_bad_files(save, name):
    arrays, *expected = BAD_FILES[name]
    check_refused(save(**arrays), *expected)


@pytest.mark.parametrize("name", BAD_PARTS)
@pytest.mark.parametrize("prefix", ["", "y_"])
def test_npz_refuses_inconsistent_parts(save, name, prefix):
    wrong, key, *expected = BAD_PARTS[name]
    arrays = {prefix + part: array for part, array in (PARTS | wrong).items()}
    other = {"X": np.eye(4)} if prefix else {"y": LABELS}
    check_refused(save(**arrays, **other), prefix + key, *expected)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("prefix", ["", "y_"])
def test_npz_refuses_missing_parts(save, part, prefix):
    arrays = {prefix + name: array for name, array in without(PARTS, part).items()}
    other = {"X": np.eye(4)} if prefix else {"y": LABELS}
    needed = f"needs {prefix}data, {prefix}indices, {prefix}indptr, {prefix}shape"
    check_refused(save(**arrays, **other), prefix + part, "is missing", needed)


def test_npz_missing_file(tmp_path):
    for path in (tmp_path / "nowhere.npz", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no such file\. Check the path"):
            load_npz(path)


def text(path):
    path.write_text("X,y\n1,2\n")


def nothing(path):
    path.write_bytes(b"")


def npy(path):
    with path.open("wb") as file:
        np.save(file, np.eye(3))


def cut_short(path):
    np.savez(path, X=np.eye(4), y=LABELS)
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize("write", [text, nothing, npy, cut_short])
def test_npz_refuses_other_formats(tmp_path, write):
    path = tmp_path / "other.npz"
    write(path)
    with pytest.raises(ValueError, match=r"not an \.npz file.*\. Write one with numpy"):
        load_npz(path)


def test_npz_refuses_members_that_are_not_arrays(tmp_path):
    path = tmp_path / "zip.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", "1 2 3")
    check_refused(path, "X", "is not a NumPy array", "numpy.savez")


def write_npz(path, **members):
    """Write zip members from bytes, with correct checksums."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)


def npy_bytes(header, content=b"", version=1):
    """Return an .npy file with a given header."""
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def header_of(shape, descr="<f8"):
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}".encode()


BAD_HEADERS = {
    "more than any memory": header_of((2**50, 2**9)),
    "more than an int64 counts": header_of((2**62, 8)),
    "more than an int64 holds": header_of((10**30, 2)),
    "a negative size": header_of((-1, -8)),
    "no sizes": header_of("'ab'"),
    "no type": header_of((1, 1), 3.5),
    "an unknown type": header_of((1, 1), "<q8"),
    "a type of too many parts": header_of((1, 1), [("a", "<f8", 1, 2)]),
    "no end": b"{'descr': '<f8', 'shape': (1, 1",
    "an open string": b"{'descr': '<f8",
    "deep brackets": b"[" * 9000,
    "another literal": b"[1, 2]",
    "an odd escape": b"{'descr': '\\d'}",
    "nothing": b"",
    "not text": b"\xff\x00\x80",
}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_npz_refuses_bad_headers(tmp_path, header, version):
    path = tmp_path / "header.npz"
    write_npz(path, X=npy_bytes(header, bytes(8), version))
    check_refused(path, "X", "is damaged", "write the file again")


def test_npz_reads_no_further_than_a_header_may_be_long(tmp_path):
    path = tmp_path / "header.npz"
    write_npz(path, X=npy_bytes(bytes(2**25), version=2))
    assert path.stat().st_size < 2**16
    with traced_memory() as peak:
        check_refused(path, "X", "is damaged", "write the file again")
    assert peak() < 2**20


@contextmanager
def traced_memory():
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_npz_that_expands_is_refused_before_it_does(tmp_path):
    path = tmp_path / "large.npz"
    np.savez_compressed(path, X=np.zeros((2**11, 2**11)), y=np.zeros(2**11, int))
    assert path.stat().st_size < 2**17
    with traced_memory() as peak:
        check_refused(path, "X", f"needs {2**25} bytes", "larger max_bytes", 2**24)
    assert peak() < 2**20
    for max_bytes in (2**25 + 2**14, None):
        assert load_npz(path, max_bytes=max_bytes).data.nbytes == 2**25
    check_refused(
        path, "y", r"16384 bytes, but .* leaves 16383", "max_b", 2**25 + 16383
    )


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.float16])
def test_npz_counts_converted_bytes(save, dtype):
    path = save(X=np.ones((100, 10), dtype=dtype), y=np.arange(100))
    stored = 1000 * np.dtype(dtype).itemsize
    needed = stored + 8 * 1000 + 8 * 100
    assert load_npz(path, max_bytes=needed).data.nbytes == 8000
    for max_bytes, key in ((stored - 1, "X"), (stored + 7999, "X"), (needed - 1, "y")):
        check_refused(path, key, "needs .* bytes", "max_bytes", max_bytes)


def declare(path, n_bytes):
    """Set the declared size of the first member of the zip to `n_bytes`."""
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02") + 24
    content[place : place + 4] = n_bytes.to_bytes(4, "little")
    path.write_bytes(content)


@pytest.mark.parametrize(("n_stored", "n_declared"), [(2**22, 8), (8, 2**22)])
def test_npz_whose_declared_size_is_wrong(tmp_path, n_stored, n_declared):
    path = tmp_path / "wrong.npz"
    header = header_of((n_declared // 8, 1))
    write_npz(path, X=npy_bytes(header, bytes(n_stored)), y=b"")
    declare(path, len(npy_bytes(header)) + n_declared)
    with traced_memory() as peak:
        check_refused(path, "X", "is damaged", "write the file again")
    assert peak() < n_declared + 2**20


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_refuses_other_compressions(tmp_path, method):
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("X.npy", npy_bytes(header_of((1, 1)), bytes(8)))
    check_refused(path, "X", f"method {method} of zip", "numpy.savez_compressed")


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, "8 GiB"])
def test_npz_refuses_bad_bounds(save, max_bytes):
    with pytest.raises(ValueError, match="'max_bytes' parameter"):
        load_npz(save(X=np.eye(4), y=LABELS), max_bytes=max_bytes)


def test_npz_column_major(save):
    X = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    data = load_npz(save(X=X, y=LABELS)).data
    assert_array_equal(data, X)
    assert data.flags.f_contiguous


def test_npz_of_several_pieces(save, monkeypatch):
    monkeypatch.setattr("sklearn_simlearn.datasets._npz.PIECE", 1000)
    X = np.random.default_rng(0).random((4, 2001))
    assert_array_equal(load_npz(save(X=X, y=LABELS)).data, X)


def damage(sound, rng):
    """Overwrite, delete or insert some bytes."""
    place, length = rng.integers(len(sound)), rng.integers(1, 9)
    written = rng.bytes(length if rng.random() < 0.8 else 0)
    n_cut = length if rng.random() < 0.8 else 0
    return sound[:place] + written + sound[place + n_cut :]


def load_damaged(path):
    """Return the error message of a file, or "" if it loads."""
    message = ""
    try:
        load_npz(path, max_bytes=2**20)
    except ValueError as error:
        message = str(error)
    assert message == "" or message.startswith(f"{path}: ")
    return message


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
def test_npz_damage_is_a_value_error(tmp_path, savez):
    # For any damage, the file loads or the message names the file.
    path = tmp_path / "damaged.npz"
    savez(path, **PARTS, y=LABELS)
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(500):
        path.write_bytes(damage(sound, rng))
        messages.append(load_damaged(path))
    assert sum("is damaged; write the file again" in m for m in messages) > 30
    assert sum("not an .npz file" in m for m in messages) > 30


def test_npz_damage_of_the_arrays_is_a_value_error(tmp_path):
    # The checksums of the zip are correct here, so the headers must be checked.
    path = tmp_path / "damaged.npz"
    np.savez(path, **PARTS, y=LABELS)
    with zipfile.ZipFile(path) as archive:
        sound = {key: archive.read(f"{key}.npy") for key in [*PARTS, "y"]}
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(500):
        key = rng.choice(list(sound))
        write_npz(path, **sound | {key: damage(sound[key], rng)})
        messages.append(load_damaged(path))
    assert len(set(messages)) > 10
    assert sum("is damaged; write the file again" in m for m in messages) > 100


def test_places_are_photographs_with_their_spots():
    places = load_places()
    assert places.images.shape == (345, 96, 128, 3)
    assert places.images.dtype == np.uint8
    assert places.data.shape == (345, 200)
    assert_array_equal(np.bincount(places.target), 5)
    assert_array_equal(np.bincount(places.place), 15)
    assert_array_equal(places.place, places.target // 3)
    for place, spot in zip(places.place, places.target, strict=True):
        name = places.target_names[spot]
        assert name.startswith(places.place_names[place])
    X, y = load_places(return_X_y=True)
    assert_same_csr(X, places.data)
    assert_array_equal(y, places.target)


def test_views_of_a_spot_look_alike_and_no_two_are_the_same():
    places = load_places()
    small = places.images.reshape(345, 6, 16, 8, 16, 3).mean(axis=(2, 4))
    small = small.reshape(345, -1)
    distance = cdist(small, small)
    np.fill_diagonal(distance, np.inf)
    assert distance.min() > 50
    # The mean colours of 6 x 8 blocks find the spot in half of the cases; chance is 1
    # in 86.
    nearest = distance.argmin(axis=1)
    assert np.mean(places.target[nearest] == places.target) > 0.4


def test_places_have_something_to_learn():
    places = load_places()
    assert 0.5 < tfidf_cosine_map(places.data, places.target) < 0.8
    blank = places.data.sum(axis=1) == 0
    assert not blank.any()


@pytest.mark.parametrize("angle", [0, 45, 90, 135, 180, 225, 270, 315])
def test_orientations_of_a_slope(angle):
    """Check that a plane that rises along `angle` has its gradient in one bin."""
    row, column = np.mgrid[:96, :128]
    towards = np.radians(angle)
    slope = np.cos(towards) * column + np.sin(towards) * row
    image = np.repeat(slope[..., None], 3, axis=2)
    histograms = _places._orientations(image)
    assert histograms.shape == (16, 21, 8)
    expected = np.zeros(8)
    expected[angle // 45] = 1 / 255
    assert_allclose(histograms, np.broadcast_to(expected, (16, 21, 8)), atol=1e-12)


def test_places_belong_to_the_caller():
    first = load_places()
    first.images[:] = 0
    first.data.data[:] = 0
    again = load_places()
    assert again.images.any()
    assert again.data.data.all()


def test_places_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    _places._photographs.cache_clear()
    with pytest.raises(ImportError, match=r"requires Pillow: pip install pillow"):
        _places._photographs()


@pytest.mark.parametrize("n_words", [0, 5001, 2.5])
def test_places_refuse(n_words):
    with pytest.raises(ValueError, match="n_words"):
        load_places(n_words=n_words)


def test_definitions_are_texts_with_groups_and_themes():
    definitions = load_definitions()
    assert len(definitions.data) == len(definitions.words) == 1440
    assert len(set(definitions.data)) == 1440
    assert_array_equal(np.bincount(definitions.target), np.full(36, 40))
    assert_array_equal(np.bincount(definitions.theme), np.full(9, 160))
    assert len(definitions.target_names) == 36
    assert len(definitions.theme_names) == 9
    # A group belongs to one theme.
    assert len(set(zip(definitions.target, definitions.theme, strict=True))) == 36
    lengths = [len(text.split()) for text in definitions.data]
    assert 5 <= min(lengths) <= max(lengths) <= 30
    texts, y = load_definitions(return_X_y=True)
    assert texts == definitions.data
    assert_array_equal(y, definitions.target)


def test_definitions_have_something_to_learn():
    texts, y = load_definitions(return_X_y=True)
    X = CountVectorizer(dtype=np.float64).fit_transform(texts)
    assert 0.2 < tfidf_cosine_map(X, y) < 0.4


def test_embedded_data_comes_with_its_licence():
    folder = resources.files("sklearn_simlearn.datasets") / "data"
    licence = (folder / "WORDNET_LICENSE.txt").read_text(encoding="utf-8")
    assert "WordNet 3.1 Copyright 2011 by Princeton University" in licence
    readme = (folder / "README.rst").read_text(encoding="utf-8")
    for file in folder.iterdir():
        assert file.name in readme or file.name == "README.rst"
    assert "CC0" in load_places().DESCR
    assert "Princeton" in load_definitions().DESCR
