"""Splitters that know what an object is, and what they need beside them."""

from sklearn_simlearn.model_selection._split import (
    ObjectKFold,
    ObjectShuffleSplit,
    QuerySplit,
)
from sklearn_simlearn.model_selection._training_data import KeepTrainingData

__all__ = ["KeepTrainingData", "ObjectKFold", "ObjectShuffleSplit", "QuerySplit"]
