"""Base classes of indexes whose state is replaced as a whole."""

import threading

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.typing import MetadataLike
from sklearn_simlearn.index._base import BaseIndex, as_plain
from sklearn_simlearn.index._encoded_items import (
    as_kind,
    encode_items,
    have_unit_length,
)
from sklearn_simlearn.index._explanation import ExplainMixin
from sklearn_simlearn.index._filters import (
    cut_allowed,
    cut_lists,
    read_exclude,
    search_items,
)
from sklearn_simlearn.index._neighbors import no_distance
from sklearn_simlearn.index._photographs import make_thumbnails
from sklearn_simlearn.index._rerank import fit_steps
from sklearn_simlearn.index._state import Change, Recipe, State

# Attributes that are not copied: locks, and the journal of this object.
LOCKS = {"_lock", "_steps_lock", "_journal"}


class SnapshotIndex(ExplainMixin, BaseIndex):
    """Base class of an index whose state is replaced as a whole.

    The attribute `_state` holds everything that `fit` and later changes set. A change
    builds a new state under a lock and then sets the attribute. A method that reads
    calls `_snapshot` first, and therefore uses one state until it returns. A state has
    an `estimator`, its `model`, the `features` of the items and their number `n_items`.
    """

    @property
    def estimator_(self) -> BaseEstimator:
        """Return the fitted estimator."""
        return _known(self._fitted_state().estimator)

    @property
    def n_items_(self) -> int:
        """Return the number of items."""
        return self._fitted_state().n_items

    @property
    def n_features_in_(self) -> int:
        """Return the number of features of the items."""
        return _known(self._fitted_state().features.n_features)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Return the column names of the items."""
        return _known(self._fitted_state().features.names)

    def __len__(self) -> int:
        check_is_fitted(self)
        return self.n_items_

    def __bool__(self):
        # An index is true even if it has no items.
        return True

    def _fitted_state(self):
        """Return the state; raise AttributeError before `fit`."""
        if "_state" not in vars(self):
            raise AttributeError("The index is not fitted yet.")
        return self._state

    def _snapshot(self, state=None):
        """Return a copy that later changes of the index do not affect."""
        if state is None:
            if not self.__sklearn_is_fitted__():
                check_is_fitted(self)  # raises; not called before, because it is slow
            state = self._state
        other = type(self).__new__(type(self))
        parts = dict(vars(self), _state=state)
        for name in LOCKS:
            parts.pop(name, None)
        vars(other).update(parts)
        return other

    def _changing(self):
        """Return the lock under which the state is replaced."""
        return vars(self).setdefault("_lock", threading.RLock())

    @property
    def _model(self):
        return self._state.model

    def __sklearn_is_fitted__(self):
        return "_state" in vars(self)


class MemoryIndex(SnapshotIndex):
    """Base class of an index in the memory of this process."""

    # `Steps`: the re-ranking steps that were fitted last.
    _steps = None

    # `Journal` to which changes are written before they are applied.
    _journal = None

    @property
    def backend_(self) -> str:
        """Return the name of the backend."""
        return self._fitted_state().backend

    @property
    def ids_(self) -> np.ndarray:
        """Return the ids of the items."""
        return self._fitted_state().ids.current()

    @property
    def metadata_(self) -> MetadataLike | None:
        """Return the metadata of the items."""
        return self._fitted_state().current_metadata()

    def _search(self, X, k, sets=None, *, exclude=None, allowed=None, need_unit=False):
        """Return scores and rows of the best items.

        `sets` is the result of `_read_sets`. If it is None, there is one set per query.
        """
        self._check_estimator()
        state = self._state
        if need_unit and not state.is_unit:
            raise no_distance("items")
        if sets is None:
            sets = self._read_sets(None, num_samples(X))
        n_results = sets.n_sets
        if exclude is not None:
            exclude = read_exclude(exclude, state.ids, n_results)
        found = []
        # An encoded query takes at most 16 bytes per feature, if all are non-zero.
        row_bytes = 16 * (state.items.n_features + k)
        for batch, part, Q in self._encode_queries(X, sets, row_bytes):
            Q = self._convert(Q, part)
            if need_unit and not have_unit_length(Q):
                raise no_distance("queries")
            found.append(
                search_items(
                    state.items,
                    Q,
                    k,
                    cut_allowed(allowed, batch),
                    None if exclude is None else cut_lists(exclude, batch),
                    self._n_threads,
                )
            )
        if len(found) == 1:
            return found[0]
        return tuple(map(np.concatenate, zip(*found, strict=True)))

    def _recipe(self, search_options=None):
        options = as_plain({**(self.backend_options or {}), **(search_options or {})})
        return Recipe(self.backend, options, self.store_items, self._n_threads)

    def _fit_prepared(self, X, prepared, ids, metadata):
        """Store items as `fit` does, without applying the steps of the estimator.

        `prepared` are the photographs `X` after all steps of the fitted estimator.
        """
        model = unwrap.find_model(self.estimator)
        with self._changing():
            self._build(X, ids, metadata, self.estimator, model, prepared)
        return self

    def _build(self, X, ids, metadata, estimator, model, prepared=None):
        """Store items; see `State.build`."""
        state = State.build(
            X, ids, metadata, estimator, model, self._recipe(), prepared
        )
        steps = fit_steps(self._snapshot(state))
        self._steps, self._state = steps, state

    def _put(self, kind, X, ids, metadata):
        """Add or replace items."""
        index = self._snapshot_to_change()
        self._apply(index._read_change(kind, X, ids, metadata))

    def _read_change(self, kind, X, ids, metadata):
        """Return the change that adds or replaces items, checked and encoded."""
        new = self._state.read_new(X, ids, metadata)
        encoded = self._convert(encode_items(self._model, X), X)
        if self._state.thumbnails is not None:
            new["thumbnails"] = make_thumbnails(X, self._n_threads)
        return Change(kind, encoded=encoded, **new)

    def _apply(self, change):
        """Write a change to the journal, then change the items."""
        state = self._state.apply(change, n_threads=self._n_threads)
        if self._journal is not None:
            self._journal.append(change)
        self._state = state

    def _find_steps(self, index):
        """Return the fitted steps for a snapshot, from the cache if possible."""
        with vars(self).setdefault("_steps_lock", threading.RLock()):
            steps = self._steps
            if steps is None or not steps.serve(index):
                self._steps = steps = fit_steps(index)
        return steps.fitted

    def _snapshot_to_change(self, need_estimator=True):
        """Return a snapshot, compacted if too many rows were removed."""
        index = self._snapshot()
        if need_estimator:
            index._check_estimator()
        if index._state.should_compact:
            index._state = index._state.compact(n_threads=index._n_threads)
            self._state = index._state
        return index

    def _find_encoded(self, ids):
        state = self._state
        rows = state.ids.find(ids)
        known, rows = rows >= 0, rows[rows >= 0]
        if hasattr(state.items, "take"):
            return known, state.items.take(rows)
        if state.raw is None:
            raise ValueError(
                f"The backend {state.backend!r} does not return its items. Build the "
                "index with store_items=True to encode them again."
            )
        if len(rows) == 0:
            return known, np.zeros((0, state.items.n_features))
        return known, encode_items(state.model, state.raw.take(rows))

    def _convert(self, encoded, X):
        """Return encodings of X in the form of the items of the backend."""
        state = self._state
        if not hasattr(state.estimator, "n_features_in_"):
            # Estimators without a fit do not check the features of X.
            validate_data(self, X, reset=False, skip_check_array=True)
        encoded = as_kind(encoded, state.backend, state.items.dtype)
        if encoded.shape[1] != state.items.n_features:
            raise ValueError(
                f"The encodings of the estimator have {encoded.shape[1]} features, but "
                f"the stored items have {state.items.n_features}."
            )
        return encoded

    def __getstate__(self):
        state = dict(super().__getstate__())
        return {name: part for name, part in state.items() if name not in LOCKS}

    def __sizeof__(self):
        """Return the number of bytes in memory, for Dask."""
        size = super().__sizeof__()
        if self.__sklearn_is_fitted__():
            size += self._state.items.__sizeof__() + self._state.ids.values.nbytes
        return size


def _known(value):
    if value is None:
        raise AttributeError("The items of this index have no such attribute.")
    return value
