"""Judgements of queries against documents: slices, tables and scores."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from numpy.testing import assert_allclose, assert_array_equal
from sample_data import polars_frame
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.metrics import (
    Judgements,
    PairwiseRelevance,
    RetrievalScorer,
    judgements_from_table,
    judgements_from_triplets,
    map_scorer,
    ndcg_at_k,
    retrieval_report,
)
from sklearn_simlearn.model_selection import ObjectKFold
from sklearn_simlearn.similarities import CosineSimilarity

COSINE = CosineSimilarity(use_idf=False)


@pytest.fixture
def task(rng):
    """Return queries, documents and graded relevance with stored zeros."""
    D = rng.standard_normal((70, 6))
    Q = rng.standard_normal((25, 6))
    R = sparse.coo_array(
        (
            rng.integers(0, 4, size=300).astype(float),
            np.unravel_index(rng.permutation(25 * 70)[:300], (25, 70)),
        ),
        shape=(25, 70),
    )
    return Q, D, R.tocsr()


def names(prefix, n):
    return [f"{prefix}{i}" for i in range(n)]


def trec_eval(R, S, measures):
    """Return values per query, from names in the order of the rows."""
    R = R.tocoo()
    qrels = {f"q{i:04}": {} for i in range(R.shape[0])}
    for i, j, value in zip(R.row, R.col, R.data, strict=True):
        qrels[f"q{i:04}"][f"d{j}"] = int(value)
    run = {
        f"q{i:04}": {f"d{j}": float(s) for j, s in enumerate(row)}
        for i, row in enumerate(S)
    }
    found = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    return [found[name] for name in sorted(found)]


# -- the container --


def test_stored_zeros_and_documents_are_kept(task):
    _, D, R = task
    before = R.copy()
    y = Judgements(R, D)
    assert y.documents is D
    assert y.relevance.nnz == R.nnz > np.count_nonzero(R.data)
    assert y.relevance.dtype == np.float64
    assert_array_equal(y.relevance.toarray(), R.toarray())
    assert y.shape == (25, 70)
    assert len(y) == 25
    assert repr(y) == "Judgements(n_queries=25, n_documents=70, n_judged=300)"
    assert_array_equal(R.indices, before.indices)
    # Duplicates add up and columns are sorted, as in any sparse matrix.
    doubled = sparse.coo_array(([1, 2, 0], ([0, 0, 0], [1, 1, 0])), shape=(1, 2))
    assert_array_equal(Judgements(doubled, [[1], [2]]).relevance.data, [0, 3])


@pytest.mark.parametrize("with_ids", [False, True])
def test_slices_take_queries_and_keep_documents(task, with_ids):
    _, D, R = task
    ids = {"query_ids": names("q", 25), "document_ids": np.arange(70)}
    y = Judgements(R, D, **(ids if with_ids else {}))
    mask = np.arange(25) % 3 == 0
    for rows in (3, slice(2, 9), mask, [4, 4, 1], np.array([5]), (np.array([1]), ...)):
        part = y[rows]
        chosen = np.atleast_1d(np.arange(25)[rows[0] if type(rows) is tuple else rows])
        assert isinstance(part, Judgements)
        assert part.documents is D
        assert part.shape == (len(chosen), 70)
        assert_array_equal(part.relevance.toarray(), R.toarray()[chosen])
        if with_ids:
            assert_array_equal(part.query_ids, [f"q{i}" for i in chosen])
            assert_array_equal(part.document_ids, [str(i) for i in range(70)])
        else:
            assert part.query_ids is part.document_ids is None
    assert_array_equal(y.take([2, 1]).relevance.toarray(), R.toarray()[[2, 1]])
    assert len(y.take([])) == 0
    assert_array_equal(y.iloc[2:4].relevance.toarray(), R.toarray()[2:4])
    assert_array_equal(y.loc[mask].relevance.toarray(), R.toarray()[mask])
    with pytest.raises(ValueError, match="no axis 1"):
        y.take([0], axis=1)
    with pytest.raises(IndexError):
        y[25]
    copied = pickle.loads(pickle.dumps(y))
    assert_array_equal(copied.relevance.toarray(), R.toarray())
    assert_array_equal(copied.documents, D)


def test_it_is_not_an_array(task):
    _, D, R = task
    y = Judgements(R, D)
    with pytest.raises(TypeError, match="not an array: use its attribute `relevance`"):
        np.asarray(y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0, 1]], [[1], [2]]), r"one column per document.*\(1, 3\) for 2"),
        (([[np.nan, 0]], [[1], [2]]), "relevance contains NaN"),
        (([[np.inf, 0]], [[1], [2]]), "relevance contains infinity"),
        (([1, 0], [[1], [2]]), "Expected 2D"),
        (([[1, 0]], [[1], [2]], {"document_ids": ["a", "a"]}), "more than once: 'a'"),
        (([[1, 0]], [[1], [2]], {"document_ids": ["a"]}), "must hold 2 ids; got 1"),
        (([[1, 0]] * 2, [[1], [2]], {"query_ids": [7, 7]}), "more than once: '7'"),
        (([[1, 0]], [[1], [2]], {"document_ids": ["a", "b\0"]}), "null characters"),
    ],
)
def test_bad_judgements(arguments, message):
    *arguments, ids = arguments if len(arguments) == 3 else (*arguments, {})
    with pytest.raises(ValueError, match=message):
        Judgements(*arguments, **ids)


@pytest.mark.parametrize("ids", [["a", 1], [1.5, 2.0], [None, "b"], [True, False]])
def test_ids_are_strings_or_integers(ids):
    with pytest.raises(TypeError, match="strings only, or integers only"):
        Judgements([[1, 0]], [[1], [2]], document_ids=ids)


# -- cross-validation --


def test_splitters_searches_and_cross_validation_slice_queries(task):
    Q, D, R = task
    y = Judgements(R, D, query_ids=names("q", 25))
    Q_train, Q_test, y_train, y_test = train_test_split(Q, y, random_state=0)
    rows = [int(name[1:]) for name in y_test.query_ids]
    assert_array_equal(Q[rows], Q_test)
    assert len(y_train) == len(Q_train)

    scorer = RetrievalScorer("ndcg", k=10)
    expected = [
        scorer(COSINE.fit(Q[train]), Q[test], y[test])
        for train, test in KFold(3).split(Q)
    ]
    assert_array_equal(
        cross_val_score(COSINE, Q, y, scoring=scorer, cv=KFold(3)), expected
    )
    search = GridSearchCV(
        make_retrieval_pipeline(PCA(random_state=0)),
        {"pca__n_components": [2, 6]},
        scoring=scorer,
        cv=ShuffleSplit(3, random_state=0),
        error_score="raise",
    ).fit(Q, y)
    assert 0 < search.best_score_ < 1
    assert scorer(search, Q, y) == pytest.approx(scorer(search.best_estimator_, Q, y))
    parallel = cross_validate(COSINE, Q, y, scoring=scorer, cv=KFold(3), n_jobs=2)
    assert_array_equal(parallel["test_score"], expected)


DISPATCH = """
import numpy as np
import sklearn
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn_simlearn.metrics import Judgements, PairwiseRelevance, map_scorer
from sklearn_simlearn.similarities import CosineSimilarity

rng = np.random.default_rng(0)
X, D = rng.standard_normal((30, 4)), rng.standard_normal((9, 4))
pairs = np.zeros((30, 30))
pairs[np.arange(30), (np.arange(30) + 3) % 30] = 1
pairs = np.maximum(pairs, pairs.T)
for y in (Judgements(rng.random((30, 9)) < 0.3, D), PairwiseRelevance(pairs)):
    with sklearn.config_context(array_api_dispatch=True):
        assert len(train_test_split(X, y)[2]) == 22
        cross_val_score(
            CosineSimilarity(use_idf=False), X, y, scoring=map_scorer,
            cv=KFold(2), error_score="raise",
        )
"""


def test_targets_are_sliced_with_array_api_dispatch():
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    subprocess.run([sys.executable, "-c", DISPATCH], check=True, env=environment)


# -- scores --


def test_measures_are_those_of_trec_eval(task):
    Q, D, R = task
    y = Judgements(R, D, query_ids=names("q", 25))
    model = COSINE.fit(D)
    expected = trec_eval(
        R,
        cosine_similarity(Q, D),
        {"map", "ndcg", "ndcg_cut.10", "P.10", "recall.10", "recip_rank", "Rprec"},
    )
    ours = retrieval_report(model, Q, y, k=10, empty="zero")
    assert_array_equal(ours.query, names("q", 25))
    for name, theirs in {
        "average_precision": "map",
        "ndcg_at_10": "ndcg_cut_10",
        "precision_at_10": "P_10",
        "recall_at_10": "recall_10",
        "reciprocal_rank": "recip_rank",
        "r_precision": "Rprec",
    }.items():
        assert_allclose(ours[name], [values[theirs] for values in expected])
    for scorer, theirs in [
        (RetrievalScorer("ndcg", k=10, empty="zero"), "ndcg_cut_10"),
        (RetrievalScorer("map", empty="zero"), "map"),
        (RetrievalScorer("ndcg", empty="zero"), "ndcg"),
    ]:
        mean = np.mean([values[theirs] for values in expected])
        assert scorer(model, Q, y) == pytest.approx(mean)
    assert map_scorer(model, Q, y) == model.score(Q, y)


class Plain(BaseEstimator):
    """A user's similarity, without encodings."""

    def fit(self, X, y=None):
        self.n_features_in_ = np.shape(X)[1]
        return self

    def similarity(self, X, Y=None):
        return cosine_similarity(X, Y)


def test_any_fitted_estimator_is_scored(task):
    Q, D, R = task
    y = Judgements(R, D)
    scorer = RetrievalScorer("ndcg", k=10)
    expected = ndcg_at_k(R.toarray(), cosine_similarity(Q, D), 10, average=True)
    frame = pd.DataFrame(D, columns=list("abcdef"))
    for model, queries, target in [
        (COSINE.fit(D), Q, y),
        (Plain().fit(D), Q, y),
        (make_pipeline("passthrough", COSINE).fit(D), Q, y),
        (make_pipeline("passthrough").fit(D), Q, y),
        (MemoryVectorQuery().fit(D), Q, y),
        (COSINE.fit(D), sparse.csr_array(Q), Judgements(R, sparse.csr_array(D))),
        (
            CosineSimilarity(use_idf=False).fit(frame),
            pd.DataFrame(Q, columns=list("abcdef")),
            Judgements(R, frame),
        ),
    ]:
        assert scorer(model, queries, target) == pytest.approx(expected)

    texts = ["a cat", "a dog", "the stocks fell", "stocks and bonds"]
    y = Judgements([[1, 0, 0, 0], [0, 0, 1, 2]], texts)
    model = make_retrieval_pipeline(TfidfVectorizer(), COSINE).fit(texts)
    assert scorer(model, ["cat", "stocks bonds"], y) == 1.0


def test_weights_masks_junk_and_groups(task):
    Q, D, R = task
    R = R.toarray()
    R[:, :5] = -1
    y, S = Judgements(R, D, query_ids=names("q", 25)), cosine_similarity(Q, D)
    model, scorer = COSINE.fit(D), RetrievalScorer("ndcg", k=5)
    weight = np.arange(25.0)
    values = ndcg_at_k(R, S, 5)
    assert scorer(model, Q, y, sample_weight=weight) == pytest.approx(
        np.average(values, weights=weight)
    )
    mask = np.arange(25) < 10
    assert scorer(model, Q, y, query_mask=mask) == pytest.approx(values[:10].mean())
    report = retrieval_report(model, Q, y, query_mask=mask)
    assert_array_equal(report.query, names("q", 10))

    memory = MemoryVectorQuery(method="average").fit(D)
    groups = np.repeat(np.arange(5), 5)
    R[:, 5:12] = np.maximum(R[:, 5:12], 1)  # so that sets have something in common
    y = Judgements(R, D)
    common = np.minimum.reduceat(R, np.arange(0, 25, 5), axis=0)
    mean = cosine_similarity(Q, D).reshape(5, 5, -1).mean(axis=1)
    report = retrieval_report(memory, Q, y, groups=groups, k=5)
    assert_allclose(report.ndcg_at_5, ndcg_at_k(common, mean, 5))
    assert_array_equal(report.query, np.arange(5))


def test_blocks_and_queries_without_an_irrelevant_document(task, monkeypatch):
    Q, D, R = task
    R = R.toarray()
    R[3] = 1
    y, model = Judgements(R, D), COSINE.fit(D)
    whole = retrieval_report(model, Q, y)
    assert whole.average_precision[3] == 1
    rows_per_block = "sklearn_simlearn.metrics._queries.rows_per_block"
    monkeypatch.setattr(rows_per_block, lambda *_: 4)
    blocks = retrieval_report(model, Q, y)
    for name, values in whole.items():
        assert_array_equal(blocks[name], values)


def test_documents_on_a_cluster_stay_there(task):
    da = pytest.importorskip("dask.array")
    Q, D, R = task
    y = Judgements(R, da.from_array(D, chunks=(20, 6)))
    assert map_scorer(COSINE.fit(D), Q, y) == pytest.approx(
        map_scorer(COSINE.fit(D), Q, Judgements(R, D))
    )


def test_judgements_where_they_are_not_valid(task):
    Q, D, R = task
    y, model = Judgements(R, D), COSINE.fit(D)
    with pytest.raises(ValueError, match="contain the documents"):
        retrieval_report(model, Q, y, X_database=D)
    with pytest.raises(ValueError, match="contain the documents"):
        retrieval_report(model, Q, np.arange(25), X_database=Q, y_database=y)
    with pytest.raises(ValueError, match='Use protocol="test"'):
        RetrievalScorer("map", protocol="train")(model, Q, y)
    with pytest.raises(ValueError, match="same number of queries; got 24 and 25"):
        map_scorer(model, Q[1:], y)
    with pytest.raises(TypeError, match="use KFold"):
        next(ObjectKFold(2).split(Q, y))
    memory = MemoryVectorQuery("precomputed").fit(np.eye(25))
    with pytest.raises(TypeError, match="precomputed similarity cannot be compared"):
        map_scorer(memory, np.eye(25), y)
    with pytest.raises(ValueError, match="There is no query"):
        map_scorer(model, Q, y, query_mask=np.zeros(25, dtype=bool))


# -- tables --

CLICKS = {
    "query": ["b", "a", "b", "b", "a"],
    "page": ["y", "x", "y", "z", "z"],
    "value": [1.0, 2.0, 4.0, 0.0, -1.0],
}


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, polars_frame])
@pytest.mark.parametrize("aggregate", ["sum", "max", "mean"])
def test_tables_of_clicks(kind, aggregate):
    options = {"query": "query", "document": "page", "document_ids": list("xyz")}
    table, documents = kind(CLICKS), [[1], [2], [3]]
    y = judgements_from_table(table, documents, **options)
    assert y.query_ids.tolist() == ["b", "a"]
    assert y.document_ids.tolist() == ["x", "y", "z"]
    assert y.documents is documents
    assert_array_equal(y.relevance.toarray(), [[0, 2, 1], [1, 0, 1]])
    y = judgements_from_table(
        table, documents, relevance="value", aggregate=aggregate, **options
    )
    both = {"sum": 5, "max": 4, "mean": 2.5}[aggregate]
    assert_array_equal(y.relevance.toarray(), [[0, both, 0], [2, 0, -1]])
    assert y.relevance.nnz == 4  # the click of value 0 is stored
    y = judgements_from_table(table, documents, query_ids=["a", "c", "b"], **options)
    assert_array_equal(y.relevance.toarray(), [[1, 0, 1], [0, 0, 0], [0, 2, 1]])
    assert y.query_ids.tolist() == ["a", "c", "b"]


def test_row_numbers_and_integer_ids():
    table = pd.DataFrame({"q": [7, 7, 3], "d": [1, 0, 1]})
    y = judgements_from_table(table, [[1], [2]], query="q", document="d")
    assert y.document_ids is None
    assert y.query_ids.tolist() == ["7", "3"]
    assert_array_equal(y.relevance.toarray(), [[1, 1], [0, 1]])
    y = judgements_from_table(
        table, [[1], [2]], query="q", document="d", document_ids=[1, 0]
    )
    assert_array_equal(y.relevance.toarray(), [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"page": list("yvwut")},
            {},
            "document_ids, first in row 1: 'v', 'w', 'u' and 1",
        ),
        ({}, {"query_ids": ["a"]}, "not in query_ids.* row .: 'b'"),
        ({}, {"query": "user"}, r"no column 'user'; it has \['query', 'page', 'value'"),
        ({}, {"document_ids": None}, "'page' must hold row numbers"),
        ({"page": [0, 1, 2, 3, 0]}, {"document_ids": None}, "holds 3, but there are 3"),
        ({"value": [1, 2, np.nan, 1, 1]}, {"relevance": "value"}, "NaN or infinity"),
        ({"value": list("abcde")}, {"relevance": "value"}, "must hold numbers"),
        ({"value": [1.0]}, {"relevance": "value"}, "differ in length: 5, 5 and 1"),
        ({}, {"aggregate": "error"}, "1 rows of the table repeat a pair"),
        ({}, {"aggregate": "median"}, "'aggregate' parameter"),
        ({key: [] for key in CLICKS}, {}, "no rows. Pass query_ids"),
    ],
)
def test_bad_tables(changes, options, message):
    options = {
        "query": "query",
        "document": "page",
        "document_ids": list("xyz"),
    } | options
    with pytest.raises(ValueError, match=message):
        judgements_from_table(CLICKS | changes, [[1], [2], [3]], **options)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_clicks_without_a_query(missing):
    table = pd.DataFrame(CLICKS).astype({"query": object})
    table.loc[3, "query"] = missing
    with pytest.raises(
        TypeError, match=r"'query' must hold.*row 3 holds (None|nan|<NA>)"
    ):
        judgements_from_table(
            table, [[1]] * 3, query="query", document="page", document_ids=list("xyz")
        )


TRIPLETS = {
    "query": ["b", "b", "a", "b"],
    "better": ["x", "y", "z", "x"],
    "worse": ["y", "z", "x", "z"],
}
TRIPLET_COLUMNS = {"query": "query", "relevant": "better", "irrelevant": "worse"}


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, polars_frame])
def test_tables_of_triplets(kind):
    options = {**TRIPLET_COLUMNS, "document_ids": list("xyz")}
    table, documents = kind(TRIPLETS), [[1], [2], [3]]
    y = judgements_from_triplets(table, documents, **options)
    assert y.query_ids.tolist() == ["b", "a"]
    assert y.document_ids.tolist() == ["x", "y", "z"]
    assert y.documents is documents
    assert_array_equal(y.relevance.toarray(), [[1, 0.5, 0], [0, 0, 1]])
    assert y.relevance.nnz == 5  # documents that only lose are judged
    y = judgements_from_triplets(table, documents, query_ids=["a", "c", "b"], **options)
    assert_array_equal(y.relevance.toarray(), [[0, 0, 1], [0, 0, 0], [1, 0.5, 0]])
    rows = {"query": [7], "better": [2], "worse": [0]}
    y = judgements_from_triplets(rows, documents, **TRIPLET_COLUMNS)
    assert y.document_ids is None
    assert_array_equal(y.relevance.toarray(), [[0, 0, 1]])


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"worse": list("yzxv")}, {}, "'worse' holds.*row 3: 'v'"),
        ({"worse": list("yzzz")}, {}, "Row 2 .* one document as 'better' and as"),
        ({"worse": list("yz")}, {}, "differ in length: 4, 4 and 2"),
        ({}, {"query_ids": ["a"]}, "not in query_ids.* row .: 'b'"),
        ({}, {"relevant": "best"}, "no column 'best'"),
        ({}, {"document_ids": None}, "'better' must hold row numbers"),
    ],
)
def test_bad_tables_of_triplets(changes, options, message):
    options = {**TRIPLET_COLUMNS, "document_ids": list("xyz")} | options
    with pytest.raises(ValueError, match=message):
        judgements_from_triplets(TRIPLETS | changes, [[1], [2], [3]], **options)


def test_pairs_are_sliced_like_arrays():
    y = PairwiseRelevance(np.ones((4, 4)))
    assert len(y.take([0, 2])) == len(y.iloc[:2]) == len(y.loc[[True, False] * 2]) == 2
