"""Sparse and dense columns of rows."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t, uint8_t


def split_rows(
    const int64_t[::1] indptr,           # in: rows
    const int32_t[::1] columns,          # in
    const floating[::1] data,            # in
    const uint8_t[::1] is_dense,         # in: of each column
    const int32_t[::1] place,            # in: number among the columns of its kind
    int64_t[::1] word_indptr,            # out: zeros on entry
    int32_t[::1] words,                  # out
    floating[::1] values,                # out
    floating[:, ::1] dense,              # out: zeros on entry
):
    """Split rows into their sparse and their dense columns."""
    cdef Py_ssize_t row, k
    cdef int64_t n = 0
    cdef int32_t column
    with nogil:
        for row in range(dense.shape[0]):
            for k in range(indptr[row], indptr[row + 1]):
                column = columns[k]
                if is_dense[column]:
                    dense[row, place[column]] = data[k]
                else:
                    words[n], values[n] = place[column], data[k]
                    n += 1
            word_indptr[row + 1] = n
