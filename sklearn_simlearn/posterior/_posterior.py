"""Similarity of class posteriors, for queries of known classes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from sklearn_simlearn._core.encoders import (
    Chain,
    Composite,
    Encoder,
    Encodings,
    Sides,
    mix,
)
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import (
    ColumnRelevance,
    LabelRelevance,
    Relevance,
)
from sklearn_simlearn._core.rows import canonical_csr, row_dots, unit_rows
from sklearn_simlearn._core.sklearn import HasMethods, Interval
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.targets import DISTRACTOR
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import Matrix, RandomState
from sklearn_simlearn._core.unwrap import Model, find_model
from sklearn_simlearn._holdout import START, TIE, Choice, choose
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.posterior._probabilities import (
    Classified,
    Coordinates,
    Posterior,
    Ridge,
    fit_logistic,
    fit_means,
)

# Candidates of the hold-out, in addition to the rows alone: kind of probabilities with
# their sharpness, kind of rows, and share of the rows in the similarity. The slowest
# come last.
POSTERIORS = (
    ("rows", "logistic", 10.0),
    ("rows", "means", 20.0),
    ("rows", "means", 80.0),
    ("discriminants", "ridge", 1.5),
    ("rows", "ridge", 1.5),
    ("rows", "mixture", 1.0),
)
SHARES = (0.5, 0.25, 0.0)

# Number of landmarks on discriminants: per dimension, and the largest in total.
LANDMARKS_PER_DISCRIMINANT = 50
MAX_DISCRIMINANT_LANDMARKS = 1000

# Parts of a mixture, with their sharpness.
MIXED = (("ridge", 1.5), ("logistic", 10.0))


class Candidate(NamedTuple):
    """A candidate of the hold-out."""

    rows: str
    posterior: str
    sharpness: float
    share: float


# Smaller classes have no samples to hold out. For them, the settings below were better
# than the rows alone on all data sets of `benchmarks/bench_defaults.py`.
MIN_CLASS_SIZE = 4
WITHOUT_HOLDOUT = Candidate("rows", "means", 160.0, 0.75)


class ClassPosteriorSimilarity(SimilarityLearner):
    r"""Probability that two samples belong to the same class.

    If queries and items are of the classes in the training data, the best ranking is by
    the probability that an item is of the query's class. With rows :math:`x` of unit
    length and class probabilities :math:`p(x)`,

    .. math::

        s(q, d) = a \langle q, d \rangle + (1 - a) \langle p(q), p(d) \rangle ,

    where the last term is the probability that both belong to one class.

    A hold-out of some samples of each class chooses the rows, the probabilities and the
    share :math:`a` of the rows. If most classes have fewer than four samples, nothing
    is held out. Then the probabilities come from the classifier, or from class means if
    none is given, and :math:`a` is 0.75. The maths is in the
    :ref:`User Guide <posterior>`.

    Use this learner for known classes only. It assigns items of a new class to the
    known classes, so they rank far worse than by the cosine.

    Parameters
    ----------
    estimator : estimator, default=None
        Learner, transformer or pipeline that computes the rows. `fit` clones and fits
        it. If None, the rows are the samples, or their tf-idf to the power 3/4 if `X`
        holds counts.

    classifier : classifier, default=None
        Classifier with `predict_proba`, which is fitted on the rows. None lets the
        hold-out choose among kernel ridge regression, logistic regression, the mean of
        both, and the softmax of cosines with class means.

    n_landmarks : int, default=2000
        Number of rows in the expansion of kernel ridge regression: centres of k-means
        within the classes, or training samples if they are sparse. With up to twice
        this number of training samples, all samples are used. A smaller number makes
        queries faster.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out, and draws the landmarks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes, sorted; column numbers if `y` is a matrix.

    posterior_ : str
        Source of the probabilities: "ridge", "logistic", "mixture", "means" or
        "classifier"; "none" if the rows alone rank best.

    share_ : float
        The share :math:`a` of the rows; 1 if they rank best alone.

    holdout_gain_, holdout_error_ : float
        Gain in mean average precision over the rows alone on held-out samples, and its
        standard error. Set only with a hold-out.

    holdout_results_ : dict
        All candidates of the hold-out with their measures. Set only with a hold-out.

    See Also
    --------
    OASIS : Learner for known and new classes.

    Notes
    -----
    Kernel ridge regression takes ``O(n_samples * n_landmarks ** 2)`` time to fit, and
    ``O(n_landmarks * n_features)`` time per query.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import ClassPosteriorSimilarity
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ClassPosteriorSimilarity(random_state=0).fit(X[:900], y[:900])
    >>> round(model.score(X[900:], y[900:]), 2)
    0.98
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "transform"]), None],
        "classifier": [HasMethods(["fit", "predict_proba"]), None],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        classifier: ClassifierMixin | None = None,
        n_landmarks: int = 2000,
        random_state: RandomState = None,
    ):
        self.estimator = estimator
        self.classifier = classifier
        self.n_landmarks = n_landmarks
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        labels, classes = _read_classes(relevance)
        rng = make_generator(self.random_state)

        # From here on, the inputs are valid.
        # On more threads, BLAS would sum in another order.
        with one_blas_thread():
            if np.median(np.bincount(labels[labels >= 0])) >= MIN_CLASS_SIZE:
                path = partial(self._path, X, labels)
                choice = choose(path, X, relevance, "samples", rng, advance)
                choice = _prefer_rank_1(choice)
            else:
                choice = Choice(self._candidate_without_holdout(), {})
            encoder = start = fit_start(self.estimator, X, labels)
            posterior, share = "none", 1.0
            if choice.candidate is not START:
                trial = _Trial(self, start, X, labels, rng)
                encoder = trial.encoder(choice.candidate)
                posterior, share = choice.candidate.posterior, choice.candidate.share
        return {
            "classes_": classes,
            "encoder_": encoder,
            "posterior_": posterior,
            "share_": share,
            **choice.attributes,
        }

    def _path(self, X, labels, train, rng) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows."""
        X, labels = X[train], labels[train]
        start = fit_start(self.estimator, X, labels)
        yield START, start
        trial = _Trial(self, start, X, labels, rng)
        for candidate in trial.candidates():
            yield candidate, trial.encoder(candidate)

    def _unused_parameters(self):
        return {} if self.classifier is None else {"n_landmarks": "a classifier"}

    def _candidate_without_holdout(self):
        if self.classifier is None:
            return WITHOUT_HOLDOUT
        return WITHOUT_HOLDOUT._replace(posterior="classifier")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False  # classes only
        return tags


def _read_classes(relevance: Relevance) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each sample, -1 for none, and the names of the classes.

    Raise if y does not hold one class per sample.
    """
    if isinstance(relevance, LabelRelevance):
        return relevance.labels, relevance.classes
    is_of_columns = isinstance(relevance, ColumnRelevance) and relevance.junk is None
    if not is_of_columns or np.diff(relevance.memberships.indptr).max() > 1:
        raise ValueError(
            "ClassPosteriorSimilarity needs one class per sample, but in y, some "
            "samples have several classes or are junk, or relevance is given by pairs. "
            "Pass one label per sample."
        )
    members = relevance.memberships
    labels = np.full(len(relevance), DISTRACTOR)
    labels[np.diff(members.indptr) > 0] = members.indices
    classes, index = np.unique(members.indices, return_inverse=True)
    labels[labels != DISTRACTOR] = index
    return labels, classes


@dataclass(frozen=True, eq=False)
class Probabilities(Composite):
    """Class probabilities of rows; queries are encoded as items."""

    rows: Encoder
    posterior: Posterior

    is_symmetric = True

    def combine(self, rows: Encodings) -> np.ndarray:
        """Return one row of probabilities per sample, in double precision."""
        if self.rows.is_symmetric:
            return self.posterior.of(rows(self.rows))
        return self.posterior.of(self.rows.items(rows.X))


@dataclass(frozen=True, eq=False)
class MeanProbabilities(Composite):
    """Mean of several probabilities: (posterior-mixture)."""

    parts: tuple[Encoder, ...]

    is_symmetric = True

    def combine(self, rows: Encodings) -> np.ndarray:
        """Return one row of probabilities per sample, in double precision."""
        return np.mean([rows(part) for part in self.parts], axis=0)


@dataclass(frozen=True, eq=False)
class Agreement(Composite):
    """Probability that a query and an item belong to one class: (posterior-rows).

    Two more columns, one of them 0 for queries and the other 0 for items, complete the
    rows to unit length.
    """

    probabilities: Encoder

    def combine(self, rows: Encodings) -> np.ndarray:
        """Return class probabilities, and the column that completes unit length."""
        P = rows(self.probabilities)
        rest = np.zeros((len(P), 2))
        side = 0 if rows.side == "queries" else 1
        rest[:, side] = np.sqrt(np.maximum(1 - row_dots(P, P), 0))
        return np.hstack([P, rest]).astype(rows.X.dtype)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the inner products of the probabilities."""
        return sides.similarity(self.probabilities).astype(sides.items.X.dtype)


def fit_start(estimator, X: Matrix, labels: np.ndarray) -> Encoder:
    """Return an encoder of rows of unit length; fit the estimator if one is given."""
    if estimator is None:
        return Start.fit(X)
    return UnitRows(find_model(clone(estimator).fit(X, labels)))


@dataclass(frozen=True, eq=False)
class UnitRows(Encoder):
    """Encodings of a fitted estimator, scaled to unit length."""

    model: Model

    def queries(self, X: Matrix) -> Matrix:
        """Return the encoded queries."""
        return _as_unit_rows(
            self.model.encode_queries(self.model.prepare_queries(X)), X.dtype
        )

    def items(self, X: Matrix) -> Matrix:
        """Return the encoded items."""
        return _as_unit_rows(
            self.model.encode_items(self.model.prepare_items(X)), X.dtype
        )


def _as_unit_rows(X, dtype):
    X = X.astype(dtype, copy=False)
    return unit_rows(X if isinstance(X, np.ndarray) else canonical_csr(X))


def _prefer_rank_1(choice: Choice) -> Choice:
    """Return the best candidate at rank 1 among those that equal the choice."""
    results = choice.attributes.get("holdout_results_")
    if results is None or choice.candidate is START:
        return choice
    gain, at_1 = results["gain"], results["gain_at_1"]
    is_as_good = gain >= gain[results["best_index"]] - TIE
    best = int(np.argmax(np.where(is_as_good, at_1 + 1e-3 * gain, -np.inf)))
    attributes = {
        "holdout_gain_": float(gain[best]),
        "holdout_error_": float(results["error"][best]),
        "holdout_results_": {**results, "best_index": best},
    }
    return Choice(results["candidates"][best], attributes)


class _Trial:
    """Candidates of the hold-out for some samples. Shared parts are fitted once.

    Parameters
    ----------
    learner : ClassPosteriorSimilarity
        Learner with the parameters `classifier` and `n_landmarks`.

    start : Encoder
        Encoder of rows of unit length.

    X : ndarray or csr_array
        Samples to learn from.

    labels : ndarray
        Classes of the samples. Distractors, which have the label -1, are not used.

    rng : Generator
        Draws landmarks.
    """

    def __init__(self, learner, start, X, labels, rng):
        known = np.flatnonzero(labels >= 0)
        self.classifier, self.n_landmarks = learner.classifier, learner.n_landmarks
        self.start, self.labels, self.rng = start, labels[known], rng
        self.rows = start.items(X if len(known) == len(labels) else X[known])
        self._coordinates: Coordinates | None = None
        self._encoders: dict[str, Encoder] = {"rows": start}
        self._probabilities: dict[tuple, Encoder] = {}
        self._agreements: dict[tuple, Agreement] = {}

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates except the start; none if there is only one class."""
        posteriors: tuple[tuple[str, str, float], ...] = ()
        if self.labels.max() > self.labels.min():
            posteriors = POSTERIORS
        if self.classifier is not None:
            posteriors = (("rows", "classifier", 1.0),)
        for rows, name, sharpness in posteriors:
            for share in SHARES:
                yield Candidate(rows, name, sharpness, share)

    def encoder(self, candidate: Candidate) -> Encoder:
        """Return the encoder of a candidate."""
        rows = self._encode(candidate.rows)
        key = candidate.rows, candidate.posterior, candidate.sharpness
        if key not in self._agreements:
            self._agreements[key] = Agreement(self.probabilities(*key))
        return mix(self._agreements[key], rows, candidate.share)

    def probabilities(self, rows: str, name: str, sharpness: float) -> Encoder:
        """Return an encoder of samples as class probabilities; fit it if needed."""
        key = rows, name, sharpness
        if key not in self._probabilities:
            if name == "mixture":
                parts = tuple(self.probabilities(rows, *part) for part in MIXED)
                self._probabilities[key] = MeanProbabilities(parts)
            else:
                fitted = Probabilities(self._encode(rows), self._fit(*key))
                self._probabilities[key] = fitted
        return self._probabilities[key]

    def _fit(self, rows, name, sharpness):
        if name == "logistic":
            return fit_logistic(self.rows, self._project(), self.labels, sharpness)
        if name == "means":
            return fit_means(self.rows, self.labels, sharpness)
        if name == "classifier":
            return Classified(clone(self.classifier).fit(self.rows, self.labels))
        fitted, n_landmarks = self.rows, self.n_landmarks
        if rows == "discriminants":
            fitted = self._encode(rows).then.items(self.rows)
            n_useful = LANDMARKS_PER_DISCRIMINANT * fitted.shape[1]
            n_landmarks = min(n_landmarks, n_useful, MAX_DISCRIMINANT_LANDMARKS)
        return Ridge(fitted, self.labels, sharpness, n_landmarks, self.rng)

    def _encode(self, rows):
        if rows not in self._encoders:
            discriminants = self._project().discriminate(self.labels)
            dtype = self.rows.dtype
            self._encoders[rows] = Chain(self.start, discriminants.astype(dtype))
        return self._encoders[rows]

    def _project(self):
        if self._coordinates is None:
            self._coordinates = Coordinates(self.rows, self.rng)
        return self._coordinates
