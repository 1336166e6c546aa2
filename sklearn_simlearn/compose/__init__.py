"""Pipelines of queries and documents, and sums of similarities."""

from sklearn_simlearn.compose._pipeline import (
    RetrievalPipeline,
    make_retrieval_pipeline,
)
from sklearn_simlearn.compose._union import SimilarityUnion

__all__ = ["RetrievalPipeline", "SimilarityUnion", "make_retrieval_pipeline"]
