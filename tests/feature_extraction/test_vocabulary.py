"""VisualVocabulary, VLAD, TriangulationEmbedding and PowerNormalizer against loops."""

import pickle
import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn.feature_extraction import (
    VLAD,
    LocalFeatures,
    PowerNormalizer,
    TriangulationEmbedding,
    VisualVocabulary,
)
from sklearn_simlearn.feature_extraction._triangulation import democratic_weights
from sklearn_simlearn.feature_extraction._vocabulary import gather
from sklearn_simlearn.feature_extraction._words import StackedRows, learn_words_by_cell

BACKENDS = ["faiss", "sklearn"]
TRANSFORMERS = [VisualVocabulary(5), VLAD(5), TriangulationEmbedding(5)]


def make_descriptors(n_images=12, n_points=40, n_components=8, seed=0):
    """Return descriptors of images around common centres. The third image has none."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(20, n_components)) * 3
    parts = []
    for i in range(n_images):
        n = 0 if i == 2 else n_points + i
        noise = rng.normal(size=(n, n_components))
        parts.append((centers[rng.integers(0, 20, n)] + noise).astype(np.float32))
    return parts


def as_features(parts):
    n = sum(map(len, parts))
    return LocalFeatures(
        np.append(0, np.cumsum([len(part) for part in parts])),
        *np.ones((4, n)),
        descriptors=np.concatenate(parts),
    )


def squared_distances(part, words):
    differences = part[:, None].astype(np.float64) - words
    return np.square(differences).sum(axis=2)


PARTS = make_descriptors()


# -- words --


@pytest.mark.parametrize("backend", BACKENDS)
def test_hard_assignment_against_a_loop(backend):
    vocabulary = VisualVocabulary(15, backend=backend, random_state=0).fit(PARTS)
    assert vocabulary.backend_ == backend
    assert vocabulary.words_.shape == (15, 8)
    assert vocabulary.words_.dtype == np.float32
    expected = np.zeros((len(PARTS), 15))
    nearest = []
    for i, part in enumerate(PARTS):
        for word in squared_distances(part, vocabulary.words_).argmin(axis=1):
            expected[i, word] += 1
            nearest.append(word)
    H = vocabulary.transform(PARTS)
    assert H.format == "csr"
    assert H.dtype == np.float32
    assert_array_equal(H.toarray(), expected)
    features = as_features(PARTS)
    assert_array_equal(vocabulary.transform(features).toarray(), expected)
    assert_array_equal(vocabulary.assign(features).words, nearest)
    assert_array_equal(vocabulary.find_words(features.descriptors), nearest)


@pytest.mark.parametrize("backend", BACKENDS)
def test_soft_assignment_against_a_loop(backend):
    vocabulary = VisualVocabulary(
        15, assignment="soft", n_neighbors=4, backend=backend, random_state=0
    ).fit(PARTS)
    sigma = vocabulary.sigma_
    every = squared_distances(np.concatenate(PARTS), vocabulary.words_)
    assert_allclose(sigma, 0.25 * np.sqrt(every.min(axis=1).mean()), rtol=1e-4)
    expected = np.zeros((len(PARTS), 15))
    for i, part in enumerate(PARTS):
        for squares in squared_distances(part, vocabulary.words_):
            nearest = np.argsort(squares)[:4]
            weights = np.exp(-squares[nearest] / (2 * sigma**2))
            expected[i, nearest] += weights / weights.sum()
    assert_allclose(vocabulary.transform(PARTS).toarray(), expected, atol=1e-3)
    sums = vocabulary.transform(PARTS).toarray().sum(axis=1)
    assert_allclose(sums, [len(part) for part in PARTS], 1e-5)


def test_k_means_of_both_libraries_is_as_good():
    """Check that words of both libraries are the means of their points."""
    errors = {}
    X = np.concatenate(PARTS)
    for backend in BACKENDS:
        vocabulary = VisualVocabulary(
            20, backend=backend, max_iter=100, random_state=0
        ).fit(PARTS)
        squares = squared_distances(X, vocabulary.words_)
        word = squares.argmin(axis=1)
        for i in np.unique(word):
            mean = X[word == i].mean(axis=0)
            assert_allclose(vocabulary.words_[i], mean, atol=1e-4)
        errors[backend] = squares.min(axis=1).mean()
    assert errors["faiss"] == pytest.approx(errors["sklearn"], rel=0.25)


@pytest.mark.parametrize("search", ["hnsw", "ivf"])
def test_approximate_search_agrees(search):
    parts = make_descriptors(n_points=300, n_components=16)
    exact = VisualVocabulary(200, max_iter=3, random_state=0).fit(parts)
    other = VisualVocabulary.from_words(exact.words_, search=search)
    X = np.concatenate(parts)
    agreement = np.mean(exact.find_words(X) == other.find_words(X))
    assert agreement > 0.97
    # The index is pickled as bytes and opened again.
    again = pickle.loads(pickle.dumps(other))
    assert_array_equal(again.find_words(X), other.find_words(X))
    fitted = clone(other).set_params(n_words=50, max_iter=3, random_state=0).fit(parts)
    assert fitted.words_.shape == (50, 16)
    with pytest.raises(ValueError, match="Pass backend='faiss'"):
        clone(other).set_params(backend="sklearn").fit(parts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_state_and_threads(backend):
    fit = [
        VisualVocabulary(30, backend=backend, random_state=seed, n_jobs=n).fit(PARTS)
        for seed, n in ((0, 1), (0, 2), (1, 1))
    ]
    assert_array_equal(fit[0].words_, fit[1].words_)
    assert (fit[0].words_ != fit[2].words_).any()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_descriptors_of_every_type(dtype):
    parts = [np.abs(part * 10).astype(dtype) for part in PARTS]
    vocabulary = VisualVocabulary(10, random_state=0).fit(parts)
    plain = [part.astype(np.float32) for part in parts]
    expected = VisualVocabulary(10, random_state=0).fit(plain)
    assert_array_equal(vocabulary.words_, expected.words_)
    assert_array_equal(
        vocabulary.transform(parts).toarray(), expected.transform(plain).toarray()
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_mapped_descriptors_are_not_copied(tmp_path, monkeypatch, backend):
    as_features(PARTS).save(tmp_path)
    features = LocalFeatures.load(tmp_path)
    seen = []
    module = "sklearn_simlearn.feature_extraction._vocabulary.learn_words"

    def learn(X, n_words, **options):
        seen.append(X)
        return np.ascontiguousarray(X[:n_words])

    monkeypatch.setattr(module, learn)
    vocabulary = VisualVocabulary(10, backend=backend, points_per_word=None)
    vocabulary.fit(features)
    assert np.shares_memory(seen[0], features.descriptors)
    monkeypatch.undo()
    words = VisualVocabulary(10, backend=backend, random_state=0).fit(features).words_
    other = VisualVocabulary(10, backend=backend, random_state=0).fit(PARTS).words_
    assert_array_equal(words, other)


def test_large_samples_go_to_a_file(monkeypatch):
    module = "sklearn_simlearn.feature_extraction._vocabulary"
    params = {"points_per_word": 20, "random_state": 0}
    expected = VisualVocabulary(10, **params).fit(PARTS)
    monkeypatch.setattr(f"{module}.MAX_MEMORY", 0)
    monkeypatch.setattr("sklearn_simlearn.feature_extraction._words.BLOCK", 7)
    sample = gather(np.concatenate(PARTS), np.arange(0, 400, 3))
    assert isinstance(sample, np.memmap)
    assert_array_equal(sample, np.concatenate(PARTS)[:400:3])
    assert_array_equal(
        VisualVocabulary(10, **params).fit(PARTS).words_, expected.words_
    )


def test_stacked_rows_are_those_of_the_joined_array(rng):
    parts = [*PARTS, np.ones((1, 8), dtype=np.float16), PARTS[2]]
    joined, stacked = np.concatenate(parts), StackedRows(parts)
    assert len(stacked) == len(joined)
    assert stacked.shape == joined.shape
    assert stacked.dtype == joined.dtype
    for rows in (slice(None), slice(30, 130), slice(5, 5), slice(7, 400, 3)):
        assert_array_equal(stacked[rows], joined[rows])
    for n in (0, 1, 50, len(joined)):
        rows = np.sort(rng.permutation(len(joined))[:n])
        assert_array_equal(stacked[rows], joined[rows])


def test_points_per_word_draws_a_sample():
    few = VisualVocabulary(4, points_per_word=2, random_state=0)
    rows = few._draw(200, np.random.RandomState(0))
    assert len(np.unique(rows)) == 8
    assert few._draw(8, np.random.RandomState(0)) is None
    assert few.fit(PARTS).transform(PARTS).shape == (12, 4)


@pytest.mark.parametrize("search", ["hnsw", "ivf"])
def test_k_means_in_two_levels(search, monkeypatch, tmp_path):
    parts = make_descriptors(n_points=300)
    X = np.concatenate(parts)
    params = {"n_words": 100, "max_iter": 8, "random_state": 0}
    exact = VisualVocabulary(**params).fit(parts)
    params["search"] = search
    vocabulary = VisualVocabulary(**params).fit(parts)
    assert vocabulary.words_.shape == (100, 8)
    errors = [
        squared_distances(X, model.words_).min(axis=1).mean()
        for model in (exact, vocabulary)
    ]
    assert errors[1] < 1.15 * errors[0]
    # The words do not depend on the number of descriptors held at a time, on their
    # file, on their type or on threads.
    module = "sklearn_simlearn.feature_extraction._words"
    monkeypatch.setattr(f"{module}.MAX_CELL_BYTES", 10_000)
    monkeypatch.setattr(f"{module}.BLOCK", 50)
    as_features(parts).save(tmp_path)
    for again in (parts, LocalFeatures.load(tmp_path), [X.astype(np.float64)]):
        other = VisualVocabulary(**params).fit(again)
        assert_array_equal(other.words_, vocabulary.words_)
    monkeypatch.undo()
    threaded = VisualVocabulary(**params, n_jobs=2).fit(parts)
    assert_array_equal(threaded.words_, vocabulary.words_)
    few = VisualVocabulary(**params, points_per_word=5).fit(parts)
    assert few.words_.shape == (100, 8)


def test_two_levels_of_the_largest_seed():
    X = np.concatenate(PARTS)
    options = {"max_iter": 2, "seed": 2**31 - 2, "n_threads": 1}
    assert learn_words_by_cell(X, None, 50, **options).shape == (50, 8)


@pytest.mark.parametrize("n_words", [1, 2, 30])
def test_two_levels_of_few_and_equal_descriptors(n_words):
    X = np.repeat(np.eye(3, 4, dtype=np.float32), 10, axis=0)
    vocabulary = VisualVocabulary(n_words, search="hnsw", random_state=0).fit([X])
    assert vocabulary.words_.shape == (n_words, 4)
    assert np.isfinite(vocabulary.words_).all()
    assert vocabulary.transform([X]).sum() == 30


def test_from_words():
    words = np.eye(4, 8)
    vocabulary = VisualVocabulary.from_words(words, n_jobs=2)
    assert vocabulary.get_params()["n_words"] == 4
    assert_array_equal(vocabulary.words_, words)
    assert_array_equal(vocabulary.find_words(np.eye(2, 8)), [0, 1])
    soft = VisualVocabulary.from_words(words, assignment="soft", sigma=0.1)
    assert_allclose(soft.transform([np.eye(1, 8)]).toarray()[0, 0], 1)
    with pytest.raises(ValueError, match="Pass a number"):
        VisualVocabulary.from_words(words, assignment="soft")
    with pytest.raises(ValueError, match="search"):
        VisualVocabulary.from_words(words, search="fast")


@pytest.mark.filterwarnings("ignore:The objective still falls")
def test_words_feed_the_mahalanobis_learner():
    vocabulary = VisualVocabulary(20, random_state=0)
    X = vocabulary.fit_transform(PARTS)
    learner = SparseMahalanobisLearner(
        words=vocabulary.words_, max_iter=2, holdout=None, random_state=0
    )
    assert learner.fit(X, np.arange(12) // 3).similarity(X).shape == (12, 12)


def test_equal_descriptors_and_one_word():
    same = [np.ones((6, 3), dtype=np.float32)] * 2
    for backend in BACKENDS:
        one = VisualVocabulary(1, backend=backend, assignment="soft", random_state=0)
        assert_array_equal(one.fit_transform(same).toarray(), [[6], [6]])
    assert one.sigma_ > 0


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "There are no images"),
        (np.ones((30, 3)), "one array of 2 dimensions"),
        ([np.ones(3)], r"shape \(n_points, n_components\)"),
        ([np.array([["a"]])], r"shape \(n_points, n_components\)"),
        ([np.ones((20, 3)), np.ones((20, 4))], "same number of components"),
        ([np.full((20, 3), np.nan)], "must be finite"),
        ([np.full((20, 3), 1e300)], "must be finite in single precision"),
        ([np.ones((4, 3))], "Lower n_words"),
        (LocalFeatures([0, 1], [1], [1], [1], [1]), "no descriptors"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_bad_descriptors(X, message):
    for estimator in TRANSFORMERS:
        with pytest.raises(ValueError, match=message):
            estimator.fit(X)
        assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=repr)
def test_conventions_of_estimators(estimator):
    with pytest.raises(NotFittedError):
        estimator.transform(PARTS)
    for name in estimator.get_params():
        bad = clone(estimator).set_params(**{name: object()})
        with pytest.raises(ValueError, match=name):
            bad.fit(PARTS)
    fitted = clone(estimator).set_params(random_state=0).fit(PARTS)
    names = fitted.get_feature_names_out()
    assert len(names) == fitted.transform(PARTS).shape[1]
    assert names[0] == f"{type(estimator).__name__.lower()}0"
    with pytest.raises(ValueError, match="training images had 8"):
        fitted.transform([np.ones((2, 3))])
    copy = pickle.loads(pickle.dumps(fitted))
    first, second = copy.transform(PARTS), fitted.transform(PARTS)
    assert abs(first - second).max() == 0
    # A fit that fails keeps the old state.
    with pytest.raises(ValueError, match="There are no images"):
        fitted.fit([])
    assert abs(fitted.transform(PARTS) - second).max() == 0


def test_without_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=re.escape(".[vision]")):
        VisualVocabulary(5, search="hnsw").fit(PARTS)
    monkeypatch.setattr(
        "sklearn_simlearn.feature_extraction._words.has_faiss", lambda: False
    )
    assert VisualVocabulary(5, random_state=0).fit(PARTS).backend_ == "sklearn"


# -- VLAD --


@pytest.mark.parametrize("intra_normalize", [True, False])
@pytest.mark.parametrize("power", [0.5, 1])
@pytest.mark.parametrize("n_vocabularies", [1, 2])
def test_vlad_against_a_loop(intra_normalize, power, n_vocabularies):
    vlad = VLAD(
        5,
        n_vocabularies=n_vocabularies,
        power=power,
        intra_normalize=intra_normalize,
        random_state=0,
    )
    V = vlad.fit_transform(as_features(PARTS))
    assert V.dtype == np.float32
    assert V.shape == (len(PARTS), n_vocabularies * 5 * 8)
    for i, part in enumerate(PARTS):
        whole = []
        for vocabulary in vlad.vocabularies_:
            sums = np.zeros((5, 8))
            for x in part.astype(np.float64):
                squares = np.square(x - vocabulary.words_).sum(axis=1)
                word = squares.argmin()
                sums[word] += x - vocabulary.words_[word]
            sums = np.sign(sums) * np.abs(sums) ** power
            if intra_normalize:
                lengths = np.linalg.norm(sums, axis=1, keepdims=True)
                sums /= np.maximum(lengths, 1e-12)
            whole.append(sums.ravel())
        whole = np.concatenate(whole)
        whole /= max(np.linalg.norm(whole), 1e-12)
        assert_allclose(V[i], whole, atol=2e-3)
    assert_array_equal(V[2], 0)


def test_vlad_in_steps_of_images(monkeypatch):
    vlad = VLAD(5, random_state=0).fit(PARTS)
    whole = vlad.transform(PARTS)
    module = "sklearn_simlearn.feature_extraction._vlad.get_chunk_n_rows"
    monkeypatch.setattr(module, lambda *args, **options: 5)
    assert_allclose(vlad.transform(PARTS), whole, atol=1e-6)


def test_vlad_as_a_frame():
    vlad = VLAD(2, random_state=0).set_output(transform="pandas").fit(PARTS)
    frame = vlad.transform(PARTS)
    assert list(frame.columns) == [f"vlad{i}" for i in range(16)]


# -- triangulation --


def embed(model, part):
    """Embed descriptors one by one, in float64."""
    rows = []
    for x in part.astype(np.float64):
        directions = [(x - c) / np.linalg.norm(x - c) for c in model.vocabulary_.words_]
        row = (np.concatenate(directions) - model.mean_) @ model.axes_
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


def weigh(rows):
    """Return the sum of embedded descriptors with democratic weights."""
    kernel, weights = np.maximum(rows @ rows.T, 0), np.ones(len(rows))
    for _ in range(10):
        weights = weights / np.sqrt(weights * (kernel @ weights))
    return weights @ rows


@pytest.mark.parametrize("power", [0.5, 1])
def test_triangulation_against_a_loop(power):
    model = TriangulationEmbedding(5, power=power, random_state=0).fit(PARTS)
    V = model.transform(as_features(PARTS))
    assert V.dtype == np.float32
    assert V.shape == (len(PARTS), 4 * 8)
    for i, part in enumerate(PARTS):
        if i == 2:
            assert_array_equal(V[i], 0)
            continue
        whole = weigh(embed(model, part))
        whole = np.sign(whole) * np.abs(whole) ** power
        assert_allclose(V[i], whole / np.linalg.norm(whole), atol=1e-3)


def test_the_embedding_whitens_the_training_descriptors():
    model = TriangulationEmbedding(5, random_state=0).fit(PARTS)
    words = model.vocabulary_.words_.astype(np.float64)
    offsets = np.concatenate(PARTS)[:, None] - words
    directions = offsets / np.linalg.norm(offsets, axis=2, keepdims=True)
    directions = directions.reshape(len(offsets), -1)
    covariance = np.cov((directions - model.mean_) @ model.axes_, rowvar=False, ddof=0)
    assert_allclose(covariance, np.eye(len(covariance)), atol=1e-3)
    # The axes that are left out are those of the 8 largest variances.
    variances, axes = np.linalg.eigh(np.cov(directions, rowvar=False))
    assert_allclose(axes[:, -8:].T @ model.axes_, 0, atol=1e-2 / variances[0])
    assert model.axes_.shape[1] == 4 * 8


def test_axes_of_small_variances_are_kept(rng):
    # Directions from words that are far away are nearly the same for all descriptors.
    near, far = rng.normal(size=(300, 4)), rng.normal(size=(6, 4))
    part = np.concatenate([near, 100 * far])
    model = TriangulationEmbedding(6, random_state=0).fit([part])
    assert model.axes_.shape == (6 * 4, 5 * 4)
    expected = weigh(embed(model, near))
    whole = model.set_params(power=1).transform([near])[0]
    assert_allclose(whole, expected / np.linalg.norm(expected), atol=1e-3)


def test_democratic_weights_equalise_contributions(rng, monkeypatch):
    rows = rng.normal(size=(50, 6)).astype(np.float32)
    rows[30:] = rows[0]  # a burst
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[7] = 0  # contributes nothing
    weights = democratic_weights(rows)
    shares = weights * (np.maximum(rows @ rows.T, 0) @ weights)
    assert_allclose(np.delete(shares, 7), 1, atol=0.01)
    assert weights[0] < 0.5 * weights[1:30].mean()
    # Without room for the matrix of inner products, blocks give the same weights.
    module = "sklearn_simlearn.feature_extraction._triangulation.get_chunk_n_rows"
    monkeypatch.setattr(module, lambda *args, **options: 9)
    assert_allclose(democratic_weights(rows), weights, rtol=1e-5)


def test_triangulation_in_blocks(monkeypatch):
    model = TriangulationEmbedding(5, random_state=0).fit(PARTS)
    whole = model.transform(PARTS)
    module = "sklearn_simlearn.feature_extraction._triangulation.get_chunk_n_rows"
    monkeypatch.setattr(module, lambda *args, **options: 7)
    assert_allclose(model.transform(PARTS), whole, atol=1e-4)
    again = TriangulationEmbedding(5, random_state=0).fit(PARTS).transform(PARTS)
    assert_allclose(again @ again.T, whole @ whole.T, atol=1e-3)


def test_triangulation_of_a_sample(monkeypatch):
    # There are more descriptors than the covariance needs, so some of them are drawn.
    monkeypatch.setattr(
        "sklearn_simlearn.feature_extraction._triangulation.MAX_POINTS", 200
    )
    first, second = (
        TriangulationEmbedding(5, random_state=0).fit(PARTS) for _ in range(2)
    )
    assert_array_equal(first.axes_, second.axes_)
    assert np.isfinite(first.transform(PARTS)).all()


def test_triangulation_of_too_few_descriptors():
    part = np.random.default_rng(0).normal(size=(5, 8))
    with pytest.raises(ValueError, match="more descriptors"):
        TriangulationEmbedding(5, random_state=0).fit([part])
    # A descriptor that equals a word has no direction from this word.
    model = TriangulationEmbedding(5, random_state=0).fit(PARTS)
    assert np.isfinite(model.transform([model.vocabulary_.words_])).all()


# -- powers --


@pytest.mark.parametrize("norm", ["l1", "l2", "max", None])
def test_power_normalizer(norm, dtype, rng):
    X = rng.normal(size=(6, 4)).astype(dtype)
    X[1] = 0
    X[X > 1] = 0
    expected = np.sign(X) * np.abs(X) ** 0.3
    orders = {"l1": 1, "l2": 2, "max": np.inf}
    if norm is not None:
        lengths = np.linalg.norm(expected, orders[norm], axis=1, keepdims=True)
        expected = expected / np.where(lengths > 0, lengths, 1)
    for form in (np.asarray, sparse.csr_array):
        found = PowerNormalizer(0.3, norm=norm).fit_transform(form(X))
        assert found.dtype == dtype
        found = found.toarray() if sparse.issparse(found) else found
        assert_allclose(found, expected, rtol=1e-5)


@parametrize_with_checks([PowerNormalizer(), PowerNormalizer(2, norm=None)])
def test_checks_of_sklearn(estimator, check):
    check(estimator)
