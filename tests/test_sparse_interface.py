"""Sparse output as arrays or matrices, by scikit-learn's configuration."""

import numpy as np
import pytest
import sklearn
from scipy import sparse

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.feature_extraction import PowerNormalizer, VisualVocabulary
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity


@pytest.mark.parametrize(
    ("interface", "kind"),
    [("spmatrix", sparse.csr_matrix), ("sparray", sparse.csr_array)],
)
def test_sparse_output_follows_the_configuration(interface, kind):
    X = sparse.csr_array(np.random.default_rng(0).poisson(0.5, (12, 9)).astype(float))
    cosine = CosineSimilarity()
    with sklearn.config_context(sparse_interface=interface):
        cosine.fit(X)
        index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X)
        outputs = [
            cosine.transform(X),
            cosine.transform_database(X),
            MemoryVectorQuery().fit(X).transform(X, groups=[0] * 6 + [1] * 6),
            MemoryVectorQuery().fit(X).transform_database(X),
            make_retrieval_pipeline(CosineSimilarity()).fit(X).transform(X),
            index.kneighbors_graph(X, 2),
            index.radius_neighbors_graph(X, 0.5),
            index.transform(X),
            PowerNormalizer().fit_transform(X),
            VisualVocabulary(3, random_state=0).fit_transform([X.toarray()] * 2),
        ]
        assert {type(output) for output in outputs} == {kind}
        assert cosine.similarity(X).shape == (12, 12)
        assert index.search(X, k=1).ids.shape == (12, 1)
