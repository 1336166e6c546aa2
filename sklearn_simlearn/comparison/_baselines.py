"""Baselines: estimators that are available without this package."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from sklearn_simlearn._core.encoders import storable
from sklearn_simlearn.comparison._task import REDUCED_FEATURES
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.two_covariance import TwoCovarianceSimilarity

# Largest number of samples for the choice of a parameter by cross-validation.
MAX_CHOICE = 5000


@storable
class Chosen(TransformerMixin, BaseEstimator):
    """Transformer or classifier with parameters chosen by cross-validation.

    A transformer is evaluated by its ranking, a classifier by its likelihood. If a
    class has fewer than 3 samples, the parameters are not changed. A classifier returns
    class probabilities.
    """

    def __init__(self, estimator, grid):
        self.estimator = estimator
        self.grid = grid

    def fit(self, X, y):
        params = {}
        rows = np.random.default_rng(0).permutation(X.shape[0])[:MAX_CHOICE]
        if np.unique(y[rows], return_counts=True)[1].min() >= 3:
            ranks = hasattr(self.estimator, "transform")
            search = GridSearchCV(
                self.estimator,
                self.grid,
                scoring=map_scorer if ranks else "neg_log_loss",
                cv=StratifiedKFold(3, shuffle=True, random_state=0),
                refit=False,
            )
            params = search.fit(X[rows], y[rows]).best_params_
        self.chosen_ = clone(self.estimator).set_params(**params).fit(X, y)
        return self

    def transform(self, X):
        if hasattr(self.chosen_, "transform"):
            return self.chosen_.transform(X)
        return self.chosen_.predict_proba(X)


@storable
class Dense(TransformerMixin, BaseEstimator):
    """Make sparse samples dense."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.toarray() if sparse.issparse(X) else X

    def __sklearn_is_fitted__(self):
        return True


@storable
class InnerProduct(TransformerMixin, BaseEstimator):
    """Inner product of the samples, for the end of a pipeline."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    transform_database = transform

    def similarity(self, X, Y):
        return X @ Y.T

    def __sklearn_is_fitted__(self):
        return True


@storable
class WithinWhitening(TransformerMixin, BaseEstimator):
    """Relevant component analysis: whiten the shrunk covariance within classes."""

    def fit(self, X, y):
        _, index = np.unique(y, return_inverse=True)
        means = np.array([X[index == c].mean(axis=0) for c in range(index.max() + 1)])
        values, vectors = np.linalg.eigh(
            LedoitWolf().fit(X - means[index]).covariance_.astype(np.float64)
        )
        floor = np.finfo(np.float32).eps * values[-1]
        self.mean_ = X.mean(axis=0)
        self.map_ = vectors / np.sqrt(np.maximum(values, floor))
        return self

    def transform(self, X):
        return (X - self.mean_) @ self.map_


def centre_steps():
    """Return steps that centre rows and scale them to unit length.

    The cosines of nearly parallel rows, such as pictures of faces, are all close to 1.
    Without centring, a penalty or a limited number of steps would prevent learning.
    """
    return [StandardScaler(with_std=False), Normalizer()]


def make_lda(task):
    """Return linear discriminant analysis with a choice of the shrinkage."""
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)
    grid = {"shrinkage": ["auto", 0.05, 0.2, 0.5, 0.9]}
    return make_pipeline(*_narrow_steps(task), *centre_steps(), Chosen(lda, grid))


def make_logistic(task):
    """Return posteriors of logistic regression, compared by the cosine."""
    return make_pipeline(*_narrow_steps(task), *centre_steps(), choose_logistic())


def choose_logistic():
    """Return logistic regression with a choice of the penalty."""
    logistic = LogisticRegression(C=10.0, max_iter=300)
    return Chosen(logistic, {"C": [1.0, 10.0, 100.0]})


def make_logistic_product(task):
    """Return posteriors of logistic regression, compared by the inner product."""
    return make_pipeline(*make_logistic(task), InnerProduct())


def make_centred(task):
    """Return centred rows."""
    return make_pipeline(*_narrow_steps(task), *centre_steps())


def make_whitened(task):
    """Return whitened rows, in most of their dimensions."""
    pca = PCA(0.95, whiten=True, svd_solver="full")
    return make_pipeline(*_narrow_steps(task), pca)


def make_rca(task):
    """Return relevant component analysis."""
    return make_pipeline(*_narrow_steps(task), WithinWhitening())


def make_plda(shrinkage):
    """Return a function that makes the two-covariance model without a hold-out."""
    return lambda task: TwoCovarianceSimilarity(
        shrinkage, holdout=None, random_state=task.seed
    )


def make_nca(task):
    """Return neighbourhood components analysis after PCA."""
    n_components = min(32, task.n_reduced, np.count_nonzero(task.labels >= 0))
    return make_pipeline(
        *_narrow_steps(task),
        *centre_steps(),
        PCA(n_components, random_state=task.seed),
        NeighborhoodComponentsAnalysis(max_iter=20, random_state=task.seed),
    )


def _narrow_steps(task):
    """Return steps that make dense rows with a limited number of features."""
    steps = [TfidfTransformer(sublinear_tf=True) if task.has_counts else Normalizer()]
    if task.is_wide:
        return [*steps, TruncatedSVD(REDUCED_FEATURES, random_state=task.seed)]
    return [*steps, Dense()]
