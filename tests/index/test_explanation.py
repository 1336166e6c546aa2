"""Explanations: contributions with names, which add up to the score."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BM25Similarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

TEXTS = ["the cat sat on the mat", "dogs and cats", "a dog barks", "a red mat", "red"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
    pytest.mark.filterwarnings("ignore::sklearn_simlearn.StartKeptWarning"),
]


def sum_parts(parts):
    for part in parts:
        if part.parts:
            assert_allclose(sum_parts(part.parts), part.value, atol=1e-12)
    assert list(parts) == sorted(parts, key=lambda part: -part.value)
    return sum(part.value for part in parts)


def check(index, X, k=4):
    scores, ids = index.search(X, k)
    explained = index.explain(X, ids)
    assert [[e.id for e in row] for row in explained] == [
        [id_ for id_, score in zip(*pair, strict=True) if score > -np.inf]
        for pair in zip(ids.tolist(), scores, strict=True)
    ]
    assert [[e.query for e in row] for row in explained] == [
        [i] * len(row) for i, row in enumerate(explained)
    ]
    for of_query, row in zip(scores, explained, strict=True):
        assert_allclose([e.score for e in row], of_query[: len(row)], atol=1e-5)
        for explanation in row:
            assert_allclose(sum_parts(explanation.parts), explanation.score, atol=1e-9)
    return explained


@pytest.mark.parametrize(
    "learner",
    [
        CosineSimilarity(),
        BM25Similarity(),
        NegativeEvidenceSimilarity(),
        BurstinessSimilarity(),
        AsymmetricSimilarity(p=2, lam=3.0),
        AsymmetricSimilarity(p=1),
        OASIS(n_triplets=200, random_state=0),
        OASIS(n_triplets=200, holdout=None, random_state=0),
        MemoryVectorQuery(),
        AngularBilinearRanker(n_references=15, random_state=0),
        HistogramRankSVM(random_state=0),
        SparseMahalanobisLearner(n_random_triplets=200, max_iter=5, random_state=0),
        TwoCovarianceSimilarity(random_state=0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_contributions_of_every_learner_add_up(learner, counts):
    X, y = counts
    names = [f"word {i}" for i in range(X.shape[1])]
    index = SimilarityIndex(learner).fit(X, y)
    plain = check(index, X[:5])
    X = pd.DataFrame(X.toarray(), columns=names)
    named = check(SimilarityIndex(learner).fit(X, y), X[:5])
    encoder = index.estimator_.encoder_
    columns = encoder.name_columns(names)
    width = index.estimator_.transform_database(np.zeros((1, len(names)))).shape[1]
    assert len(columns) <= width
    for of_plain, of_named in zip(plain[0], named[0], strict=True):
        assert_allclose(of_plain.score, of_named.score, atol=1e-6)
        known = {part.name for part in of_named.parts} & set(names)
        if len(columns):
            assert known
        assert all(f"x{name[5:]}" in {p.name for p in of_plain.parts} for name in known)


def test_words_of_a_query_that_an_item_has():
    model = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    index = SimilarityIndex(model).fit(TEXTS, ids=list("abcde"))
    [[first, last]] = index.explain(["a red cat"], [["a", "e"]])
    assert [part.name for part in first.parts] == ["cat"]
    assert [part.name for part in last.parts] == ["red"]
    assert list(first.to_frame()) == ["name", "value"]
    assert repr(last).startswith("item e for query 0: ")
    ids = index.search(["a red cat"], 9).ids
    assert (ids == "").any()
    assert len(index.explain(["a red cat"], ids)[0]) == 5


def test_parts_of_a_union():
    words = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))
    parts = [
        ("words", words, slice(None)),
        ("letters", letters, slice(None)),
        ("unused", letters, slice(None)),
    ]
    weights = {"words": 2, "letters": 1, "unused": 0}
    union = SimilarityUnion(parts, weights=weights).fit(TEXTS)
    nested = SimilarityUnion(
        [("both", union, slice(None)), ("more", letters, slice(None))]
    ).fit(TEXTS)
    index = SimilarityIndex(union).fit(TEXTS)
    best = check(index, ["a cat on a mat"])[0][0]
    assert {part.name for part in best.parts} == {"words", "letters"}
    inner = {part.name: {leaf.name for leaf in part.parts} for part in best.parts}
    assert inner["words"] == {"cat", "mat", "on"}
    assert "mat " in inner["letters"]
    frame = best.to_frame()
    assert_allclose(frame.groupby("part")["value"].sum().sum(), best.score)
    best = check(SimilarityIndex(nested).fit(TEXTS), ["a cat on a mat"])[0][0]
    assert "both/words" in set(best.to_frame()["part"])


def test_columns_of_a_union_of_a_frame(rng):
    X = pd.DataFrame(rng.random((30, 5)), columns=list("abcde"))
    union = SimilarityUnion(
        [
            ("first", CosineSimilarity(use_idf=False), slice(0, 2)),
            ("last", make_pipeline(PCA(2), Normalizer()), slice(2, 5)),
        ]
    ).fit(X)
    for frame in (X, X[X.columns[::-1]]):
        best = check(SimilarityIndex(union).fit(frame), X[:3])[0][0]
        inner = {part.name: {leaf.name for leaf in part.parts} for part in best.parts}
        assert inner == {"first": {"a", "b"}, "last": {"pca0", "pca1"}}


def test_unknown_names(rng):
    X = rng.random((20, 3))
    index = SimilarityIndex(make_pipeline(FunctionTransformer(np.sqrt))).fit(X)
    names = {part.name for part in check(index, X[:2])[0][0].parts}
    assert names == {"x0", "x1", "x2"}


@pytest.mark.parametrize("backend", ["inverted", "dense", "faiss", "usearch"])
def test_backends(backend, rng):
    if backend in ("faiss", "usearch"):
        pytest.importorskip(backend)
    X = sparse.random_array((40, 8), density=0.5, rng=rng, format="csr")
    model = CosineSimilarity(use_idf=False).fit(X)
    index = SimilarityIndex(model, backend=backend).fit(X)
    if backend in ("faiss", "usearch"):
        with pytest.raises(ValueError, match="store_items=True"):
            index.explain(X[:1], [0])
        index = SimilarityIndex(model, backend=backend, store_items=True).fit(X)
    index.add(X[:5]).remove([2, 9])
    check(index, X[:6])
    with pytest.raises(ValueError, match=r"no items with the ids \[2, 99\]"):
        index.explain(X[:1], [[2, 99]])
    with pytest.raises(ValueError, match="ids must have one id, or a list"):
        index.explain(X[:2], [1])
    with pytest.raises(ValueError, match="got a string for 1"):
        index.explain(X[:1], "a")
    assert index.explain(X[:1], [[]]) == [[]]


def test_sets_of_queries(blobs):
    X, y = blobs
    index = SimilarityIndex(MemoryVectorQuery()).fit(X, y)
    groups = [0, 0, 1]
    scores, ids = index.search(X[:3], 2, groups=groups)
    explained = index.explain(X[:3], ids, groups=groups)
    assert_allclose([[e.score for e in row] for row in explained], scores)
