"""Data of the comparison: the digits of the package, or a file."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.comparison._rows import ROWS, Row
from sklearn_simlearn.comparison._task import Task
from sklearn_simlearn.datasets import load_digit_words, load_npz
from sklearn_simlearn.index import SimilarityIndex


@dataclass
class Source:
    """Samples with their labels.

    Attributes
    ----------
    name : str
        Name in the output.

    X, y, query_mask
        Samples, labels or relevance matrix (None without labels), and the samples that
        query (None for all).

    code : list of str
        Lines of Python that make X and y.

    has_digits : bool
        True if the samples are the digits of the package.
    """

    name: str
    X: Matrix
    y: Any
    query_mask: np.ndarray | None
    code: list[str]
    has_digits: bool = False

    def describe(self, task: Task) -> str:
        """Return a line about the data and the split."""
        n_samples, n_features = self.X.shape
        return (
            f"{self.name}: {n_samples} samples of {n_features} features, "
            f"{task.X_train.shape[0]} to fit, {task.X_test.shape[0]} held out by "
            f"{task.split}; each held-out sample queries the others"
        )

    def describe_index(self) -> str:
        """Describe the training data and the items of a saved index."""
        return f"the training half, with all {self.X.shape[0]} samples"

    @property
    def default(self) -> Row:
        """Return the row for samples without labels."""
        return next(row for row in ROWS if row.name == "cosine of tf-idf")

    def take_texts(self, task: Task) -> list[str] | None:
        """Return the texts of the held-out samples; None if they are not texts."""

    def load_images(self) -> Sequence | np.ndarray | None:
        """Return images of all samples; None without images or without Pillow."""
        if self.has_digits and importlib.util.find_spec("PIL") is not None:
            return 16 - load_digit_words().images  # dark ink on a light ground
        return None

    def make_index(self, estimator, row: Row) -> SimilarityIndex:
        """Return an index of all samples, with the fitted estimator of a row."""
        return SimilarityIndex(estimator).fit(self.X)

    def list_rows(self, task: Task, rows: list[Row]) -> list[Row]:
        """Return the rows to compare, selected from all rows of the comparison."""
        return rows


def load_source(data: str | None, *, max_bytes: int) -> Source:
    """Load a file; load the digits if it is None."""
    if data is not None:
        loaded = load_npz(data, max_bytes=max_bytes)
        code = [
            "from sklearn_simlearn.datasets import load_npz",
            f"data = load_npz({data!r})",
            "X, y = data.data, data.target",
        ]
        return Source(data, loaded.data, loaded.target, loaded.query_mask, code)
    code = [
        "from sklearn_simlearn.datasets import load_digit_words",
        "X, y = load_digit_words(return_X_y=True)",
    ]
    X, y = load_digit_words(return_X_y=True)
    name = "handwritten digits as visual words"
    return Source(name, X, y, None, code, has_digits=True)
