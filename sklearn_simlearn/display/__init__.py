"""Plots of rankings, by scikit-learn's Display convention."""

from sklearn_simlearn.display._curves import (
    MeanPrecisionRecallDisplay,
    PrecisionAtRankDisplay,
)

__all__ = ["MeanPrecisionRecallDisplay", "PrecisionAtRankDisplay"]
