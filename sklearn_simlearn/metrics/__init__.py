"""Ranking measures, per query and averaged, and scorers."""

from sklearn_simlearn._core.judgements import (
    Judgements,
    judgements_from_table,
    judgements_from_triplets,
)
from sklearn_simlearn._core.targets import PairwiseRelevance
from sklearn_simlearn.metrics._precision_recall import (
    average_precision,
    mean_average_precision,
    precision_recall_curve,
)
from sklearn_simlearn.metrics._ranking import (
    ndcg_at_k,
    precision_at_k,
    r_precision,
    recall_at_k,
    reciprocal_rank,
    top4_score,
)
from sklearn_simlearn.metrics._report import retrieval_report, run_report
from sklearn_simlearn.metrics._scorer import RetrievalScorer, map_scorer
from sklearn_simlearn.metrics._trec import (
    read_qrels,
    read_run,
    write_qrels,
    write_run,
)

__all__ = [
    "Judgements",
    "PairwiseRelevance",
    "RetrievalScorer",
    "average_precision",
    "judgements_from_table",
    "judgements_from_triplets",
    "map_scorer",
    "mean_average_precision",
    "ndcg_at_k",
    "precision_at_k",
    "precision_recall_curve",
    "r_precision",
    "read_qrels",
    "read_run",
    "recall_at_k",
    "reciprocal_rank",
    "retrieval_report",
    "run_report",
    "top4_score",
    "write_qrels",
    "write_run",
]
