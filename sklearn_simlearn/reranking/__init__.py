"""Re-ranking of the best items of a search."""

from sklearn_simlearn.reranking._averaging import NeighborAveraging
from sklearn_simlearn.reranking._diffusion import Diffusion
from sklearn_simlearn.reranking._expansion import QueryExpansion
from sklearn_simlearn.reranking._reciprocal import KReciprocal
from sklearn_simlearn.reranking._verification import SpatialVerification

__all__ = [
    "Diffusion",
    "KReciprocal",
    "NeighborAveraging",
    "QueryExpansion",
    "SpatialVerification",
]
