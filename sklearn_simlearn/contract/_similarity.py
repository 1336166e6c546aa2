"""Checks of the similarity of a fitted estimator."""

import io
import pickle
import sys

import numpy as np
from scipy import sparse
from sklearn.base import clone

from sklearn_simlearn.contract._rules import require, require_close, require_equal, rule
from sklearn_simlearn.contract._samples import (
    containers,
    dense,
    fit,
    make_samples,
    samples,
    storage_states,
    takes_sparse,
)


@rule
def check_similarity_is_an_inner_product(estimator):
    """Products of encoded queries and items are the similarity, of the dtype of X."""
    for dtype in (np.float32, np.float64):
        X, y = make_samples(dtype=dtype)
        for Z in containers(estimator, X):
            fitted = fit(estimator, Z, y)
            Q, D = fitted.transform(Z[:9]), fitted.transform_database(Z)
            S = fitted.similarity(Z[:9], Z)
            require(isinstance(S, np.ndarray), f"similarity returns a {type(S)}.")
            for name, encoded in [
                ("transform", Q),
                ("transform_database", D),
                ("similarity", S),
            ]:
                require(
                    encoded.dtype == dtype,
                    f"{name} turns {np.dtype(dtype)} into {encoded.dtype}.",
                )
            product = Q @ D.T
            product = product.toarray() if sparse.issparse(product) else product
            require_close(
                product,
                S,
                "transform(X) @ transform_database(Y).T is not similarity(X, Y).",
                1e-4 if dtype == np.float32 else 1e-9,
            )
            require_equal(
                fitted.similarity(Z),
                fitted.similarity(Z, Z),
                "similarity(X) is not similarity(X, X).",
            )


@rule
def check_rows_do_not_depend_on_each_other(estimator):
    """The encoding of a row does not depend on the other rows."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    whole = fitted.similarity(X)
    part = fitted.similarity(X[5:6], X[3:9])
    require_close(
        part[0],
        whole[5, 3:9],
        "similarity(X[5:6], X[3:9]) differs from similarity(X).",
    )


@rule
def check_storage_does_not_matter(estimator):
    """Every state of storage of the same samples gives the same similarity."""
    if not takes_sparse(estimator):
        return
    X, y = make_samples()
    expected = fit(estimator, X.toarray(), y).similarity(X.toarray())
    for name, Z in storage_states(X).items():
        S = fit(estimator, Z, y).similarity(Z)
        require_close(S, expected, f"{name} gives another similarity.", 1e-7)


@rule
def check_input_and_estimator_are_left_alone(estimator):
    """The use of a fitted estimator changes neither X nor the estimator."""
    X, y = samples(estimator)
    before = X.copy()
    fitted = fit(estimator, X, y)
    table: dict[int, type] = {}
    state = _dump(vars(fitted), table)
    fitted.similarity(X)
    fitted.transform(X)
    fitted.transform_database(X)
    fitted.score(X, y)
    require(_dump(vars(fitted), table) == state, "the state of the estimator changes.")
    require_equal(dense(X), dense(before), "X changes.")
    thawed = clone(fitted)
    vars(thawed).update(_Unpickler(io.BytesIO(state), table).load())
    require_equal(
        thawed.similarity(X), fitted.similarity(X), "a pickle has another similarity."
    )


class _Pickler(pickle.Pickler):
    """Pickler that keeps classes without a module, as in a notebook, in a table."""

    def __init__(self, file, table):
        super().__init__(file)
        self.table = table

    def persistent_id(self, obj):
        """Return the place of such a class in the table."""
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        if not isinstance(obj, type) or getattr(module, obj.__name__, None) is obj:
            return None
        self.table[id(obj)] = obj
        return id(obj)


class _Unpickler(pickle.Unpickler):
    """Unpickler that finds these classes in the table."""

    def __init__(self, file, table):
        super().__init__(file)
        self.table = table

    def persistent_load(self, pid):
        """Return a class of the table."""
        return self.table[pid]


def _dump(state, table):
    file = io.BytesIO()
    _Pickler(file, table).dump(state)
    return file.getvalue()


@rule
def check_fit_keeps_no_reference_to_X(estimator):
    """A change of X after the fit has no effect: keep copies, not references."""
    for Z in containers(estimator, make_samples()[0]):
        y = make_samples()[1]
        given = Z.copy()
        fitted = fit(estimator, given, y)
        before = fitted.similarity(Z)
        values = given.data if sparse.issparse(given) else given
        values[:] = values[::-1].copy() + 1
        require_equal(
            fitted.similarity(Z),
            before,
            f"a reference to a {type(Z).__name__} is kept.",
        )
