"""Splitters by object and by query, and sets of queries."""

from sklearn_simlearn.model_selection._split import (
    ObjectKFold,
    ObjectShuffleSplit,
    QuerySplit,
    make_query_sets,
)
from sklearn_simlearn.model_selection._training_data import KeepTrainingData

__all__ = [
    "KeepTrainingData",
    "ObjectKFold",
    "ObjectShuffleSplit",
    "QuerySplit",
    "make_query_sets",
]
