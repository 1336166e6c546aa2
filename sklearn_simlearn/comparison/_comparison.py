"""The comparison: what a user would try without this package, beside what is in it."""

import pickle
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn._core.progress import timed_fit
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import are_counts, canonical_csr
from sklearn_simlearn._core.sklearn import safe_indexing
from sklearn_simlearn._core.statistics import paired_test
from sklearn_simlearn._core.storable import storable
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import (
    ObjectShuffleSplit,
    QuerySplit,
    make_query_sets,
)
from sklearn_simlearn.report._measurement import Measured, measure_estimator
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

COLUMNS = (
    "similarity",
    "mAP",
    "P@1",
    "P@10",
    "gain",
    "p",
    "fit s",
    "query us",
    "model kB",
)

# Samples that query together in the rows that are about that.
SET_SIZE = 5

# Wider data is reduced to so many features for LDA, logistic regression and NCA.
MAX_FEATURES, REDUCED_FEATURES = 1000, 500

# Beyond these, what takes the time is not what we compare.
MAX_LOGISTIC = 2e9  # samples x features x classes
MAX_NCA = 2000  # samples

# Samples among which a parameter is chosen by cross-validation.
MAX_CHOICE = 5000


# -- the task --


@dataclass
class Task:
    """Samples to learn from, and held-out ones that query each other.

    Attributes
    ----------
    split : {"samples", "objects"}
        What was held out.

    query_mask : ndarray of shape (n_test,), dtype bool, or None
        Which held-out samples query; all if None.

    test_rows : ndarray of shape (n_test,)
        Which of all samples are held out.
    """

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    query_mask: np.ndarray | None
    split: str
    seed: int
    test_rows: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Class of each training sample, -1 for none; None if y is no labels."""
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
        """Features that LDA, logistic regression and NCA get."""
        return REDUCED_FEATURES if self.is_wide else self.X_train.shape[1]

    @cached_property
    def sets(self) -> np.ndarray:
        """Set of each held-out sample, -1 for those that are in none."""
        groups = make_query_sets(
            self.y_test, SET_SIZE, query_mask=self.query_mask, random_state=self.seed
        )
        _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
        return np.where(size[number] == SET_SIZE, groups, -1)


def make_task(
    X: Matrix, y: Any, query_mask: np.ndarray | None, split: str, seed: int
) -> Task:
    """Hold out half of the samples of each class, or half of the classes."""
    X = canonical_csr(X) if sparse.issparse(X) else X
    splitter = _choose_splitter(y, query_mask, split, seed)
    train, test = next(splitter.split(X, y))
    task = Task(
        X[train],
        safe_indexing(y, train),
        X[test],
        safe_indexing(y, test),
        None if query_mask is None else query_mask[test],
        split,
        seed,
        test,
    )
    for half in (task.y_train, task.y_test):
        check_relevance(half).require_triplets()
    return task


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


# -- what a user would try --


@storable
class Chosen(TransformerMixin, BaseEstimator):
    """A transformer, or the probabilities of a classifier; parameters by 3 folds.

    A transformer is judged by the ranking it makes, a classifier by its likelihood.
    With classes of fewer than 3 samples the parameters stay.
    """

    def __init__(self, estimator, grid):
        self.estimator = estimator
        self.grid = grid

    def fit(self, X, y):
        params = {}
        rows = np.random.default_rng(0).permutation(X.shape[0])[:MAX_CHOICE]
        if np.unique(y[rows], return_counts=True)[1].min() >= 3:
            ranks = hasattr(self.estimator, "transform")
            search = GridSearchCV(
                self.estimator,
                self.grid,
                scoring=map_scorer if ranks else "neg_log_loss",
                cv=StratifiedKFold(3, shuffle=True, random_state=0),
                refit=False,
            )
            params = search.fit(X[rows], y[rows]).best_params_
        self.chosen_ = clone(self.estimator).set_params(**params).fit(X, y)
        return self

    def transform(self, X):
        if hasattr(self.chosen_, "transform"):
            return self.chosen_.transform(X)
        return self.chosen_.predict_proba(X)


@storable
class Dense(TransformerMixin, BaseEstimator):
    """Samples as an array."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.toarray() if sparse.issparse(X) else X

    def __sklearn_is_fitted__(self):
        return True


@storable
class InnerProduct(TransformerMixin, BaseEstimator):
    """Compares samples as they are, at the end of a pipeline."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    transform_database = transform

    def similarity(self, X, Y):
        return X @ Y.T

    def __sklearn_is_fitted__(self):
        return True


def _make_lda(task):
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)
    grid = {"shrinkage": ["auto", 0.05, 0.2, 0.5, 0.9]}
    return make_pipeline(*_narrow_steps(task), Chosen(lda, grid))


def _make_logistic(task):
    logistic = LogisticRegression(C=10.0, tol=1e-3, max_iter=300)
    return make_pipeline(
        *_narrow_steps(task), Chosen(logistic, {"C": [1.0, 10.0, 100.0]})
    )


def _make_logistic_product(task):
    return make_pipeline(*_make_logistic(task), InnerProduct())


def _make_nca(task):
    n_components = min(32, task.n_reduced, np.count_nonzero(task.labels >= 0))
    return make_pipeline(
        *_narrow_steps(task),
        PCA(n_components, random_state=task.seed),
        NeighborhoodComponentsAnalysis(max_iter=20, random_state=task.seed),
    )


def _narrow_steps(task):
    """Rows as a user would make them, in an array of limited width."""
    steps = [TfidfTransformer(sublinear_tf=True) if task.has_counts else Normalizer()]
    if task.is_wide:
        return [*steps, TruncatedSVD(REDUCED_FEATURES, random_state=task.seed)]
    return [*steps, Dense()]


# -- the rows --

# What a row may need; without it the row is left out.
NEEDS: dict[str, Callable[[Task], bool]] = {
    "counts": lambda task: task.has_counts,
    "non-negative numbers": lambda task: task.is_non_negative,
    "labels": lambda task: task.labels is not None,
    "known classes": lambda task: task.split == "samples",
    "fewer samples or classes": lambda task: (
        task.X_train.shape[0] * task.n_reduced * task.n_classes <= MAX_LOGISTIC
    ),
    f"at most {MAX_NCA} samples": lambda task: task.X_train.shape[0] <= MAX_NCA,
    f"classes of more than {SET_SIZE} held-out samples": lambda task: (
        task.sets.max() >= 0
    ),
}


@dataclass
class Row:
    """A line of the table.

    Attributes
    ----------
    make : callable
        From a task to the estimator.

    needs : tuple of str
        Keys of `NEEDS`.

    is_rival : bool
        Whether it is what a user would try without this package.

    in_sets : bool
        Whether several samples query together.
    """

    name: str
    make: Callable[[Task], Any]
    needs: tuple[str, ...] = ()
    is_rival: bool = False
    in_sets: bool = False

    def missing(self, task: Task) -> str | None:
        """The first of its needs that the task does not fulfil."""
        return next((need for need in self.needs if not NEEDS[need](task)), None)


def _learner(kind):
    """An estimator of ours, with the hold-out that matches the split."""
    return lambda task: kind(holdout=task.split, random_state=task.seed)


_LOGISTIC_NEEDS = ("labels", "fewer samples or classes")
_NCA_NEEDS = ("labels", f"at most {MAX_NCA} samples")
_SET_NEEDS = (f"classes of more than {SET_SIZE} held-out samples",)

ROWS = [
    Row("cosine", lambda task: CosineSimilarity(use_idf=False), is_rival=True),
    Row(
        "cosine of tf-idf",
        lambda task: CosineSimilarity(),
        ("non-negative numbers",),
        is_rival=True,
    ),
    Row("LDA", _make_lda, ("labels",), is_rival=True),
    Row("logistic posteriors", _make_logistic, _LOGISTIC_NEEDS, is_rival=True),
    Row("logistic product", _make_logistic_product, _LOGISTIC_NEEDS, is_rival=True),
    Row("NCA", _make_nca, _NCA_NEEDS, is_rival=True),
    Row(
        "negative evidence",
        lambda task: NegativeEvidenceSimilarity(use_idf=task.has_counts),
    ),
    Row("burstiness", lambda task: BurstinessSimilarity(), ("non-negative numbers",)),
    Row("asymmetric", lambda task: AsymmetricSimilarity(), ("counts",)),
    Row("OASIS", _learner(OASIS)),
    Row("angular", _learner(AngularBilinearRanker)),
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
        f"{SET_SIZE} queries: memory vector",
        lambda task: MemoryVectorQuery(),
        _SET_NEEDS,
        in_sets=True,
    ),
]


# -- measuring them --


@dataclass
class Result:
    """A row, and what was measured of it."""

    row: Row
    measured: Measured

    @property
    def mean_average_precision(self) -> float:
        return self.measured.mean_average_precision


@dataclass
class Comparison:
    """What came of the rows.

    Attributes
    ----------
    left_out : dict
        From the name of a row to the reason.

    warnings : dict
        From the text of a warning to the names of the rows that gave it.
    """

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def best(self, among: Callable[[Row], bool]) -> Result | None:
        """The result of the largest mean average precision."""
        candidates = [result for result in self.results if among(result.row)]
        return max(
            candidates, key=lambda result: result.mean_average_precision, default=None
        )

    def tabulate(self) -> list[tuple[str, ...]]:
        """Lines of the table, below `COLUMNS`."""
        reference = self.best(lambda row: row.is_rival)
        return [_tabulate(result, reference) for result in self.results]


def compare(task: Task, rows: Iterable[Row], show: Callable[..., None]) -> Comparison:
    """Fit every row that the data allow, and measure it on the held-out samples.

    ``show(name, step)`` hears which row is at work, and the steps of its fit. A row
    that fails is left out, with the reason.
    """
    comparison = Comparison()
    for row in rows:
        show(row.name)
        missing = row.missing(task)
        if missing is not None:
            comparison.left_out[row.name] = f"needs {missing}"
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                comparison.results.append(_measure(row, task, show))
            except Exception as error:  # whatever a row fails of, the others go on
                comparison.left_out[row.name] = f"failed: {one_line(error)}"
        for warning in caught:
            # Near the optimum will do for what is only a rival.
            if not (row.is_rival and issubclass(warning.category, ConvergenceWarning)):
                names = comparison.warnings.setdefault(one_line(warning.message), [])
                if row.name not in names:
                    names.append(row.name)
    return comparison


def one_line(error: BaseException | str) -> str:
    """A message without line breaks; the type where there is no message."""
    return " ".join(str(error).split()) or type(error).__name__


def _measure(row, task, show):
    estimator = row.make(task)
    X, y = task.X_train, task.y_train
    if row.is_rival and task.labels is not None:
        known = np.flatnonzero(task.labels >= 0)  # a class of distractors is none
        X, y = X[known], task.labels[known]
    seconds = timed_fit(estimator, X, y, row.name, show)
    show(row.name, "search")
    measured = measure_estimator(
        estimator,
        task.X_test,
        task.y_test,
        query_mask=task.query_mask,
        groups=task.sets if row.in_sets else None,
        fit_seconds=seconds,
    )
    return Result(row, measured)


def _tabulate(result, reference):
    measured, gain, p = result.measured, "", ""
    report, query_seconds = measured.report, measured.query_seconds
    if reference is not None:
        best = reference.mean_average_precision
        gain = f"{result.mean_average_precision / best - 1:+.1%}"
        if result is not reference and not result.row.in_sets:
            p = f"{paired_test(measured.gains_over(reference.measured)):.1g}"
    return (
        result.row.name,
        f"{result.mean_average_precision:.3f}",
        f"{np.nanmean(report.precision_at_1):.3f}",
        f"{np.nanmean(report.precision_at_10):.3f}",
        gain,
        p,
        f"{measured.fit_seconds:.2f}",
        "" if query_seconds is None else f"{1e6 * query_seconds:.0f}",
        f"{len(pickle.dumps(measured.estimator)) / 1000:.1f}",
    )
