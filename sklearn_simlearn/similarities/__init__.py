"""Hand-made similarities of bags of words.

They are the baselines in the papers of the learners. They have the methods of the
learners, and a grid search can tune them.
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
