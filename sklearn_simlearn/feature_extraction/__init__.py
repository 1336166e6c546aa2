"""From images to histograms of visual words and to vectors."""

from sklearn_simlearn.feature_extraction._local_features import LocalFeatures

__all__ = ["LocalFeatures"]
