"""Indexes of photographs, saved, moved, and without the photographs."""

import os
import shutil

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.feature_extraction import (
    VLAD,
    ColorHistograms,
    GistDescriptors,
    ImageReader,
    LocalDescriptors,
    VisualVocabulary,
)
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._journal import Journal
from sklearn_simlearn.index._photographs import (
    MAX_BYTES,
    SIDE,
    compute_fingerprint,
    make_thumbnails,
)
from sklearn_simlearn.reranking import SpatialVerification
from sklearn_simlearn.similarities import CosineSimilarity

cv2 = pytest.importorskip("cv2")


def make_jpegs(n=8, seed=0):
    """Return photographs as the bytes of JPEG files."""
    rng = np.random.default_rng(seed)
    jpegs = []
    for _ in range(n):
        pixels = np.kron(rng.integers(0, 256, (12, 16, 3)), np.ones((16, 16, 1)))
        jpegs.append(cv2.imencode(".jpg", pixels.astype(np.uint8))[1].tobytes())
    return jpegs


@pytest.fixture
def jpegs():
    return make_jpegs()


def make_words():
    return make_pipeline(
        ImageReader(),
        LocalDescriptors(50),
        VisualVocabulary(20, random_state=0),
        CosineSimilarity(use_idf=False),
    )


def test_index_opens_without_the_photographs_and_from_another_folder(
    tmp_path, jpegs, monkeypatch
):
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    names = [f"photographs/{i}.jpg" for i in range(len(jpegs))]
    monkeypatch.chdir(tmp_path)
    for name, jpeg in zip(names, jpegs, strict=True):
        with open(name, "wb") as file:
            file.write(jpeg)
    index = SimilarityIndex(make_words()).fit(names, ids=names)
    expected = index.search(jpegs, k=3)
    index.save("index")
    shutil.rmtree(photographs)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def refuse(self, X):
        raise AssertionError("opening an index must not read photographs")

    with monkeypatch.context() as patched:
        patched.setattr(ImageReader, "transform", refuse)
        opened = SimilarityIndex.load(tmp_path / "index", trusted=())
    found = opened.search(jpegs, k=3)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1][:, 0].tolist() == names


def test_another_estimator_is_refused_by_its_fingerprint(tmp_path, jpegs):
    index = SimilarityIndex(make_words()).fit(jpegs)
    index.save(tmp_path)
    same, other = index.estimator_, make_words().fit(make_jpegs(seed=1))
    assert SimilarityIndex.load(tmp_path, estimator=same).n_items_ == 8
    with pytest.raises(ValueError, match="does not encode items as they are stored"):
        SimilarityIndex.load(tmp_path, estimator=other)
    with pytest.raises(ValueError, match="does not encode items as they are stored"):
        index.set_estimator(other)


@pytest.mark.parametrize("mmap", [True, False])
def test_photographs_as_bytes_are_stored(tmp_path, jpegs, mmap):
    index = SimilarityIndex(make_words(), store_items=True).fit(jpegs)
    index.add(make_jpegs(2, seed=1))
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=(), mmap=mmap)
    assert list(opened._state.raw.whole()) == jpegs + make_jpegs(2, seed=1)
    opened.set_estimator(make_pipeline(ImageReader(), GistDescriptors()).fit(jpegs))
    assert opened.search(jpegs[3:4], k=1)[1].tolist() == [[3]]


def test_thumbnails_are_small_and_follow_their_items(tmp_path, jpegs):
    index = SimilarityIndex(make_words()).fit(jpegs, ids=np.arange(8))
    index.save(tmp_path)
    index = SimilarityIndex.load(tmp_path, trusted=())
    index._journal = Journal(tmp_path)
    index.remove(np.arange(6))
    new = make_jpegs(1, seed=1)
    index.add(new, ids=[9])
    index.upsert(new, ids=[7])
    index._journal.close()
    for found in (index, index.compact(), SimilarityIndex.load(tmp_path)):
        state = found._state
        assert state.find_thumbnail(6) == make_thumbnails(jpegs)[6]
        assert state.find_thumbnail(9) == make_thumbnails(new)[0]
        assert state.find_thumbnail(7) == make_thumbnails(new)[0]
        assert state.find_thumbnail(0) is None
    pixels = cv2.imdecode(np.frombuffer(state.find_thumbnail(6), np.uint8), 1)
    assert max(pixels.shape) == SIDE
    original = cv2.imdecode(np.frombuffer(jpegs[6], np.uint8), 1)
    expected = cv2.resize(original, pixels.shape[1::-1], interpolation=cv2.INTER_AREA)
    difference = np.abs(pixels.astype(int) - expected).mean()
    swapped = np.abs(pixels.astype(int) - expected[:, :, ::-1]).mean()
    assert difference < swapped / 4  # red and blue are not exchanged
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
    assert 0 < len(make_thumbnails([noise])[0]) <= MAX_BYTES


def test_vectors_have_no_thumbnails():
    index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit([[1.0, 0], [0, 1.0]])
    assert index._state.find_thumbnail(0) is None
    assert index._state.fingerprint is None


def test_fingerprint_changes_with_results_only():
    features = LocalDescriptors(30).fit_transform(make_jpegs(3))
    words = VisualVocabulary(10, random_state=0)
    first = compute_fingerprint([words.fit(features)])
    assert compute_fingerprint([words.set_params(n_jobs=2)]) == first
    words.find_words(features.descriptors)
    assert compute_fingerprint([words]) == first
    words.words_ = np.nextafter(words.words_, 1)
    assert compute_fingerprint([words]) != first
    vlad = VLAD(2, random_state=0).fit(features)
    before = compute_fingerprint([vlad])
    vlad.vocabularies_[0].words_ = vlad.vocabularies_[0].words_ + 1
    assert compute_fingerprint([vlad]) != before
    assert compute_fingerprint([ImageReader(64)]) != compute_fingerprint(
        [ImageReader()]
    )


def test_unknown_photograph_leaves_the_index_unchanged(jpegs):
    index = SimilarityIndex(make_words()).fit(jpegs)
    with pytest.raises(ValueError, match="does not exist"):
        index.add([os.path.join("nowhere", "a.jpg")])
    assert index.n_items_ == 8


def test_verification_from_files_to_answers(tmp_path, jpegs):
    names = [str(tmp_path / f"{i}.jpg") for i in range(len(jpegs))]
    for name, jpeg in zip(names, jpegs, strict=True):
        with open(name, "wb") as file:
            file.write(jpeg)
    model = make_words().fit(names)
    step = SpatialVerification()
    index = SimilarityIndex(model, rerank=[step], n_candidates=8, store_items=True)
    scores, ids = index.fit(names, ids=names).search(jpegs[:3], k=8)
    # The same by hand: features of files, words, and a step that is fitted on them.
    features = make_pipeline(*model[:2]).transform(names)
    features = model[2].assign(features)
    plain = SimilarityIndex(model).fit(names, ids=names).search(names[:3], k=8)
    expected = step.fit(features, ids=names).rerank(features[:3], *plain)
    np.testing.assert_array_equal(ids, expected[1])
    np.testing.assert_allclose(scores, expected[0])
    assert ids[:, 0].tolist() == names[:3]
    index.save(tmp_path / "index")
    for name in names:
        os.remove(name)
    opened = SimilarityIndex.load(tmp_path / "index", trusted=())
    opened.set_params(rerank=[])
    np.testing.assert_array_equal(opened.search(jpegs[:3], k=8)[1], plain[1])


def test_verification_needs_stored_photographs(jpegs):
    index = SimilarityIndex(make_words(), rerank=[SpatialVerification()])
    with pytest.raises(ValueError, match="store_items=True"):
        index.fit(jpegs)


def test_photographs_as_arrays_of_different_sizes(tmp_path):
    images = [np.full((size, 40, 3), size, dtype=np.uint8) for size in (20, 90, 200)]
    model = make_pipeline(ImageReader(), ColorHistograms()).fit(images)
    index = SimilarityIndex(model).fit(images)
    index.save(tmp_path)
    for found in (index, SimilarityIndex.load(tmp_path, trusted=())):
        assert found.search([images[1][:31, :9]], k=1)[1].tolist() == [[1]]
        assert not hasattr(found, "n_features_in_")
        found.add([np.full((7, 9), 150, dtype=np.uint8)])
        assert found.n_items_ == 4
