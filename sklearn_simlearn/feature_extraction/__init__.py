"""Transformers from images to histograms of visual words and to vectors."""

from sklearn_simlearn.feature_extraction._colors import ColorHistograms
from sklearn_simlearn.feature_extraction._gist import GistDescriptors
from sklearn_simlearn.feature_extraction._images import (
    ImageSequence,
    UnreadableImagesError,
)
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._onnx import ONNXDescriptors
from sklearn_simlearn.feature_extraction._reader import ImageReader
from sklearn_simlearn.feature_extraction._sift import LocalDescriptors
from sklearn_simlearn.feature_extraction._triangulation import TriangulationEmbedding
from sklearn_simlearn.feature_extraction._visterms import BlockVisterms
from sklearn_simlearn.feature_extraction._vlad import VLAD, PowerNormalizer
from sklearn_simlearn.feature_extraction._vocabulary import VisualVocabulary

__all__ = [
    "VLAD",
    "BlockVisterms",
    "ColorHistograms",
    "GistDescriptors",
    "ImageReader",
    "ImageSequence",
    "LocalDescriptors",
    "LocalFeatures",
    "ONNXDescriptors",
    "PowerNormalizer",
    "TriangulationEmbedding",
    "UnreadableImagesError",
    "VisualVocabulary",
]
