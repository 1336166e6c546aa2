"""Plots of rankings, following scikit-learn's Display convention."""

from sklearn_simlearn.display._holdout import HoldoutDisplay
from sklearn_simlearn.display._learned import (
    AnglesDisplay,
    GramDisplay,
    WeightTableDisplay,
)
from sklearn_simlearn.display._neighbors import NeighborsDisplay
from sklearn_simlearn.display._precision_at_rank import PrecisionAtRankDisplay
from sklearn_simlearn.display._precision_recall import MeanPrecisionRecallDisplay
from sklearn_simlearn.display._similarities import SimilarityDistributionDisplay

__all__ = [
    "AnglesDisplay",
    "GramDisplay",
    "HoldoutDisplay",
    "MeanPrecisionRecallDisplay",
    "NeighborsDisplay",
    "PrecisionAtRankDisplay",
    "SimilarityDistributionDisplay",
    "WeightTableDisplay",
]
