"""Learn similarities that rank: retrieval in scikit-learn terms."""

from sklearn_simlearn._core.warn import StartKeptWarning
from sklearn_simlearn.angular import AngularBilinearRanker
from sklearn_simlearn.histogram import HistogramRankSVM
from sklearn_simlearn.mahalanobis import SparseMahalanobisLearner
from sklearn_simlearn.memory import MemoryVectorQuery
from sklearn_simlearn.oasis import OASIS
from sklearn_simlearn.posterior import ClassPosteriorSimilarity
from sklearn_simlearn.query_map import EmbeddingModelMap, QueryDocumentMap
from sklearn_simlearn.two_covariance import TwoCovarianceSimilarity

__version__ = "0.2.0.dev0"

__all__ = [
    "OASIS",
    "AngularBilinearRanker",
    "ClassPosteriorSimilarity",
    "EmbeddingModelMap",
    "HistogramRankSVM",
    "MemoryVectorQuery",
    "QueryDocumentMap",
    "SparseMahalanobisLearner",
    "StartKeptWarning",
    "TwoCovarianceSimilarity",
]
