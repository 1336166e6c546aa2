"""Types, limits and binary format of pgvector."""

from itertools import pairwise
from struct import pack, unpack_from

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn.index._encoded_items import as_rows

MAX_WIDTH = {"vector": 16_000, "halfvec": 16_000, "sparsevec": 1_000_000_000}
MAX_NONZERO = 16_000  # in a sparsevec
MAX_GRAPH_WIDTH = {"vector": 2_000, "halfvec": 4_000}
MAX_GRAPH_NONZERO = 1_000  # in a sparsevec in an HNSW graph

# Number of rows that are converted to bytes at a time.
BLOCK = 1024


class Wire(bytes):
    """Row in the binary format of the server."""


def choose_type(encoded):
    """Return the type of pgvector for encodings."""
    return "sparsevec" if sparse.issparse(encoded) else "vector"


def as_stored(encoded, stored, *, in_graph=False):
    """Return encodings in the precision of a type of pgvector; check its limits.

    Parameters
    ----------
    encoded : ndarray or sparse matrix
        Encoded items or queries.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of pgvector.

    in_graph : bool, default=False
        Check the limits of an HNSW graph, too.

    Returns
    -------
    rows : ndarray of float32 or float16, or csr_array of float32
    """
    encoded = as_rows(encoded)
    width = encoded.shape[1]
    if width > MAX_WIDTH[stored]:
        raise ValueError(
            f"pgvector's {stored} has at most {MAX_WIDTH[stored]:,} dimensions, but "
            f"the encodings have {width:,}. {_remedy(stored)}."
        )
    if in_graph and width > MAX_GRAPH_WIDTH.get(stored, width):
        halves = ' or stored="halfvec" (up to 4,000)' if stored == "vector" else ""
        raise ValueError(
            f"For HNSW, a {stored} has at most {MAX_GRAPH_WIDTH[stored]:,} dimensions, "
            f"but the encodings have {width:,}. Insert a PCA with fewer n_components "
            f'before the estimator, or use method="exact"{halves}.'
        )
    dtype = np.float16 if stored == "halfvec" else np.float32
    with np.errstate(over="ignore"):
        if stored == "sparsevec":
            # Remove zeros again, because the cast turns tiny values into zeros.
            rows = canonical_csr(canonical_csr(encoded).astype(np.float32))
            values = rows.data
            _check_nonzero(rows, in_graph)
        else:
            if sparse.issparse(encoded):
                encoded = encoded.toarray()
            rows = values = encoded.astype(dtype, copy=False)
    if not np.isfinite(values).all():
        raise ValueError(
            f"The encodings exceed the range of pgvector's {stored}, which ends at "
            f"{np.finfo(dtype).max:.6g}. Scale the samples"
            + (', or use stored="vector".' if stored == "halfvec" else ".")
        )
    return rows


def _check_nonzero(rows, in_graph):
    n_nonzero = int(np.diff(rows.indptr).max(initial=0))
    if n_nonzero > MAX_NONZERO:
        raise ValueError(
            f"pgvector's sparsevec has at most {MAX_NONZERO:,} non-zeros, but an "
            f"encoding has {n_nonzero:,}. {_remedy('sparsevec')}."
        )
    if in_graph and n_nonzero > MAX_GRAPH_NONZERO:
        raise ValueError(
            f"For HNSW, a sparsevec has at most {MAX_GRAPH_NONZERO:,} non-zeros, but "
            f'an encoding has {n_nonzero:,}. Use method="exact", or insert a '
            "TruncatedSVD with n_components of at most 2,000 before the estimator."
        )


def _remedy(stored):
    if stored == "sparsevec":
        return "Insert a TruncatedSVD with fewer n_components before the estimator"
    return 'Insert a PCA with fewer n_components, or use stored="sparsevec"'


def scale_queries(Q):
    """Scale queries by powers of two to magnitudes of at most 1.

    A positive factor does not change the ranking, and a power of two does not change
    digits. After scaling, every query fits into every type, and small values keep their
    digits in half precision.

    Returns
    -------
    scaled : ndarray or csr_array

    exponents : ndarray of shape (n_queries,)
        Exponents. Scores of the scaled queries must be multiplied by ``2 **
        exponents``.
    """
    Q = as_rows(Q)
    if sparse.issparse(Q):
        largest = abs(Q).max(axis=1).toarray().ravel()
        _, exponents = np.frexp(largest)
        data = np.ldexp(Q.data, -np.repeat(exponents, np.diff(Q.indptr)))
        return sparse.csr_array((data, Q.indices, Q.indptr), shape=Q.shape), exponents
    _, exponents = np.frexp(np.abs(Q).max(axis=1, initial=0))
    return np.ldexp(Q, -exponents[:, None]), exponents


def to_wire(rows, stored):
    """Yield rows in pgvector's binary format.

    Blocks of rows are converted by NumPy. The package pgvector converts number by
    number, which takes 50 times as long for sparse rows.

    Parameters
    ----------
    rows : ndarray or csr_array
        Result of `as_stored`.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of pgvector.

    Yields
    ------
    row : Wire
    """
    n_rows, width = rows.shape
    for start in range(0, n_rows, BLOCK):
        block = rows[start : start + BLOCK]
        if stored != "sparsevec":
            head = pack(">2H", width, 0)
            for row in block.astype(block.dtype.newbyteorder(">")):
                yield Wire(head + row.tobytes())
            continue
        places = block.indices.astype(">i4").tobytes()
        values = block.data.astype(">f4").tobytes()
        for first, last in pairwise((4 * block.indptr.astype(np.int64)).tolist()):
            head = pack(">3i", width, (last - first) // 4, 0)
            yield Wire(head + places[first:last] + values[first:last])


def from_wire(rows, stored):
    """Return rows in pgvector's binary format as a matrix of float32.

    Parameters
    ----------
    rows : list of bytes
        Items of the same number of dimensions.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of pgvector.
    """
    if not rows:
        return np.zeros((0, 0), dtype=np.float32)
    if stored != "sparsevec":
        dtype = ">f2" if stored == "halfvec" else ">f4"
        values = [np.frombuffer(row, dtype=dtype, offset=4) for row in rows]
        return np.stack(values).astype(np.float32)
    heads = [unpack_from(">2i", row) for row in rows]
    sizes = [n_nonzero for _, n_nonzero in heads]
    pairs = list(zip(rows, sizes, strict=True))
    places = [np.frombuffer(row, ">i4", n, offset=12) for row, n in pairs]
    values = [np.frombuffer(row, ">f4", n, offset=12 + 4 * n) for row, n in pairs]
    return sparse.csr_array(
        (
            np.concatenate(values).astype(np.float32),
            np.concatenate(places).astype(np.int32),
            np.concatenate([[0], np.cumsum(sizes)]),
        ),
        shape=(len(rows), heads[0][0]),
    )
