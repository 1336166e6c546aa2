"""SimilarityUnion: a weighted sum with learned weights."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_simlearn import OASIS, QueryDocumentMap, TwoCovarianceSimilarity
from sklearn_simlearn.compose import (
    RetrievalPipeline,
    SimilarityUnion,
    make_retrieval_pipeline,
)
from sklearn_simlearn.compose import _union as union_module
from sklearn_simlearn.compose._weights import (
    MAX_CANDIDATES,
    list_candidates,
    list_starts,
)
from sklearn_simlearn.contract import CHECKS
from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements, RetrievalScorer
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

NDCG = RetrievalScorer("ndcg", k=10)
VECTORS = [f"v{i}" for i in range(64)]
BM25 = make_retrieval_pipeline(CountVectorizer(stop_words="english"), BM25Similarity())


def as_frame(texts, vectors, kind=pd.DataFrame):
    columns = dict(zip(VECTORS, np.asarray(vectors).T, strict=True))
    return kind({"text": texts, **columns})


@pytest.fixture(scope="module")
def frames():
    """Return queries in random order, every second document, and judgements."""
    data = load_categories()
    Q = as_frame(data.queries, data.query_vectors)
    D = as_frame(data.documents[::2], data.document_vectors[::2])
    order = np.random.default_rng(0).permutation(len(Q))
    return Q.iloc[order], D, Judgements(data.relevance[:, ::2][order], D)


@pytest.fixture(scope="module")
def arrays():
    """Return the same as counts and vectors side by side, and the number of words."""
    data = load_categories()
    vectorizer = CountVectorizer(stop_words="english").fit(data.documents[::2])
    Q, D = (
        sparse.hstack(
            [vectorizer.transform(texts), sparse.csr_array(vectors)],
            format="csr",
            dtype=np.float64,
        )
        for texts, vectors in (
            (data.queries, data.query_vectors),
            (data.documents[::2], data.document_vectors[::2]),
        )
    )
    n_words = len(vectorizer.vocabulary_)
    return Q, D, Judgements(data.relevance[:, ::2], D), n_words


def make_union(vectors="passthrough", **options):
    return SimilarityUnion(
        [("bm25", BM25, "text"), ("vectors", vectors, VECTORS)],
        random_state=0,
        **options,
    )


def test_the_sum_is_weighted_and_scaled(frames):
    Q, D, y = frames
    union = make_union(weights={"vectors": 3, "bm25": 1}).fit(Q[:100], y[:100])
    assert union.weights_ == {"bm25": 0.25, "vectors": 0.75}
    assert not hasattr(union, "holdout_gain_")
    cosine = CosineSimilarity(use_idf=False).fit(D[VECTORS])
    parts = {
        "bm25": union.similarities_["bm25"].similarity(Q["text"], D["text"]),
        "vectors": cosine.similarity(Q[VECTORS], D[VECTORS]),
    }
    for name, S in parts.items():
        spread = (S[:100].max(axis=1) - S[:100].mean(axis=1)).mean()
        assert union.scales_[name] == pytest.approx(spread, rel=1e-5)
    expected = sum(union.weights_[n] / union.scales_[n] * S for n, S in parts.items())
    assert_allclose(union.similarity(Q, D), expected, rtol=1e-5, atol=1e-7)
    product = union.transform(Q) @ union.transform_database(D).T
    assert_allclose(product.toarray(), expected, rtol=1e-5, atol=1e-7)
    assert len(union.get_feature_names_out()) == union.transform(Q).shape[1]


def test_learned_weights_gain(frames):
    Q, _, y = frames
    union = make_union().fit(Q[:200], y[:200])
    assert sum(union.weights_.values()) == pytest.approx(1)
    assert min(union.weights_.values()) > 0.1
    assert union.holdout_gain_ > union.holdout_error_ > 0
    test = Q[200:], y[200:]
    parts = [
        NDCG(make_union(weights={"bm25": w, "vectors": 1 - w}).fit(Q[:200]), *test)
        for w in (0, 1)
    ]
    assert NDCG(union, *test) > max(parts) + 0.01
    results = union.holdout_results_
    best = results["candidates"][results["best_index"]]
    assert best == tuple(union.weights_.values())
    starts = [results["candidates"].index(start) for start in list_starts(2)]
    start = max(starts, key=lambda i: results["ndcg_at_10"][i])
    gains = results["ndcg_at_10"] - results["ndcg_at_10"][start]
    assert results["best_index"] == start or gains[results["best_index"]] > 0
    assert results["gain"][results["candidates"].index((0.0, 1.0))] == 0
    again = make_union().fit(Q[:200], y[:200])
    assert again.weights_ == union.weights_
    assert again.scales_ == union.scales_


def test_a_useless_part_gets_no_weight(frames, rng):
    Q, D, y = frames
    noise = [f"n{i}" for i in range(8)]
    Q, D = (
        X.assign(**dict(zip(noise, rng.standard_normal((8, len(X))), strict=True)))
        for X in (Q, D)
    )
    y = y.with_documents(D)
    union = SimilarityUnion(
        [("vectors", "passthrough", VECTORS), ("noise", "passthrough", noise)],
        random_state=0,
    ).fit(Q[:200], y[:200])
    assert union.weights_["noise"] == 0
    alone = make_retrieval_pipeline("passthrough").fit(D[VECTORS])
    expected = NDCG(alone, Q[VECTORS][200:], y.with_documents(D[VECTORS])[200:])
    assert NDCG(union, Q[200:], y[200:]) == pytest.approx(expected)
    assert union.transform(Q[:2]).shape[1] == 64


def test_sparse_columns(arrays):
    Q, D, y, n_words = arrays
    union = SimilarityUnion(
        [
            ("bm25", BM25Similarity(), slice(0, n_words)),
            ("vectors", CosineSimilarity(use_idf=False), slice(n_words, None)),
        ],
        random_state=0,
    ).fit(Q[:60], y[:60])
    assert NDCG(union, Q, y) > 0.65
    index = SimilarityIndex(union).fit(D)
    scores, ids = index.search(Q[:5], k=10)
    S = union.similarity(Q[:5], D)
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :10], rtol=1e-9)
    assert_allclose(np.take_along_axis(S, ids, axis=1), scores, rtol=1e-9)
    dense = clone(union).fit(Q[:60].toarray(), y.with_documents(D.toarray())[:60])
    assert_allclose(dense.similarity(Q[:5].toarray(), D.toarray()), S, rtol=1e-6)
    assert isinstance(dense.transform(Q[:5].toarray()), np.ndarray)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_and_ways_to_choose_columns(frames, kind):
    Q, D, y = frames
    Q, D = (as_frame(X["text"].tolist(), X[VECTORS], kind) for X in (Q[:40], D))
    y = y.with_documents(D)[:40]
    expected = None
    for columns in (VECTORS, list(range(1, 65)), slice(1, None), _find_vectors):
        union = SimilarityUnion(
            [("bm25", BM25, "text"), ("vectors", "passthrough", columns)],
            random_state=0,
        ).fit(Q, y)
        S = union.similarity(Q, D)
        expected = S if expected is None else expected
        assert_allclose(S, expected)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_columns_by_position_are_found_by_name_in_other_frames(frames, kind):
    Q, D, y = (part[:40] for part in frames)
    parts = [
        ("first", "passthrough", slice(0, 10)),
        ("mask", CosineSimilarity(use_idf=False), np.arange(64) >= 40),
        ("words", BM25, -1),
    ]
    union = SimilarityUnion(parts, holdout=None, random_state=0)
    Q, D = (X[[*VECTORS, "text"]] for X in (Q, frames[1]))
    parts[1] = (*parts[1][:2], np.append(parts[1][2], False))
    expected = clone(union).fit(Q, y.with_documents(D)).similarity(Q, D)
    as_is, moved = (kind(D[list(names)]) for names in (D.columns, D.columns[::-1]))
    Q = kind(Q)
    for documents in (as_is, moved):
        union.fit(Q, y.with_documents(documents))
        assert_allclose(union.similarity(Q, moved), expected, atol=1e-6)
    index = SimilarityIndex(union).fit(moved)
    assert_allclose(index.search(Q, k=1).scores[:, 0], expected.max(axis=1), rtol=1e-6)


def test_arrays_need_the_columns_of_the_fit(arrays):
    Q, D, y, n_words = arrays
    parts = [("words", BM25Similarity(), slice(0, n_words))]
    union = SimilarityUnion(parts, random_state=0).fit(Q, y)
    for X in (Q[:, 1:], Q[:, 1:].toarray(), sparse.hstack([Q, Q[:, :1]])):
        with pytest.raises(ValueError, match=rf"samples of shape \({Q.shape[1]},\)"):
            union.similarity(X, D)
    with pytest.raises(ValueError, match=rf"samples of shape \({Q.shape[1]},\)"):
        union.fit(Q, y.with_documents(D[:, 1:]))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_errors_name_the_part(frames, kind):
    data = load_categories()
    D = as_frame(data.documents, data.document_vectors, kind)
    Q = as_frame(data.queries, data.query_vectors, kind)
    y = Judgements(data.relevance, D)
    with pytest.raises(ValueError, match=r"'txt' cannot be taken .* columns 'text'"):
        SimilarityUnion([("words", BM25, "txt")]).fit(Q, y)
    with pytest.raises(ValueError, match=r"'vector' compares vectors.*Pass \['v0'\]"):
        SimilarityUnion([("vector", "passthrough", "v0")]).fit(Q, y)
    # A vectorizer does not take a frame with one column.
    union = SimilarityUnion([("words", BM25, ["text"])])
    with pytest.raises((ValueError, AttributeError)) as error:
        union.fit(Q, y)
    assert "part 'words' of the SimilarityUnion" in error.value.__notes__[0]
    texts = [None, *data.documents[1:]]
    bad = y.with_documents(as_frame(texts, data.document_vectors, kind))
    with pytest.raises(ValueError, match=r"Row 0 of the documents is (nan|None)"):
        make_union().fit(Q, bad)


def test_columns_that_x_does_not_have(frames):
    Q, D, y = frames
    union = SimilarityUnion([("bm25", BM25, "text"), ("more", BM25, "title")])
    with pytest.raises(ValueError, match=r"'title' cannot .*columns 'text', 'v0'"):
        union.fit(Q, y)
    with pytest.raises(ValueError, match=r"shape \(40,\). Pass .*slice\(None\)"):
        union.fit(Q["text"].tolist()[:40], y.with_documents(D["text"].tolist())[:40])


def _find_vectors(X):
    return [name for name in X.columns if name.startswith("v")]


def test_the_same_texts_in_two_ways():
    data = load_categories()
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))
    union = SimilarityUnion(
        [("words", BM25, slice(None)), ("letters", letters, slice(None))],
        random_state=0,
    ).fit(data.data, data.target)
    vocabulary = union.similarities_["letters"].vocabulary_
    assert vocabulary == clone(letters).fit(data.documents).vocabulary_
    assert union.score(data.data, data.target) > 0.3


@pytest.mark.filterwarnings("ignore:OASIS")
def test_learners_are_fitted_within_the_folds(frames, monkeypatch):
    Q, D, y = frames
    sizes = []

    class Learner(OASIS):
        def fit(self, X, y):
            sizes.append(len(X))
            return super().fit(X, y)

    union = SimilarityUnion(
        [
            ("bm25", BM25, "text"),
            ("learned", Learner(n_triplets=200, random_state=0), VECTORS),
        ],
        random_state=0,
    ).fit(Q[:100], y[:100])
    assert sizes == [100] + [80] * 5
    assert NDCG(union, Q[100:], y[100:]) > 0.6
    with_documents = clone(union).set_params(holdout="documents").fit(Q[:100], y[:100])
    assert with_documents.similarity(Q[:2], D).shape == (2, len(D))


def test_a_learner_chooses_its_settings_in_the_folds_of_the_union(frames):
    Q, _, y = frames
    fits = []

    class Learner(QueryDocumentMap):
        def _learn(self, X, relevance, advance):
            fits.append(super()._learn(X, relevance, advance))
            return fits[-1]

    part = make_retrieval_pipeline(Learner(None, random_state=0))
    union = SimilarityUnion(
        [("bm25", BM25, "text"), ("learned", part, VECTORS)], random_state=0
    ).fit(Q[:100], y[:100])
    # The hold-out of the learner kept the encoders of the folds.
    assert ["holdout_results_" in fit for fit in fits] == [True]
    assert fits[0]["shift_"] > 0
    assert union.holdout_gain_ > 0
    # Without them, the learner is fitted in each fold, with the same result.
    fits.clear()
    with config_context(working_memory=0):
        again = clone(union).fit(Q[:100], y[:100])
    assert ["holdout_results_" in fit for fit in fits] == [True] + [False] * 5
    assert again.weights_ == union.weights_
    assert again.holdout_gain_ == pytest.approx(union.holdout_gain_, abs=1e-6)
    fits.clear()
    steps = [("same", FunctionTransformer())]
    with_steps = clone(union).set_params(learned__query_steps=steps)
    with_steps.fit(Q[:100], y[:100])
    assert len(fits) == 6
    # A learner with another hold-out cannot use the folds.
    fits.clear()
    union.set_params(learned__learner__holdout="documents").fit(Q[:100], y[:100])
    assert all("holdout_results_" in fit for fit in fits)


@pytest.mark.parametrize(("n_queries", "n_holdouts"), [(120, 1), (1000, 6)])
def test_with_labels_many_queries_choose_settings_once(
    rng, monkeypatch, n_queries, n_holdouts
):
    fits = []

    class Learner(OASIS):
        def _learn(self, X, relevance, advance):
            fits.append(super()._learn(X, relevance, advance))
            return fits[-1]

    y = np.repeat(np.arange(20), 6)
    X = rng.standard_normal((20, 4))[y] + rng.standard_normal((120, 4))
    monkeypatch.setattr(union_module, "MAX_ROWS", n_queries)
    SimilarityUnion(
        [
            ("learned", Learner(n_triplets=50, random_state=0), slice(0, 3)),
            ("cosine", "passthrough", slice(0, 4)),
        ],
        random_state=0,
    ).fit(X, y)
    assert ["holdout_results_" in fit for fit in fits].count(True) == n_holdouts


def test_labels(rng):
    y = np.repeat(np.arange(20), 6)
    centres = rng.standard_normal((2, 20, 4))
    X = np.hstack([centre[y] + rng.standard_normal((len(y), 4)) for centre in centres])
    union = SimilarityUnion(
        [("left", "passthrough", slice(0, 4)), ("right", "passthrough", slice(4, 8))],
        random_state=0,
    ).fit(X, y)
    assert "mean_average_precision" in union.holdout_results_
    alone = CosineSimilarity(use_idf=False).fit(X[:, :4])
    assert union.score(X, y) > alone.score(X[:, :4], y) + 0.05
    standardised = make_pipeline(StandardScaler(), CosineSimilarity(use_idf=False))
    other = union.set_params(left=standardised).fit(X, y)
    assert other.score(X, y) > alone.score(X[:, :4], y)


def test_few_queries_keep_equal_weights(frames):
    Q, _, y = frames
    with pytest.warns(UserWarning, match="fewer than the 10"):
        union = make_union().fit(Q[:8], y[:8])
    assert union.weights_ == {"bm25": 0.5, "vectors": 0.5}
    assert union.holdout_gain_ == 0
    for few in (make_union(holdout=None).fit(Q[:50], y[:50]), make_union().fit(Q[:50])):
        assert few.weights_ == {"bm25": 0.5, "vectors": 0.5}
        assert not hasattr(few, "holdout_gain_")


def test_searches_cloning_and_files(frames, tmp_path):
    Q, D, y = frames
    Q, y = Q[:60], y[:60]
    cv = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(
        make_union(),
        [
            {"bm25__bm25similarity__b": [0.0]},
            {"weights": [{"bm25": 1, "vectors": 1}]},
        ],
        scoring=NDCG,
        cv=cv,
        error_score="raise",
    )
    union = search.fit(Q, y).best_estimator_
    scores = cross_val_score(union, Q, y, scoring=NDCG, cv=2, error_score="raise")
    assert scores.min() > 0.5
    thawed = pickle.loads(pickle.dumps(union))
    assert_array_equal(thawed.similarity(Q[:3], D), union.similarity(Q[:3], D))
    ids = load_categories().document_ids[::2]
    index = SimilarityIndex(union).fit(D, ids=ids)
    index.save(tmp_path / "index")
    loaded = SimilarityIndex.load(tmp_path / "index", trusted=())
    for found, expected in zip(loaded.search(Q[:9]), index.search(Q[:9]), strict=True):
        assert_array_equal(found, expected)
    # Other weights keep the stored items.
    weights = {"bm25": 0.9, "vectors": 0.1}
    other = clone(union).set_params(weights=weights).fit(Q, y)
    scores, _ = index.set_estimator(other).search(Q[:3], k=4)
    expected = -np.sort(-other.similarity(Q[:3], D), axis=1)[:, :4]
    assert_allclose(scores, expected, rtol=1e-5)


def test_words_in_double_and_vectors_in_single_precision(frames, tmp_path):
    Q, D, y = frames
    Q, D = (X.astype(dict.fromkeys(VECTORS, np.float32)) for X in (Q, D))
    # The rounding errors of a map depend on the number of rows.
    learner = QueryDocumentMap(holdout=None, max_iter=2, random_state=0)
    union = make_union(learner, weights={"bm25": 1, "vectors": 1})
    index = SimilarityIndex(union.fit(Q, y.with_documents(D))).fit(D)
    index.save(tmp_path / "index")
    loaded = SimilarityIndex.load(tmp_path / "index", trusted=())
    assert_array_equal(loaded.search(Q[:9]).ids, index.search(Q[:9]).ids)
    learner = clone(learner).set_params(max_iter=3)
    other = make_union(learner, weights={"bm25": 1, "vectors": 1})
    other.fit(Q, y.with_documents(D))
    with pytest.raises(ValueError, match="does not encode items as they are stored"):
        loaded.set_estimator(other)


def test_a_union_at_the_end_of_a_pipeline(arrays):
    Q, _, y, n_words = arrays
    Q, y = Q[:60], y[:60]
    union = SimilarityUnion(
        [
            ("bm25", BM25Similarity(), slice(0, n_words)),
            ("vectors", "passthrough", slice(n_words, None)),
        ],
        random_state=0,
    )
    model = make_retrieval_pipeline("passthrough", union).fit(Q, y)
    assert model[-1].weights_ == clone(union).fit(Q, y).weights_
    outer = SimilarityUnion(
        [
            ("hybrid", union, slice(None)),
            ("words", BM25Similarity(), slice(0, n_words)),
        ],
        random_state=0,
    ).fit(Q, y)
    assert NDCG(outer, Q, y) > 0.5


def test_set_output(frames):
    Q, D, y = frames
    union = SimilarityUnion(
        [("a", "passthrough", VECTORS[:32]), ("b", "passthrough", VECTORS[32:])],
        weights={"a": 1, "b": 1},
    ).fit(Q, y)
    encoded = union.set_output(transform="pandas").transform(Q)
    assert encoded.shape == (len(Q), 64)
    assert_array_equal(encoded.index, Q.index)
    scores, _ = SimilarityIndex(union).fit(D).search(Q[:3], k=4)
    assert_allclose(scores, -np.sort(-union.similarity(Q[:3], D))[:, :4], rtol=1e-5)


@pytest.mark.parametrize("n_parts", range(1, 12))
def test_candidates(n_parts):
    candidates = list_candidates(n_parts)
    assert len(set(candidates)) == len(candidates) <= 2 * MAX_CANDIDATES
    assert_allclose(np.sum(candidates, axis=1), 1)
    assert set(map(tuple, np.eye(n_parts))) <= set(candidates)
    assert candidates[0] == (1 / n_parts,) * n_parts
    starts = list_starts(n_parts)
    assert candidates[: len(starts)] == starts
    assert all(len(set(weights) - {0.0}) == 1 for weights in starts)
    assert len(starts) == (2**n_parts - 1 if n_parts < 8 else n_parts + 1)


def test_bad_calls(frames):
    Q, D, y = frames
    union = make_union()
    for weights, message in (
        ({"bm25": 1}, "one number for each of the parts"),
        ({"bm25": 1, "vectors": -1}, "not negative"),
        ({"bm25": np.nan, "vectors": 1}, "finite"),
        ({"bm25": "1", "vectors": 1}, "finite"),
        ({"bm25": 0, "vectors": 0}, "larger than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make_union(weights=weights).fit(Q, y)
    with pytest.raises(ValueError, match="columns 'txt' cannot be taken"):
        SimilarityUnion([("bm25", BM25, "txt")]).fit(Q, y)
    with pytest.raises(ValueError, match="selects no column"):
        SimilarityUnion([("bm25", BM25, [])]).fit(Q, y)
    with pytest.raises(ValueError, match="columns 'text' cannot be taken"):
        union.fit(Q, y.with_documents(D[VECTORS]))
    with pytest.raises(ValueError, match="list of \\(name, similarity, columns\\)"):
        SimilarityUnion([("bm25", BM25)]).fit(Q, y)
    with pytest.raises(TypeError, match="must be an estimator"):
        SimilarityUnion([("bm25", "drop", "text")]).fit(Q, y)
    with pytest.raises(ValueError, match="not unique"):
        SimilarityUnion([("a", BM25, "text"), ("a", BM25, "text")]).fit(Q, y)
    with pytest.raises(ValueError, match="same number of queries"):
        union.fit(Q[:5], y)
    with pytest.raises(ValueError, match="is not valid for judgements"):
        make_union(holdout="objects").fit(Q, y)
    plain = make_pipeline(StandardScaler(), CosineSimilarity(use_idf=False))
    with pytest.raises(ValueError, match="does not transform documents"):
        SimilarityUnion([("a", plain, VECTORS), ("b", BM25, "text")]).fit(Q, y)
    fitted = make_union(weights={"bm25": 1e308, "vectors": 1e308}).fit(Q, y)
    assert fitted.weights_ == {"bm25": 0.5, "vectors": 0.5}
    before = fitted.encoder_
    with pytest.raises(ValueError, match="no triplet"):
        fitted.fit(Q, Judgements(0 * y.relevance, D))
    assert fitted.encoder_ is before
    assert isinstance(fitted.similarities_["bm25"], RetrievalPipeline)


@pytest.mark.parametrize(
    "check",
    # A union has no start with the name None.
    [check for check in CHECKS if check.__name__ != "check_something_is_learned"],
    ids=lambda check: check.__name__,
)
def test_contract(check):
    learner = TwoCovarianceSimilarity(random_state=0)
    parts = [
        ("cosine", CosineSimilarity(), slice(None)),
        ("learned", learner, slice(None)),
    ]
    check(SimilarityUnion(parts, random_state=0))


def test_vectors_with_nan_are_refused(frames):
    Q, D, y = frames
    union = make_union()
    bad = D.copy()
    bad.loc[3, "v7"] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        union.fit(Q, y.with_documents(bad))
    assert not hasattr(union, "encoder_")
    with pytest.raises(ValueError, match="contains NaN"):
        union.fit(Q.assign(v7=np.nan), y)
    union = make_union(holdout=None).fit(Q, y)
    with pytest.raises(ValueError, match="contains NaN"):
        union.similarity(Q[:3], bad)
