"""Estimator of an index as a file in the format of skops."""

import importlib
import io
import json
import zipfile
from functools import cache

from sklearn.base import BaseEstimator

from sklearn_simlearn._core.encoders import STORABLE
from sklearn_simlearn._core.storage import damaged

ESTIMATOR_FILE = "encoding_estimator.skops"

# File name in folders of version 0.2.0.dev0. Its estimators have other attributes.
OLD_ESTIMATOR_FILE = "estimator.skops"

# Files that `read_estimator` looks for.
ESTIMATOR_FILES = (ESTIMATOR_FILE, OLD_ESTIMATOR_FILE)

# Types within learners that are harmless, but not trusted by skops by default.
SPARSE_TYPES = ("scipy.sparse._csr.csr_array", "scipy.sparse._csc.csc_array")

# Loaders of skops that create an instance without calling its class: they set its
# attributes or, for a named tuple, its fields. Other loaders call any function that the
# file names.
INSTANCE_LOADERS = {"ObjectNode", "TupleNode"}
SPARSE_LOADERS = {"SparseMatrixNode"}

# Keys that name a function in the first format of skops.
NAMES_IN_FORMAT_0 = ("module_path", "function")

PACKAGE = "sklearn_simlearn."

# A file is not read if it expands to more than MAX_EXPANDED bytes plus MAX_RATIO times
# its size. A vocabulary of words expands to 12 times its size, and a vocabulary of
# pairs of words to 25 times. The part that is JSON has the smaller limit MAX_SCHEMA,
# because it takes 25 times its size when it is parsed.
MAX_EXPANDED, MAX_SCHEMA, MAX_RATIO = 2**28, 2**22, 50
SCHEMA = "schema.json"


def dump_estimator(estimator):
    """Return an estimator as bytes. For a search, store the best estimator."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    import skops.io  # a third of the time to import this package

    # A vocabulary is stored once per part that uses it, as indented JSON.
    return skops.io.dumps(estimator, compression=zipfile.ZIP_DEFLATED, compresslevel=1)


def read_estimator(files, trusted):
    """Return the estimator in the files of a folder, if all its types are trusted.

    Parameters
    ----------
    files : dict of bytes
        Contents of the `ESTIMATOR_FILES` that exist in the folder.

    trusted : sequence of str
        As for `load_estimator`.
    """
    if ESTIMATOR_FILE in files:
        return load_estimator(files[ESTIMATOR_FILE], trusted)
    if OLD_ESTIMATOR_FILE in files:
        raise ValueError(
            "The estimator was saved by sklearn_simlearn 0.2.0.dev0, and its "
            "attributes have changed since. Fit it again with this version, and pass "
            "it as `estimator`. If it encodes items differently, load the index "
            "without `trusted` and call `set_estimator`, which encodes the items again "
            "if the index was fitted with store_items=True."
        )
    raise ValueError("The index was saved without its estimator. Pass `estimator`.")


def load_estimator(data, trusted):
    """Load an estimator if all its types are trusted.

    Parameters
    ----------
    data : bytes
        Result of `dump_estimator`.

    trusted : sequence of str
        Types and functions to trust, in addition to the classes of `is_trusted` and the
        defaults of skops.
    """
    import skops.io

    if isinstance(trusted, str | bool):
        raise TypeError(
            f"trusted must be a sequence of names; got {trusted!r}. trusted=() trusts "
            "no names in addition to those of this package and of scikit-learn."
        )
    try:
        loaders = _list_loaders(data)
        types = skops.io.get_untrusted_types(data=data)
        # skops trusts a name everywhere in a file, even where the file calls it.
        refused = [
            name
            for name in types
            if name not in trusted and not is_trusted(name, loaders.get(name))
        ]
        if not refused:
            return skops.io.loads(data, trusted=types)
    except Exception as error:
        # Damaged bytes raise errors of many types.
        raise damaged(f"its estimator cannot be read ({error})") from error
    raise ValueError(
        "The estimator has types or functions that are not trusted: "
        f"{', '.join(refused)}. If you trust them and the person who saved the index, "
        "list them in `trusted`."
    )


def is_trusted(name, loaders):
    """Return whether a stored estimator may use a name without the user's consent.

    Only classes are trusted, and only for instances that are created without a call:
    public estimators and named tuples of this package, classes decorated with
    `storable`, and sparse arrays of SciPy.

    Parameters
    ----------
    name : str
        Name of a class or function, with its module.

    loaders : set of str or None
        All classes of skops that read the name; None if they are not known.
    """
    if not loaders:
        return False
    if name in SPARSE_TYPES:
        return loaders <= SPARSE_LOADERS
    module_name, _, attribute = name.rpartition(".")
    if not (f"{module_name}.".startswith(PACKAGE) and loaders <= INSTANCE_LOADERS):
        return False
    try:
        # Classes that `storable` decorates are known once their module is imported.
        found = vars(importlib.import_module(module_name)).get(attribute)
    except ImportError:
        return False
    return isinstance(found, type) and (
        found in STORABLE or found in _public_estimators() or _is_named_tuple(found)
    )


def _is_named_tuple(cls):
    """Return whether a class of this package is a named tuple, which runs no code."""
    return (
        cls.__bases__ == (tuple,)
        and hasattr(cls, "_fields")
        and cls.__module__.startswith(PACKAGE)
    )


@cache
def _public_estimators():
    """Return the public classes that an estimator of an index may consist of.

    Indexes and re-ranking steps are excluded, because they hold other indexes.
    """
    # Imported here because feature_extraction imports modules of this package.
    import sklearn_simlearn
    from sklearn_simlearn import (
        compose,
        feature_extraction,
        model_selection,
        similarities,
    )

    packages = (
        sklearn_simlearn,
        compose,
        feature_extraction,
        model_selection,
        similarities,
    )
    public = {getattr(each, name) for each in packages for name in each.__all__}
    return frozenset(
        found
        for found in public
        if isinstance(found, type) and issubclass(found, BaseEstimator)
    )


def _list_loaders(data):
    """Return, for each name in a file, the set of loaders that read it.

    Raise if the file expands to a much larger size.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        whole = sum(part.file_size for part in file.infolist())
        schema = file.getinfo(SCHEMA).file_size
        for n_bytes, limit in ((whole, MAX_EXPANDED), (schema, MAX_SCHEMA)):
            if n_bytes > limit + MAX_RATIO * len(data):
                raise ValueError(f"{len(data)} bytes expand to {n_bytes}")
        parts = [json.loads(file.read(SCHEMA))]
    loaders = {}
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            for module, name in (("__module__", "__class__"), NAMES_IN_FORMAT_0):
                if module in part and name in part:
                    full_name = f"{part[module]}.{part[name]}"
                    loader = str(part.get("__loader__"))
                    loaders.setdefault(full_name, set()).add(loader)
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
    return loaders
