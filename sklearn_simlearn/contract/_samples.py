"""Samples for the checks, and fits on them."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags


def make_samples(
    n_objects: int = 12,
    size: int = 5,
    n_words: int = 40,
    n_distractors: int = 6,
    dtype=np.float64,
    seed: int = 0,
) -> tuple[sparse.csr_array, np.ndarray]:
    """Return word counts from which a learner gains, and labels.

    Ten words describe the object. The others are random, in bursts. The samples of an
    object are consecutive, and the distractors are last.
    """
    rng = np.random.default_rng(seed)
    n_labelled = n_objects * size
    y = np.full(n_labelled + n_distractors, -1)
    y[:n_labelled] = np.repeat(np.arange(n_objects), size)
    n_bursts = rng.poisson(0.3, size=(len(y), n_words))
    X = rng.poisson(0.6 + 6 * n_bursts)
    prototypes = rng.poisson(0.7, size=(n_objects + n_distractors, 10))
    source = np.where(y < 0, n_objects + np.arange(len(y)) - n_labelled, y)
    X[:, :10] = rng.binomial(4 * prototypes[source], 0.8)
    return sparse.csr_array(X.astype(dtype)), y


def samples(estimator, **options) -> tuple:
    """Return samples of a kind that the tags of the estimator allow, and labels."""
    X, y = make_samples(**options)
    return (X if takes_sparse(estimator) else X.toarray()), y


def containers(estimator, X: sparse.csr_array) -> list:
    """Return the samples in the containers that the tags allow."""
    return [X, X.toarray()] if takes_sparse(estimator) else [X.toarray()]


def takes_sparse(estimator) -> bool:
    """Return whether the estimator takes sparse samples, by its tags."""
    return get_tags(estimator).input_tags.sparse


def learns(estimator) -> bool:
    """Return whether the estimator needs targets."""
    return get_tags(estimator).target_tags.required


def fit(estimator, X, y, parameters: dict | None = None, *, seed: int | None = None):
    """Fit a clone with an int as random_state, without warnings."""
    model = clone(estimator).set_params(**parameters or {})
    if "random_state" in model.get_params(deep=False):
        if seed is not None:
            model.set_params(random_state=seed)
        elif model.random_state is None:
            model.set_params(random_state=0)
    return refit(model, X, y)


def refit(model, X, y):
    """Fit in place, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X, y)


def has_holdout(model) -> bool:
    """Return whether a fitted estimator has chosen among candidates."""
    return hasattr(model, "holdout_results_")


def chosen(model):
    """Return the choice of the hold-out of a fitted estimator, or None."""
    if not has_holdout(model):
        return None
    results = model.holdout_results_
    return results["candidates"][results["best_index"]]


def dense(X) -> np.ndarray:
    """Return X as an array."""
    return X.toarray() if sparse.issparse(X) else X


def with_row(X, row: int, value: float):
    """Return a copy of X with a single value in one row."""
    changed = dense(X).copy()
    changed[row] = 0
    changed[row, 0] = value
    return type(X)(changed) if sparse.issparse(X) else changed


def storage_states(X: sparse.csr_array) -> dict:
    """Return the same samples, stored in all ways that scikit-learn accepts."""
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        others = {name: X.asformat(name) for name in ("csc", "coo", "bsr", "dia")}
    return states | others
