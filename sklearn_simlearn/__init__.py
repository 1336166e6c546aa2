"""Learn similarities that rank: retrieval in scikit-learn terms."""

from sklearn_simlearn._angular import AngularBilinearRanker
from sklearn_simlearn._histogram import HistogramRankSVM
from sklearn_simlearn._histogram_pattern import search_weight_pattern
from sklearn_simlearn._mahalanobis import SparseMahalanobisLearner
from sklearn_simlearn._membership import set_membership
from sklearn_simlearn._memory import MemoryVectorQuery
from sklearn_simlearn._oasis import OASIS
from sklearn_simlearn._posterior import ClassPosteriorSimilarity

__version__ = "0.2.0.dev0"

__all__ = [
    "OASIS",
    "AngularBilinearRanker",
    "ClassPosteriorSimilarity",
    "HistogramRankSVM",
    "MemoryVectorQuery",
    "SparseMahalanobisLearner",
    "search_weight_pattern",
    "set_membership",
]
