"""BM25 against bm25s, its formulas, and an index."""

from collections import Counter

import bm25s
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import BM25Similarity

METHODS = ["lucene", "robertson", "atire", "bm25l", "bm25+"]
each_method = pytest.mark.parametrize("method", METHODS)


def make_tokens(rng, n_texts, mean_length, n_words=80):
    """Return texts as lists of words with very different frequencies."""
    chance = 1 / np.arange(1, n_words + 1)
    return [
        [f"w{i}" for i in rng.choice(n_words, length, p=chance / chance.sum())]
        for length in rng.poisson(mean_length, size=n_texts)
    ]


@pytest.fixture
def texts(rng):
    """Return tokens of documents, one of them empty, and of queries with repeats."""
    documents = make_tokens(rng, 60, 25)
    documents[7] = []
    queries = make_tokens(rng, 15, 5)
    queries[0] = ["w3", "w3", "w3", "w40"]
    queries[1] = ["w2", "unknown", "w5"]
    return documents, [query or ["w1"] for query in queries]


def count(documents, queries):
    """Return counts of words, without words that no document has."""
    vectorizer = CountVectorizer(analyzer=lambda tokens: tokens).fit(documents)
    return vectorizer.transform(documents), vectorizer.transform(queries)


def score_with_bm25s(documents, queries, **parameters):
    reference = bm25s.BM25(dtype="float64", **parameters)
    reference.index(documents, show_progress=False)
    return np.array([reference.get_scores(query) for query in queries])


@each_method
@pytest.mark.parametrize(
    ("k1", "b", "delta"), [(1.2, 0.75, 0.5), (0.4, 0.0, 1.5), (2, 1, 0)]
)
def test_scores_are_those_of_bm25s(method, k1, b, delta, texts, dtype):
    documents, queries = texts
    expected = score_with_bm25s(
        documents, queries, method=method, k1=k1, b=b, delta=delta
    )
    D, Q = (part.astype(dtype) for part in count(documents, queries))
    bm25 = BM25Similarity(k1, b, delta=delta, method=method).fit(D)
    for container in (sparse.csr_array, sparse.csr_matrix, sparse.csr_array.toarray):
        S = bm25.similarity(container(Q), container(D))
        assert S.dtype == dtype
        S = S + (Q @ bm25.absent_)[:, None]
        assert_allclose(S, expected, rtol=1e-5, atol=1e-5)
    if method in ("lucene", "robertson", "atire"):
        assert not bm25.absent_.any()


def by_definition(method, query, document, documents, k1, b, delta):
    """Return the published sum over the words of a query."""
    n, length = len(documents), np.mean([len(other) for other in documents])
    norm = 1 - b + b * len(document) / length
    total = 0.0
    for word in query:
        n_with = sum(word in other for other in documents)
        tf = Counter(document)[word]
        odds = (n - n_with + 0.5) / (n_with + 0.5)
        saturated = tf / (tf + k1 * norm)
        shifted = tf / norm + delta
        if n_with == 0:
            continue
        match method:
            case "lucene":
                total += np.log(1 + odds) * saturated
            case "robertson":
                total += max(0, np.log(odds)) * saturated
            case "atire":
                total += np.log(n / n_with) * (k1 + 1) * saturated
            case "bm25l":
                idf = np.log((n + 1) / (n_with + 0.5))
                total += idf * (k1 + 1) * shifted / (k1 + shifted)
            case "bm25+":
                total += np.log((n + 1) / n_with) * ((k1 + 1) * saturated + delta)
    return total


@each_method
def test_scores_are_those_of_the_published_formula(method, texts):
    documents, queries = texts
    parameters = {"k1": 1.6, "b": 0.6, "delta": 0.7}
    D, Q = count(documents, queries)
    bm25 = BM25Similarity(method=method, **parameters).fit(D)
    expected = [
        [by_definition(method, q, d, documents, **parameters) for d in documents]
        for q in queries
    ]
    S = bm25.similarity(Q, D) + (Q @ bm25.absent_)[:, None]
    assert_allclose(S, expected, rtol=1e-10, atol=1e-12)


@each_method
def test_an_index_serves_it_exactly(method, texts, dtype):
    D, Q = (part.astype(dtype) for part in count(*texts))
    bm25 = BM25Similarity(method=method).fit(D)
    encoded = bm25.transform(Q), bm25.transform_database(D)
    assert all(part.format == "csr" for part in encoded)
    assert encoded[1].nnz == D.nnz
    S = bm25.similarity(Q, D)
    index = SimilarityIndex(bm25, backend="inverted").fit(D)
    scores, rows = index.search(Q, k=8)
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :8], rtol=1e-5, atol=1e-6)
    assert_allclose(scores, np.take_along_axis(S, rows, axis=1), rtol=1e-5, atol=1e-6)


def test_an_index_is_saved_and_loaded(texts, tmp_path):
    D, Q = count(*texts)
    index = SimilarityIndex(BM25Similarity(method="bm25l").fit(D)).fit(D)
    index.save(tmp_path / "index")
    loaded = SimilarityIndex.load(tmp_path / "index", trusted=())
    for found, expected in zip(loaded.search(Q), index.search(Q), strict=True):
        assert_array_equal(found, expected)


@each_method
def test_repeated_words_of_a_query_count_each_time(method, texts):
    D, _ = count(*texts)
    bm25 = BM25Similarity(method=method).fit(D)
    query = np.zeros((1, D.shape[1]))
    query[0, :3] = 1
    assert_allclose(bm25.similarity(3 * query, D), 3 * bm25.similarity(query, D))


@each_method
@pytest.mark.parametrize("b", [0.0, 0.75, 1.0])
def test_nothing_scores_zero(method, b):
    D = np.array([[2.0, 0, 1, 0], [0, 0, 0, 0], [1, 3, 0, 0]])
    Q = np.array([[0.0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 2]])
    for container in (np.asarray, sparse.csr_array):
        bm25 = BM25Similarity(b=b, method=method).fit(container(D))
        S = bm25.similarity(container(Q), container(D))
        assert_array_equal(S[0], 0)  # a query without words
        assert_array_equal(S[:, 1], 0)  # a document without words
        assert_array_equal(S[2], 0)  # a word that no document has
        assert np.isfinite(bm25.idf_).all()
        later = bm25.similarity(container(Q), container(Q))
        assert later[2, 2] > 0  # a document that was not in `fit` has the word


@each_method
def test_documents_without_any_word(method):
    D = sparse.csr_array((3, 4))
    bm25 = BM25Similarity(method=method).fit(D)
    assert bm25.mean_length_ == 1
    assert_array_equal(bm25.similarity(D), np.zeros((3, 3)))
    assert np.isfinite(bm25.similarity(np.ones((2, 4)))).all()


def test_extreme_parameters():
    D = np.array([[4.0, 1, 0], [0, 2, 2], [0, 0, 0]])
    for container in (np.asarray, sparse.csr_array):
        bm25 = BM25Similarity(k1=0, b=1).fit(container(D))
        items = bm25.transform_database(container(D))
        items = items.toarray() if sparse.issparse(items) else items
        assert_array_equal(items, D > 0)
    with pytest.raises(ValueError, match="Set k1 to a positive number"):
        BM25Similarity(k1=0, method="bm25l").fit(D)


def test_delta_of_bm25l_adds_to_k1_and_that_of_bm25_plus_does_not_rank(texts):
    D, Q = count(*texts)

    def score(**parameters):
        return BM25Similarity(**parameters).fit(D).similarity(Q, D)

    shifted = score(k1=1.0, delta=0.8, method="bm25l")
    slower = score(k1=1.8, delta=0.0, method="bm25l")
    assert_allclose(shifted / (1.0 * 2.0 / 1.8), slower / 2.8)
    assert_array_equal(
        score(delta=0.0, method="bm25+"), score(delta=2.0, method="bm25+")
    )


def test_weighted_values_are_refused(texts):
    D, Q = count(*texts)
    bm25 = BM25Similarity()
    for X, fault in ((0.5 * D, "fractions"), (-1.0 * D, "Negative values")):
        with pytest.raises(ValueError, match=fault):
            bm25.fit(X)
        with pytest.raises(ValueError, match=fault):
            BM25Similarity().fit(D).similarity(Q, X)
