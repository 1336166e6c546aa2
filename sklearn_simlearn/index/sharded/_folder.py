"""A sharded index in a folder: each worker stores and opens its shards."""

import re
import shutil
from pathlib import Path
from uuid import uuid4

from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import storage, unwrap
from sklearn_simlearn._core.sklearn import validate_parameter_constraints
from sklearn_simlearn.index._estimator_file import (
    ESTIMATOR_FILE,
    dump_estimator,
    load_estimator,
)
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._remote import find_client
from sklearn_simlearn.index.sharded._state import Runs, Shards, open_shards, survey

# What the header of a saved index says it is.
KIND = "shards"

_SHARD = re.compile(r"shards-[0-9a-f]{16}/[0-9]{4,}\Z")


class ShardedFolderMixin:
    """Methods of a sharded index that store it."""

    def save(self, folder, *, include_estimator=True):
        """Store the index in a folder that all workers see under the same path.

        Each worker stores its shards. Whoever opens the folder meanwhile finds the old
        index or the new one, and a save that fails leaves the old one.

        Afterwards this index lives on what was saved: the shards are mapped into memory
        from there, and opened from there if a worker is lost. The source they were
        built from is no longer needed.

        Parameters
        ----------
        folder : path-like
            Made if it does not exist.

        include_estimator : bool, default=True
            Store the estimator too, by the package skops; of a search, the best
            estimator.
        """
        check_is_fitted(self)
        folder = Path(folder).absolute()
        files = {}
        if include_estimator:
            files[ESTIMATOR_FILE] = dump_estimator(self.estimator_)
        with self._lock:
            shards, old = self._shards, _peek(folder)
            new = f"shards-{uuid4().hex[:16]}"
            paths = [f"{new}/{i:04d}" for i in range(len(shards.names))]
            header = {
                "kind": KIND,
                "params": {name: getattr(self, name) for name in self._stored_params()},
                "is_numbered": self._is_numbered,
                "n_rows": shards.n_rows,
                "next_id": shards.next_id,
                "shards": paths,
            }
            arrays = {"removed": shards.removed}
            for i, runs in enumerate(shards.runs):
                arrays |= {f"start_{i}": runs.start, f"length_{i}": runs.length}
            names = [str(folder / path) for path in paths]
            try:
                self._ask(shards, _tasks.save, [(name,) for name in names])
                storage.write_folder(folder, header, arrays, files)
            except BaseException:
                shutil.rmtree(folder / new, ignore_errors=True)
                raise
            options = {"mmap": True, "verify": False, "trusted": ()}
            futures = open_shards(self._client, names, self.estimator_, **options)
            survey(self._client, names, futures)
            self._shards = shards._replace(names=tuple(names), futures=tuple(futures))
        if old is not None:
            shutil.rmtree(folder / old, ignore_errors=True)

    @classmethod
    def load(cls, folder, *, mmap=True, estimator=None, trusted=None, verify=False):
        """Open an index that `save` stored, or a folder of saved indexes.

        Parameters
        ----------
        folder : path-like
            What `save` stored; or a folder whose sub-folders hold a
            :class:`~sklearn_simlearn.index.SimilarityIndex` each, which become shards
            in the order of their names. If these have no ids of their own, the items
            are numbered anew through all of them. Workers must see it under the same
            path.

        mmap : bool, default=True
            Let workers map their shards into memory instead of reading them.

        estimator : estimator, default=None
            A fitted estimator for the queries, instead of the stored one.

        trusted : sequence of str, default=None
            Load the stored estimator. Its types must be listed here, unless they are
            estimators of this package or trusted by skops.

        verify : bool, default=False
            Check all checksums now.

        Returns
        -------
        index : ShardedIndex
            The index.
        """
        client = find_client()
        folder = Path(folder).absolute()
        header, arrays, files = {}, {}, {}
        if (folder / storage.HEADER).exists():
            wanted = () if trusted is None else (ESTIMATOR_FILE,)
            header, arrays, files = storage.open_folder(
                folder, mmap=False, wanted_files=wanted
            )
            paths = _check_header(header)
        else:
            paths = sorted(path.parent.name for path in folder.glob("*/index.json"))
            if not paths:
                raise ValueError(f"{folder} holds no saved index.")
            if trusted is not None:
                first = folder / paths[0]
                *_, files = storage.open_folder(first, wanted_files=(ESTIMATOR_FILE,))
        if estimator is None:
            if ESTIMATOR_FILE not in files:
                raise ValueError(
                    "Queries need an estimator: give `estimator`, or `trusted` to load "
                    "the one that was saved, if it was."
                )
            estimator = load_estimator(files[ESTIMATOR_FILE], trusted)
        index = cls(estimator)
        if header:
            index._set_stored_params(header.get("params"))
        names = [str(folder / path) for path in paths]
        futures = open_shards(
            client,
            names,
            estimator,
            mmap=mmap,
            verify=verify,
            trusted=None if trusted is None else (),
        )
        model = unwrap.find_model(estimator)
        if not header:
            return index._start(client, names, futures, estimator, model)
        common, found = survey(client, names, futures)
        runs = [
            Runs(arrays.read(f"start_{i}"), arrays.read(f"length_{i}"))
            for i in range(len(names))
        ]
        for name, part, of_shard in zip(names, found, runs, strict=True):
            if part.n_rows != of_shard.length.sum():
                raise storage.damaged(f"{name} has another number of items than noted")
        shards = Shards(
            tuple(names),
            tuple(futures),
            tuple(runs),
            arrays.read("removed"),
            header["n_rows"],
            header.get("next_id", header["n_rows"]),
        )
        index._open(client, shards, common, header["is_numbered"])
        index.estimator_, index._model = estimator, model
        return index

    def _stored_params(self):
        return sorted(self._parameter_constraints.keys() - {"estimator"})

    def _set_stored_params(self, params):
        names = self._stored_params()
        if not isinstance(params, dict) or sorted(params) != names:
            raise storage.damaged("its parameters are incomplete")
        validate_parameter_constraints(
            {name: self._parameter_constraints[name] for name in names},
            params,
            caller_name=type(self).__name__,
        )
        self.set_params(**params)


def _peek(folder):
    """Sub-folder of shards that a folder holds so far."""
    try:
        header, _, _ = storage.open_folder(folder)
        return _check_header(header)[0].partition("/")[0]
    except (ValueError, FileNotFoundError):
        return None


def _check_header(header):
    """The paths of the shards, if it is the header of a sharded index."""
    paths = header.get("shards")
    if header.get("kind") != KIND:
        raise ValueError("The folder holds a SimilarityIndex: load it as such.")
    if (
        not isinstance(paths, list)
        or not paths
        or not all(isinstance(path, str) and _SHARD.match(path) for path in paths)
        or type(header.get("n_rows")) is not int
        or type(header.get("next_id", 0)) is not int
        or type(header.get("is_numbered")) is not bool
    ):
        raise storage.damaged("its header is incomplete")
    return paths
