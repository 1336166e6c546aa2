"""Samples to learn from and held-out samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import are_counts, canonical_csr
from sklearn_simlearn._core.sklearn import safe_indexing
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.model_selection import (
    ObjectShuffleSplit,
    QuerySplit,
    make_query_sets,
)

# Number of samples that query together in the rows for sets of queries.
SET_SIZE = 5

# Largest number of features for LDA, logistic regression and NCA. Data with more
# features is reduced.
MAX_FEATURES, REDUCED_FEATURES = 1000, 500


@dataclass
class Task:
    """Samples to learn from, and held-out samples that query each other.

    Attributes
    ----------
    split : {"samples", "objects"}
        Kind of data that was held out.

    query_mask : ndarray of shape (n_test,), dtype bool, or None
        Held-out samples that query; all if None.

    train_rows, test_rows : ndarray
        Row numbers of the training samples and of the held-out samples.

    texts : list of str or None
        Texts of the held-out samples, for the report.

    document_texts : None
        Not used for samples with labels.

    names, label_names : sequence of str or None
        Names of the held-out samples and of their classes, for the report.
    """

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    query_mask: np.ndarray | None
    split: str
    seed: int
    train_rows: np.ndarray
    test_rows: np.ndarray
    texts: list[str] | None = None
    document_texts: None = None
    names: Sequence[str] | None = None
    label_names: Sequence[str] | None = None

    def on(self, X: Matrix) -> "Task":
        """Return the same task for other features of all samples."""
        return replace(self, X_train=X[self.train_rows], X_test=X[self.test_rows])

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Class of each training sample, -1 for distractors; None without labels."""
        return check_relevance(self.y_train).labels

    @cached_property
    def n_classes(self) -> int:
        return 0 if self.labels is None else int(self.labels.max()) + 1

    @cached_property
    def has_counts(self) -> bool:
        return are_counts(self.X_train)

    @cached_property
    def is_non_negative(self) -> bool:
        return self.X_train.min() >= 0 and self.X_test.min() >= 0

    @property
    def is_wide(self) -> bool:
        return self.X_train.shape[1] > MAX_FEATURES

    @property
    def n_reduced(self) -> int:
        """Number of features for LDA, logistic regression and NCA."""
        return REDUCED_FEATURES if self.is_wide else self.X_train.shape[1]

    @cached_property
    def sets(self) -> np.ndarray:
        """Set of each held-out sample, -1 for samples outside of all sets."""
        groups = make_query_sets(
            self.y_test, SET_SIZE, query_mask=self.query_mask, random_state=self.seed
        )
        _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
        return np.where(size[number] == SET_SIZE, groups, -1)


@dataclass
class Features:
    """One of several kinds of features of the same samples.

    Attributes
    ----------
    steps : list of transformers
        Fitted steps that make the features.

    X : Matrix
        Features of all samples.

    code : list of str
        Lines of Python that make X and y.

    task : Task or None
        Task with these features; None before samples are held out.
    """

    steps: list
    X: Matrix
    code: list[str]
    task: Task | None = None


def make_task(
    X: Matrix, y: Any, query_mask: np.ndarray | None, split: str, seed: int
) -> Task:
    """Hold out half of the samples of each class, or half of the classes."""
    X = canonical_csr(X) if sparse.issparse(X) else X
    splitter = _choose_splitter(y, query_mask, split, seed)
    try:
        train, test = next(splitter.split(X, y))
        y_train, y_test = safe_indexing(y, train), safe_indexing(y, test)
        for half in (y_train, y_test):
            check_relevance(half).require_triplets()
    except ValueError as error:
        held_out = "samples" if split == "samples" else "classes"
        raise ValueError(
            f"similarities cannot be compared: half of the {held_out} are held out, "
            "and each half needs two samples of one class and one of another. Add "
            "samples or classes."
        ) from error
    return Task(
        X[train],
        y_train,
        X[test],
        y_test,
        None if query_mask is None else query_mask[test],
        split,
        seed,
        train,
        test,
    )


def _choose_splitter(y, query_mask, split, seed):
    half = {"n_splits": 1, "test_size": 0.5, "random_state": seed}
    if split == "objects":
        return ObjectShuffleSplit(**half)
    if query_mask is not None:
        return QuerySplit(query_mask, **half)
    labels = check_relevance(y).labels
    if labels is not None and np.unique(labels, return_counts=True)[1].min() > 1:
        return StratifiedShuffleSplit(**half)
    return ShuffleSplit(**half)
