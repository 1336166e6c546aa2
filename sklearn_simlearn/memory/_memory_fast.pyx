"""Kernels of MemoryVectorQuery: many small Gram matrices, their systems, their sums.

A collection of sets is given by `rows` and `offsets`: set s holds the rows
rows[offsets[s]] to rows[offsets[s + 1] - 1] of the data. The Gram matrices are stored
in a flat array, one set after the other, in row-major order. All arithmetic is in
double precision, since a Gram matrix squares the condition number of its set.

Notation and equation labels are those of doc/learners/memory.rst.
"""

from cython cimport floating
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from scipy.linalg.cython_blas cimport dgemm
from scipy.linalg.cython_lapack cimport dpotrf, dpotrs
import numpy as np

ctypedef fused index_t:
    int32_t
    int64_t

# If a Cholesky pivot is below this share of the largest diagonal entry, the caller
# solves the system by eigenvalues.
cdef double SMALLEST_PIVOT = 1e-8


def dense_grams(
    const floating[:, ::1] Q,            # in: as queries
    const floating[:, ::1] D,            # in: as items; may be Q itself
    const Py_ssize_t[::1] rows,          # in
    const Py_ssize_t[::1] offsets,       # in
    double[::1] grams,                   # out
):
    """Compute K = (Q D' + D Q') / 2 for the rows of each set."""
    cdef Py_ssize_t n_features = Q.shape[1]
    cdef Py_ssize_t largest = largest_set(offsets)
    cdef bint same = &Q[0, 0] == &D[0, 0]
    cdef Py_ssize_t s, i, n, start = 0
    cdef int n_, n_features_ = <int>n_features
    cdef double one = 1.0, zero = 0.0
    cdef char transposed = b"T", plain = b"N"
    cdef double[:, ::1] queries = np.empty((largest, n_features))
    cdef double[:, ::1] items = queries if same else np.empty((largest, n_features))

    with nogil:
        for s in range(offsets.shape[0] - 1):
            n = offsets[s + 1] - offsets[s]
            n_ = <int>n
            for i in range(n):
                widen(n_features, &Q[rows[offsets[s] + i], 0], &queries[i, 0])
                if not same:
                    widen(n_features, &D[rows[offsets[s] + i], 0], &items[i, 0])
            dgemm(
                &transposed, &plain, &n_, &n_, &n_features_, &one, &items[0, 0],
                &n_features_, &queries[0, 0], &n_features_, &zero, &grams[start], &n_,
            )
            symmetrise(n, &grams[start])
            start += n * n


def sparse_grams(
    const floating[::1] Q_data,          # in: CSR, as queries
    const index_t[::1] Q_indices,        # in
    const index_t[::1] Q_indptr,         # in
    const floating[::1] D_data,          # in: CSR, as items
    const index_t[::1] D_indices,        # in
    const index_t[::1] D_indptr,         # in
    Py_ssize_t n_features,
    const Py_ssize_t[::1] rows,          # in
    const Py_ssize_t[::1] offsets,       # in
    double[::1] grams,                   # out
):
    """Compute the same as `dense_grams` for CSR rows; each query is made dense once."""
    cdef Py_ssize_t s, i, j, n, start = 0
    cdef Py_ssize_t row, slot
    cdef double total
    cdef double[::1] spread = np.zeros(n_features)

    with nogil:
        for s in range(offsets.shape[0] - 1):
            n = offsets[s + 1] - offsets[s]
            for i in range(n):
                row = rows[offsets[s] + i]
                for slot in range(Q_indptr[row], Q_indptr[row + 1]):
                    spread[Q_indices[slot]] += Q_data[slot]
                for j in range(n):
                    row = rows[offsets[s] + j]
                    total = 0.0
                    for slot in range(D_indptr[row], D_indptr[row + 1]):
                        total += spread[D_indices[slot]] * D_data[slot]
                    grams[start + i * n + j] = total
                row = rows[offsets[s] + i]
                for slot in range(Q_indptr[row], Q_indptr[row + 1]):
                    spread[Q_indices[slot]] = 0.0
            symmetrise(n, &grams[start])
            start += n * n


def solve_grams(
    double[::1] grams,                   # in, out: unit diagonal if `normalize`
    const Py_ssize_t[::1] offsets,       # in
    double shrinkage,
    bint normalize,
    double[::1] scale,                   # out: 1 / sqrt(K_ii), or 1
    double[::1] weights,                 # out
    unsigned char[::1] solved,           # out: 0 if nearly singular
):
    """Solve ((1 - shrinkage) K + shrinkage I) w = 1 by Cholesky: (memory-ridge)."""
    cdef Py_ssize_t largest = largest_set(offsets)
    cdef Py_ssize_t s, i, j, n, start = 0
    cdef int n_, info, one = 1
    cdef char lower = b"L"
    cdef double diagonal, pivot
    cdef double* K
    cdef double[::1] factor = np.empty(largest * largest)

    with nogil:
        for s in range(offsets.shape[0] - 1):
            n = offsets[s + 1] - offsets[s]
            n_ = <int>n
            K = &grams[start]
            start += n * n
            for i in range(n):
                diagonal = K[i * n + i]
                scale[offsets[s] + i] = (
                    1 / sqrt(diagonal) if normalize and diagonal > 0.0 else 1.0)
                weights[offsets[s] + i] = 1.0
            diagonal = 0.0
            for i in range(n):
                for j in range(n):
                    K[i * n + j] *= scale[offsets[s] + i] * scale[offsets[s] + j]
                    factor[i * n + j] = (1 - shrinkage) * K[i * n + j]
                factor[i * n + i] += shrinkage
                diagonal = max(diagonal, factor[i * n + i])

            dpotrf(&lower, &n_, &factor[0], &n_, &info)
            solved[s] = info == 0
            if info == 0:
                for i in range(n):
                    pivot = factor[i * n + i]
                    if not pivot * pivot > SMALLEST_PIVOT * diagonal:
                        solved[s] = 0
            if solved[s]:
                dpotrs(
                    &lower, &n_, &one, &factor[0], &n_, &weights[offsets[s]], &n_,
                    &info)


def dense_sums(
    const floating[:, ::1] Q,            # in
    const Py_ssize_t[::1] rows,          # in
    const Py_ssize_t[::1] offsets,       # in
    const double[::1] weights,           # in: one for each of `rows`
    floating[:, ::1] sums,               # out
):
    """Compute m = sum_i w_i q_i for each set: (memory-dual)."""
    cdef Py_ssize_t n_features = Q.shape[1]
    cdef Py_ssize_t s, i, j
    cdef double w
    cdef const floating* q
    cdef double[::1] total = np.empty(n_features)

    with nogil:
        for s in range(offsets.shape[0] - 1):
            for j in range(n_features):
                total[j] = 0.0
            for i in range(offsets[s], offsets[s + 1]):
                w = weights[i]
                q = &Q[rows[i], 0]
                for j in range(n_features):
                    total[j] += w * q[j]
            for j in range(n_features):
                sums[s, j] = <floating>total[j]


cdef Py_ssize_t largest_set(const Py_ssize_t[::1] offsets) noexcept nogil:
    cdef Py_ssize_t s, largest = 1
    for s in range(offsets.shape[0] - 1):
        largest = max(largest, offsets[s + 1] - offsets[s])
    return largest


cdef inline void widen(Py_ssize_t n, const floating* x, double* out) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        out[j] = x[j]


cdef inline void symmetrise(Py_ssize_t n, double* K) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(n):
        for j in range(i):
            K[i * n + j] = 0.5 * (K[i * n + j] + K[j * n + i])
            K[j * n + i] = K[i * n + j]
