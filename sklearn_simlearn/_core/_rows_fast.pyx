"""Check, scaling and weighted sums of rows, in one pass."""

from cython cimport floating
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t

ctypedef fused index:
    int32_t
    int64_t


def check_csr(
    const int32_t[::1] indptr,           # in
    const int32_t[::1] columns,          # in
    const floating[::1] values,          # in
    Py_ssize_t n_columns,
    double low,
    double high,
):
    """Return two booleans that describe CSR rows.

    Returns
    -------
    is_canonical : bool
        The columns of each row are in range and ascend, and no value is 0.

    is_moderate : bool
        The rows are canonical, and the largest magnitude of each row that is not empty
        is from `low` to `high`. It is False if a value is NaN.
    """
    cdef Py_ssize_t n_rows = indptr.shape[0] - 1, i
    cdef int32_t k, before
    cdef double size, largest
    cdef bint is_moderate = True
    if (
        n_rows < 0 or indptr[0] != 0 or indptr[n_rows] != columns.shape[0]
        or columns.shape[0] != values.shape[0]
    ):
        return False, False
    with nogil:
        for i in range(n_rows):
            # Ends that fall and rise again could point beyond the end.
            if not indptr[i] <= indptr[i + 1] <= columns.shape[0]:
                with gil:
                    return False, False
            before, largest = -1, 0
            for k in range(indptr[i], indptr[i + 1]):
                if columns[k] <= before or values[k] == 0:
                    with gil:
                        return False, False
                before = columns[k]
                size = fabs(values[k])
                if not size <= high:
                    is_moderate = False
                largest = max(largest, size)
            if before >= n_columns:
                with gil:
                    return False, False
            if 0 < largest < low:
                is_moderate = False
    return True, is_moderate


def scale_to_unit(
    const index[::1] indptr,             # in: start of the values of each row
    const floating[::1] values,          # in
    floating[::1] scaled,                # out
):
    """Scale rows to unit length; rows of zeros are unchanged."""
    cdef Py_ssize_t i, k
    cdef double square
    cdef floating factor
    with nogil:
        for i in range(indptr.shape[0] - 1):
            square = 0
            for k in range(indptr[i], indptr[i + 1]):
                square += <double>values[k] * values[k]
            factor = <floating>(1 / sqrt(square)) if square > 0 else 0
            for k in range(indptr[i], indptr[i + 1]):
                scaled[k] = values[k] * factor


def add_rows(
    const floating[:, ::1] A,            # in
    const floating[:, ::1] B,            # in
    const floating[::1] of_A,            # in: weight of each row
    const floating[::1] of_B,            # in
    floating[:, ::1] out,                # out
):
    """Compute the weighted sum of each row of A and the same row of B."""
    cdef Py_ssize_t i, j
    cdef floating a, b
    with nogil:
        for i in range(A.shape[0]):
            a, b = of_A[i], of_B[i]
            for j in range(A.shape[1]):
                out[i, j] = a * A[i, j] + b * B[i, j]
