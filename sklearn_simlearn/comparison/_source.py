"""Data of the comparison: digits of the package, a file, or photographs."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.comparison._photographs import Photographs, read_photographs
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
        Samples, labels or relevance matrix, and the samples that query (None for all).

    code : list of str
        Lines of Python that make X and y.

    photographs : Photographs or None
        Images that the samples come from.

    has_digits : bool
        Whether the samples are the digits of the package.
    """

    name: str
    X: Matrix
    y: Any
    query_mask: np.ndarray | None
    code: list[str]
    photographs: Photographs | None = None
    has_digits: bool = False

    def describe(self, task: Task) -> str:
        """Return a line on the data and the split."""
        n_samples, n_features = self.X.shape
        return (
            f"{self.name}: {n_samples} samples of {n_features} features, "
            f"{task.X_train.shape[0]} to fit, {task.X_test.shape[0]} held out by "
            f"{task.split}; each held-out sample queries the others"
        )

    def describe_index(self) -> str:
        """Return a phrase on what a saved index learned from and holds."""
        return f"the training half, with all {self.X.shape[0]} samples"

    def load_images(self) -> Sequence | np.ndarray | None:
        """Return images of all samples; None without images or without Pillow."""
        if self.photographs is not None:
            return self.photographs.images
        if self.has_digits and importlib.util.find_spec("PIL") is not None:
            return 16 - load_digit_words().images  # dark ink on a light ground
        return None

    def make_index(self, estimator) -> SimilarityIndex:
        """Return an index of all samples; of photographs, it takes files as queries."""
        if self.photographs is None:
            return SimilarityIndex(estimator).fit(self.X)
        index = SimilarityIndex(self.photographs.extend(estimator))
        return index.fit(self.photographs.paths, ids=self.photographs.paths)


def load_source(
    data: str | None, images: str | None, *, seed: int, max_bytes: int
) -> Source:
    """Load a file or a folder of photographs; the digits if both are None."""
    if images is not None:
        photographs = read_photographs(images, seed)
        code = photographs.write_lines()
        return Source(images, photographs.X, photographs.y, None, code, photographs)
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
