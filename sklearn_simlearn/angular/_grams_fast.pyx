"""Kernels of the angular ranker: candidates and their Gram matrices, (angular-gram).

Notation and equation labels are those of doc/learners/angular.rst. A block holds some
candidates of one reference query. One thread processes a block from start to end, so
the result does not depend on the number of threads.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
import numpy as np

from sklearn_simlearn._core.blas cimport dot, gemv, syrk

cdef extern from "simd.h":
    uint8_t count_kind(const int8_t* kinds, Py_ssize_t n, int8_t kind) noexcept nogil

# Columns that are counted together.
cdef enum:
    N_TOGETHER = 64

ctypedef fused index:
    int32_t
    int64_t


def count_kinds(
    const int8_t[:, ::1] kinds,          # in
    int8_t kind,
    int64_t[::1] counts,                 # in, out
):
    """Add the number of entries of the kind in each row to `counts`."""
    cdef Py_ssize_t n_columns = kinds.shape[1], i, first, last
    with nogil:
        for i in range(kinds.shape[0]):
            last = 0
            while last < n_columns:
                first, last = last, min(last + N_TOGETHER, n_columns)
                counts[i] += count_kind(&kinds[i, first], last - first, kind)


def take_ranked(
    const int8_t[:, ::1] kinds,          # in
    int8_t kind,
    const int64_t[:, ::1] ranks,         # in: ascending
    int64_t[:, ::1] columns,             # out
):
    """columns[i, k] = column of entry ranks[i, k] of row i, among those of the kind.

    Columns of ranks that the row does not have are not written.
    """
    cdef Py_ssize_t n_columns = kinds.shape[1], i, j, k, first, last
    cdef int64_t count, end
    with nogil:
        for i in range(kinds.shape[0]):
            end, k, last = 0, 0, 0
            while k < ranks.shape[1] and last < n_columns:
                first, last = last, min(last + N_TOGETHER, n_columns)
                count, j = end, first
                end += count_kind(&kinds[i, first], last - first, kind)
                while k < ranks.shape[1] and ranks[i, k] < end:
                    if kinds[i, j] == kind:
                        if ranks[i, k] == count:
                            columns[i, k] = j
                            k += 1
                        count += 1
                    j += 1


cdef class Blocks:
    """Candidates of each block, and the offset of its Gram matrix."""

    cdef const int64_t[::1] reference      # in: of each block
    cdef const int64_t[::1] candidates     # in: rows of X, block after block
    cdef const int64_t[::1] offsets        # in: block b has offsets[b:b + 2]
    cdef const int64_t[::1] gram_offsets   # in: and this slice of the Gram matrices

    def __init__(self, reference, candidates, offsets, gram_offsets):
        self.reference = reference
        self.candidates = candidates
        self.offsets = offsets
        self.gram_offsets = gram_offsets


cdef int64_t find_most(Blocks blocks) noexcept nogil:
    """Return the largest number of candidates of a block, at least 1."""
    cdef int64_t most = 1
    cdef Py_ssize_t b
    for b in range(blocks.reference.shape[0]):
        most = max(most, blocks.offsets[b + 1] - blocks.offsets[b])
    return most


def grams_dense(
    const floating[:, ::1] X,            # in
    const floating[:, ::1] references,   # in
    Blocks blocks,
    bint diagonal,
    double kappa,
    int n_threads,
    double[::1] grams,                   # out
):
    """Compute K = Z Z' + kappa t t' of each block in float64."""
    cdef Py_ssize_t n_blocks = blocks.reference.shape[0], b
    cdef Py_ssize_t n_features = X.shape[1]
    cdef int64_t most = find_most(blocks)
    cdef double[:, ::1] Z = np.empty((n_threads, most * n_features))
    cdef double[:, ::1] q = np.empty((n_threads, n_features))
    cdef double[:, ::1] t = np.empty((n_threads, most))
    cdef int thread

    for b in prange(n_blocks, nogil=True, num_threads=n_threads, schedule="dynamic"):
        thread = threadid()
        gram_dense(
            X, &references[blocks.reference[b], 0],
            &blocks.candidates[blocks.offsets[b]],
            blocks.offsets[b + 1] - blocks.offsets[b], n_features, diagonal, kappa,
            &Z[thread, 0], &q[thread, 0], &t[thread, 0],
            &grams[blocks.gram_offsets[b]],
        )


cdef void gram_dense(
    const floating[:, ::1] X, const floating* reference, const int64_t* rows,
    Py_ssize_t n_rows, Py_ssize_t n_features, bint diagonal, double kappa,
    double* Z, double* q, double* t, double* gram,
) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef double norm2 = 1.0
    cdef const floating* x
    for i in range(n_rows):
        x = &X[rows[i], 0]
        for k in range(n_features):
            Z[i * n_features + k] = x[k] * <double>reference[k] if diagonal else x[k]
    # t_i = <x_i, q>; a diagonal Z contains q already.
    for k in range(n_features):
        q[k] = 1.0 if diagonal else reference[k]
    if not diagonal:
        norm2 = dot(n_features, q, q)
    gemv(n_rows, n_features, Z, q, t)
    syrk(n_rows, n_features, Z, gram)
    add_rank_one(n_rows, norm2, kappa, t, gram)


def grams_csr(
    const floating[::1] data,            # in: X
    const index[::1] indices,            # in
    const int64_t[::1] indptr,           # in
    const floating[::1] q_data,          # in: the references
    const index[::1] q_indices,          # in
    const int64_t[::1] q_indptr,         # in
    Py_ssize_t n_features,
    Blocks blocks,
    bint diagonal,
    double kappa,
    int n_threads,
    double[::1] grams,                   # out
):
    """As `grams_dense`, for rows in CSR format without duplicates."""
    cdef Py_ssize_t n_blocks = blocks.reference.shape[0], b
    cdef int64_t most = find_most(blocks), first, last, k
    cdef double norm2
    # A dense row over all features; zero between its uses.
    cdef double[:, ::1] q = np.zeros((n_threads, n_features))
    cdef double[:, ::1] x = np.zeros((n_threads, n_features))
    cdef double[:, ::1] t = np.empty((n_threads, most))
    cdef int thread

    for b in prange(n_blocks, nogil=True, num_threads=n_threads, schedule="dynamic"):
        thread = threadid()
        first, last = q_indptr[blocks.reference[b]], q_indptr[blocks.reference[b] + 1]
        norm2 = 0.0
        for k in range(first, last):
            q[thread, q_indices[k]] = q_data[k]
            norm2 = norm2 + <double>q_data[k] * <double>q_data[k]
        gram_csr(
            data, indices, indptr, &blocks.candidates[blocks.offsets[b]],
            blocks.offsets[b + 1] - blocks.offsets[b], diagonal, norm2, kappa,
            &q[thread, 0], &x[thread, 0], &t[thread, 0],
            &grams[blocks.gram_offsets[b]],
        )
        for k in range(first, last):
            q[thread, q_indices[k]] = 0.0


cdef void gram_csr(
    const floating[::1] data, const index[::1] indices, const int64_t[::1] indptr,
    const int64_t* rows, Py_ssize_t n_rows, bint diagonal, double norm2, double kappa,
    const double* q, double* x, double* t, double* gram,
) noexcept nogil:
    """Compute the Gram matrix of a block; q is the dense reference."""
    cdef Py_ssize_t i, j
    cdef int64_t k
    cdef double total
    for i in range(n_rows):
        t[i] = 0.0
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            total = q[indices[k]] * <double>data[k]
            t[i] += total
            x[indices[k]] = total * q[indices[k]] if diagonal else <double>data[k]
        for j in range(i + 1):
            total = 0.0
            for k in range(indptr[rows[j]], indptr[rows[j] + 1]):
                total += x[indices[k]] * <double>data[k]
            gram[i * n_rows + j] = total
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            x[indices[k]] = 0.0
    add_rank_one(n_rows, 1.0 if diagonal else norm2, kappa, t, gram)


cdef void add_rank_one(
    Py_ssize_t n, double scale, double kappa, const double* t, double* gram
) noexcept nogil:
    """Set both triangles to scale * gram + kappa * outer(t, t), from the lower one."""
    cdef Py_ssize_t i, j
    for i in range(n):
        for j in range(i + 1):
            gram[i * n + j] = scale * gram[i * n + j] + kappa * t[i] * t[j]
            gram[j * n + i] = gram[i * n + j]
