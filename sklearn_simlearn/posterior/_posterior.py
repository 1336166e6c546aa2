"""Similarity of class posteriors, for queries of known classes."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._core.encoders import (
    Composite,
    Encoder,
    Encodings,
    Sides,
    mix,
)
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import (
    DISTRACTOR,
    ColumnRelevance,
    LabelRelevance,
    Relevance,
)
from sklearn_simlearn._core.rows import (
    canonical_csr,
    row_dots,
    unit_rows,
)
from sklearn_simlearn._core.sklearn import HasMethods, Interval, get_chunk_n_rows
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.storable import storable
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.unwrap import Model, find_model
from sklearn_simlearn._holdout import START, Choice, choose
from sklearn_simlearn.base import SimilarityLearner

# (posterior-ridge)  Penalty, and the factor that makes probabilities of the regression.
RIDGE = 0.1
RIDGE_SHARPNESS = 20.0

# Of rows that are all but equal: a sharper kernel would only tell rounding apart.
MIN_SPREAD = 1e-4

# What the hold-out chooses from, besides the rows alone: posteriors with how sharp they
# are, the mean of the first three, and the share that probabilities get.
MIXED = (("ridge", 1.0), ("ridge", 2.0), ("logistic", 10.0))
POSTERIORS = (*MIXED, ("means", 20.0), ("means", 80.0))
WEIGHTS = (0.5, 0.75, 1.0)


class Settings(NamedTuple):
    """A candidate of the hold-out."""

    posterior: str
    sharpness: float
    weight: float


# Classes of fewer samples have none to spare for a hold-out. With `benchmarks/
# bench_defaults.py` these settings were ahead of the rows alone wherever classes are
# that small.
MIN_CLASS_SIZE = 4
WITHOUT_HOLDOUT = Settings("means", 160.0, 0.25)


class ClassPosteriorSimilarity(SimilarityLearner):
    r"""Similarity of what classes two samples may be of.

    Where queries and items are of the classes in the training data, the best ranking
    puts items first that are probably of the query's class. With rows :math:`x` of unit
    length and class probabilities :math:`p(x)`,

    .. math::

        s(q, d) = (1 - a) \langle q, d \rangle + a \langle p(q), p(d) \rangle ,

    where the last term is the probability that both are of one class.

    A hold-out of some samples of each class chooses the probabilities and their share
    :math:`a`; where most classes have fewer than four samples, which leaves none to
    hold out, they are fixed: distances from class means, and one quarter. The maths is
    in the :ref:`User Guide <posterior>`.

    It is for known classes only: items of a class that was not in the training data are
    scattered over the others, and rank far worse than by the cosine.

    Parameters
    ----------
    estimator : estimator, default=None
        Learner, transformer or pipeline of them that makes the rows. It is cloned and
        fitted by `fit`. None takes the samples as they are, and tf-idf to the power 3/4
        of counts.

    classifier : classifier, default=None
        Classifier with `predict_proba` that the probabilities come from; it is fitted
        on the rows. None lets the hold-out choose among kernel ridge regression,
        logistic regression, a mean of both, and distances from class means.

    n_landmarks : int, default=2000
        Number of training samples that kernel ridge regression is expanded in. Above
        it, a sample of them is drawn.

    random_state : int, RandomState instance or None, default=None
        Decides what is held out, and the landmarks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes, sorted; column numbers if `y` is a matrix.

    posterior_ : str
        What the probabilities come from: "ridge", "logistic", "mixture", "means" or
        "classifier"; "none" if the rows alone rank best.

    weight_ : float
        The share :math:`a` of the probabilities.

    holdout_gain_, holdout_error_ : float
        Gain in mean average precision over the rows alone on held-out samples, and its
        standard error. Only if there was a hold-out.

    holdout_results_ : dict
        All candidates of the hold-out with their measures. Only if there was one.

    See Also
    --------
    OASIS : For new classes too.

    Notes
    -----
    Kernel ridge regression takes ``O(n_samples * n_landmarks ** 2)`` time. A query
    takes as long as comparing it with the landmarks.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import ClassPosteriorSimilarity
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ClassPosteriorSimilarity(random_state=0).fit(X[:900], y[:900])
    >>> round(model.score(X[900:], y[900:]), 2)
    0.97
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "transform"]), None],
        "classifier": [HasMethods(["fit", "predict_proba"]), None],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self, estimator=None, *, classifier=None, n_landmarks=2000, random_state=None
    ):
        self.estimator = estimator
        self.classifier = classifier
        self.n_landmarks = n_landmarks
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        labels, classes = _read_classes(relevance)
        rng = make_generator(self.random_state)

        # From here on the inputs are sound.
        def path(train, rng):
            start = fit_start(self.estimator, X[train], labels[train])
            yield START, start
            for (name, sharpness), posterior in self._try_posteriors(
                start.items(X[train]), labels[train], rng
            ):
                agreement = Agreement(Probabilities(start, posterior))
                for weight in WEIGHTS:
                    yield (
                        Settings(name, sharpness, weight),
                        mix(agreement, start, 1 - weight),
                    )

        # On more threads BLAS would sum in another order.
        with one_blas_thread():
            if np.median(np.bincount(labels[labels >= 0])) >= MIN_CLASS_SIZE:
                choice = choose(path, X, relevance, "samples", rng, advance)
            else:
                choice = Choice(self._settings_without_holdout(), {})
            start = fit_start(self.estimator, X, labels)
            if choice.candidate is START:
                attributes = {
                    "encoder_": start,
                    "posterior_": "none",
                    "weight_": 0.0,
                }
            else:
                name, sharpness, weight = choice.candidate
                posterior = self._fit_posterior(
                    name, sharpness, start.items(X), labels, rng
                )
                agreement = Agreement(Probabilities(start, posterior))
                attributes = {
                    "encoder_": mix(agreement, start, 1 - weight),
                    "posterior_": name,
                    "weight_": weight,
                }
        return {"classes_": classes, **attributes, **choice.attributes}

    def _settings_without_holdout(self):
        if self.classifier is None:
            return WITHOUT_HOLDOUT
        return WITHOUT_HOLDOUT._replace(posterior="classifier")

    def _try_posteriors(
        self, rows, labels, rng
    ) -> Iterator[tuple[tuple[str, float], "_Posterior"]]:
        """Yield the posteriors to choose from, by name and sharpness."""
        if self.classifier is not None:
            name = ("classifier", 1.0)
            yield name, self._fit_posterior(*name, rows, labels, rng)
            return
        tried = {}
        for name in POSTERIORS:
            tried[name] = self._fit_posterior(*name, rows, labels, rng)
            yield name, tried[name]
        yield ("mixture", 1.0), _Mean([tried[name] for name in MIXED])

    def _fit_posterior(self, name, sharpness, rows, labels, rng):
        if name == "mixture":
            parts = [self._fit_posterior(*part, rows, labels, rng) for part in MIXED]
            return _Mean(parts)
        known = np.flatnonzero(labels >= 0)  # distractors are of no class
        rows, labels = rows[known], labels[known]
        if name == "ridge":
            return _Ridge(rows, labels, sharpness, self.n_landmarks, rng)
        if name == "means":
            return _Means(rows, labels, sharpness)
        if name == "logistic":
            model = LogisticRegression(C=sharpness, tol=1e-3, max_iter=300)
            return _Logistic(rows, labels, model, self.n_landmarks, rng)
        return _Classified(clone(self.classifier).fit(rows, labels))

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
            "ClassPosteriorSimilarity needs one class per sample, but y gives some "
            "samples several columns, or junk, or is pairwise: pass labels."
        )
    members = relevance.memberships
    labels = np.full(len(relevance), DISTRACTOR)
    labels[np.diff(members.indptr) > 0] = members.indices
    classes, index = np.unique(members.indices, return_inverse=True)
    labels[labels != DISTRACTOR] = index
    return labels, classes


@dataclass(frozen=True, eq=False)
class Probabilities(Encoder):
    """Class probabilities, on both sides those of the row as an item."""

    rows: Encoder
    posterior: "_Posterior"

    def items(self, X: Matrix) -> np.ndarray:
        """Return one row of probabilities per sample, in double precision."""
        return self.posterior.of(self.rows.items(X))


@dataclass(frozen=True, eq=False)
class Agreement(Composite):
    """(posterior-rows)  Probability that a query and an item are of one class.

    A column on each side, which is 0 on the other one, gives rows unit length.
    """

    probabilities: Probabilities

    def combine(self, rows: Encodings) -> np.ndarray:
        """Return class probabilities, and what a side lacks to unit length."""
        P = rows(self.probabilities)
        rest = np.zeros((len(P), 2))
        side = 0 if rows.side == "queries" else 1
        rest[:, side] = np.sqrt(np.maximum(1 - row_dots(P, P), 0))
        return np.hstack([P, rest]).astype(rows.X.dtype)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the inner products of the probabilities."""
        return sides.similarity(self.probabilities).astype(sides.items.X.dtype)


def fit_start(estimator, X: Matrix, labels: np.ndarray) -> Encoder:
    """Return an encoder of rows of unit length, by the estimator if there is one."""
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


class _Posterior:
    """Class probabilities of rows."""

    def of(self, rows: Matrix) -> np.ndarray:
        n_rows = get_chunk_n_rows(32 * self.width, max_n_rows=rows.shape[0])
        return np.concatenate(
            [
                self.probabilities(rows[batch])
                for batch in gen_batches(rows.shape[0], n_rows)
            ]
        )


@storable
class _Means(_Posterior):
    """(posterior-means)  softmax of cosines with the class means."""

    def __init__(self, rows, labels, sharpness):
        self.means = unit_rows(np.asarray(safe_sparse_dot(_one_hot(labels).T, rows)))
        self.sharpness = sharpness
        self.width = len(self.means)

    def probabilities(self, rows):
        cosines = safe_sparse_dot(rows, self.means.T, dense_output=True)
        return softmax(self.sharpness * cosines.astype(np.float64), axis=1)


@storable
class _Ridge(_Posterior):
    """(posterior-ridge)  Ridge regression on the classes, with a Gaussian kernel.

    Of unit rows that kernel is exp(sharpness * (cosine - 1) / spread), with the mean
    over all pairs of 1 - cosine as the spread.
    """

    def __init__(self, rows, labels, sharpness, n_landmarks, rng):
        mean = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel()
        spread = max(1 - mean @ mean, MIN_SPREAD)
        self.features = _Features(rows, labels, sharpness / spread, n_landmarks, rng)
        self.width = n = self.features.width
        gram, target = RIDGE * np.eye(n), 0.0
        is_class = _one_hot(labels)
        for batch in gen_batches(rows.shape[0], max(1, 2**24 // n)):
            Z = self.features(rows[batch])
            gram += Z.T @ Z
            target += Z.T @ is_class[batch]
        self.coefficients = linalg.solve(gram, target, assume_a="pos")

    def probabilities(self, rows):
        scores = self.features(rows) @ self.coefficients
        return softmax(RIDGE_SHARPNESS * scores, axis=1)


@storable
class _Logistic(_Posterior):
    """Logistic regression; of rows wider than the landmarks, in the space of these."""

    def __init__(self, rows, labels, model, n_landmarks, rng):
        self.features = None
        self.width = rows.shape[1]
        if self.width > min(n_landmarks, rows.shape[0]):
            self.features = _Features(rows, labels, None, n_landmarks, rng)
            self.width = self.features.width
            rows = self.features(rows)
        with warnings.catch_warnings():
            # Close to the optimum will do for a ranking.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model = model.fit(rows, labels)

    def probabilities(self, rows):
        rows = rows if self.features is None else self.features(rows)
        return self.model.predict_proba(rows)


@storable
class _Mean(_Posterior):
    """(posterior-mixture)  Mean of several probabilities."""

    def __init__(self, parts):
        self.parts = parts
        self.width = sum(part.width for part in parts)

    def probabilities(self, rows):
        return np.mean([part.probabilities(rows) for part in self.parts], axis=0)


@storable
class _Classified(_Posterior):
    """Probabilities of the user's own classifier."""

    def __init__(self, classifier):
        self.classifier = classifier
        self.width = len(classifier.classes_)

    def probabilities(self, rows):
        return np.asarray(self.classifier.predict_proba(rows), dtype=np.float64)


@storable
class _Features:
    """(posterior-features)  Rows whose inner products are a kernel, by landmarks.

    The kernel is the Gaussian one, or the inner product if `sharpness` is None.
    """

    def __init__(self, rows, labels, sharpness, n_landmarks, rng):
        self.sharpness = sharpness
        # In single precision the matrix below would be no kernel.
        self.landmarks = rows = rows.astype(np.float64)
        if rows.shape[0] > n_landmarks:
            # Spread evenly over the samples in the order of their classes.
            order = rng.permutation(rows.shape[0])
            order = order[np.argsort(labels[order], kind="stable")]
            place = np.linspace(0, rows.shape[0] - 1, n_landmarks).astype(np.intp)
            self.landmarks = rows[np.sort(order[place])]
        self.width = self.landmarks.shape[0]
        gram = self._kernel(self.landmarks)
        # Equal landmarks make the matrix singular: lift its diagonal by a trifle.
        gram[np.diag_indices_from(gram)] += 1e-8 * max(gram.diagonal().max(), 1e-8)
        self.factor = linalg.cholesky(gram, lower=True, overwrite_a=True)

    def __call__(self, rows: Matrix) -> np.ndarray:
        return linalg.solve_triangular(
            self.factor, self._kernel(rows).T, lower=True, overwrite_b=True
        ).T

    def _kernel(self, rows):
        rows = rows.astype(np.float64, copy=False)
        cosines = safe_sparse_dot(rows, self.landmarks.T, dense_output=True)
        if self.sharpness is None:
            return cosines
        return np.exp(self.sharpness * (cosines - 1))


def _one_hot(labels):
    classes, code = np.unique(labels, return_inverse=True)
    is_class = np.zeros((len(labels), len(classes)))
    is_class[np.arange(len(labels)), code] = 1
    return is_class
