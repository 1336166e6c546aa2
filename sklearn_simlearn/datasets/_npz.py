"""Reader of samples and labels in .npz files."""

import io
import math
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from sklearn_simlearn._core.npy_header import MAX_HEADER, read_header
from sklearn_simlearn._core.sklearn import Interval, validate_params

CSR_PARTS = ("data", "indices", "indptr", "shape")

# Compression methods of numpy.savez and numpy.savez_compressed. zipfile does not limit
# the memory of a step with other methods.
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}

PIECE = 1 << 20  # bytes that are expanded at a time


@validate_params(
    {
        "max_bytes": [Interval(Integral, 1, None, closed="left"), None],
        "require_target": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_npz(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = 2**33,
    require_target: bool = True,
) -> Bunch:
    """Load samples and labels from an .npz file.

    The file is a zip of arrays, as :func:`numpy.savez` writes it:

    - samples, dense under ``X``, or the parts of a CSR array under ``data``,
      ``indices``, ``indptr`` and ``shape``, as :func:`scipy.sparse.save_npz` names
      them;
    - labels under ``y``, integers or strings in one dimension, or a relevance matrix
      in two; a sparse relevance matrix is stored as ``y_data``, ``y_indices``,
      ``y_indptr`` and ``y_shape``;
    - booleans under ``query_mask``, if only some samples are queries.

    Other keys are ignored. Nothing is unpickled, so untrusted files cannot run code. A
    small file that expands to more than `max_bytes` raises an error.

    Parameters
    ----------
    path : str or path-like
        The file.

    max_bytes : int or None, default=2**33
        Limit of the memory of the arrays, in bytes. The default is 8 GiB. If an array
        is converted, for example from integers to float64, both forms are counted. None
        removes the limit.

    require_target : bool, default=True
        Whether to raise an error if the file has no ``y``. Pass False for files of
        queries.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : ndarray or csr_array of shape (n_samples, n_features)
            Samples. float32 is kept; all other types are converted to float64.
        target : ndarray of shape (n_samples,), or ndarray or csr_array of shape \
                (n_samples, n_queries)
            Labels, or a relevance matrix in float32 or float64. None if the file has no
            ``y`` and `require_target` is False.
        query_mask : ndarray of shape (n_samples,), bool, or None
            Mask of the queries; None if the file has no ``query_mask``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.

    ValueError
        If the file does not have the format above, or needs more than `max_bytes`. The
        message names the file, the key and the remedy.

    See Also
    --------
    load_digit_words : Data that come with the package.
    scipy.sparse.load_npz : One sparse array, without labels.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn_simlearn.datasets import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "shapes.npz"
    ...     np.savez(path, X=np.eye(3), y=["disc", "disc", "square"])
    ...     shapes = load_npz(path)
    >>> shapes.data.shape, shapes.target
    ((3, 3), array(['disc', 'disc', 'square'], dtype='<U6'))
    """
    with _open(path, max_bytes) as arrays:
        X = _read_samples(arrays)
        y = _read_target(arrays, require_target)
        query_mask = _read_query_mask(arrays)

    n_samples = X.shape[0]
    if y is not None and y.shape[0] != n_samples:
        arrays.fail(
            "y",
            f"has {y.shape[0]} rows and X has {n_samples}",
            "save one per sample",
        )
    if query_mask is not None and len(query_mask) != n_samples:
        arrays.fail(
            "query_mask",
            f"has {len(query_mask)} entries and X has {n_samples} rows",
            "save one per sample",
        )
    return Bunch(data=X, target=y, query_mask=query_mask)


@contextmanager
def _open(path, max_bytes):
    """Return a context with the arrays of a file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Check the path.")
    with path.open("rb") as file:
        yield _Arrays(path, file, max_bytes)


class _Arrays:
    """Arrays of an open file. Errors name the key."""

    def __init__(self, path, file, max_bytes):
        self.path = path
        self.bytes_left = math.inf if max_bytes is None else max_bytes
        try:
            self.archive = zipfile.ZipFile(file)
        except Exception as error:  # zipfile raises many types on other formats
            raise ValueError(
                f"{path}: not an .npz file, or truncated. Write one with "
                "numpy.savez(path, X=X, y=y)."
            ) from error
        self.members = {
            member.filename.removesuffix(".npy"): member
            for member in self.archive.infolist()
        }

    def __contains__(self, key):
        return key in self.members

    def __getitem__(self, key):
        member = self.members[key]
        if member.compress_type not in METHODS:
            self.fail(
                key,
                f"is compressed with method {member.compress_type} of zip",
                "write the file with numpy.savez_compressed",
            )
        with self.damage_named(key), self.archive.open(member) as stream:
            head = io.BytesIO(stream.read(MAX_HEADER))
        if not head.getvalue().startswith(np.lib.format.MAGIC_PREFIX):
            self.fail(key, "is not a NumPy array", "write the file with numpy.savez")
        with self.damage_named(key), warnings.catch_warnings(action="ignore"):
            shape, is_fortran, dtype = read_header(head)
            n_bytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            self.fail(
                key,
                "holds Python objects, which are never unpickled",
                "save numbers or strings, and a sparse array by its parts "
                + ", ".join(CSR_PARTS),
            )
        if min(shape, default=0) < 0 or member.file_size != head.tell() + n_bytes:
            self.fail(key, "is damaged", "write the file again")
        self.reserve(key, n_bytes)
        try:
            content = np.empty(n_bytes, dtype=np.uint8)
        except MemoryError:
            self.fail(key, f"takes {n_bytes} bytes", "use a machine with more memory")
        with self.damage_named(key), self.archive.open(member) as stream:
            stream.read(head.tell())
            # zipfile returns at most the declared number of bytes, and checks the
            # checksum at the end. Memory is written as bytes arrive, so a file that
            # declares more bytes than it has does not use more memory.
            for start in range(0, n_bytes, PIECE):
                piece = memoryview(content)[start : start + PIECE]
                piece[:] = stream.read(len(piece))  # fails if bytes are missing
            order = "F" if is_fortran else "C"
            return np.ndarray(shape, dtype, buffer=content, order=order)

    @contextmanager
    def damage_named(self, key):
        """Convert the errors of zipfile and NumPy for damaged bytes to one message."""
        try:
            yield
        except Exception:
            self.fail(key, "is damaged", "write the file again")

    def reserve(self, key, n_bytes):
        """Reserve the bytes of an array; fail if too few are left."""
        if n_bytes > self.bytes_left:
            self.fail(
                key,
                f"needs {n_bytes} bytes, but max_bytes leaves {self.bytes_left}",
                "pass a larger max_bytes if you trust the file",
            )
        self.bytes_left -= n_bytes

    def fail(self, key, fault, remedy):
        raise ValueError(f"{self.path}: {key!r} {fault}; {remedy}.")


def _read_samples(arrays):
    X = _read_matrix(arrays, "X", "")
    if X is None:
        arrays.fail(
            "X",
            f"is missing among the keys {sorted(arrays.members)}",
            "save the samples under X, or a CSR array under " + ", ".join(CSR_PARTS),
        )
    if not sparse.issparse(X):
        if X.ndim != 2:
            arrays.fail("X", f"has {X.ndim} dimension(s)", "save it with 2")
        X = _floats(arrays, "X", X)
    if 0 in X.shape:
        arrays.fail("X", f"is empty, of shape {X.shape}", "save at least one sample")
    return X


def _read_target(arrays, is_required):
    y = _read_matrix(arrays, "y", "y_")
    if y is None:
        if not is_required:
            return None
        arrays.fail(
            "y",
            f"is missing among the keys {sorted(arrays.members)}",
            "save the labels, or the relevance matrix, under y",
        )
    if sparse.issparse(y):
        return y
    if y.ndim == 2:
        return _floats(arrays, "y", y)
    if y.ndim != 1:
        arrays.fail("y", f"has {y.ndim} dimension(s)", "save it with 1 or 2")
    if y.dtype.kind not in "biuU":
        arrays.fail(
            "y",
            f"holds labels of type {y.dtype}",
            "use y.astype(int) or y.astype(str)",
        )
    if y.dtype.kind == "U" and y.dtype.itemsize:
        code_points = np.ascontiguousarray(y).view(f"{y.dtype.byteorder}u4")
        if code_points.max(initial=0) > sys.maxunicode:
            arrays.fail("y", "holds numbers that are not characters", "save strings")
    return y.astype(np.int64) if y.dtype == bool else y


def _read_query_mask(arrays):
    if "query_mask" not in arrays:
        return None
    query_mask = arrays["query_mask"]
    if query_mask.dtype != bool:
        arrays.fail("query_mask", f"is of type {query_mask.dtype}", "use .astype(bool)")
    if query_mask.ndim != 1:
        arrays.fail(
            "query_mask", f"has {query_mask.ndim} dimension(s)", "save it with 1"
        )
    return query_mask


def _read_matrix(arrays, key, prefix):
    """Return the array under `key`, or the CSR array of `prefix`, or None."""
    present = [part for part in CSR_PARTS if prefix + part in arrays]
    if key not in arrays:
        return _read_csr(arrays, prefix) if present else None
    if len(present) == len(CSR_PARTS):
        arrays.fail(key, "conflicts with the parts of a CSR array", "keep one of them")
    return arrays[key]


def _read_csr(arrays, prefix):
    if prefix + "format" in arrays:
        stored_as = arrays[prefix + "format"].tolist()
        if stored_as not in (b"csr", "csr"):
            arrays.fail(
                prefix + "format", f"is {stored_as!r}", "save the array's .tocsr()"
            )
    parts = {}
    for part in CSR_PARTS:
        if prefix + part not in arrays:
            needed = ", ".join(prefix + part for part in CSR_PARTS)
            arrays.fail(prefix + part, "is missing", f"a CSR array needs {needed}")
        parts[part] = array = arrays[prefix + part]
        if array.ndim != 1:
            arrays.fail(
                prefix + part, f"has {array.ndim} dimension(s)", "save it with 1"
            )
        if part != "data" and array.dtype.kind not in "iu":
            arrays.fail(prefix + part, f"is of type {array.dtype}", "save integers")
    indices, indptr, shape = parts["indices"], parts["indptr"], parts["shape"].tolist()
    data = _floats(arrays, prefix + "data", parts["data"])

    remedy = "save the parts of one CSR array"
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= 2**63:
        arrays.fail(prefix + "shape", f"is {shape}", "save numbers of rows and columns")
    if len(indptr) != shape[0] + 1:
        arrays.fail(
            prefix + "indptr", f"has {len(indptr)} entries for {shape[0]} rows", remedy
        )
    # Compare values, because a difference of unsigned integers is never negative.
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        arrays.fail(prefix + "indptr", "does not ascend from 0", remedy)
    for part in ("data", "indices"):
        if len(parts[part]) != indptr[-1]:
            arrays.fail(
                prefix + part,
                f"has {len(parts[part])} entries, but indptr ends at {indptr[-1]}",
                remedy,
            )
    if len(indices) and (indices.min() < 0 or indices.max() >= shape[1]):
        arrays.fail(
            prefix + "indices", f"has columns outside 0..{shape[1] - 1}", remedy
        )
    A = sparse.csr_array((data, indices, indptr), shape=shape)
    A.sum_duplicates()
    return A


def _floats(arrays, key, array):
    """Return the array as float32 or float64; fail unless it is finite."""
    if array.dtype.kind not in "biuf":
        arrays.fail(key, f"is of type {array.dtype}", "save real numbers")
    if not np.isfinite(array).all():
        arrays.fail(key, "contains NaN or infinity", "replace or drop them")
    is_float32 = array.dtype.kind == "f" and array.dtype.itemsize == 4
    dtype = np.dtype(np.float32 if is_float32 else np.float64)
    if array.dtype != dtype:
        arrays.reserve(key, array.size * dtype.itemsize)
    return array.astype(dtype, copy=False)


def load_named_vectors(
    path: str | os.PathLike[str], *, max_bytes: int | None = 2**33
) -> Callable[[str, Sequence[str]], np.ndarray]:
    """Load vectors of queries and documents, each with an id.

    Parameters
    ----------
    path : str or path-like
        File of `numpy.savez` with query_ids, query_vectors, document_ids and
        document_vectors.

    max_bytes : int or None, default=2**33
        Limit of the memory of the arrays, in bytes.

    Returns
    -------
    find : callable
        ``find(side, ids)`` returns the vectors of some ids; `side` is "query" or
        "document". An unknown id raises an error.
    """
    sides = {}
    with _open(path, max_bytes) as arrays:
        for side in ("query", "document"):
            sides[side] = _read_named(arrays, f"{side}_ids", f"{side}_vectors")
    widths = {vectors.shape[1] for _, vectors in sides.values()}
    if len(widths) > 1:
        arrays.fail(
            "query_vectors",
            f"and document_vectors have {widths} columns",
            "save vectors of one model",
        )

    def find(side, ids):
        rows, vectors = sides[side]
        missing = [id_ for id_ in ids if str(id_) not in rows]
        if missing:
            arrays.fail(
                f"{side}_ids",
                f"lacks {len(missing)} ids, such as {str(missing[0])[:50]!r}",
                "save a vector for each",
            )
        return vectors[[rows[str(id_)] for id_ in ids]]

    return find


def _read_named(arrays, ids_key, vectors_key):
    """Return rows by id, and the vectors."""
    for key in (ids_key, vectors_key):
        if key not in arrays:
            arrays.fail(
                key, f"is missing among the keys {sorted(arrays.members)}", "save it"
            )
    ids, vectors = arrays[ids_key], arrays[vectors_key]
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        arrays.fail(ids_key, "does not hold ids", "save strings or integers")
    if vectors.ndim != 2 or 0 in vectors.shape:
        arrays.fail(vectors_key, f"has the shape {vectors.shape}", "save rows")
    if len(ids) != len(vectors):
        arrays.fail(
            vectors_key, f"has {len(vectors)} rows for {len(ids)} ids", "save one each"
        )
    rows = {str(id_): row for row, id_ in enumerate(ids.tolist())}
    if len(rows) < len(ids):
        arrays.fail(ids_key, "holds an id twice", "save each once")
    return rows, _floats(arrays, vectors_key, vectors)
