"""Embedded collection of queries, documents and judgements."""

from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.datasets import load_categories, load_definitions
from sklearn_simlearn.metrics import ndcg_at_k
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity


@pytest.fixture(scope="module")
def categories():
    return load_categories()


def test_texts_ids_and_vectors_belong_together(categories):
    assert len(categories.queries) == len(set(categories.queries)) == 337
    assert_array_equal(categories.query_ids, categories.queries)
    definitions = load_definitions()
    assert categories.documents == definitions.data
    assert len(set(categories.document_ids)) == 1440
    new = categories.document_ids != definitions.words
    assert_array_equal(
        categories.document_ids[new], ["Williams (2)", "rumba (2)", "aba (2)"]
    )
    assert categories.query_vectors.shape == (337, 64)
    assert categories.document_vectors.shape == (1440, 64)
    for vectors in (categories.query_vectors, categories.document_vectors):
        assert vectors.dtype == np.float32
        assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_judgements(categories):
    R = categories.relevance
    assert isinstance(R, sparse.csr_array)
    assert R.shape == (337, 1440)
    assert R.dtype == np.float64
    assert R.has_canonical_format
    assert set(R.data) == {1.0, 2.0}
    n_exact = (R == 2).sum(axis=1)
    assert n_exact.min() == 2
    assert n_exact.max() == 40
    assert f"{n_exact.sum()} of grade 2" in categories.DESCR
    # No two categories have the same members.
    assert len(np.unique((R == 2).toarray(), axis=0)) == 337

    def find(name, grade):
        row = R[[categories.queries.index(name)]].toarray()[0]
        return set(categories.document_ids[row == grade])

    assert find("bird of prey", 2) == {
        "swallow-tailed kite",
        "bald eagle",
        "black vulture",
    }
    assert find("bird", 2) == find("bird of prey", 1) | find("bird of prey", 2)
    assert find("bird", 1) == set()
    assert "drum" in find("drum", 2)  # the category itself


def test_words_and_vectors_find_different_items(categories):
    vectorizer = CountVectorizer(stop_words="english").fit(categories.documents)
    D, Q = map(vectorizer.transform, (categories.documents, categories.queries))
    by_words = BM25Similarity().fit(D).similarity(Q, D)
    cosine = CosineSimilarity(use_idf=False).fit(categories.document_vectors)
    by_vectors = cosine.similarity(
        categories.query_vectors, categories.document_vectors
    )

    def standardize(S):
        return (S - S.mean(axis=1, keepdims=True)) / (S.std(axis=1, keepdims=True) + 1)

    both = standardize(by_words) + standardize(by_vectors)
    words, vectors, together = (
        ndcg_at_k(categories.relevance, S, k=10).mean()
        for S in (by_words, by_vectors, both)
    )
    assert_allclose([words, vectors], [0.495, 0.655], atol=0.002)
    assert together > vectors


def test_the_collection_belongs_to_the_caller():
    first = load_categories()
    first.query_vectors[:] = 0
    first.relevance.data[:] = 0
    first.documents.clear()
    second = load_categories()
    assert second.query_vectors.any()
    assert second.relevance.data.all()
    assert len(second.documents) == 1440


def test_the_files_are_small_and_described():
    folder = resources.files("sklearn_simlearn.datasets") / "data"
    readme = (folder / "README.rst").read_text(encoding="utf-8")
    size = 0
    for name in ("categories.tsv", "categories.npy"):
        assert name in readme
        size += len((folder / name).read_bytes())
    assert size < 200_000
    assert (folder / "WORDNET_LICENSE.txt").is_file()
