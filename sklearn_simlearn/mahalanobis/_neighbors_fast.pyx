"""Kernel that finds the words that occur in the same samples."""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t
import numpy as np


def find_common(
    Py_ssize_t first,                    # number of the first word
    const int64_t[::1] start,            # in: words as rows, of unit length
    const int32_t[::1] items,            # in
    const floating[::1] item_values,     # in
    const int64_t[::1] indptr,           # in: items as rows, with the same values
    const int32_t[::1] words,            # in
    const floating[::1] values,          # in
    int n_threads,
    int32_t[:, ::1] nearest,             # out: words with the largest products, or -1
):
    """Find the words with the largest products with each word; lowest first if tied."""
    cdef Py_ssize_t n_words = start.shape[0] - 1, n_nearest = nearest.shape[1]
    cdef Py_ssize_t row, n_touched, i, place
    cdef int64_t p, k
    cdef int32_t word, other
    cdef floating step
    cdef int t
    cdef floating[:, ::1] score = np.zeros(
        (n_threads, n_words), dtype=np.asarray(values).dtype)
    cdef int32_t[:, ::1] touched = np.empty((n_threads, n_words), dtype=np.int32)

    for row in prange(
        nearest.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        t = threadid()
        word = <int32_t>(first + row)
        n_touched = 0
        for p in range(start[word], start[word + 1]):
            for k in range(indptr[items[p]], indptr[items[p] + 1]):
                step = item_values[p] * values[k]
                if step > 0:  # 0 by underflow; words with a score are listed already
                    if score[t, words[k]] == 0:
                        touched[t, n_touched] = words[k]
                        n_touched = n_touched + 1
                    score[t, words[k]] += step
        score[t, word] = 0
        for place in range(n_nearest):
            nearest[row, place] = -1
        for i in range(n_touched):
            other = touched[t, i]
            if other != word:
                place = n_nearest
                while place > 0 and is_closer(
                    other, nearest[row, place - 1], &score[t, 0]
                ):
                    if place < n_nearest:
                        nearest[row, place] = nearest[row, place - 1]
                    place = place - 1
                if place < n_nearest:
                    nearest[row, place] = other
        for i in range(n_touched):
            score[t, touched[t, i]] = 0


cdef inline bint is_closer(
    int32_t word, int32_t rival, const floating* score
) noexcept nogil:
    if rival < 0 or score[word] > score[rival]:
        return True
    return score[word] == score[rival] and word < rival
