"""RetrievalPipeline fits its steps on documents and transforms both sides."""

import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfVectorizer,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from sklearn_simlearn import OASIS
from sklearn_simlearn.compose import RetrievalPipeline, make_retrieval_pipeline
from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.display import SimilarityDistributionDisplay
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements, RetrievalScorer, retrieval_report
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

NDCG = RetrievalScorer("ndcg", k=10)
CV = KFold(3, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def categories():
    return load_categories()


def make_bm25(**options):
    return make_retrieval_pipeline(
        CountVectorizer(stop_words="english"), BM25Similarity(), **options
    )


def lower(texts):
    return [text.lower() for text in texts]


def upper(texts):
    return [text.upper() for text in texts]


class Noted(TransformerMixin, BaseEstimator):
    """Transformer that records its training data, and adds a mark."""

    def __init__(self, mark=""):
        self.mark = mark

    def fit(self, X, y=None):
        self.seen_, self.target_ = list(X), y
        return self

    def transform(self, X):
        return [f"{text} {self.mark}" for text in X]


def test_no_query_takes_part_in_the_statistics(categories):
    model = make_bm25().fit(categories.data, categories.target)
    by_hand = CountVectorizer(stop_words="english").fit(categories.documents)
    D, Q = by_hand.transform(categories.documents), by_hand.transform(categories.data)
    assert model[0].vocabulary_ == by_hand.vocabulary_
    bm25 = BM25Similarity().fit(D)
    expected = bm25.similarity(Q, D)
    assert_allclose(model.similarity(categories.data, categories.documents), expected)
    assert_allclose(
        (model.transform(categories.data[:3]) @ bm25.transform_database(D).T).toarray(),
        expected[:3],
    )
    D_stored = model.transform_database(categories.documents[:5])
    assert_allclose(D_stored.toarray(), bm25.transform_database(D[:5]).toarray())
    # The same from the documents alone, for evaluation only.
    alone = make_bm25().fit(categories.documents)
    assert NDCG(alone, categories.data, categories.target) == NDCG(
        model, categories.data, categories.target
    )


def test_a_learner_gets_both_sides_transformed(categories):
    seen = {}

    class Learner(CosineSimilarity):
        def fit(self, X, y=None):
            seen.update(X=X, y=y)
            return super().fit(X, y)

    model = make_retrieval_pipeline(
        CountVectorizer(min_df=2),
        TruncatedSVD(5, random_state=0),
        Learner(use_idf=False),
    )
    y = categories.target[:50]
    model.fit(categories.data[:50], y)
    assert seen["X"].shape == (50, 5)
    assert seen["y"].documents.shape == (1440, 5)
    assert_array_equal(seen["y"].query_ids, y.query_ids)
    assert y.documents is categories.target.documents
    assert_allclose(seen["X"], model[:-1].transform(categories.data[:50]))


@pytest.mark.filterwarnings("ignore:OASIS")
def test_steps_of_one_side(categories):
    model = RetrievalPipeline(
        [("count", CountVectorizer()), ("bm25", BM25Similarity())],
        query_steps=[("q", Noted("horse"))],
        document_steps=[("d", Noted("cow"))],
    )
    queries, y = ["a cat", "a dog"], Judgements([[1, 0], [0, 1]], ["cat", "dog"])
    model.fit(queries, y)
    assert model.query_steps[0][1].seen_ == queries
    assert model.document_steps[0][1].seen_ == ["cat", "dog"]
    assert set(model["count"].vocabulary_) == {"cat", "dog", "cow"}
    model.set_params(q__mark="cow")
    S = model.similarity(["bird"], ["a dog"])
    assert S.item() > 0  # the query has the mark of the documents now
    index = SimilarityIndex(model).fit(y.documents)
    scores, _ = index.search(queries, k=2)
    assert_allclose(scores, -np.sort(-model.similarity(queries, y.documents)))
    # Samples that query each other go through the steps of both sides.
    model.set_params(q__mark="horse")
    assert np.isfinite(retrieval_report(model, queries, y).average_precision).all()
    with pytest.raises(ValueError, match="need Judgements as y"):
        model.fit(queries, [0, 1])
    assert clone(model).fit(y.documents).similarity(["cat"], ["cat"]).item() > 0


def test_parameters_of_all_steps():
    model = RetrievalPipeline(
        [("count", CountVectorizer()), ("bm25", BM25Similarity())],
        query_steps=[("q", Noted("a"))],
        document_steps=[("d", Noted("b"))],
        verbose=True,
    )
    params = model.get_params()
    for name, value in {
        "q__mark": "a",
        "d__mark": "b",
        "count__lowercase": True,
        "bm25__k1": 1.5,
    }.items():
        assert params[name] == value
    other = Noted("c")
    model.set_params(d=other, q__mark="x", count__min_df=2)
    assert model.document_steps == [("d", other)]
    model.set_params(query_steps=None)
    assert "q" not in model.get_params()
    copied = clone(model)
    assert copied.document_steps[0][1] is not other
    assert copied.get_params()["d__mark"] == "c"
    first, rest = model[:1], model[1:]
    assert isinstance(first, RetrievalPipeline)
    assert first.verbose
    assert first.document_steps is model.document_steps
    assert rest.document_steps is None
    assert len(rest) == 1
    assert model[0] is model["count"]
    model.set_params(document_steps=[("count", Noted())])
    with pytest.raises(ValueError, match="not unique"):
        model.fit(["a"], Judgements([[1]], ["a"]))


def test_names_are_made():
    model = make_retrieval_pipeline(
        CountVectorizer(),
        BM25Similarity(),
        query_steps=[Noted()],
        document_steps=[Noted(), Noted()],
    )
    assert [name for name, _ in model.query_steps] == ["query-noted"]
    names = [name for name, _ in model.document_steps]
    assert names == ["document-noted-1", "document-noted-2"]


def test_with_labels_it_is_a_pipeline(rng):
    X, y = rng.standard_normal((60, 5)), np.arange(60) % 3
    steps = [StandardScaler(), PCA(3, random_state=0)]
    ours = make_retrieval_pipeline(*map(clone, steps)).fit(X, y)
    plain = make_pipeline(*map(clone, steps)).fit(X, y)
    assert_array_equal(ours.transform(X), plain.transform(X))
    assert_array_equal(clone(ours).fit_transform(X, y), plain.fit_transform(X, y))
    assert ours.score(X, y) == RetrievalScorer("map")(plain, X, y)
    frame = ours.set_output(transform="pandas").fit(X, y).transform(X)
    assert list(frame.columns) == ["pca0", "pca1", "pca2"]
    SimilarityDistributionDisplay.from_estimator(ours, X, y)


def test_a_transformer_at_the_end_is_fitted_on_documents(categories):
    y = categories.target
    for last in (TfidfVectorizer(), make_pipeline(TfidfVectorizer(), Normalizer())):
        model = make_retrieval_pipeline(last).fit(categories.data, y)
        tfidf = TfidfVectorizer().fit(categories.documents)
        S = tfidf.transform(categories.data) @ tfidf.transform(categories.documents).T
        assert_allclose(
            model.similarity(categories.data, categories.documents), S.toarray()
        )
    Q = make_retrieval_pipeline(TfidfVectorizer()).fit_transform(categories.data, y)
    assert Q.shape == (337, len(tfidf.vocabulary_))


@pytest.mark.filterwarnings("ignore:OASIS")
def test_searches_and_cross_validation(categories):
    search = GridSearchCV(
        make_bm25(),
        {"countvectorizer__min_df": [1, 2], "bm25similarity__b": [0.0, 0.75]},
        scoring=NDCG,
        cv=CV,
        error_score="raise",
    ).fit(categories.data, categories.target)
    assert search.best_score_ > 0.45
    nested = cross_val_score(
        clone(search), categories.data, categories.target, scoring=NDCG, cv=CV
    )
    assert np.isfinite(nested).all()
    default = cross_val_score(make_bm25(), categories.data, categories.target, cv=CV)
    assert default.mean() == pytest.approx(0.3, abs=0.1)
    index = SimilarityIndex(search).fit(
        categories.documents, ids=categories.document_ids
    )
    _, ids = index.search(["bird of prey"], k=5)
    assert ids.shape == (1, 5)
    thawed = pickle.loads(pickle.dumps(search))
    assert NDCG(thawed, categories.data, categories.target) == NDCG(
        search, categories.data, categories.target
    )


@pytest.mark.filterwarnings("ignore:OASIS")
def test_a_search_over_the_learner_is_the_last_step(categories):
    Q, y = (
        categories.query_vectors,
        categories.target.with_documents(categories.document_vectors),
    )
    search = GridSearchCV(
        OASIS(n_triplets=100, random_state=0), {"C": [0.01, 0.1]}, scoring=NDCG, cv=CV
    )
    model = make_retrieval_pipeline(StandardScaler(), search).fit(Q, y)
    assert_allclose(model[0].mean_, categories.document_vectors.mean(axis=0), atol=1e-6)
    assert NDCG(model, Q, y) > 0.5


def test_memory_is_used_in_all_folds(categories, tmp_path):
    calls = tmp_path / "calls"
    calls.touch()

    model = make_retrieval_pipeline(
        CountVectorizer(tokenizer=_Tokens(str(calls)), token_pattern=None),
        BM25Similarity(),
        memory=joblib.Memory(tmp_path / "cache", verbose=0),
    )
    documents, queries = ["a b", "b c", "c d"], ["a", "b", "c", "d", "a c", "b d"]
    y = Judgements(np.eye(6, 3) + np.eye(6, 3, k=-3), documents)
    cross_validate(model, queries, y, cv=3, scoring=NDCG, error_score="raise")
    # Fitted once, then transformed by the scorer of each fold.
    assert calls.read_text().splitlines().count("a b") == 1 + 3


class _Tokens:
    """Tokenizer that records its arguments."""

    def __init__(self, path):
        self.path = path

    def __call__(self, text):
        with open(self.path, "a") as file:
            file.write(f"{text}\n")
        return text.split()


def test_saved_in_an_index(categories, tmp_path):
    model = make_bm25().fit(categories.data, categories.target)
    index = SimilarityIndex(model).fit(
        categories.documents, ids=categories.document_ids
    )
    index.save(tmp_path / "index")
    loaded = SimilarityIndex.load(tmp_path / "index", trusted=())
    for found, expected in zip(
        loaded.search(categories.data[:9]),
        index.search(categories.data[:9]),
        strict=True,
    ):
        assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="Fit the estimator on queries"):
        SimilarityIndex(make_bm25()).fit(categories.documents, categories.target)


# -- errors --


def test_a_plain_pipeline_with_judgements_is_refused(categories):
    Q, D = categories.query_vectors, categories.document_vectors
    y = categories.target.with_documents(D)
    for plain in (
        make_pipeline(StandardScaler(), CosineSimilarity(use_idf=False)),
        make_pipeline(Normalizer(), CosineSimilarity(use_idf=False)),
    ):
        plain.fit(Q, y)
        with pytest.raises(ValueError, match="make_retrieval_pipeline"):
            NDCG(plain, Q, y)
        with pytest.raises(ValueError, match="make_retrieval_pipeline"):
            retrieval_report(FrozenEstimator(plain), Q, y)
        with pytest.raises(ValueError, match="make_retrieval_pipeline"):
            SimilarityIndex(plain).fit(D)
    for plain in (PCA(3), make_pipeline(StandardScaler(), PCA(3))):
        with pytest.raises(ValueError, match="fitted on the queries instead"):
            NDCG(plain.fit(Q, y), Q, y)
    with pytest.raises(ValueError, match="fitted on the queries instead"):
        cross_val_score(PCA(3), Q, y, scoring=NDCG, cv=CV, error_score="raise")


def test_a_plain_pipeline_that_cannot_be_wrong_is_accepted(categories):
    y = categories.target
    hashing = HashingVectorizer(n_features=2**10)
    frozen = FrozenEstimator(TfidfVectorizer().fit(categories.documents))
    for model in (
        hashing,
        make_pipeline(hashing, Normalizer()),
        frozen,
        make_pipeline(FunctionTransformer(lower), frozen),
    ):
        assert NDCG(model, categories.data, y) > 0.2
    # Fitted steps are not fitted again.
    steps = make_pipeline(CountVectorizer(), BM25Similarity()).fit(categories.documents)
    assert NDCG(RetrievalPipeline(steps.steps), categories.data, y) > 0.2


def test_bad_calls(categories):
    queries, y = ["a cat", "a dog"], Judgements([[1, 0], [0, 1]], ["cat", "dog"])
    with pytest.raises(ValueError, match="same number of queries; got 1 and 2"):
        make_bm25().fit(queries[:1], y)
    inner = Pipeline([("count", CountVectorizer()), ("bm25", BM25Similarity())])
    with pytest.raises(ValueError, match="does not transform documents"):
        make_retrieval_pipeline(inner).fit(queries, y)
    with pytest.raises(ValueError, match="only the last step takes parameters"):
        make_bm25().fit(queries, y, countvectorizer__raw=1)
    with pytest.raises(TypeError, match="should be transformers"):
        make_retrieval_pipeline(BaseEstimator(), BM25Similarity()).fit(queries, y)


def test_parameters_of_fit_reach_the_last_step():
    class Weighted(CosineSimilarity):
        def fit(self, X, y=None, sample_weight=None):
            super().fit(X, y)
            self.weight_ = sample_weight
            return self

    queries, y = ["a cat", "a dog"], Judgements([[1, 0], [0, 1]], ["cat", "dog"])
    model = make_retrieval_pipeline(CountVectorizer(), Weighted())
    assert model.fit(queries, y, weighted__sample_weight=[1, 2])[-1].weight_ == [1, 2]
    with config_context(enable_metadata_routing=True):
        model[-1].set_fit_request(sample_weight=True)
        assert model.fit(queries, y, sample_weight=[3, 4])[-1].weight_ == [3, 4]


def test_train_test_split_of_texts(categories):
    train, test, y_train, y_test = train_test_split(
        categories.data, categories.target, random_state=0
    )
    model = make_bm25().fit(train, y_train)
    report = retrieval_report(model, test, y_test)
    assert_array_equal(report.query, y_test.query_ids)


@pytest.mark.parametrize("value", [None, 3.5, np.nan, ["a"]])
def test_a_value_that_is_not_a_text_is_named_with_its_row(value):
    documents, queries = ["red cat", "blue dog", "ships"] * 5, ["cat", "dog", "sea"] * 5
    y = Judgements(np.eye(15), documents)
    wrong = [*documents[:4], value, *documents[5:]]
    model = make_bm25().fit(queries, y)
    index = SimilarityIndex(model).fit(documents)
    in_documents = "Row 4 of the documents is "
    for call, message in (
        (lambda: make_bm25().fit(wrong), "Row 4 is "),
        (lambda: make_bm25().fit(wrong, y), "Row 4 is "),
        (lambda: make_bm25().fit(queries, y.with_documents(wrong)), in_documents),
        (lambda: model.similarity(wrong, documents), "Row 4 is "),
        (lambda: model.score(queries, y.with_documents(wrong)), "Row 4 of the items"),
        (lambda: model.transform(wrong), "Row 4 is "),
        (lambda: index.add(wrong), "Row 4 of the items is "),
        (lambda: index.search(wrong), "Row 4 is "),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_errors_that_do_not_concern_texts_are_passed_on():
    def fail(texts):
        raise TypeError("a defect")

    model = make_retrieval_pipeline(FunctionTransformer(fail), BM25Similarity())
    for texts in (["a", "b"], [1, None], np.ones((2, 2))):
        with pytest.raises(TypeError, match="a defect"):
            model.fit(texts)
