"""Estimators of the shared tests, from the public names.

A learner of the package is tested with its default settings, and needs no entry here
unless these are slow or other settings take other paths through its code.
"""

import inspect

import sklearn_simlearn
from sklearn_simlearn import similarities
from sklearn_simlearn.base import SimilarityLearner, SimilarityMixin
from sklearn_simlearn.similarities import CosineSimilarity

# The first settings are fast enough for all tests. The others run other code.
SETTINGS: dict[str, list[dict]] = {
    "OASIS": [
        {"n_triplets": 500},
        {"holdout": None, "n_triplets": 200},
        {"holdout": 2, "n_triplets": 400},
    ],
    "AngularBilinearRanker": [
        {"n_references": 15, "tol": 1e-9},
        {"holdout": None, "matrix": "full", "n_references": 15, "tol": 1e-9},
    ],
    "ClassPosteriorSimilarity": [{}, {"estimator": CosineSimilarity()}],
    "HistogramRankSVM": [
        {"truncation": 2, "n_word_groups": 2},
        {"holdout": None, "penalty": "l2", "loss": "pairwise", "truncation": 1},
    ],
    "MemoryVectorQuery": [{}, {"base_similarity": CosineSimilarity()}],
    "SparseMahalanobisLearner": [
        {"max_iter": 2},
        {"holdout": None, "max_iter": 2},
        {"holdout": 1, "max_iter": 2},
    ],
    "QueryDocumentMap": [
        {"max_iter": 8},
        {"holdout": None, "max_iter": 8},
        {"maps": "queries", "holdout": None, "max_iter": 8},
    ],
    "TwoCovarianceSimilarity": [
        {},
        {"shrinkage": 0.9, "n_components": 3, "holdout": None},
    ],
    "AsymmetricSimilarity": [{}, {"p": 2, "lam": 3.0}],
    "BM25Similarity": [
        {},
        {"k1": 0, "b": 1.0, "method": "robertson"},
        {"method": "atire"},
        {"method": "bm25l"},
        {"method": "bm25+"},
    ],
    "CosineSimilarity": [{}, {"use_idf": False}, {"power": 0.75}],
    # Vectors of a codebook, not rows of counts: tests/similarities has its tests.
    "SelectiveMatchKernel": [],
}


def make(cls, settings):
    """Return an estimator whose random state is an int."""
    estimator = cls(**settings)
    if "random_state" in estimator.get_params(deep=False):
        estimator.set_params(random_state=0)
    return estimator


def public_classes():
    """Yield the classes of learners and hand-made similarities."""
    for module in (sklearn_simlearn, similarities):
        for value in (getattr(module, name) for name in module.__all__):
            if inspect.isclass(value) and issubclass(value, SimilarityMixin):
                yield value


def has_holdout(estimator):
    """Return whether a hold-out decides how far it moves away from its start."""
    is_learner = isinstance(estimator, SimilarityLearner)
    return is_learner and getattr(estimator, "holdout", "samples") is not None


LEARNERS, VARIANTS = [], []
for cls in public_classes():
    for i, settings in enumerate(SETTINGS.get(cls.__name__, [{}])):
        (VARIANTS if i else LEARNERS).append(make(cls, settings))
