"""Ranking measures, per query and averaged, and the scorers made of them."""

from sklearn_simlearn._core.relevance import PairwiseRelevance
from sklearn_simlearn.metrics._average_precision import (
    average_precision,
    mean_average_precision,
)
from sklearn_simlearn.metrics._curve import precision_recall_curve
from sklearn_simlearn.metrics._ranking import (
    ndcg_at_k,
    precision_at_k,
    r_precision,
    recall_at_k,
    reciprocal_rank,
    top4_score,
)
from sklearn_simlearn.metrics._scorer import (
    RetrievalScorer,
    map_scorer,
    retrieval_report,
)

__all__ = [
    "PairwiseRelevance",
    "RetrievalScorer",
    "average_precision",
    "map_scorer",
    "mean_average_precision",
    "ndcg_at_k",
    "precision_at_k",
    "precision_recall_curve",
    "r_precision",
    "recall_at_k",
    "reciprocal_rank",
    "retrieval_report",
    "top4_score",
]
