"""Hand-made similarities of bags of words, under the contract of the learners.

They are the baselines of the learners' papers: rows of every table, and estimators
that a grid search can tune.
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
