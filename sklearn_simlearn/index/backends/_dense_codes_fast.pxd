"""Classes that hold codes of dense items and of queries."""

from libc.float cimport FLT_MIN
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

# Number of items per group of interleaved codes.
cdef enum:
    GROUP = 64


cdef class Queries:
    cdef double[::1] lengths
    cdef double margin                      # rounding errors
    cdef double[::1] errors                 # of the codes
    cdef int8_t[:, ::1] codes               # without columns if codes are not used
    cdef int32_t[::1] start                 # cancels the shift of the items
    cdef int32_t[::1] zeros
    cdef float[::1] steps
    cdef float[::1] reach                   # bound of |t k|
    cdef int instructions
    cdef const int64_t[::1] excluded_start  # in: start of the rows of each query
    cdef const int64_t[::1] excluded        # in: excluded rows, sorted per query


cdef class Block:
    cdef int64_t first_row
    cdef double longest                     # unit of the codes
    cdef const uint8_t[:, :, :, ::1] codes  # in: without words if there are no codes
    cdef const float[::1] steps             # in
    cdef const float[::1] errors            # in
    cdef const uint8_t[::1] alive           # in: items that may be returned


cdef class Graded:
    cdef bint is_used
    cdef const uint8_t[:, :, :, ::1] items  # in: group, word, item, byte
    cdef const int32_t[::1] outliers        # in: items without a bound, ascending
    cdef Py_ssize_t[3] n_words
    cdef Py_ssize_t[3] n_axes
    cdef int8_t[:, ::1] codes
    cdef int32_t[::1] start
    cdef int32_t[::1] shift
    cdef int32_t[::1] middle
    cdef float[::1] steps
    cdef float[::1] base                    # everything that is equal for all items
    cdef int8_t[:, ::1] norms
    cdef float[::1] norm_steps


cdef inline float round_up(double x) noexcept nogil:
    """Return a float32 that is larger than x, even if x has a rounding error."""
    return <float>(x * (1 + 1e-6)) + FLT_MIN
