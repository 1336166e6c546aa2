"""An index in a folder: saved, opened, pickled."""

from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import validate_parameter_constraints
from sklearn_simlearn._core.storage import damaged, open_folder, write_folder
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._encoded_items import agree, encode_items
from sklearn_simlearn.index._estimator_file import (
    ESTIMATOR_FILE,
    dump_estimator,
    load_estimator,
)
from sklearn_simlearn.index._ids import Ids
from sklearn_simlearn.index.backends._registry import BACKENDS, UNCHECKED, find_backend

# Parameters that are estimators; those in `rerank` are not stored at all.
NOT_STORED = ("estimator", "rerank")

# Tables that an index may hold, which are stored with it.
TABLES = ("metadata", "raw", "sample", "encoded_sample")


class FolderMixin:
    """Methods of an index that store it."""

    def save(self, folder, *, include_estimator=True):
        """Store the index in a folder, replacing the one that it holds.

        Whoever opens the folder meanwhile finds the old index or the new one. A save
        that fails or is interrupted leaves the old one. Re-ranking steps are not
        stored: `load` the index and give them by ``set_params(rerank=[...])``.

        Parameters
        ----------
        folder : path-like
            Made if it does not exist.

        include_estimator : bool, default=True
            Store the estimator too, by the package skops; of a search, the best
            estimator.
        """
        check_is_fitted(self)
        files = {}
        if include_estimator:
            self._check_estimator()
            files[ESTIMATOR_FILE] = dump_estimator(self.estimator_)
        header = {
            "params": {
                name: getattr(self, name)
                for name in self._parameter_constraints
                if name not in NOT_STORED
            },
            "rerank": [type(step).__name__ for step in self.rerank or []],
            "backend": self.backend_,
            "is_numbered": self._ids.is_numbered,
            "is_unit": self._is_unit,
            "n_features_in": getattr(self, "n_features_in_", None),
            "names_in": list(getattr(self, "feature_names_in_", [])),
            "tables": {},
        }
        arrays = {"ids": self._ids.values, "alive": self._ids.alive}
        arrays |= _prefixed("items_", self._items.to_arrays())
        for name in TABLES:
            table = self._table(f"_{name}")
            if table is not None:
                parts, header["tables"][name] = _metadata.to_arrays(table, name)
                arrays |= _prefixed(f"{name}_", parts)
        write_folder(folder, header, arrays, files)

    @classmethod
    def load(cls, folder, *, mmap=True, estimator=None, trusted=None, verify=False):
        """Open an index that `save` stored.

        Nothing in the folder is unpickled. What the search relies on is checked, and
        the checksum of a block is compared when the block is first touched.

        Parameters
        ----------
        folder : path-like
            Where the index was saved.

        mmap : bool, default=True
            Map the arrays into memory instead of reading them: an index of any size
            opens at once, and processes share its memory.

        estimator : estimator, default=None
            A fitted estimator for the queries, instead of the stored one. It must
            encode items as they are stored.

        trusted : sequence of str, default=None
            Load the stored estimator. Its types must be listed here, unless they are
            estimators of this package or trusted by skops; functions other than
            ufuncs always have to be listed. None does not load the estimator;
            ``trusted=()`` loads it if no other types occur. Indexes of
            FAISS and usearch are opened only if `trusted` is not None, because these
            packages do not check all that they read.

        verify : bool, default=False
            Check all checksums now.

        Returns
        -------
        index : SimilarityIndex
            The index. Without estimator it can be searched only after `set_estimator`.
        """
        header, arrays, files = open_folder(
            folder,
            mmap=mmap,
            verify=verify,
            wanted_files=() if trusted is None else (ESTIMATOR_FILE,),
        )
        if trusted is None and header.get("backend") in list(UNCHECKED):
            raise ValueError(
                f"The package {header['backend']} does not check all that it reads. If "
                "you trust who saved the index, load it with trusted=()."
            )
        index = cls(None)
        index._restore(header, arrays)
        if estimator is None and trusted is not None:
            if ESTIMATOR_FILE not in files:
                raise ValueError(
                    "The index was saved without its estimator: give `estimator`."
                )
            estimator = load_estimator(files[ESTIMATOR_FILE], trusted)
        if estimator is not None:
            index._attach(estimator)
        return index

    def _table(self, name):
        """A table that may still lie in the folder."""
        table = getattr(self, name)
        if isinstance(table, _metadata.Stored):
            table = table.read()
            setattr(self, name, table)
        return table

    def _attach(self, estimator):
        """Take an estimator for the stored items, if it is the one they come from."""
        model = unwrap.find_model(estimator)
        encoded = encode_items(model, self._table("_sample"))
        if not agree(encoded, self._table("_encoded_sample")):
            raise ValueError(
                "The estimator encodes items in another way than they are stored: give "
                "the one that the index was saved with."
            )
        self.estimator = self.estimator_ = estimator
        self._model = model

    def _restore(self, header, arrays):
        """Set all state but the estimator from an opened folder."""
        if "shards" in header:
            raise ValueError("The folder holds a ShardedIndex: load it as such.")
        params = header.get("params")
        names = self._parameter_constraints.keys() - set(NOT_STORED)
        if not isinstance(params, dict) or params.keys() != names:
            raise damaged("its parameters are incomplete")
        validate_parameter_constraints(
            {name: self._parameter_constraints[name] for name in names},
            params,
            caller_name=type(self).__name__,
        )
        backend, tables = header.get("backend"), header.get("tables")
        steps = header.get("rerank")
        if (
            backend not in list(BACKENDS)
            or not isinstance(tables, dict)
            or not isinstance(steps, list)
        ):
            raise damaged("its header is incomplete")
        n_features, feature_names = header.get("n_features_in"), header.get("names_in")
        if not (n_features is None or type(n_features) is int) or not (
            isinstance(feature_names, list)
            and all(isinstance(name, str) for name in feature_names)
            and len(feature_names) in (0, n_features)
        ):
            raise damaged("its features are described wrongly")
        ids, alive = arrays.get("ids"), arrays.read("alive")
        if (
            ids is None
            or ids.ndim != 1
            or ids.dtype.kind not in "iU"
            or alive.dtype != bool
            or alive.shape != ids.shape
        ):
            raise damaged("its ids have the wrong form")
        item_arrays = arrays.group("items_")
        items = find_backend(backend).from_arrays(
            item_arrays, verify=item_arrays.verify_all
        )
        if items.n_items != len(ids):
            raise damaged("it has another number of ids than of items")
        items.remove(np.flatnonzero(~alive))

        self.set_params(**params)
        self._steps, self._saved_steps = None, tuple(map(str, steps))
        self.backend_, self._items, self._model = backend, items, None
        self._ids = Ids(
            ids,
            alive,
            is_numbered=header.get("is_numbered") is True,
            verify=partial(arrays.verify, "ids"),
        )
        self._is_unit = header.get("is_unit") is True
        if n_features is not None:
            self.n_features_in_ = n_features
        if feature_names:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        for name in TABLES:
            n_rows = None if "sample" in name else len(ids)
            stored = None
            if name in tables:
                stored = _metadata.Stored(
                    arrays.group(f"{name}_"), tables[name], n_rows
                )
            setattr(self, f"_{name}", stored)

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "_items" in state:
            arrays = self._items.to_arrays()
            state["_items"] = {name: np.array(array) for name, array in arrays.items()}
            # It holds nothing but parts of the estimator.
            state["_model"] = None
            for name in TABLES:
                table = self._table(f"_{name}")
                is_stored = isinstance(table, _metadata.StoredTexts)
                state[f"_{name}"] = list(table) if is_stored else table
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "_items" in state:
            self._items = find_backend(self.backend_).from_arrays(state["_items"])
            if "estimator_" in state:
                self._model = unwrap.find_model(self.estimator_)


def _prefixed(prefix, arrays):
    return {prefix + name: array for name, array in arrays.items()}
