"""Checks of the targets `y`."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

from sklearn_simlearn.contract._rules import distance, raises, require, rule
from sklearn_simlearn.contract._samples import fit, learns, samples


@rule
def check_targets_of_every_kind(estimator):
    """Labels, names, and, if the tags promise it, relevance matrices are learned."""
    X, y = samples(estimator)
    targets = {"integers": y, "strings": np.where(y < 0, "none", y.astype(str))}
    if get_tags(estimator).target_tags.multi_output:
        matrix = (y[:, None] == np.arange(12)).astype(float)
        targets |= {"a matrix": matrix, "a sparse matrix": sparse.csr_array(matrix)}
    for name, target in targets.items():
        score = fit(estimator, X, target).score(X, target)
        require(0 < score <= 1, f"with {name} as y the score is {score}.")


@rule
def check_junk_is_no_positive(estimator):
    """Junk of a class is not learned as a relevant sample of the class."""
    if not (learns(estimator) and get_tags(estimator).target_tags.multi_output):
        return
    X, y = samples(estimator, n_distractors=20)
    similarities = []
    # The others are junk, irrelevant, or members of two classes.
    for value in (-1.0, 0.0, 1.0):
        matrix = (y[:, None] == np.arange(12)).astype(float)
        matrix[60:70, 0] = matrix[70:, 1] = value
        similarities.append(fit(estimator, X, matrix).similarity(X))
    _require_nearer(
        similarities, "samples that are junk for a class count as its members."
    )


@rule
def check_distractors_are_no_class(estimator):
    """Distractors, whose label is -1, are not learned as a class."""
    if not learns(estimator):
        return
    X, y = samples(estimator, n_distractors=20)
    is_distractor = y < 0
    similarities = []
    # Distractors have no class, one class each, or one class together.
    for labels in (-1, 100 + np.arange(len(y)), -2):
        target = np.where(is_distractor, labels, y)
        similarities.append(fit(estimator, X, target).similarity(X))
    _require_nearer(similarities, "samples with the label -1 count as a class.")


def _require_nearer(similarities, detail):
    """Raise if the first similarity is closer to the third than to the second."""
    actual, right, wrong = similarities
    require(distance(actual, wrong) >= 0.1 * distance(actual, right), detail)


@rule
def check_a_class_may_have_one_sample(estimator):
    """Classes with one sample, or with none, are allowed: do not divide by 0."""
    X, y = samples(estimator)
    y = np.where(y < 0, 100 + np.arange(len(y)), y)
    targets = [y]
    if get_tags(estimator).target_tags.multi_output:
        targets.append((y[:, None] == [*range(12), *y[60:], 1000]).astype(float))
    for target in targets:
        with warnings.catch_warnings(), np.errstate(all="warn", under="ignore"):
            warnings.simplefilter("error", RuntimeWarning)
            S = fit(estimator, X, target).similarity(X)
        require(np.isfinite(S).all(), "some similarities are not finite.")


@rule
def check_targets_without_a_pair_are_refused(estimator):
    """A y without a triplet raises, and the estimator stays unfitted."""
    if not learns(estimator):
        return
    X, _ = samples(estimator)
    n = X.shape[0]
    for name, y in {
        "of one class": np.zeros(n, int),
        "of classes of one sample": np.arange(n),
        "of distractors": np.full(n, -1),
        "of real numbers": np.arange(n) / 7,
    }.items():
        learner = clone(estimator)
        with raises(ValueError, f"fit with a y {name}", match="y "):
            learner.fit(X, y)
        with raises(NotFittedError, f"transform after a fit with a y {name}"):
            learner.transform(X)
