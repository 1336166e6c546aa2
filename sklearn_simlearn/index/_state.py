"""Immutable state of a fitted SimilarityIndex."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.storage import damaged
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._encoded_items import (
    agree,
    as_kind,
    encode_items,
    find_dense_columns,
    have_unit_length,
)
from sklearn_simlearn.index._ids import Ids, check_ids, read_ids
from sklearn_simlearn.index._parted_table import PartedTable, independent
from sklearn_simlearn.index._photographs import (
    compute_fingerprint,
    list_sources,
    make_thumbnails,
    reads_photographs,
)
from sklearn_simlearn.index.backends._registry import find_backend

# Number of stored items whose encodings are compared when an estimator is replaced. The
# sample is used if the other original items are not stored. It is large enough to
# detect a changed weight of a word, and small enough to store.
SAMPLE = 256

# If the share of removed rows exceeds this, the next change compacts the index.
REMOVED_SHARE = 0.25


class Features(NamedTuple):
    """Number of features of the items, and their names; None if not available."""

    n_features: int | None
    names: np.ndarray | None

    @classmethod
    def of(cls, X):
        probe = BaseEstimator()
        validate_data(probe, X, skip_check_array=True)
        found = vars(probe)
        return cls(found.get("n_features_in_"), found.get("feature_names_in_"))


class Change(NamedTuple):
    """Change of the items of an index, checked and encoded.

    Attributes
    ----------
    kind : {"add", "upsert", "remove"}

    ids : ndarray of shape (n_items,)
        Ids in the type of the index; unique unless `kind` is "remove".

    encoded : matrix of shape (n_items, n_features) or None
        Encoded items in the form of the backend; None if `kind` is "remove".

    metadata, raw, thumbnails : table or None
        Metadata, original items and thumbnails, if the index stores them.
    """

    kind: str
    ids: np.ndarray
    encoded: Any = None
    metadata: Any = None
    raw: Any = None
    thumbnails: Any = None


class Recipe(NamedTuple):
    """Parameters of an index that determine how a state is built."""

    backend: str
    backend_options: dict
    store_items: bool
    n_threads: int


@dataclass(frozen=True, eq=False)
class State:
    """State of an index. A change creates a new state, which shares most arrays.

    Attributes
    ----------
    estimator : object or None
        Fitted estimator; None if the index was opened without an estimator.

    model : Model or None
        Result of `unwrap.find_model` for the estimator.

    backend : str
        Name of the backend.

    items : backend
        Encoded items, by row. `State` never changes them.

    ids : Ids
        Ids by row, with a mask of the rows that were not removed.

    metadata, raw : PartedTable or None
        Metadata and original items, by row.

    thumbnails : PartedTable or None
        Reduced photographs as JPEG files, by row; None unless items are photographs.

    sample, encoded_sample : PartedTable
        Sample of the items, original and encoded. If items are photographs, the sample
        is stored after the steps of the estimator.

    fingerprint : str or None
        Fingerprint of these steps; None unless items are photographs.

    is_unit : bool
        Whether all encoded items have unit length.

    features : Features
        Features of the original items.

    search_options : dict
        Options of the backend that were changed after `fit`.

    lost_steps : tuple of str
        Names of the re-ranking steps that a saved index had.
    """

    estimator: Any
    model: Any
    backend: str
    items: Any
    ids: Ids
    metadata: PartedTable | None
    raw: PartedTable | None
    sample: PartedTable
    encoded_sample: PartedTable
    is_unit: bool
    features: Features
    search_options: dict = field(default_factory=dict)
    lost_steps: tuple = ()
    thumbnails: PartedTable | None = None
    fingerprint: str | None = None

    @classmethod
    def build(cls, X, ids, metadata, estimator, model, recipe, prepared=None):
        """Return the state of a new index.

        `prepared` are the photographs after the steps of the model, if available.
        """
        n_items = num_samples(X)
        if ids is None:
            ids = Ids.numbered(n_items)
        else:
            ids = Ids(np.array(check_ids(ids, n_items, X, metadata)))
        metadata = _metadata.check_metadata(metadata, n_items)
        return cls(
            estimator=estimator,
            model=model,
            ids=ids,
            metadata=None if metadata is None else PartedTable(independent(metadata)),
            **_encode(X, model, recipe, prepared),
        )

    @property
    def n_items(self):
        """Return the number of items that were not removed."""
        return self.ids.n_alive

    def read_new(self, X, ids, metadata):
        """Return the parts of a change; raise unless they match the index."""
        n_items = num_samples(X)
        if ids is None:
            ids = self.ids.number(n_items)
        else:
            ids = check_ids(ids, n_items, X, metadata)
        known = None if self.metadata is None else self.metadata.first_part
        metadata = _metadata.check_metadata(metadata, n_items, like=known)
        if metadata is not None and known is None:
            raise ValueError(
                "The index was fitted without metadata. Pass metadata of all items to "
                "`fit`."
            )
        raw = None if self.raw is None else independent(_as_items(X, self.model))
        metadata = None if metadata is None else independent(metadata)
        return {"ids": self.ids.convert(ids), "metadata": metadata, "raw": raw}

    def apply(self, change, *, n_threads):
        """Return the state after a change."""
        if change.kind == "remove":
            return self._remove(np.unique(self.find(change.ids)))
        state = self
        if change.kind == "upsert":
            rows = self.ids.find(change.ids)
            state = self._remove(rows[rows >= 0])
        return state._add(change, n_threads)

    def _add(self, change, n_threads):
        is_unit = self.is_unit and have_unit_length(change.encoded)
        changed = {"ids": self.ids.append(change.ids), "is_unit": is_unit}
        if self.metadata is not None:
            changed["metadata"] = self.metadata.append(change.metadata)
        if self.raw is not None:
            changed["raw"] = self.raw.append(change.raw)
        if self.thumbnails is not None:
            thumbnails = change.thumbnails or [b""] * len(change.ids)
            changed["thumbnails"] = self.thumbnails.append(thumbnails)
        items = self.items.fork()
        items.add(change.encoded, n_threads=n_threads)
        return replace(self, items=items, **changed)

    def _remove(self, rows):
        """Return the state with some rows marked as removed; they stay in memory."""
        items = self.items.fork()
        items.remove(rows)
        return replace(self, items=items, ids=self.ids.without(rows))

    def find(self, ids):
        """Return the rows of items; raise if an id is unknown."""
        rows = self.ids.find(ids)
        if (rows < 0).any():
            unknown = read_ids(ids)[rows < 0][:3].tolist()
            raise ValueError(f"The index has no items with the ids {unknown}.")
        return rows

    @property
    def should_compact(self):
        """Return whether enough rows were removed to compact the index."""
        n_removed = self.ids.n_rows - self.ids.n_alive
        return n_removed > REMOVED_SHARE * self.ids.n_rows

    def compact(self, *, n_threads):
        """Return the state without the memory of removed items."""
        if not self.ids.has_removed:
            return self
        items = self.items.fork()
        kept = items.compact(n_threads=n_threads)
        if not np.array_equal(kept, np.flatnonzero(self.ids.alive)):
            raise damaged("its arrays disagree about which items were removed")
        return replace(
            self,
            items=items,
            ids=self.ids.compact(),
            metadata=_take(self.metadata, kept),
            raw=_take(self.raw, kept),
            thumbnails=_take(self.thumbnails, kept),
        )

    def encodes_alike(self, model):
        """Return whether another model encodes items as they are stored."""
        if self.fingerprint is not None:
            sample = self.sample.whole()
            return self.fingerprint == compute_fingerprint(model.item_steps) and agree(
                model.encode_items(sample), self.encoded_sample.whole()
            )
        if self.raw is None or self.model is None:
            encoded = encode_items(model, self.sample.whole())
            return agree(encoded, self.encoded_sample.whole())
        raw = self.raw.whole()
        return agree(encode_items(model, raw), encode_items(self.model, raw))

    def with_estimator(self, estimator, model, recipe):
        """Return the state with another estimator. Encode items again if needed.

        Raises
        ------
        ValueError
            If items must be encoded again and the index does not store them.
        """
        if self.encodes_alike(model):
            return replace(self, estimator=estimator, model=model)
        if self.raw is None:
            raise ValueError(
                "The new estimator does not encode items as they are stored. Fit the "
                "index again. With store_items=True, `set_estimator` can encode the "
                "items again."
            )
        kept = np.flatnonzero(self.ids.alive)
        raw = self.raw.take(kept)
        return replace(
            self,
            estimator=estimator,
            model=model,
            ids=self.ids.compact(),
            metadata=_take(self.metadata, kept),
            **_encode(raw, model, recipe),
        )

    def with_search_options(self, options):
        """Return the state with other options of the search."""
        items = self.items.fork()
        for name, value in options.items():
            setattr(items, name, value)
        return replace(
            self, items=items, search_options={**self.search_options, **options}
        )

    def find_thumbnail(self, id_):
        """Return the thumbnail of an item as a JPEG file, or None."""
        if self.thumbnails is None:
            return None
        rows = self.ids.find([id_])
        return None if rows[0] < 0 else self.thumbnails.take(rows)[0] or None

    def current_metadata(self):
        """Return the metadata of the items that were not removed."""
        if self.metadata is None or not self.ids.has_removed:
            return None if self.metadata is None else self.metadata.whole()
        return self.metadata.take(np.flatnonzero(self.ids.alive))

    def current_raw(self):
        """Return the original items that were not removed, or None."""
        if self.raw is None or not self.ids.has_removed:
            return None if self.raw is None else self.raw.whole()
        return self.raw.take(np.flatnonzero(self.ids.alive))

    def __getstate__(self):
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        arrays = self.items.to_arrays()
        parts["items"] = {name: np.array(array) for name, array in arrays.items()}
        # The model consists of parts of the estimator.
        return parts | {"model": None}

    def __setstate__(self, parts):
        parts["items"] = find_backend(parts["backend"]).from_arrays(parts["items"])
        if parts["estimator"] is not None:
            parts["model"] = unwrap.find_model(parts["estimator"])
        vars(self).update(parts)


def _as_items(X, model):
    """Return items in a form that can be sliced, concatenated and stored."""
    if model is not None and reads_photographs(model):
        return list_sources(X)
    return _metadata.as_table(X)


def _encode(X, model, recipe, prepared=None):
    """Return the parts of a state that depend on the items and the estimator."""
    if not reads_photographs(model):
        features, X = Features.of(X), _as_items(X, model)
        parts = _store(X, X, model, encode_items(model, X), recipe)
        none = {"thumbnails": None, "fingerprint": None}
        return {"features": features, **none, **parts}
    X = _as_items(X, model)
    prepared = model.prepare_items(X) if prepared is None else prepared
    rest = replace(model, query_steps=[], item_steps=[])
    encoded = encode_items(rest, prepared)
    return {
        "features": Features(None, None),  # photographs of any size
        "thumbnails": PartedTable(make_thumbnails(X, recipe.n_threads)),
        "fingerprint": compute_fingerprint(model.item_steps),
        **_store(X, prepared, rest, encoded, recipe),
    }


def _store(X, prepared, model, encoded, recipe):
    """Return the stored forms of items.

    A sample of `prepared`, which `model` encodes, is stored.
    """
    backend, options = recipe.backend, recipe.backend_options
    if backend in ("auto", "hybrid"):
        is_dense = find_dense_columns(model, _metadata.take(prepared, np.arange(1)))
        if is_dense is not None:
            backend, options = "hybrid", {**options, "is_dense": is_dense}
        elif backend == "hybrid":
            raise ValueError(
                "The backend 'hybrid' requires a SimilarityUnion of sparse and dense "
                "parts."
            )
        else:
            backend = "inverted" if sparse.issparse(encoded) else "dense"
    last = num_samples(prepared) - 1
    rows = np.unique(np.linspace(0, last, SAMPLE).astype(np.int64))
    return {
        "backend": backend,
        "items": find_backend(backend)(
            as_kind(encoded, backend),
            n_threads=recipe.n_threads,
            **options,
        ),
        "is_unit": have_unit_length(encoded),
        "raw": PartedTable(independent(X)) if recipe.store_items else None,
        "sample": PartedTable(independent(_metadata.take(prepared, rows))),
        "encoded_sample": PartedTable(encoded[rows]),
    }


def _take(table, rows):
    return None if table is None else PartedTable(table.take(rows))
