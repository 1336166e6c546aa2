"""Hand-made similarities of bags of words.

These similarities are the baselines in the papers of the learners. They have the same
methods as the learners. Their parameters can be tuned by a grid search.
"""

from sklearn_simlearn.similarities._bm25 import BM25Similarity
from sklearn_simlearn.similarities._match_kernel import SelectiveMatchKernel
from sklearn_simlearn.similarities._similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

__all__ = [
    "AsymmetricSimilarity",
    "BM25Similarity",
    "BurstinessSimilarity",
    "CosineSimilarity",
    "NegativeEvidenceSimilarity",
    "SelectiveMatchKernel",
]
