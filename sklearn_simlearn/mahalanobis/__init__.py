"""Sparse Mahalanobis matrices over a vocabulary."""

from sklearn_simlearn.mahalanobis._mahalanobis import SparseMahalanobisLearner

__all__ = ["SparseMahalanobisLearner"]
