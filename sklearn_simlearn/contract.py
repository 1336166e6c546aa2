"""The contract of a similarity, as checks that any estimator can be put through.

They complement scikit-learn's own `check_estimator` and follow an estimator's tags:
whether it takes sparse data, needs targets, and takes a relevance matrix.
"""

import pickle
import re
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

from sklearn_simlearn.base import SimilarityLearner

__all__ = ["CHECKS", "check_learner"]


def check_learner(estimator) -> None:
    """Check that an estimator keeps the contract of a learner.

    Parameters
    ----------
    estimator : object
        A learner or hand-made similarity, with settings cheap enough for small data.

    Raises
    ------
    AssertionError
        If it does not.

    Examples
    --------
    >>> from sklearn_simlearn.contract import check_learner
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> check_learner(CosineSimilarity())
    """
    for check in CHECKS:
        check(estimator)


def make_counts(dtype=np.float64) -> tuple[sparse.csr_array, np.ndarray]:
    """Sparse word counts of 12 objects with 5 samples each, and 6 distractors."""
    rng = np.random.default_rng(0)
    prototypes = rng.poisson(0.4, size=(12, 40))
    y = np.concatenate([np.repeat(np.arange(12), 5), np.full(6, -1)])
    X = rng.poisson(0.3, size=(66, 40))
    X[:60] += rng.binomial(prototypes[y[:60]], 0.7)
    return sparse.csr_array(X.astype(dtype)), y


# -- the similarity --


def check_similarity_is_an_inner_product(estimator):
    """Surrogate queries and stored items give the similarity, in both precisions."""
    for dtype in (np.float32, np.float64):
        X, y = make_counts(dtype)
        for Z in _containers(estimator, X):
            fitted = _fit(estimator, Z, y)
            product = fitted.transform(Z[:9]) @ fitted.transform_database(Z).T
            product = product.toarray() if sparse.issparse(product) else product
            S = fitted.similarity(Z[:9], Z)
            assert isinstance(S, np.ndarray)
            assert S.dtype == product.dtype == dtype
            tolerance = 1e-4 if dtype == np.float32 else 1e-9
            assert_allclose(product, S, rtol=tolerance, atol=tolerance)
            assert_array_equal(fitted.similarity(Z), fitted.similarity(Z, Z))


def check_rows_do_not_depend_on_each_other(estimator):
    """A row is encoded the same way whatever is beside it."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X, y)
    whole = fitted.similarity(X)
    part = fitted.similarity(X[5:6], X[3:9])
    assert_allclose(part[0], whole[5, 3:9], rtol=1e-9, atol=1e-12)


def check_storage_does_not_matter(estimator):
    """Every state of storage of the same samples gives the same similarity."""
    if not get_tags(estimator).input_tags.sparse:
        return
    X, y = make_counts()
    expected = _fit(estimator, X.toarray(), y).similarity(X.toarray())
    for name, Z in storage_states(X).items():
        S = _fit(estimator, Z, y).similarity(Z)
        assert_allclose(S, expected, rtol=1e-7, atol=1e-9, err_msg=name)


def storage_states(X: sparse.csr_array) -> dict:
    """The same samples, stored in all ways that scikit-learn accepts."""
    dense = X.toarray()
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    # Each value as a sum of two entries, the columns of a row in descending order.
    rows, columns = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices
    order = np.lexsort((-np.tile(columns, 2), np.tile(rows, 2)))
    doubled = sparse.csr_array(
        (
            np.concatenate([X.data - 1, np.ones_like(X.data)])[order],
            np.tile(columns, 2)[order],
            2 * X.indptr,
        ),
        shape=X.shape,
    )
    read_only = doubled.copy()
    for part in (read_only.data, read_only.indices, read_only.indptr):
        part.flags.writeable = False
    states = {
        "Fortran order": np.asfortranarray(dense),
        "strided": np.repeat(dense, 2, axis=1)[:, ::2],
        "read-only": dense.copy(),
        "csr_array": X,
        "csr_matrix": sparse.csr_matrix(X),
        "int64 indices": wide,
        "unsorted duplicates": doubled,
        "read-only, unsorted duplicates": read_only,
    }
    states["read-only"].flags.writeable = False
    return states | {name: X.asformat(name) for name in ("csc", "coo", "bsr", "dia")}


def check_input_and_estimator_are_left_alone(estimator):
    """Neither X nor the estimator changes when a fitted estimator is used."""
    X, y = _data(estimator)
    before = X.copy()
    fitted = _fit(estimator, X, y)
    # Without the class, which need not be one that can be imported.
    state = pickle.dumps(vars(fitted))
    fitted.similarity(X)
    fitted.transform(X)
    fitted.transform_database(X)
    fitted.score(X, y)
    assert pickle.dumps(vars(fitted)) == state
    assert_array_equal(_dense(X), _dense(before))
    thawed = clone(fitted)
    vars(thawed).update(pickle.loads(state))
    assert_array_equal(thawed.similarity(X), fitted.similarity(X))


# -- fit --


def check_fit_is_repeatable(estimator):
    """The same seed gives the same similarity, to the bit."""
    X, y = _data(estimator)
    first, second = _fit(estimator, X, y), _fit(estimator, X, y)
    assert_array_equal(first.similarity(X), second.similarity(X))


def check_refit_leaves_nothing_behind(estimator):
    """A fit replaces all state of the one before, private attributes too."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X, y)
    fitted.stale_ = fitted._stale = "of an earlier fit"
    fitted.fit(X, y)
    assert not hasattr(fitted, "stale_")
    assert not hasattr(fitted, "_stale")


def check_failed_fit_changes_nothing(estimator):
    """A fit that fails, be it at its very end, leaves all state as it was."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X[:, :20], y)
    state = {name: id(value) for name, value in vars(fitted).items()}
    before = fitted.similarity(X[:, :20])
    with _raises(ValueError):
        fitted.fit(_with_row(X, 0, np.nan), y)
    if isinstance(fitted, SimilarityLearner):
        with _raises(ZeroDivisionError):
            fitted.set_callbacks(_FailAtTheEnd()).fit(X, y)
        fitted.set_callbacks()
    assert {name: id(value) for name, value in vars(fitted).items()} == state
    assert_array_equal(fitted.similarity(X[:, :20]), before)


class _FailAtTheEnd:
    """A callback that raises when all has been learned."""

    def setup(self, estimator, context):
        """Nothing to set up."""

    def teardown(self, estimator, context):
        """Nothing to tear down."""

    def on_fit_task_begin(self, estimator, context, **kwargs):
        """Wait."""

    def on_fit_task_end(self, estimator, context, **kwargs):
        """Fail with the last task, which is the fit itself."""
        if context.parent is None:
            raise ZeroDivisionError


def check_targets_of_every_kind(estimator):
    """Labels, names, and relevance matrices where the tags promise them."""
    X, y = _data(estimator)
    targets = [y, np.where(y < 0, "none", y.astype(str))]
    if get_tags(estimator).target_tags.multi_output:
        matrix = (y[:, None] == np.arange(12)).astype(float)
        targets += [matrix, sparse.csr_array(matrix)]
    for target in targets:
        assert 0 < _fit(estimator, X, target).score(X, target) <= 1


def check_junk_is_no_positive(estimator):
    """What is junk for a class is not learned as one of it."""
    tags = get_tags(estimator).target_tags
    if not (tags.required and tags.multi_output):
        return
    X, y = _data(estimator)
    similarities = []
    for value in (-1.0, 0.0, 1.0):  # the distractors as junk, none and some of class 0
        matrix = (y[:, None] == np.arange(12)).astype(float)
        matrix[60:, 0] = value
        similarities.append(_fit(estimator, X, matrix).similarity(X))
    as_junk, as_negative, as_positive = similarities
    if not np.allclose(as_negative, as_positive):  # they matter to what is learned
        assert not np.allclose(as_junk, as_positive)


def check_targets_without_a_pair_are_refused(estimator):
    """No triplet, no fit; and the estimator stays unfitted."""
    if not get_tags(estimator).target_tags.required:
        return
    X, _ = _data(estimator)
    n = X.shape[0]
    for y in (np.zeros(n, int), np.arange(n), np.full(n, -1), np.arange(n) / 7):
        learner = clone(estimator)
        with _raises(ValueError, match="y "):
            learner.fit(X, y)
        with _raises(NotFittedError):
            learner.transform(X)


# -- score --


def check_score_takes_masks_and_weights(estimator):
    """A mask is a weight of 0 or 1."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X, y)
    mask = np.arange(len(y)) % 5 == 0
    by_mask = fitted.score(X, y, query_mask=mask)
    assert_allclose(by_mask, fitted.score(X, y, sample_weight=mask * 1.0))
    assert by_mask != fitted.score(X, y)


def check_perfect_fold_is_refused(estimator):
    """A fold of one class, on which any similarity would score 1."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X, y)
    with _raises(ValueError, match="StratifiedKFold"):
        fitted.score(X[:5], y[:5])


def check_bad_input_is_named(estimator):
    """Bad input is refused with its name, and does no harm."""
    X, y = _data(estimator)
    fitted = _fit(estimator, X, y)
    before = fitted.similarity(X)
    for bad, message in [
        (_with_row(X, 0, np.nan), "NaN"),
        (X[:, :5], "5 features"),
        (_dense(X)[0], "2D array"),
        (_with_row(X, 0, 1e160), "row 0 of X is 1e\\+160"),
        (_with_row(X, 1, 1e-160), "row 1 of X is 1e-160"),
    ]:
        with _raises(ValueError, match=message):
            fitted.similarity(bad)
        with _raises(ValueError, match=message):
            fitted.transform_database(bad)
    with _raises(ValueError, match="65 and 66"):
        fitted.score(X, y[:-1])
    assert_array_equal(fitted.similarity(X), before)


CHECKS: list[Callable] = [
    check_similarity_is_an_inner_product,
    check_rows_do_not_depend_on_each_other,
    check_storage_does_not_matter,
    check_input_and_estimator_are_left_alone,
    check_fit_is_repeatable,
    check_refit_leaves_nothing_behind,
    check_failed_fit_changes_nothing,
    check_targets_of_every_kind,
    check_junk_is_no_positive,
    check_targets_without_a_pair_are_refused,
    check_score_takes_masks_and_weights,
    check_perfect_fold_is_refused,
    check_bad_input_is_named,
]


def _data(estimator):
    X, y = make_counts()
    return (X if get_tags(estimator).input_tags.sparse else X.toarray()), y


def _containers(estimator, X):
    return [X, X.toarray()] if get_tags(estimator).input_tags.sparse else [X.toarray()]


def _fit(estimator, X, y):
    return clone(estimator).fit(X, y)


def _with_row(X, row, value):
    """A copy of X with one value in a row, and nothing else there."""
    changed = _dense(X).copy()
    changed[row] = 0
    changed[row, 0] = value
    return type(X)(changed) if sparse.issparse(X) else changed


def _dense(X):
    return X.toarray() if sparse.issparse(X) else X


@contextmanager
def _raises(kind, match=""):
    """Expect an error; `match` is a regular expression that its message contains."""
    try:
        yield
    except kind as error:
        message = str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")
    assert re.search(match, message), f"{message} does not say {match!r}"
