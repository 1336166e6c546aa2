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
    have_unit_length,
)
from sklearn_simlearn.index._ids import Ids, check_ids, read_ids
from sklearn_simlearn.index._parted_table import PartedTable, independent
from sklearn_simlearn.index.backends._registry import find_backend

# Number of items whose encodings are compared when an estimator is replaced and the
# original items are not stored. It is large enough to detect a changed weight of a word
# and small enough to store.
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


class Recipe(NamedTuple):
    """Parameters of an index that determine how a state is built."""

    backend: str
    backend_options: dict
    store_items: bool
    n_threads: int


@dataclass(frozen=True, eq=False)
class State:
    """State of an index. A change creates a new one that shares most arrays.

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

    sample, encoded_sample : PartedTable
        Sample of the items, original and encoded.

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

    @classmethod
    def build(cls, X, ids, metadata, estimator, model, recipe):
        """Return the state of a new index."""
        n_items = num_samples(X)
        if ids is None:
            ids = Ids.numbered(n_items)
        else:
            ids = Ids(np.array(check_ids(ids, n_items)))
        metadata = _metadata.check_metadata(metadata, n_items)
        encoded = encode_items(model, X)
        return cls(
            estimator=estimator,
            model=model,
            ids=ids,
            metadata=None if metadata is None else PartedTable(independent(metadata)),
            features=Features.of(X),
            **_store(_metadata.as_table(X), encoded, recipe),
        )

    @property
    def n_items(self):
        """Return the number of items that were not removed."""
        return self.ids.n_alive

    def read_new(self, X, ids, metadata):
        """Check ids and metadata of new items against the index, and return them."""
        n_items = num_samples(X)
        ids = self.ids.number(n_items) if ids is None else check_ids(ids, n_items)
        known = None if self.metadata is None else self.metadata.first_part
        metadata = _metadata.check_metadata(metadata, n_items, like=known)
        if metadata is not None and known is None:
            raise ValueError(
                "The index was fitted without metadata. Pass metadata of all items to "
                "`fit`."
            )
        return self.ids.convert(ids), metadata

    def add(self, X, encoded, ids, metadata, *, n_threads):
        """Return the state with more items. Ids must come from `read_new`."""
        ids = self.ids.append(ids)
        changed = {"ids": ids, "is_unit": self.is_unit and have_unit_length(encoded)}
        if metadata is not None:
            changed["metadata"] = self.metadata.append(independent(metadata))
        if self.raw is not None:
            changed["raw"] = self.raw.append(independent(_metadata.as_table(X)))
        items = self.items.fork()
        items.add(encoded, n_threads=n_threads)
        return replace(self, items=items, **changed)

    def find(self, ids):
        """Return the rows of items; raise if an id is unknown."""
        rows = self.ids.find(ids)
        if (rows < 0).any():
            unknown = read_ids(ids)[rows < 0][:3].tolist()
            raise ValueError(f"The index has no items with the ids {unknown}.")
        return rows

    def remove(self, rows):
        """Return the state with some rows removed. They stay in memory."""
        items = self.items.fork()
        items.remove(rows)
        return replace(self, items=items, ids=self.ids.without(rows))

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
        )

    def encodes_alike(self, model):
        """Return whether another model encodes items as they are stored."""
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
                "index again; with store_items=True, `set_estimator` can encode the "
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
            **_store(raw, encode_items(model, raw), recipe),
        )

    def with_search_options(self, options):
        """Return the state with other options of the search."""
        items = self.items.fork()
        for name, value in options.items():
            setattr(items, name, value)
        return replace(
            self, items=items, search_options={**self.search_options, **options}
        )

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


def _store(X, encoded, recipe):
    """Return the parts of a state that depend on the encodings of all items."""
    backend = recipe.backend
    if backend == "auto":
        backend = "inverted" if sparse.issparse(encoded) else "dense"
    rows = np.unique(np.linspace(0, num_samples(X) - 1, SAMPLE).astype(np.int64))
    return {
        "backend": backend,
        "items": find_backend(backend)(
            as_kind(encoded, backend),
            n_threads=recipe.n_threads,
            **recipe.backend_options,
        ),
        "is_unit": have_unit_length(encoded),
        "raw": PartedTable(independent(X)) if recipe.store_items else None,
        "sample": PartedTable(independent(_metadata.take(X, rows))),
        "encoded_sample": PartedTable(encoded[rows]),
    }


def _take(table, rows):
    return None if table is None else PartedTable(table.take(rows))
