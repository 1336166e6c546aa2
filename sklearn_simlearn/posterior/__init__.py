"""Similarity from class probabilities."""

from sklearn_simlearn.posterior._posterior import ClassPosteriorSimilarity

__all__ = ["ClassPosteriorSimilarity"]
