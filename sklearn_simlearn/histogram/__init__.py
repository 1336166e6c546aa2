"""Learned weights of pairs of word counts."""

from sklearn_simlearn.histogram._histogram import HistogramRankSVM
from sklearn_simlearn.histogram._pattern import search_weight_pattern

__all__ = ["HistogramRankSVM", "search_weight_pattern"]
