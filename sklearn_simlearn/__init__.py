"""Learn similarities that rank: retrieval in scikit-learn terms."""

from sklearn_simlearn._angular import AngularBilinearRanker
from sklearn_simlearn._histogram import HistogramRankSVM
from sklearn_simlearn._mahalanobis import SparseMahalanobisLearner
from sklearn_simlearn._memory import MemoryVectorQuery
from sklearn_simlearn._oasis import OASIS

__version__ = "0.1.0"

__all__ = [
    "OASIS",
    "AngularBilinearRanker",
    "HistogramRankSVM",
    "MemoryVectorQuery",
    "SparseMahalanobisLearner",
]
