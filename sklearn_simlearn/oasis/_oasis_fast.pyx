"""Kernels of OASIS: passive-aggressive steps over a sequence of triplets.

Notation and equation labels are those of doc/learners/oasis.rst. `take_steps`
processes a block of dense triplets, whose products BLAS computes; `sweep_sparse`
processes sparse triplets one by one.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
import numpy as np

cdef extern from "simd.h":
    Py_ssize_t find_largest_float(
        const float* X, Py_ssize_t n_features, const float* query,
        const int64_t* rows, Py_ssize_t n_rows) noexcept nogil
    Py_ssize_t find_largest_double(
        const double* X, Py_ssize_t n_features, const double* query,
        const int64_t* rows, Py_ssize_t n_rows) noexcept nogil

ctypedef fused index_t:
    int32_t
    int64_t

# Kind of W, by the values of `symmetric` in the estimator.
cdef enum:
    BILINEAR = 0
    SYMMETRIC = 1
    DISSIMILARITY = 2


def find_hardest(
    const floating[:, ::1] X,            # in
    const floating[:, ::1] qW,           # in: of the query of each triplet
    const int64_t[:, ::1] triplets,      # in: rows of X; from column 2, the negatives
    int64_t[::1] hardest,                # out
):
    """Find, for each triplet, the negative that is most similar under W."""
    cdef Py_ssize_t t, place, n_negatives = triplets.shape[1] - 2, d = X.shape[1]
    with nogil:
        for t in range(triplets.shape[0]):
            if floating is float:
                place = find_largest_float(
                    &X[0, 0], d, &qW[t, 0], &triplets[t, 2], n_negatives)
            else:
                place = find_largest_double(
                    &X[0, 0], d, &qW[t, 0], &triplets[t, 2], n_negatives)
            hardest[t] = triplets[t, 2 + place]


def take_steps(
    double[::1] margin,                  # in, out: <V_t, W> at the start of the block
    const floating[:, ::1] gram,         # in: increase of <V_t, W> by a unit step s
    const double[::1] norm2,             # in: |V_t|^2
    double C,
    floating[::1] tau,                   # out
):
    """Compute the steps of a block of triplets, one after the other.

    (oasis-block)  The steps before triplet t increase its margin by
    sum_s tau_s gram[s, t]. Returns the sum of the hinge losses and the number of steps.
    """
    cdef Py_ssize_t n = margin.shape[0], s, t, n_updates = 0
    cdef double hinge, loss = 0.0, step
    with nogil:
        for s in range(n):
            tau[s] = 0
            hinge = 1.0 - margin[s]
            if hinge <= 0.0:
                continue
            loss += hinge
            if norm2[s] <= 0.0:
                continue  # V = 0: no W can satisfy this triplet
            step = min(C, hinge / norm2[s])
            tau[s] = <floating>step
            n_updates += 1
            for t in range(s + 1, n):
                margin[t] += step * gram[s, t]
    return loss, n_updates


def sweep_sparse(
    floating[:, ::1] W,                  # in, out
    const floating[::1] data,            # in: CSR rows, indices sorted
    const index_t[::1] indices,          # in
    const index_t[::1] indptr,           # in
    const int64_t[:, ::1] triplets,      # in
    double C,
    int learned,
    Py_ssize_t longest,
):
    """Visit the triplets once, in order, and update the dense W in place.

    `longest` is the largest number of entries of a row. Returns the sum of the hinge
    losses, each computed before its own update, and the number of updates.
    """
    cdef Py_ssize_t d = W.shape[1], t, n_q, n_a, n_b, n_updates = 0
    cdef int64_t q, positive, negative
    cdef double hinge, loss = 0.0, norm2
    cdef floating tau
    cdef const floating* x
    cdef const index_t* x_index

    # Scratch is allocated here, while the GIL is held, and reused by every triplet.
    dtype = np.float32 if floating is float else np.float64
    index_dtype = np.int32 if index_t is int32_t else np.int64
    cdef floating[::1] a = np.empty(2 * longest + 1, dtype=dtype)
    cdef floating[::1] b = np.empty(2 * longest + 1, dtype=dtype)
    cdef index_t[::1] a_index = np.empty(2 * longest + 1, dtype=index_dtype)
    cdef index_t[::1] b_index = np.empty(2 * longest + 1, dtype=index_dtype)

    with nogil:
        for t in range(triplets.shape[0]):
            q, positive, negative = triplets[t, 0], triplets[t, 1], triplets[t, 2]
            if learned == DISSIMILARITY:
                # (oasis-dissim)  a = q - x+, b = q - x-, V = b b' - a a'
                n_a = subtract_rows(
                    &data[0], &indices[0], &indptr[0], q, positive, &a[0], &a_index[0])
                n_b = subtract_rows(
                    &data[0], &indices[0], &indptr[0], q, negative, &b[0], &b_index[0])
                hinge = 1.0 - bilinear(
                    &W[0, 0], d, &b[0], &b_index[0], n_b, &b[0], &b_index[0], n_b
                ) + bilinear(
                    &W[0, 0], d, &a[0], &a_index[0], n_a, &a[0], &a_index[0], n_a)
                norm2 = (
                    square_norm(&a[0], n_a) ** 2 + square_norm(&b[0], n_b) ** 2
                    - 2 * sparse_dot(
                        &a[0], &a_index[0], n_a, &b[0], &b_index[0], n_b) ** 2
                )
            else:
                # (oasis-loss)  a = x+ - x-, S(q, x+) - S(q, x-) = q' W a, V = q a'
                n_a = subtract_rows(
                    &data[0], &indices[0], &indptr[0], positive, negative,
                    &a[0], &a_index[0])
                x, x_index = &data[0] + indptr[q], &indices[0] + indptr[q]
                n_q = indptr[q + 1] - indptr[q]
                hinge = 1.0 - bilinear(
                    &W[0, 0], d, x, x_index, n_q, &a[0], &a_index[0], n_a)
                norm2 = square_norm(x, n_q) * square_norm(&a[0], n_a)
            if hinge <= 0.0:
                continue
            loss += hinge
            if norm2 <= 0.0:
                continue  # V = 0: no W can satisfy this triplet

            # (oasis-step)
            tau = <floating>min(C, hinge / norm2)
            n_updates += 1
            if learned == DISSIMILARITY:
                add_outer(
                    tau, &b[0], &b_index[0], n_b, &b[0], &b_index[0], n_b,
                    &W[0, 0], d)
                add_outer(
                    -tau, &a[0], &a_index[0], n_a, &a[0], &a_index[0], n_a,
                    &W[0, 0], d)
            elif learned == SYMMETRIC:
                add_outer(
                    tau / 2, x, x_index, n_q, &a[0], &a_index[0], n_a, &W[0, 0], d)
                add_outer(
                    tau / 2, &a[0], &a_index[0], n_a, x, x_index, n_q, &W[0, 0], d)
            else:
                add_outer(tau, x, x_index, n_q, &a[0], &a_index[0], n_a, &W[0, 0], d)
    return loss, n_updates


cdef Py_ssize_t subtract_rows(
    const floating* data, const index_t* indices, const index_t* indptr,
    int64_t row, int64_t other, floating* out, index_t* out_index,
) noexcept nogil:
    """Subtract two CSR rows with sorted indices; return the length of the result."""
    cdef index_t i = indptr[row], j = indptr[other]
    cdef index_t i_end = indptr[row + 1], j_end = indptr[other + 1]
    cdef Py_ssize_t n = 0
    while i < i_end or j < j_end:
        if j == j_end or (i < i_end and indices[i] < indices[j]):
            out[n], out_index[n] = data[i], indices[i]
            i += 1
        elif i == i_end or indices[j] < indices[i]:
            out[n], out_index[n] = -data[j], indices[j]
            j += 1
        else:
            out[n], out_index[n] = data[i] - data[j], indices[i]
            i += 1
            j += 1
        n += out[n] != 0
    return n


cdef double square_norm(const floating* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(n):
        total += <double>x[i] * x[i]
    return total


cdef double sparse_dot(
    const floating* x, const index_t* x_index, Py_ssize_t n_x,
    const floating* y, const index_t* y_index, Py_ssize_t n_y,
) noexcept nogil:
    cdef Py_ssize_t i = 0, j = 0
    cdef double total = 0.0
    while i < n_x and j < n_y:
        if x_index[i] < y_index[j]:
            i += 1
        elif y_index[j] < x_index[i]:
            j += 1
        else:
            total += <double>x[i] * y[j]
            i += 1
            j += 1
    return total


cdef double bilinear(
    const floating* W, Py_ssize_t d,
    const floating* x, const index_t* x_index, Py_ssize_t n_x,
    const floating* y, const index_t* y_index, Py_ssize_t n_y,
) noexcept nogil:
    """Return x' W y.

    Four rows of W are read at a time, so that y is read once for them and four cache
    misses overlap.
    """
    cdef Py_ssize_t i = 0, j
    cdef const floating* r0
    cdef const floating* r1
    cdef const floating* r2
    cdef const floating* r3
    cdef floating s0, s1, s2, s3, value
    cdef index_t column
    cdef double total = 0.0
    while i + 4 <= n_x:
        r0, r1 = W + x_index[i] * d, W + x_index[i + 1] * d
        r2, r3 = W + x_index[i + 2] * d, W + x_index[i + 3] * d
        s0 = s1 = s2 = s3 = 0
        for j in range(n_y):
            value, column = y[j], y_index[j]
            s0 += value * r0[column]
            s1 += value * r1[column]
            s2 += value * r2[column]
            s3 += value * r3[column]
        total += x[i] * s0 + x[i + 1] * s1 + x[i + 2] * s2 + x[i + 3] * s3
        i += 4
    while i < n_x:
        r0, s0 = W + x_index[i] * d, 0
        for j in range(n_y):
            s0 += y[j] * r0[y_index[j]]
        total += x[i] * s0
        i += 1
    return total


cdef void add_outer(
    floating alpha,
    const floating* x, const index_t* x_index, Py_ssize_t n_x,
    const floating* y, const index_t* y_index, Py_ssize_t n_y,
    floating* W, Py_ssize_t d,
) noexcept nogil:
    """Add alpha x y' to W, four rows at a time as in `bilinear`."""
    cdef Py_ssize_t i = 0, j
    cdef floating* r0
    cdef floating* r1
    cdef floating* r2
    cdef floating* r3
    cdef floating a0, a1, a2, a3, value
    cdef index_t column
    while i + 4 <= n_x:
        r0, r1 = W + x_index[i] * d, W + x_index[i + 1] * d
        r2, r3 = W + x_index[i + 2] * d, W + x_index[i + 3] * d
        a0, a1 = alpha * x[i], alpha * x[i + 1]
        a2, a3 = alpha * x[i + 2], alpha * x[i + 3]
        for j in range(n_y):
            value, column = y[j], y_index[j]
            r0[column] += a0 * value
            r1[column] += a1 * value
            r2[column] += a2 * value
            r3[column] += a3 * value
        i += 4
    while i < n_x:
        r0, a0 = W + x_index[i] * d, alpha * x[i]
        for j in range(n_y):
            r0[y_index[j]] += a0 * y[j]
        i += 1
