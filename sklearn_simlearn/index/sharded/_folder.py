"""Save and load a sharded index. Each worker stores and opens its shards."""

import re
import shutil
from pathlib import Path
from uuid import uuid4

import numpy as np

from sklearn_simlearn._core import storage, unwrap
from sklearn_simlearn.index._estimator_file import (
    ESTIMATOR_FILE,
    ESTIMATOR_FILES,
    dump_estimator,
    read_estimator,
)
from sklearn_simlearn.index._folder import plain_params, read_params
from sklearn_simlearn.index._ids import LARGEST
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._changes import ask_all
from sklearn_simlearn.index.sharded._remote import find_client
from sklearn_simlearn.index.sharded._state import (
    Runs,
    Shards,
    assemble,
    open_shards,
    survey,
)

# Parameters that are not stored in the header.
NOT_STORED = ("estimator",)

# Type of index in the header of a folder.
KIND = "shards"

_SHARD = re.compile(r"shards-[0-9a-f]{16}/[0-9]{4,}\Z")


def write_index(index, folder, include_estimator):
    """Store a snapshot of an index; return the state with the saved shards."""
    folder, shards, client = Path(folder).absolute(), index._state, index._client
    files = {}
    if include_estimator:
        files[ESTIMATOR_FILE] = dump_estimator(shards.estimator)
    old, new = _peek(folder), f"shards-{uuid4().hex[:16]}"
    paths = [f"{new}/{i:04d}" for i in range(len(shards.names))]
    header = {
        "kind": KIND,
        "params": plain_params(index, NOT_STORED),
        "is_numbered": shards.common.is_numbered,
        "n_rows": shards.n_rows,
        "next_id": shards.next_id,
        "shards": paths,
    }
    arrays = {"removed": shards.removed}
    for i, runs in enumerate(shards.runs):
        arrays |= {f"start_{i}": runs.start, f"length_{i}": runs.length}
    names = [str(folder / path) for path in paths]
    try:
        ask_all(client, shards, _tasks.save, [(name,) for name in names])
        storage.write_folder(folder, header, arrays, files)
    except BaseException:
        shutil.rmtree(folder / new, ignore_errors=True)
        raise
    options = {"mmap": True, "verify": False, "trusted": ()}
    futures = open_shards(client, names, shards.estimator, **options)
    survey(client, names, futures)
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)
    return shards._replace(names=tuple(names), futures=tuple(futures))


def read_index(cls, folder, *, mmap, estimator, trusted, verify):
    """Return an index of the given class from a folder."""
    client, folder = find_client(), Path(folder).absolute()
    header, arrays, files = {}, {}, {}
    if (folder / storage.HEADER).exists():
        wanted = () if trusted is None else ESTIMATOR_FILES
        header, arrays, files = storage.open_folder(
            folder, mmap=False, wanted_files=wanted
        )
        paths = _check_header(header)
    else:
        paths = sorted(path.parent.name for path in folder.glob("*/index.json"))
        if not paths:
            raise ValueError(f"{folder} does not hold a saved index.")
        if trusted is not None:
            first = folder / paths[0]
            *_, files = storage.open_folder(first, wanted_files=ESTIMATOR_FILES)
    if estimator is None:
        if trusted is None:
            raise ValueError(
                "Queries require an estimator. Pass `estimator`, or pass `trusted` to "
                "load the saved estimator."
            )
        estimator = read_estimator(files, trusted)
    params = read_params(cls, header, NOT_STORED) if header else {}
    index = cls(estimator, **params)
    encoder = estimator, unwrap.find_model(estimator)
    names = [str(folder / path) for path in paths]
    trusted = None if trusted is None else ()
    futures = open_shards(
        client, names, estimator, mmap=mmap, verify=verify, trusted=trusted
    )
    if header:
        state = _read_state(client, header, arrays, names, futures, encoder)
    else:
        state = assemble(client, names, futures, encoder)
    index._client, index._state = client, state
    return index


def _read_state(client, header, arrays, names, futures, encoder):
    """Return the state that a header describes."""
    runs, removed = _read_runs(header, arrays)
    common, found = survey(client, names, futures, allow_missing=True)
    for name, part, of_shard in zip(names, found, runs, strict=True):
        if part is not None and part.n_rows != of_shard.length.sum():
            raise storage.damaged(f"{name} has the wrong number of items")
    return Shards(
        tuple(names),
        tuple(futures),
        runs,
        removed,
        header["n_rows"],
        header.get("next_id", header["n_rows"]),
        # Shards do not assign ids.
        common._replace(is_numbered=header["is_numbered"]),
        *encoder,
    )


def _read_runs(header, arrays):
    """Return the runs of the shards, and the removed rows; raise unless they agree."""
    n_rows, removed = header["n_rows"], arrays.read("removed")
    runs = tuple(
        Runs(arrays.read(f"start_{i}"), arrays.read(f"length_{i}"))
        for i in range(len(header["shards"]))
    )
    parts = [removed, *(part for pair in runs for part in pair)]
    if all(part.ndim == 1 and part.dtype == np.int64 for part in parts) and all(
        start.shape == length.shape for start, length in runs
    ):
        start, length = (np.concatenate(part) for part in zip(*runs, strict=True))
        order = np.lexsort((length, start))
        start, end = start[order], (start + length)[order]
        # Each row is in one run at most, and in one run unless it was removed.
        if (
            min(part.min(initial=0) for part in parts) >= 0
            and (end >= start).all()  # no overflow
            and (start[1:] >= end[:-1]).all()
            and (removed[1:] > removed[:-1]).all()
            and max(end.max(initial=0), int(removed.max(initial=-1)) + 1) <= n_rows
            and n_rows - int(length.sum()) <= len(removed)
        ):
            return runs, removed
    raise storage.damaged("the rows of its shards are invalid")


def _peek(folder):
    """Return the sub-folder of shards that the header of a folder names."""
    try:
        header, _, _ = storage.open_folder(folder)
        return _check_header(header)[0].partition("/")[0]
    except (ValueError, FileNotFoundError):
        return None


def _check_header(header):
    """Return the paths of the shards; raise unless the header is valid."""
    paths = header.get("shards")
    if header.get("kind") != KIND:
        raise ValueError("The folder holds a SimilarityIndex. Load it with that class.")
    if (
        not isinstance(paths, list)
        or not paths
        or not all(isinstance(path, str) and _SHARD.match(path) for path in paths)
        or len(set(paths)) < len(paths)
        or not all(
            type(number) is int and 0 <= number <= LARGEST + 1
            for number in (header.get("n_rows"), header.get("next_id", 0))
        )
        or type(header.get("is_numbered")) is not bool
    ):
        raise storage.damaged("its header is incomplete")
    return paths
