"""Inner products without rounding, for tests that compare results exactly."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.base import EncodedSimilarityMixin
from sklearn_simlearn.compose._parts import Columns, Part, WeightedSum


class Times:
    """Function that multiplies by a number."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, X):
        return self.factor * X


def make_product(n_features, factor=1, *, n_words=0):
    """Return a fitted similarity: the inner product of rows times a factor.

    With `n_words`, it is a union of the product of these columns, whose encodings are
    sparse and have no factor, and the product of the others.
    """
    if n_words:
        return WordsAndVectors(n_words, n_features, factor).fit(None)
    product = MemoryVectorQuery(method="sum", normalize=False)
    pipeline = make_pipeline(FunctionTransformer(Times(factor)), product)
    return pipeline.fit(np.eye(n_features))


class WordsAndVectors(EncodedSimilarityMixin, BaseEstimator):
    """Union of the products of sparse and of dense columns."""

    def __init__(self, n_words, n_features, factor):
        self.n_words = n_words
        self.n_features = n_features
        self.factor = factor

    def fit(self, X, y=None):
        product = MemoryVectorQuery(method="sum", normalize=False)
        words = make_pipeline(FunctionTransformer(sparse.csr_array), product)
        words = find_model(words.fit(np.eye(self.n_words)))
        rest = make_product(self.n_features - self.n_words, self.factor)
        self.encoder_ = WeightedSum(
            (
                Part(Columns(slice(0, self.n_words)), words, 1.0, "words"),
                Part(Columns(slice(self.n_words, None)), find_model(rest), 1.0, "rest"),
            )
        )
        self.n_features_in_ = self.n_features
        return self

    def _check_rows(self, X, *, reset=False):
        return X
