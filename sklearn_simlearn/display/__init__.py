"""Plots of rankings, by scikit-learn's Display convention."""

from sklearn_simlearn.display._neighbors import NeighborsDisplay
from sklearn_simlearn.display._precision_at_rank import PrecisionAtRankDisplay
from sklearn_simlearn.display._precision_recall import MeanPrecisionRecallDisplay

__all__ = [
    "MeanPrecisionRecallDisplay",
    "NeighborsDisplay",
    "PrecisionAtRankDisplay",
]
