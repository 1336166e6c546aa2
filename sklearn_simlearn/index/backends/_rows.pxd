"""Products and codes of dense rows, by the loops of rows.h; header only."""

from cython cimport floating
from libc.stdint cimport int8_t


cdef extern from "rows.h":
    double encode_float(
        const float* x, Py_ssize_t n, double unit, int8_t* codes) noexcept nogil
    double encode_double(
        const double* x, Py_ssize_t n, double unit, int8_t* codes) noexcept nogil
    void dots_float(
        const float* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const float* y,
        float* out) noexcept nogil
    void dots_double(
        const double* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const double* y,
        double* out) noexcept nogil
    double peak_float(const float* x, Py_ssize_t n) noexcept nogil
    double peak_double(const double* x, Py_ssize_t n) noexcept nogil
    void scale(
        const double* products, Py_ssize_t n, double factor, float* out) noexcept nogil
    void find_tops(const float* bounds, Py_ssize_t n, float* tops) noexcept nogil
    void prefetch_bytes(const void* first, Py_ssize_t n_bytes) noexcept nogil
    void prefetch_row(const void* row, Py_ssize_t n_bytes) noexcept nogil


cdef inline void dots(
    const floating* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const floating* y,
    floating* out,
) noexcept nogil:
    """Compute out = X @ y."""
    if floating is float:
        dots_float(X, n_rows, n_cols, y, out)
    else:
        dots_double(X, n_rows, n_cols, y, out)
