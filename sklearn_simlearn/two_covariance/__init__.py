"""Two-covariance model: a closed-form similarity for new classes."""

from sklearn_simlearn.two_covariance._two_covariance import TwoCovarianceSimilarity

__all__ = ["TwoCovarianceSimilarity"]
