"""HTML view of an index."""

import re

import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity


@pytest.mark.parametrize(
    ("n_items", "words"), [(130, "100 of 130 items"), (7, "7 items"), (1, "1 item")]
)
def test_outputs_of_an_index_are_items(n_items, words, rng):
    X = rng.random((n_items, 5))
    html = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X)._repr_html_()
    assert f"<div>{words}</div>" in html
    assert "Copy output items" in html
    assert not re.search(r"[0-9] features?</div>", html)


def test_outputs_of_the_estimator_are_features(rng):
    X = rng.random((30, 5))
    pipeline = make_pipeline(PCA(3), CosineSimilarity(use_idf=False)).fit(X)
    html = SimilarityIndex(pipeline).fit(X)._repr_html_()
    assert "<div>3 features</div>" in html
    assert "<div>30 items</div>" in html


def test_an_index_that_is_not_fitted_has_no_items():
    html = SimilarityIndex(CosineSimilarity())._repr_html_()
    assert "SimilarityIndex" in html
    assert not re.search("[0-9] items", html)
