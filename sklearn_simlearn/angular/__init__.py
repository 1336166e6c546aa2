"""Query-dependent bilinear similarities."""

from sklearn_simlearn.angular._angular import AngularBilinearRanker

__all__ = ["AngularBilinearRanker"]
