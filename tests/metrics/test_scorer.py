"""The scorer: estimators that it accepts, errors, and the report."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from sklearn_simlearn import metrics
from sklearn_simlearn.base import Encoder
from sklearn_simlearn.metrics import (
    PairwiseRelevance,
    RetrievalScorer,
    map_scorer,
    retrieval_report,
)
from sklearn_simlearn.metrics._measure import (
    CUT,
    MEASURES,
    Measure,
    rank_relevant_items,
)
from sklearn_simlearn.model_selection import (
    KeepTrainingData,
    ObjectKFold,
    make_query_sets,
)
from sklearn_simlearn.similarities import CosineSimilarity


def naive_map(S, y, queries=None):
    """Return leave-one-out mAP by sorting every list."""
    values = []
    for i in range(len(S)) if queries is None else queries:
        others = np.arange(len(S)) != i
        relevant = (y[others] == y[i])[np.argsort(-S[i, others], kind="stable")]
        if y[i] != -1 and relevant.any():
            ranks = np.flatnonzero(relevant) + 1
            values.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return np.mean(values)


class Coarse(BaseEstimator):
    """A similarity with many ties, and without encodings."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def similarity(self, X, Y=None):
        return np.sign(cosine_similarity(X, Y).round(2) - 0.8)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


def test_map_scorer_is_leave_one_out_map(digits):
    X, y = digits
    y = np.where(y == 9, -1, y)
    learner = CosineSimilarity(use_idf=False).fit(X)
    assert_allclose(map_scorer(learner, X, y), naive_map(cosine_similarity(X), y))
    mask = np.arange(200) < 30
    assert_allclose(
        map_scorer(learner, X, y, query_mask=mask),
        naive_map(cosine_similarity(X), y, range(30)),
    )


def test_estimators_that_are_unwrapped(digits):
    X, y = digits
    scaled = StandardScaler().fit_transform(X)
    expected = naive_map(cosine_similarity(scaled), y)
    scaler, learner = StandardScaler().fit(X), CosineSimilarity(use_idf=False)
    pipeline = make_pipeline(StandardScaler(), learner).fit(X, y)
    cv = StratifiedKFold(2)
    models = {
        "transformer": scaler,
        "pipeline with no learner": make_pipeline(StandardScaler()).fit(X),
        "pipeline ending in passthrough": Pipeline(
            [("scale", StandardScaler()), ("end", "passthrough")]
        ).fit(X),
        "pipeline": pipeline,
        "nested pipelines": make_pipeline(make_pipeline(StandardScaler()), learner).fit(
            X, y
        ),
        "pipeline at the end of a pipeline": make_pipeline(
            "passthrough", make_pipeline(StandardScaler(), learner)
        ).fit(X, y),
        "search": GridSearchCV(
            make_pipeline(StandardScaler(), learner),
            {"standardscaler__copy": [True]},
            cv=cv,
        ).fit(X, y),
        "pipeline ending in a search": make_pipeline(
            StandardScaler(),
            GridSearchCV(learner, {"use_idf": [False]}, cv=cv),
        ).fit(X, y),
        "frozen": FrozenEstimator(pipeline),
    }
    for name, model in models.items():
        assert_allclose(map_scorer(model, X, y), expected, err_msg=name)


def test_data_frames_keep_their_names(digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), PCA(5))
    plain = make_pipeline(StandardScaler(), PCA(5))
    assert map_scorer(model.fit(frame), frame, y) == map_scorer(plain.fit(X), X, y)


def test_estimators_without_a_similarity_are_refused(digits):
    X, y = digits
    classifier = LogisticRegression(max_iter=5000).fit(X, y > 4)
    with pytest.raises(TypeError, match="needs an estimator with `similarity` or"):
        map_scorer(classifier, X, y)
    with pytest.raises(NotFittedError):
        map_scorer(make_pipeline(StandardScaler(), CosineSimilarity()), X, y)
    search = GridSearchCV(PCA(), {"n_components": [2]}, scoring=map_scorer, refit=False)
    search.set_params(cv=StratifiedKFold(2))
    with pytest.raises(TypeError, match="needs an estimator"):
        map_scorer(search.fit(X, y), X, y)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_searches(digits, n_jobs):
    X, y = digits
    model = make_pipeline(PCA(random_state=0), CosineSimilarity(use_idf=False))
    search = GridSearchCV(
        model,
        {"pca__n_components": [1, 10]},
        scoring={
            "map": map_scorer,
            "p@1": RetrievalScorer("precision", k=1),
            "ndcg": RetrievalScorer("ndcg"),
        },
        refit="map",
        cv=StratifiedKFold(3),
        n_jobs=n_jobs,
    ).fit(X, y)
    assert search.best_params_ == {"pca__n_components": 10}
    for name in ("map", "p@1", "ndcg"):
        low, high = search.cv_results_[f"mean_test_{name}"]
        assert 0 < low < high < 1
    nested = cross_val_score(
        search, X, y, scoring=map_scorer, cv=StratifiedKFold(2), n_jobs=n_jobs
    )
    assert ((nested > 0.3) & (nested < 1)).all()


def test_query_mask_is_routed_and_sliced_with_the_folds(digits):
    X, y = digits
    mask = np.arange(200) % 3 == 0
    learner, cv = CosineSimilarity(use_idf=False), StratifiedKFold(2)
    expected = [
        naive_map(cosine_similarity(X[test]), y[test], np.flatnonzero(mask[test]))
        for _, test in cv.split(X, y)
    ]
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = map_scorer.set_score_request(query_mask=True)
        scores = cross_validate(
            learner, X, y, scoring=scorer, cv=cv, params={"query_mask": mask}
        )
        search = GridSearchCV(learner, {"use_idf": [False]}, scoring=scorer, cv=cv)
        search.fit(X, y, query_mask=mask)
    assert_allclose(scores["test_score"], expected)
    assert_allclose(search.best_score_, np.mean(expected))
    # The predefined scorer is unchanged.
    with sklearn.config_context(enable_metadata_routing=True):
        request = map_scorer.get_metadata_routing()
        assert request.consumes("score", ["query_mask"]) == set()


def test_fold_of_one_class_is_refused(digits):
    X, y = digits
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match="any similarity would score 1"):
        cross_val_score(
            CosineSimilarity(),
            X[order],
            y[order],
            scoring=map_scorer,
            cv=KFold(40),
            error_score="raise",
        )


def test_protocol_train_searches_the_training_fold(digits):
    X, y = digits
    train, test = next(StratifiedKFold(2).split(X, y))
    scorer = RetrievalScorer(protocol="train")
    pipeline = make_pipeline(StandardScaler(), CosineSimilarity(use_idf=False))
    model = KeepTrainingData(pipeline).fit(X[train], y[train])
    scaler = StandardScaler().fit(X[train])
    S = cosine_similarity(scaler.transform(X[test]), scaler.transform(X[train]))
    expected = metrics.mean_average_precision(y[test, None] == y[train], S)
    assert_allclose(scorer(model, X[test], y[test]), expected)
    assert_allclose(model.score(X[test], y[test]), expected)
    search = GridSearchCV(model, {"estimator__standardscaler__with_std": [True]}, cv=2)
    search.set_params(scoring=scorer, cv=[(train, test)])
    assert_allclose(search.fit(X, y).best_score_, expected)
    with pytest.raises(ValueError, match=r"KeepTrainingData\(estimator\)"):
        scorer(pipeline.fit(X, y), X, y)


def test_protocol_train_with_a_relevance_matrix(digits):
    X, y = digits
    matrix = (y[:, None] == np.arange(10)).astype(float)
    scorer = RetrievalScorer(protocol="train")
    learner = KeepTrainingData(CosineSimilarity())
    by_label = scorer(learner.fit(X[:100], y[:100]), X[100:], y[100:])
    by_matrix = scorer(learner.fit(X[:100], matrix[:100]), X[100:], matrix[100:])
    assert by_label == pytest.approx(by_matrix)


def test_options_reach_the_measure(digits):
    X, y = digits
    X = np.rint(X / 4)  # coarse, so that there are ties
    S = np.sign(cosine_similarity(X).round(2) - 0.8)
    relevance = (y[:, None] == y).astype(np.int8)
    np.fill_diagonal(relevance, -1)
    learner = Coarse().fit(X)
    for options in [
        {},
        {"ties": "threshold"},
        {"ties": "optimistic", "interpolation": "trapezoid"},
        {"k": 5},
        {"k": 5, "denominator": "relevant"},
    ]:
        assert_allclose(
            RetrievalScorer("map", **options)(learner, X, y),
            metrics.mean_average_precision(relevance, S, **options),
        )
    assert_allclose(
        RetrievalScorer("recall", k=7, ties="index")(learner, X, y),
        metrics.recall_at_k(relevance, S, 7, ties="index", average=True),
    )
    by_default = RetrievalScorer("recall")(learner, X, y)
    assert by_default == RetrievalScorer("recall", k=10)(learner, X, y)


@pytest.fixture
def hit_rate():
    """Return an additional measure, as a function of ranks."""

    def hit_rate(ranks, k=10):
        best = np.full(len(ranks.n_relevant), np.inf)
        np.minimum.at(best, ranks.query, ranks.n_above)
        return (best < k).astype(float)

    MEASURES["hit_rate"] = Measure("hit_rate_at_k", hit_rate, {"k": [CUT]})
    yield MEASURES["hit_rate"]
    del MEASURES["hit_rate"]


def test_an_eighth_measure_is_an_entry_of_the_table(digits, hit_rate):
    X, y = digits
    learner = CosineSimilarity(use_idf=False).fit(X)
    relevance = (y[:, None] == y).astype(np.int8)
    np.fill_diagonal(relevance, -1)
    expected = hit_rate.bind(k=2)(rank_relevant_items(relevance, cosine_similarity(X)))
    assert 0 < expected.mean() < 1
    assert_allclose(RetrievalScorer("hit_rate", k=2)(learner, X, y), expected.mean())
    assert_array_equal(retrieval_report(learner, X, y, k=2).hit_rate_at_2, expected)
    with pytest.raises(ValueError, match="'k' parameter"):
        RetrievalScorer("hit_rate", k=0)
    with pytest.raises(ValueError, match="hit_rate_at_k has no option 'gain'"):
        RetrievalScorer("hit_rate", gain="linear")


def test_a_sparse_relevance_matrix_in_a_search_without_parameters(digits):
    """Test the remedy of the user guide: scikit-learn refuses a sparse y otherwise."""
    X, y = digits
    Y = sparse.csr_array(y[:, None] == np.arange(10)).astype(float)
    options = {"scoring": map_scorer, "cv": StratifiedKFold(2).split(X, y)}
    options["cv"] = list(options["cv"])
    search = GridSearchCV(CosineSimilarity(use_idf=False), {}, **options).fit(X, Y)
    found = [search.cv_results_[f"split{i}_test_score"][0] for i in range(2)]
    dense = cross_val_score(CosineSimilarity(use_idf=False), X, Y.toarray(), **options)
    assert_array_equal(found, dense)


def test_graded_relevance_reaches_ndcg(digits, rng):
    X, _ = digits
    y = rng.random((200, 4)) * (rng.random((200, 4)) < 0.2)
    learner = CosineSimilarity().fit(X)
    gain = y @ y.T
    np.fill_diagonal(gain, -1)
    kept = y.any(axis=1)
    expected = metrics.ndcg_at_k(gain, learner.similarity(X))[kept]
    assert_allclose(RetrievalScorer("ndcg")(learner, X, y), np.nanmean(expected))


def test_junk_in_y_is_neither_reward_nor_penalty(digits):
    X, y = digits
    X, y = X[:60], y[:60]
    matrix = (y[:, None] == np.arange(10)).astype(float)
    learner = CosineSimilarity().fit(X)
    # Samples 50 to 59 are junk for every query and are ignored.
    matrix[50:] = -1
    expected = map_scorer(learner, X[:50], y[:50])
    assert map_scorer(learner, X, matrix) == pytest.approx(expected)
    # As distractors, they are ranked before relevant items.
    matrix[50:] = 0
    assert map_scorer(learner, X, matrix) < expected
    assert map_scorer(learner, X, matrix) == pytest.approx(
        map_scorer(learner, X, np.where(np.arange(60) < 50, y, -1))
    )


def test_weights_and_masks_are_routed_in_nested_searches(digits):
    X, y = digits
    weight = np.where(y < 5, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = map_scorer.set_score_request(sample_weight=True, query_mask=False)
        search = GridSearchCV(
            CosineSimilarity(),
            {"use_idf": [True, False]},
            scoring=scorer,
            cv=StratifiedKFold(2),
        )
        scores = cross_validate(
            search,
            X,
            y,
            scoring=scorer,
            cv=StratifiedKFold(2),
            params={"sample_weight": weight},
        )["test_score"]
        by_mask = cross_validate(
            search,
            X,
            y,
            scoring=map_scorer.set_score_request(query_mask=True, sample_weight=False),
            cv=StratifiedKFold(2),
            params={"query_mask": y < 5, "sample_weight": weight},
        )["test_score"]
    assert_allclose(scores, by_mask)


def test_top4_counts_the_query_itself():
    X = np.array([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 1]])
    y = np.array([0, 0, 1, 1, 2])
    learner = CosineSimilarity(use_idf=False).fit(X)
    # Each query finds itself and its partner. The last sample has no partner.
    assert RetrievalScorer("top4")(learner, X, y) == pytest.approx((4 * 2 + 1) / 5)


def test_report_agrees_with_the_functions(digits):
    X, y = digits
    y = np.where(y == 9, -1, y)
    learner = CosineSimilarity().fit(X)
    S = learner.similarity(X)
    relevance = ((y[:, None] == y) & (y != -1)).astype(np.int8)
    np.fill_diagonal(relevance, -1)
    queries = np.flatnonzero(y != -1)
    report = retrieval_report(learner, X, y, k=(1, 5))
    assert_array_equal(report.query, queries)
    pair = relevance[queries], S[queries]
    assert_array_equal(report.n_relevant, (pair[0] > 0).sum(axis=1))
    for name, value in {
        "average_precision": metrics.average_precision(*pair),
        "r_precision": metrics.r_precision(*pair),
        "reciprocal_rank": metrics.reciprocal_rank(*pair),
        "precision_at_1": metrics.precision_at_k(*pair, 1),
        "recall_at_5": metrics.recall_at_k(*pair, 5),
        "ndcg_at_5": metrics.ndcg_at_k(*pair, 5),
        "precision_recall": metrics.precision_recall_curve(*pair, average=False)[0],
        "top4_score": metrics.top4_score(np.abs(pair[0]), pair[1]),
    }.items():
        assert_allclose(report[name], value, err_msg=name)
    with pytest.raises(ValueError, match="Pass both X_database and y_database"):
        retrieval_report(learner, X, y, X_database=X)


def test_report_against_a_database(digits):
    X, y = digits
    learner = CosineSimilarity().fit(X[:150])
    report = retrieval_report(
        learner, X[150:], y[150:], X_database=X[:150], y_database=y[:150]
    )
    S = learner.similarity(X[150:], X[:150])
    expected = metrics.average_precision(y[150:, None] == y[:150], S)
    assert_allclose(report.average_precision, expected)


@pytest.mark.parametrize("y_kind", ["labels", "columns", "pairs"])
def test_memory_is_bounded_by_blocks(digits, y_kind):
    # With 0.1 MB of working memory, all queries do not fit into one block.
    X, y = digits
    relevant = y[:, None] == y
    y = {
        "labels": y,
        "columns": (y[:, None] == np.arange(10)).astype(float),
        "pairs": PairwiseRelevance(relevant),
    }[y_kind]
    seen = []

    class Spy(Coarse):
        def similarity(self, X, Y=None):
            seen.append(X.shape[0])
            return super().similarity(X, Y)

    learner = Spy().fit(X)
    whole = retrieval_report(learner, X, y)
    with sklearn.config_context(working_memory=0.1):
        in_blocks = retrieval_report(learner, X, y)
    for name, value in whole.items():
        assert_allclose(in_blocks[name], value, err_msg=name)
    assert seen[0] == 200
    assert len(seen) > 5
    assert max(seen[1:]) <= 0.1 * 2**20 / (32 * 200)
    assert sum(seen[1:]) == 200


def test_items_are_encoded_once_and_each_query_once(digits):
    X, y = digits
    encoded = {"queries": [], "items": []}

    class SpyEncoder(Encoder):
        def __init__(self, encoder):
            self.encoder = encoder

        def queries(self, X):
            encoded["queries"].append(X.shape[0])
            return self.encoder.queries(X)

        def items(self, X):
            encoded["items"].append(X.shape[0])
            return self.encoder.items(X)

    class Spy(CosineSimilarity):
        def fit(self, X, y=None):
            super().fit(X, y)
            self.encoder_ = SpyEncoder(self.encoder_)
            return self

        def similarity(self, X, Y=None):
            raise AssertionError("encodes the items again")

    learner = make_pipeline(StandardScaler(), Spy(use_idf=False)).fit(X, y)
    expected = naive_map(cosine_similarity(StandardScaler().fit_transform(X)), y)
    for container in (np.asarray, sparse.csr_array):
        given = container(X)
        scaler = StandardScaler(with_mean=False)
        plain = make_pipeline(StandardScaler(with_mean=False)).fit(given)
        model = make_pipeline(scaler, Spy(use_idf=False)).fit(given, y)
        encoded["queries"].clear(), encoded["items"].clear()
        with sklearn.config_context(working_memory=0.1):
            score = map_scorer(model, given, y)
        assert_allclose(score, map_scorer(plain, given, y))
        assert len(encoded["queries"]) > 5
        assert sum(encoded["queries"]) == 200
        assert encoded["items"] == [200]
    assert_allclose(map_scorer(learner, X, y), expected)


def storage_states(X):
    """Return the same samples in all storage states."""
    yield "list", X.tolist()
    yield "fortran", np.asfortranarray(X)
    yield "strided", np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2]
    yield "reversed", X[::-1, ::-1].copy()[::-1, ::-1]
    locked = X.copy()
    locked.flags.writeable = False
    yield "read-only", locked
    yield "frame", pd.DataFrame(X)
    for kind in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        yield kind, sparse.csr_array(X).asformat(kind)
        yield f"{kind} matrix", sparse.csr_matrix(X).asformat(kind)
    csr = sparse.csr_array(X)
    halves = sparse.csr_array(_duplicate(csr), shape=X.shape)
    yield "duplicates", halves
    locked = halves.copy()
    for part in (locked.data, locked.indices, locked.indptr):
        part.flags.writeable = False
    yield "read-only, unsorted, duplicates", locked
    wide = halves.copy()
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    yield "long indices", wide


def _duplicate(csr):
    """Return each entry as two halves in reverse order, and a stored zero."""
    data, indices, indptr = [], [], [0]
    for row in range(csr.shape[0]):
        part = slice(csr.indptr[row], csr.indptr[row + 1])
        data += [*csr.data[part][::-1] / 2, 0.0, *csr.data[part][::-1] / 2]
        indices += [*csr.indices[part][::-1], 0, *csr.indices[part][::-1]]
        indptr.append(len(data))
    return np.array(data), np.array(indices, "i4"), np.array(indptr, "i4")


@pytest.mark.parametrize(
    "model", ["cosine of a transformer", "similarity only", "learner"]
)
def test_samples_in_any_state_of_storage(model, digits):
    X, y = digits
    X, y = X[:40, 10:50], y[:40]
    if model == "similarity only":
        learner = Coarse().fit(X)
        expected = map_scorer(learner, X, y)
    else:
        learner = FunctionTransformer(accept_sparse=True).fit(X)
        if model == "learner":
            learner = CosineSimilarity(use_idf=False).fit(X)
        expected = naive_map(cosine_similarity(X), y)
    for name, given in storage_states(X):
        if name == "list" and model == "cosine of a transformer":
            continue  # a list is not checked by the transformer
        before = [np.array(part) for part in _parts(given)]
        assert_allclose(map_scorer(learner, given, y), expected, err_msg=name)
        for part, old in zip(_parts(given), before, strict=True):
            assert_array_equal(part, old, err_msg=name)


def _parts(X):
    names = ("data", "indices", "indptr")
    return [getattr(X, n) for n in names if isinstance(getattr(X, n, None), np.ndarray)]


# -- relevance by pairs --


def test_pairwise_truth_need_not_be_transitive():
    # A is relevant to B, and B to C, but not A to C. For A, C ranks before B.
    X = np.array([[1.0, 0], [0.6, 0.8], [0.8, 0.6], [-1, 0.1]])
    y = np.zeros((4, 4))
    y[0, 1] = y[1, 0] = y[1, 2] = y[2, 1] = 1
    learner = CosineSimilarity(use_idf=False).fit(X)
    S = cosine_similarity(X)
    relevance = y.copy()
    np.fill_diagonal(relevance, -1)
    expected = metrics.average_precision(relevance, S)[:3]
    assert expected[0] == 0.5
    pairs = PairwiseRelevance(y)
    report = retrieval_report(learner, X, pairs)
    assert_array_equal(report.query, [0, 1, 2])
    assert_allclose(report.average_precision, expected)
    assert_allclose(map_scorer(learner, X, pairs), expected.mean())
    assert_allclose(learner.score(X, pairs), expected.mean())
    with pytest.raises(ValueError, match=r"ambiguous.*PairwiseRelevance\(y\)"):
        map_scorer(learner, X, y)


def test_pairs_in_cross_validation(digits):
    X, y = digits
    pairs = PairwiseRelevance(sparse.csr_array(y[:, None] == y))
    learner = CosineSimilarity(use_idf=False)
    cv = KFold(3, shuffle=True, random_state=0)
    for splitter in (cv, ObjectKFold(3)):
        assert_allclose(
            cross_val_score(learner, X, pairs, scoring=map_scorer, cv=splitter),
            cross_val_score(learner, X, y, scoring=map_scorer, cv=splitter),
        )
    search = GridSearchCV(learner, {"use_idf": [False]}, scoring=map_scorer, cv=cv)
    assert 0 < search.fit(X, pairs).best_score_ < 1
    with pytest.raises(ValueError, match="relates the samples of one set only"):
        RetrievalScorer(protocol="train")(
            KeepTrainingData(learner).fit(X, pairs), X, pairs
        )


def test_weights_of_pairs_are_gains(digits, rng):
    X, _ = digits
    gain = rng.random((200, 200)) * (rng.random((200, 200)) < 0.1)
    learner = CosineSimilarity(use_idf=False).fit(X)
    np.fill_diagonal(gain, 0)
    expected = np.where(np.eye(200), -1, gain)
    assert_allclose(
        RetrievalScorer("ndcg")(learner, X, PairwiseRelevance(gain)),
        metrics.ndcg_at_k(expected, cosine_similarity(X), average=True),
    )


# -- sets --


class SumOfQueries(BaseEstimator):
    """Minimal similarity for sets: a set is encoded by the sum of its rows."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def similarity(self, X, Y=None, groups=None):
        Y = X if Y is None else Y
        if groups is None:
            return X @ Y.T
        return np.stack([X[groups == g].sum(axis=0) for g in np.unique(groups)]) @ Y.T


def naive_set_map(X, y, groups, weight=None):
    values, weights = [], []
    for name in sorted(set(groups) - {-1}):
        members = np.flatnonzero((groups == name) & (y != -1))
        if len(members) == 0:
            continue
        others = np.setdiff1d(np.arange(len(X)), members)
        score = X[members].sum(axis=0) @ X[others].T
        relevant = y[others] == y[members[0]]
        values.append(average_precision_score(relevant, score))
        weights.append(1 if weight is None else weight[members].mean())
    return np.average(values, weights=weights)


@pytest.mark.parametrize("working_memory", [1024, 0.1])
def test_groups_query_together(digits, rng, working_memory):
    X, y = digits
    X = X + rng.random(X.shape)  # no ties
    y = np.where(y == 9, -1, y)
    groups = make_query_sets(y, 3, random_state=0)
    groups[y == -1] = groups.max() + 1  # distractors are not in a set
    model, weight = SumOfQueries().fit(X), rng.random(200)
    with sklearn.config_context(working_memory=working_memory):
        score = map_scorer(model, X, y, groups=groups)
        weighted = map_scorer(model, X, y, groups=groups, sample_weight=weight)
        report = retrieval_report(model, X, y, groups=groups)
    assert_allclose(score, naive_set_map(X, y, groups))
    assert_allclose(weighted, naive_set_map(X, y, groups, weight))
    assert_allclose(report.average_precision.mean(), score)
    expected = np.unique(groups[(y != -1) & (groups != -1)])
    assert_array_equal(report.query, expected)
    names = np.array([None if g == -1 else f"set {g:03}" for g in groups], dtype=object)
    assert_allclose(map_scorer(model, X, y, groups=names), score)
    mask = np.arange(200) % 3 > 0
    assert_allclose(
        map_scorer(model, X, y, groups=groups, query_mask=mask),
        naive_set_map(X, y, np.where(mask, groups, -1)),
    )


def test_an_item_is_relevant_to_a_set_if_it_is_to_all_members():
    X = np.eye(6)
    matrix = np.array(
        [[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    )
    pairs = np.sign(np.maximum(matrix, 0) @ np.maximum(matrix, 0).T)
    pairs[[0, 1, 2], 4] = -1
    groups = np.array([5, 5, -1, -1, -1, -1])
    model = SumOfQueries().fit(X)
    for y in (matrix, PairwiseRelevance(pairs)):
        report = retrieval_report(model, X, y, groups=groups)
        # Sample 2 only: 3 is not relevant to sample 1, 4 is junk, 3 and 5 are left.
        assert_array_equal(report.n_relevant, [1])
        assert_allclose(report.average_precision, [(1 + 1 / 2 + 1 / 3) / 3])
        with pytest.raises(ValueError, match="not relevant to each other"):
            map_scorer(model, X, y, groups=np.array([0, 0, 1, 0, -1, -1]))


def test_groups_against_a_database(digits):
    X, y = digits
    groups = make_query_sets(y[100:], 3, random_state=0)
    model = KeepTrainingData(SumOfQueries()).fit(X[:100], y[:100])
    names = np.unique(groups)
    S = np.stack([X[100:][groups == g].sum(axis=0) for g in names[1:]]) @ X[:100].T
    first = np.array([np.flatnonzero(groups == g)[0] for g in names[1:]])
    expected = metrics.mean_average_precision(y[100:][first, None] == y[:100], S)
    scorer = RetrievalScorer(protocol="train")
    assert_allclose(scorer(model, X[100:], y[100:], groups=groups), expected)
    assert_allclose(model.score(X[100:], y[100:], groups=groups), expected)


def test_groups_are_routed_and_sliced_with_the_folds(digits):
    X, y = digits
    groups = make_query_sets(y, 2, random_state=0)
    cv = StratifiedKFold(2)
    expected = [naive_set_map(X[t], y[t], groups[t]) for _, t in cv.split(X, y)]
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_validate(
            SumOfQueries(),
            X,
            y,
            scoring=map_scorer.set_score_request(groups=True),
            cv=cv,
            params={"groups": groups},
        )
    assert_allclose(scores["test_score"], expected, atol=1e-3)


def test_bad_groups(digits):
    X, y = digits
    with pytest.raises(TypeError, match="whose `similarity` takes groups"):
        map_scorer(CosineSimilarity().fit(X), X, y, groups=y)
    with pytest.raises(TypeError, match="whose `similarity` takes groups"):
        map_scorer(StandardScaler().fit(X), X, y, groups=y)
    model = SumOfQueries().fit(X)
    with pytest.raises(ValueError, match="same number of samples; got 3 and 200"):
        map_scorer(model, X, y, groups=[0, 0, 1])
    with pytest.raises(ValueError, match="There is no query"):
        map_scorer(model, X, y, groups=np.full(200, -1))
    with pytest.raises(TypeError, match="mixes labels of different types"):
        map_scorer(model, X, y, groups=np.array([1, "a"] * 100, dtype=object))


def test_nan_similarity_is_an_error_not_a_score(digits):
    X, y = digits

    class Broken(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            self.fitted_ = True
            return self

        def similarity(self, X, Y=None):
            return np.full((len(X), len(Y)), np.nan)

    with pytest.raises(ValueError, match="is NaN for some pairs"):
        map_scorer(Broken().fit(X), X, y)


def test_no_query_and_nothing_relevant(digits):
    X, y = digits
    learner = CosineSimilarity().fit(X)
    with pytest.raises(ValueError, match="There is no query"):
        map_scorer(learner, X, np.full(200, -1))
    with pytest.raises(ValueError, match="There is no query"):
        map_scorer(learner, X[:0], y[:0])
    with pytest.raises(ValueError, match="No query has a relevant item"):
        map_scorer(learner, X, np.arange(200))
    with pytest.raises(ValueError, match="have no relevant item"):
        RetrievalScorer(empty="error")(learner, X, np.r_[y[:-1], 77])
    zero = RetrievalScorer(empty="zero")(learner, X, np.r_[y[:-1], 77])
    skip = RetrievalScorer(empty="skip")(learner, X, np.r_[y[:-1], 77])
    assert zero == pytest.approx(skip * 199 / 200)


def test_square_targets_of_queries_of_a_database(rng):
    """Each query is a separate object; the columns of the items are the queries."""
    Q, D = rng.standard_normal((6, 3)), rng.standard_normal((20, 3))
    R = (rng.random((6, 20)) < 0.3).astype(float)
    model = Normalizer().fit(D)
    report = retrieval_report(model, Q, np.eye(6), X_database=D, y_database=R.T)
    cosine = model.transform(Q) @ model.transform(D).T
    assert_allclose(report.average_precision, metrics.average_precision(R, cosine))
    with pytest.raises(ValueError, match="which is ambiguous"):
        retrieval_report(model, Q, np.eye(6))


def test_scorer_is_picklable_and_prints(digits):
    scorer = RetrievalScorer("precision", k=3, ties="index", n_jobs=2)
    assert repr(scorer) == "RetrievalScorer('precision', k=3, ties='index', n_jobs=2)"
    X, y = digits
    learner = Normalizer().fit(X)
    thawed = pickle.loads(pickle.dumps(scorer))
    assert thawed(learner, X, y) == scorer(learner, X, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measure": "top4", "k": 3}, "top4_score has no option 'k'.* none"),
        ({"measure": "recall", "gain": 3}, "recall_at_k has no option 'gain'.* k"),
        ({"measure": "recall", "k": 0}, "'k' parameter"),
        ({"measure": "auc"}, "Unknown measure 'auc'. Choose from map, "),
        ({"measure": "ndcg", "ties": "threshold"}, "'ties' parameter"),
        ({"ties": "threshold", "k": 3}, "does not support a cut-off"),
        ({"protocol": "both"}, "'protocol' parameter"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        RetrievalScorer(**arguments)
