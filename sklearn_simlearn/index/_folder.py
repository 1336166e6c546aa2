"""Functions that save an index in a folder and load it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import validate_parameter_constraints
from sklearn_simlearn._core.storage import (
    damaged,
    open_folder,
    read_generation,
    write_folder,
)
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import as_plain
from sklearn_simlearn.index._estimator_file import (
    ESTIMATOR_FILE,
    ESTIMATOR_FILES,
    dump_estimator,
    read_estimator,
)
from sklearn_simlearn.index._ids import Ids
from sklearn_simlearn.index._journal import replay
from sklearn_simlearn.index._parted_table import PartedTable
from sklearn_simlearn.index._state import Features, State
from sklearn_simlearn.index.backends._registry import BACKENDS, UNCHECKED, find_backend

# Parameters that hold estimators. The steps in `rerank` are not stored.
NOT_STORED = ("estimator", "rerank")

# Optional tables of an index, which are stored with it.
TABLES = ("metadata", "raw", "thumbnails", "sample", "encoded_sample")


def write_index(index, folder, include_estimator):
    """Store a snapshot of an index in a folder."""
    state = index._state
    files = {}
    if include_estimator:
        files[ESTIMATOR_FILE] = dump_estimator(state.estimator)
    header = {
        "params": plain_params(index, NOT_STORED),
        "rerank": [type(step).__name__ for step in index.rerank or []],
        "backend": state.backend,
        "search_options": state.search_options,
        "is_numbered": state.ids.is_numbered,
        "next_id": state.ids.next_id,
        "is_unit": state.is_unit,
        "fingerprint": state.fingerprint,
        "n_features_in": state.features.n_features,
        "names_in": [] if state.features.names is None else list(state.features.names),
        "tables": {},
    }
    arrays = {"ids": state.ids.values, "alive": state.ids.alive}
    arrays |= _prefixed("items_", state.items.to_arrays())
    for name in TABLES:
        table = getattr(state, name)
        if table is not None:
            parts, header["tables"][name] = _metadata.to_arrays(table.whole(), name)
            arrays |= _prefixed(f"{name}_", parts)
    write_folder(folder, header, arrays, files)


def read_index(cls, folder, **options):
    """Return an index of the given class from a folder, with its later changes."""
    while True:
        generation = read_generation(folder)
        index = _read_saved(cls, folder, **options)
        arrays = Path(folder, generation)
        index._state = replay(index._state, arrays, n_threads=index._n_threads)
        # If another index was saved in between, the journal belongs to that one.
        if read_generation(folder) == generation:
            return index


def _read_saved(cls, folder, *, mmap, estimator, trusted, verify):
    """Return an index of the given class, without changes after the save."""
    header, arrays, files = open_folder(
        folder,
        mmap=mmap,
        verify=verify,
        wanted_files=() if trusted is None else ESTIMATOR_FILES,
    )
    if "shards" in header:
        raise ValueError("The folder holds a ShardedIndex. Load it with that class.")
    if trusted is None and header.get("backend") in list(UNCHECKED):
        raise ValueError(
            f"The package {header['backend']} does not check the files that it reads. "
            "If you trust the source of the index, load it with trusted=()."
        )
    params = read_params(cls, header, NOT_STORED)
    state = _read_state(header, arrays)
    if estimator is None and trusted is not None:
        estimator = read_estimator(files, trusted)
    if estimator is not None:
        model = unwrap.find_model(estimator)
        if not state.encodes_alike(model):
            raise ValueError(
                "The estimator does not encode items as they are stored. Pass the "
                "estimator that the index was saved with."
            )
        state = replace(state, estimator=estimator, model=model)
    index = cls(estimator, **params)
    index._state = state
    return index


def plain_params(index, left_out):
    """Return the parameters of an index as values that JSON can represent."""
    names = index._parameter_constraints.keys() - set(left_out)
    return {name: as_plain(getattr(index, name)) for name in sorted(names)}


def read_params(cls, header, left_out):
    """Check and return the parameters of an index from the header of a folder."""
    params = header.get("params")
    names = cls._parameter_constraints.keys() - set(left_out)
    if not isinstance(params, dict) or params.keys() != names:
        raise damaged("its parameters are incomplete")
    validate_parameter_constraints(
        {name: cls._parameter_constraints[name] for name in names},
        params,
        caller_name=cls.__name__,
    )
    return params


def _read_state(header, arrays):
    """Return the state in a folder, without an estimator."""
    backend, tables = header.get("backend"), header.get("tables")
    steps, options = header.get("rerank"), header.get("search_options", {})
    if (
        backend not in list(BACKENDS)
        or not isinstance(tables, dict)
        or not isinstance(steps, list)
        or not isinstance(options, dict)
    ):
        raise damaged("its header is incomplete")
    features, ids = _read_features(header), _read_ids(header, arrays)
    item_arrays = arrays.group("items_")
    items = find_backend(backend).from_arrays(
        item_arrays, verify=item_arrays.verify_all
    )
    if items.n_items != ids.n_rows:
        raise damaged("the numbers of ids and items differ")
    items.remove(np.flatnonzero(~ids.alive))
    stored = dict.fromkeys(TABLES)
    for name in stored.keys() & tables.keys():
        n_rows = None if "sample" in name else ids.n_rows
        parts = arrays.group(f"{name}_")
        stored[name] = PartedTable(_metadata.Stored(parts, tables[name], n_rows))
    if stored["sample"] is None or stored["encoded_sample"] is None:
        raise damaged("the sample of its items is missing")
    return State(
        estimator=None,
        model=None,
        backend=backend,
        items=items,
        ids=ids,
        is_unit=header.get("is_unit") is True,
        fingerprint=header.get("fingerprint"),
        features=features,
        search_options=options,
        lost_steps=tuple(map(str, steps)),
        **stored,
    )


def _read_features(header):
    n_features, names = header.get("n_features_in"), header.get("names_in")
    if not (n_features is None or type(n_features) is int) or not (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and len(names) in (0, n_features)
    ):
        raise damaged("the description of its features is invalid")
    return Features(n_features, np.array(names, dtype=object) if names else None)


def _read_ids(header, arrays):
    ids, alive = arrays.get("ids"), arrays.read("alive")
    if (
        ids is None
        or ids.ndim != 1
        or ids.dtype.kind not in "iU"
        or alive.dtype != bool
        or alive.shape != ids.shape
    ):
        raise damaged("its ids have the wrong shape or dtype")
    next_id = None
    if header.get("is_numbered") is True:
        # Version 0.2.0.dev0 did not store `next_id`.
        next_id = header.get("next_id")
        if next_id is None and ids.dtype.kind == "i":
            next_id = int(arrays.read("ids").max(initial=-1)) + 1
        if type(next_id) is not int or ids.dtype.kind != "i" or next_id < 0:
            raise damaged("the description of its ids is invalid")
    verify = partial(arrays.verify, "ids")
    return Ids(ids, alive, next_id=next_id, verify=verify)


def _prefixed(prefix, arrays):
    return {prefix + name: array for name, array in arrays.items()}
