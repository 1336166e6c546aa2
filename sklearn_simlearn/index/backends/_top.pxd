"""Heaps of the k best items of a query, and loops that find candidates; header only.

A heap holds the best items found so far, with the worst of them at its root. An item is
better than another if its score is larger, or if the scores are equal and its row is
lower. This order has no ties, so the k best items do not depend on the order in which
items are pushed.
"""

from cython cimport floating
from libc.math cimport INFINITY, nextafter, nextafterf
from libc.stdint cimport int32_t, int64_t


cdef extern from *:
    """
    #include "simd.h"

    /* Positions of the scores greater than `limit`, in order; returns their number. */
    #define SIMLEARN_FIND_LARGE(name, real)                                         \\
        SIMLEARN_CLONES                                                             \\
        static int32_t name(const real *scores, int32_t n, real limit, int32_t *out)\\
        {                                                                           \\
            int32_t n_found = 0, i = 0;                                             \\
            for (; i + 16 <= n; i += 16) {                                          \\
                int32_t any = 0;                                                    \\
                for (int j = 0; j < 16; j++)                                        \\
                    any |= scores[i + j] > limit;                                  \\
                if (any)                                                            \\
                    for (int j = 0; j < 16; j++) {                                  \\
                        out[n_found] = i + j; /* overwritten unless counted */      \\
                        n_found += scores[i + j] > limit;                           \\
                    }                                                               \\
            }                                                                       \\
            for (; i < n; i++)                                                      \\
                if (scores[i] > limit)                                             \\
                    out[n_found++] = i;                                             \\
            return n_found;                                                         \\
        }
    SIMLEARN_FIND_LARGE(find_large_float, float)
    SIMLEARN_FIND_LARGE(find_large_double, double)
    """
    int32_t find_large_float(
        const float* scores, int32_t n, float limit, int32_t* out) noexcept nogil
    int32_t find_large_double(
        const double* scores, int32_t n, double limit, int32_t* out) noexcept nogil


cdef inline int32_t find_large(
    const floating* scores, int32_t n, floating limit, int32_t* out
) noexcept nogil:
    """Find the positions of the scores greater than `limit`; return their number."""
    if floating is float:
        return find_large_float(scores, n, limit, out)
    else:
        return find_large_double(scores, n, limit, out)


cdef inline floating just_below(floating x) noexcept nogil:
    """Return the next number below a limit, so that rounding does not raise it."""
    if floating is float:
        return nextafterf(x, -INFINITY)
    else:
        return nextafter(x, -INFINITY)


cdef inline bint is_better(
    floating score, int64_t row, floating rival_score, int64_t rival_row
) noexcept nogil:
    if score != rival_score:
        return score > rival_score
    return row < rival_row


cdef inline void sift_down(
    floating* scores, int64_t* rows, Py_ssize_t n, floating score, int64_t row
) noexcept nogil:
    """Replace the root of a heap of size n by an item."""
    cdef Py_ssize_t place = 0, child
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and is_better(
            scores[child], rows[child], scores[child + 1], rows[child + 1]
        ):
            child += 1
        if not is_better(score, row, scores[child], rows[child]):
            break
        scores[place] = scores[child]
        rows[place] = rows[child]
        place = child
    scores[place] = score
    rows[place] = row


cdef inline void push(
    floating* scores, int64_t* rows, int64_t* n, Py_ssize_t k, floating score,
    int64_t row,
) noexcept nogil:
    """Push an item onto the heap if it is among the k best."""
    cdef Py_ssize_t place, parent
    if n[0] == k:
        if is_better(score, row, scores[0], rows[0]):
            sift_down(scores, rows, k, score, row)
        return
    place = n[0]
    n[0] += 1
    while place > 0:
        parent = (place - 1) // 2
        if not is_better(scores[parent], rows[parent], score, row):
            break
        scores[place] = scores[parent]
        rows[place] = rows[parent]
        place = parent
    scores[place] = score
    rows[place] = row


cdef inline void sort_best(
    floating* scores, int64_t* rows, Py_ssize_t n
) noexcept nogil:
    """Sort the heap, best item first."""
    cdef floating score
    cdef int64_t row
    while n > 1:
        n -= 1
        score, row = scores[n], rows[n]
        scores[n], rows[n] = scores[0], rows[0]
        sift_down(scores, rows, n, score, row)


cdef inline bint is_listed(
    int64_t row, const int64_t* rows, int64_t first, int64_t last
) noexcept nogil:
    """Return whether a row is in a sorted list."""
    cdef int64_t middle
    while first < last:
        middle = (first + last) // 2
        if rows[middle] < row:
            first = middle + 1
        elif rows[middle] > row:
            last = middle
        else:
            return True
    return False
