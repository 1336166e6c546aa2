"""Encodings as pgvector stores them: its types, its limits, its bytes."""

from itertools import pairwise
from struct import pack

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn.index._encoded_items import as_rows

MAX_WIDTH = {"vector": 16_000, "halfvec": 16_000, "sparsevec": 1_000_000_000}
MAX_NONZERO = 16_000  # of a sparsevec
MAX_GRAPH_WIDTH = {"vector": 2_000, "halfvec": 4_000}
MAX_GRAPH_NONZERO = 1_000  # of a sparsevec in an HNSW graph

# Rows turned into bytes together.
BLOCK = 1024


class Wire(bytes):
    """A row as it goes to and from the server."""


def choose_type(encoded):
    """The type of pgvector that fits encodings."""
    return "sparsevec" if sparse.issparse(encoded) else "vector"


def as_stored(encoded, stored, *, in_graph=False):
    """Encodings with the precision of a type of pgvector, if it can hold them.

    Parameters
    ----------
    encoded : ndarray or sparse matrix
        Encoded items or queries.

    stored : {"vector", "halfvec", "sparsevec"}
        The type.

    in_graph : bool, default=False
        Whether they go into an HNSW graph.

    Returns
    -------
    rows : ndarray of float32 or float16, or csr_array of float32
    """
    encoded = as_rows(encoded)
    width = encoded.shape[1]
    if width > MAX_WIDTH[stored]:
        raise ValueError(
            f"pgvector's {stored} has at most {MAX_WIDTH[stored]:,} dimensions, and "
            f"the estimator encodes with {width:,}: {_remedy(stored)}."
        )
    if in_graph and width > MAX_GRAPH_WIDTH.get(stored, width):
        halves = ' or stored="halfvec" (up to 4,000)' if stored == "vector" else ""
        raise ValueError(
            f"HNSW takes a {stored} of at most {MAX_GRAPH_WIDTH[stored]:,} dimensions, "
            f"and the estimator encodes with {width:,}: put a PCA with fewer "
            f'n_components before it, or use method="exact"{halves}.'
        )
    dtype = np.float16 if stored == "halfvec" else np.float32
    with np.errstate(over="ignore"):
        if stored == "sparsevec":
            # Once more after the cast, which turns tiny values into zeros.
            rows = canonical_csr(canonical_csr(encoded).astype(np.float32))
            values = rows.data
            _check_nonzero(rows, in_graph)
        else:
            if sparse.issparse(encoded):
                encoded = encoded.toarray()
            rows = values = encoded.astype(dtype, copy=False)
    if not np.isfinite(values).all():
        raise ValueError(
            f"The encodings leave the range of pgvector's {stored}, which ends at "
            f"{np.finfo(dtype).max:.6g}: scale the samples"
            + (', or use stored="vector".' if stored == "halfvec" else ".")
        )
    return rows


def _check_nonzero(rows, in_graph):
    n_nonzero = int(np.diff(rows.indptr).max(initial=0))
    if n_nonzero > MAX_NONZERO:
        raise ValueError(
            f"pgvector's sparsevec has at most {MAX_NONZERO:,} non-zeros, and the "
            f"estimator encodes with {n_nonzero:,}: {_remedy('sparsevec')}."
        )
    if in_graph and n_nonzero > MAX_GRAPH_NONZERO:
        raise ValueError(
            f"HNSW takes a sparsevec of at most {MAX_GRAPH_NONZERO:,} non-zeros, and "
            f'the estimator encodes with {n_nonzero:,}: use method="exact", or put a '
            "TruncatedSVD with n_components of at most 2,000 before it."
        )


def _remedy(stored):
    if stored == "sparsevec":
        return "put a TruncatedSVD with fewer n_components before it"
    return 'put a PCA with fewer n_components before it, or use stored="sparsevec"'


def scale_queries(Q):
    """Queries with magnitudes of at most 1, and the powers of two they take.

    A positive factor changes no ranking, one of two no digit. So a query fits into
    every type, and a small one keeps its digits in half precision.

    Returns
    -------
    scaled : ndarray or csr_array

    exponents : ndarray of shape (n_queries,)
        Scores of the scaled queries are to be multiplied by ``2 ** exponents``.
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
    """Rows in pgvector's binary format, one by one.

    Whole blocks are converted by NumPy: the types of the package pgvector, which do it
    number by number, take 50 times as long for sparse rows.

    Parameters
    ----------
    rows : ndarray or csr_array
        From `as_stored`.

    stored : {"vector", "halfvec", "sparsevec"}
        The type.

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
