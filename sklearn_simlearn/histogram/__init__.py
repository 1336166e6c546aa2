"""Learned weights of pairs of word counts."""

from sklearn_simlearn.histogram._histogram import HistogramRankSVM

__all__ = ["HistogramRankSVM"]
