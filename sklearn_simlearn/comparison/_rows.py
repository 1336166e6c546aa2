"""Rows of the table: the similarities that are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    MemoryVectorQuery,
    QueryDocumentMap,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn.comparison._baselines import (
    make_centred,
    make_lda,
    make_logistic,
    make_logistic_product,
    make_nca,
    make_plda,
    make_rca,
    make_whitened,
)
from sklearn_simlearn.comparison._task import SET_SIZE, Features, Task
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

# Limits of the data for rows that would otherwise take most of the time.
MAX_LOGISTIC = 2e9  # samples x features x classes
MAX_NCA = 2000  # samples
MAX_MAPPED = 1000  # features

# Conditions on the data. A row is skipped if one of its conditions is not met.
NEEDS: dict[str, Callable[[Task], bool]] = {
    "counts": lambda task: task.has_counts,
    "non-negative numbers": lambda task: task.is_non_negative,
    "labels": lambda task: task.labels is not None,
    "new classes": lambda task: task.split == "objects",
    "known classes": lambda task: task.split == "samples",
    "fewer samples or classes": lambda task: (
        task.X_train.shape[0] * task.n_reduced * task.n_classes <= MAX_LOGISTIC
    ),
    f"at most {MAX_NCA} samples": lambda task: task.X_train.shape[0] <= MAX_NCA,
    f"at most {MAX_MAPPED} features": lambda task: task.X_train.shape[1] <= MAX_MAPPED,
    f"classes of more than {SET_SIZE} held-out samples": lambda task: (
        task.sets.max() >= 0
    ),
}


@dataclass
class Row:
    """Line of the table.

    Attributes
    ----------
    make : callable
        Function from a task to the estimator.

    needs : tuple of str
        Keys of `NEEDS`.

    is_baseline : bool
        True if the similarity is available without this package.

    in_sets : bool
        True if several samples query together.

    features : Features or None
        Features that the row uses; None for those of the task.
    """

    name: str
    make: Callable[[Task], Any]
    needs: tuple[str, ...] = ()
    is_baseline: bool = False
    in_sets: bool = False
    features: Features | None = None

    def find_task(self, task: Any) -> Any:
        """Return the task with the features of this row."""
        return task if self.features is None else self.features.task or task

    def missing(self, task: Task) -> str | None:
        """Return the first need that the task does not meet, or None."""
        task = self.find_task(task)
        return next((need for need in self.needs if not NEEDS[need](task)), None)


def _learner(kind):
    """Return a function that makes a learner; its hold-out matches the split."""
    return lambda task: kind(holdout=task.split, random_state=task.seed)


_LOGISTIC_NEEDS = ("labels", "fewer samples or classes")
_NCA_NEEDS = ("labels", f"at most {MAX_NCA} samples")
_CLOSED_FORM_NEEDS = ("new classes", "labels")
_SET_NEEDS = (f"classes of more than {SET_SIZE} held-out samples",)

ROWS = [
    Row("cosine", lambda task: CosineSimilarity(use_idf=False), is_baseline=True),
    Row(
        "cosine of tf-idf",
        lambda task: CosineSimilarity(),
        ("non-negative numbers",),
        is_baseline=True,
    ),
    Row("LDA", make_lda, ("labels",), is_baseline=True),
    Row("logistic posteriors", make_logistic, _LOGISTIC_NEEDS, is_baseline=True),
    Row("logistic product", make_logistic_product, _LOGISTIC_NEEDS, is_baseline=True),
    Row("NCA", make_nca, _NCA_NEEDS, is_baseline=True),
    Row("cosine, centred", make_centred, ("new classes",), is_baseline=True),
    Row("cosine, whitened", make_whitened, ("new classes",), is_baseline=True),
    Row("RCA", make_rca, _CLOSED_FORM_NEEDS, is_baseline=True),
    Row("PLDA 0.1", make_plda(0.1), _CLOSED_FORM_NEEDS, is_baseline=True),
    Row("PLDA 0.5", make_plda(0.5), _CLOSED_FORM_NEEDS, is_baseline=True),
    Row(
        "negative evidence",
        lambda task: NegativeEvidenceSimilarity(use_idf=task.has_counts),
    ),
    Row("burstiness", lambda task: BurstinessSimilarity(), ("non-negative numbers",)),
    Row("asymmetric", lambda task: AsymmetricSimilarity(), ("counts",)),
    Row("OASIS", _learner(OASIS)),
    Row("angular", _learner(AngularBilinearRanker)),
    Row("two covariances", _learner(TwoCovarianceSimilarity)),
    Row(
        "query and document maps",
        _learner(QueryDocumentMap),
        (f"at most {MAX_MAPPED} features",),
    ),
    Row("histogram", _learner(HistogramRankSVM), ("counts",)),
    Row(
        "sparse Mahalanobis",
        _learner(SparseMahalanobisLearner),
        ("non-negative numbers",),
    ),
    Row(
        "class posteriors",
        lambda task: ClassPosteriorSimilarity(random_state=task.seed),
        ("known classes", "labels"),
    ),
    Row(
        f"{SET_SIZE} queries: average",
        lambda task: MemoryVectorQuery(method="average"),
        _SET_NEEDS,
        in_sets=True,
    ),
    Row(
        f"{SET_SIZE} queries: memory",
        lambda task: MemoryVectorQuery(),
        _SET_NEEDS,
        in_sets=True,
    ),
]
