"""Thumbnails and encodings that an index stores instead of the photographs."""

import hashlib
import os
from numbers import Number

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn.feature_extraction import ImageReader
from sklearn_simlearn.feature_extraction._images import check_sources
from sklearn_simlearn.feature_extraction._reader import ImageTransformer

# Longest side of a thumbnail in pixels, quality of JPEG, and maximum number of bytes.
SIDE, QUALITY, MAX_BYTES = 160, 75, 2**15

# Parameters of estimators that do not change their results. The content of a network is
# in the attribute `digest_`.
WITHOUT_EFFECT = {"n_jobs", "verbose", "batch_size", "model_path"}


def reads_photographs(model):
    """Return whether the first step of a model for items takes photographs."""
    steps = model.item_steps
    return bool(steps) and isinstance(steps[0], ImageTransformer)


def list_sources(X):
    """Return photographs as a list of file names, bytes and arrays."""
    return check_sources(X)


def make_thumbnails(X, n_jobs=None):
    """Return reduced photographs as JPEG files; empty bytes for unreadable ones."""
    reader = ImageReader(max_size=SIDE, on_error="skip", n_jobs=n_jobs)
    return list(reader.transform(list_sources(X)).map(_compress, n_jobs=n_jobs))


def _compress(pixels):
    if pixels.size == 0:
        return b""
    cv2 = import_optional("cv2", "vision", "Thumbnails")
    for quality in (QUALITY, QUALITY // 2, QUALITY // 4):
        options = [cv2.IMWRITE_JPEG_QUALITY, quality]
        jpeg = cv2.imencode(".jpg", pixels[:, :, ::-1], options)[1].tobytes()
        if len(jpeg) <= MAX_BYTES:
            return jpeg
    return b""


def compute_fingerprint(steps):
    """Return a digest of transformers that differs if their results differ.

    The digest covers classes, parameters and fitted attributes. Two lists of steps with
    the same digest transform photographs in the same way.
    """
    digest = hashlib.sha256()
    for step in steps:
        _add(digest, step)
    return digest.hexdigest()


def _add(digest, value):
    """Add a value to a digest, with its type and its length."""
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False)
        parts = {name: params[name] for name in params.keys() - WITHOUT_EFFECT}
        parts |= {
            name: part
            for name, part in vars(value).items()
            if name.endswith("_") and not name.startswith("_")
        }
        _add(digest, type(value).__name__)
        _add(digest, parts)
    elif sparse.issparse(value):
        value = value.tocsr()
        _add(digest, [value.shape, value.data, value.indices, value.indptr])
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif isinstance(value, dict):
        digest.update(f"dict {len(value)} ".encode())
        for name in sorted(value, key=str):
            _add(digest, name)
            _add(digest, value[name])
    elif isinstance(value, list | tuple | np.ndarray):
        digest.update(f"list {len(value)} ".encode())
        for part in value:
            _add(digest, part)
    elif isinstance(value, str | bytes | os.PathLike):
        data = value if isinstance(value, bytes) else os.fspath(value).encode()
        digest.update(f"text {len(data)} ".encode() + data)
    elif value is None or isinstance(value, Number | np.generic):
        digest.update(f"number {value!s} ".encode())
    else:
        digest.update(f"object {type(value).__qualname__} ".encode())
