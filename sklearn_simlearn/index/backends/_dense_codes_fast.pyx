"""Codes of dense items and of queries, from which bounds of the scores are computed.

Reading the items takes most of the time of a search. To read fewer bytes, 8-bit codes
of the items are stored, too.
Queries q and items d are divided by their *units*: the length |q| of the query, and the
length L of the longest item of the block. With codes k of q / |q| and c of d / L, and
steps t and s,

(dense-bound)  <q, d> / (|q| L) <= s t <k, c> + |t k| |d / L - s c| + |q / |q| - t k| ,

because |d / L| <= 1. The bounds are computed in float32. The magnitudes of both terms
are at most about 1, the first one is rounded three times, the second one once, and then
their sum, so the rounding error is less than 8 * 2^-24 < 1e-6. The *margin* of a query
is the last term, and 1e-6, and the rounding error of a score in any order of the terms.

See `_dense_grades` for codes of fewer bits.
"""

from cython cimport floating
from libc.float cimport DBL_EPSILON, FLT_EPSILON, FLT_MIN
from libc.math cimport INFINITY, ceil, fabs, nextafterf, rint, sqrt
from libc.stdint cimport int8_t, int32_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset
import numpy as np

from sklearn_simlearn.index.backends._rows cimport (
    encode_double, encode_float, peak_double, peak_float
)


cdef extern from "pack.h":
    int code_instructions() noexcept nogil
    double pack_codes(
        const float* z, const float* steps, Py_ssize_t n, int n_bits, uint8_t* words,
        double* square) noexcept nogil


# Instructions that compute bounds: 2 for AVX-512 with VNNI, 1 for AVX2, 0 for plain C.
INSTRUCTIONS = code_instructions()


cdef double encode_row(
    const floating* x, Py_ssize_t n, double unit, int largest, int8_t* codes,
    float* step,
) noexcept nogil:
    """Compute the codes and the step of x / unit; return a bound of their error."""
    cdef double top, square, factor
    if floating is float:
        top = peak_float(x, n)
    else:
        top = peak_double(x, n)
    step[0] = <float>(top / (largest * unit)) if unit > 0 else 0
    factor = 1 / (step[0] * unit)
    if not (step[0] >= FLT_MIN and factor < INFINITY):
        # Zeros, or numbers too small for a step in float32.
        step[0] = 0
        memset(codes, 0, n)
        return sqrt(<double>n) * top / unit if top > 0 else 0
    if floating is float:
        square = encode_float(x, n, factor, codes)
    else:
        square = encode_double(x, n, factor, codes)
    return step[0] * sqrt(square)


def encode_items(
    const floating[:, ::1] X,            # in
    double unit,                         # in
    uint8_t[:, :, :, ::1] codes,         # out: group, word, item, byte
    float[::1] steps,                    # out
    float[::1] errors,                   # out
    int8_t[::1] row,                     # scratch: codes of an item, and zeros
):
    """Compute codes, steps and errors of items. Those of padding items are zero."""
    cdef Py_ssize_t i, w
    cdef uint32_t word
    with nogil:
        for i in range(steps.shape[0]):
            if i < X.shape[0]:
                errors[i] = round_up(encode_row(
                    &X[i, 0], X.shape[1], unit, 127, &row[0], &steps[i]))
            else:
                memset(&row[0], 0, row.shape[0])
                steps[i] = errors[i] = 0
            for w in range(codes.shape[1]):
                memcpy(&word, &row[4 * w], 4)
                word ^= <uint32_t>0x80808080U  # adds 128 to each code
                memcpy(&codes[i // GROUP, w, i % GROUP, 0], &word, 4)


cdef class Queries:
    """Lengths, margins and codes of queries, with the rows to exclude for each."""

    def __init__(self, Q, n_words, instructions, excluded_start, excluded):
        n_queries = len(Q)
        self.lengths, self.errors = np.zeros((2, n_queries))
        self.codes = np.zeros((n_queries, 4 * n_words), dtype=np.int8)
        self.start, self.zeros = np.zeros((2, n_queries), dtype=np.int32)
        self.steps, self.reach = np.zeros((2, n_queries), dtype=np.float32)
        self.instructions = instructions
        self.excluded_start, self.excluded = excluded_start, excluded
        encode_queries(self, Q)


cdef inline double find_length(
    const floating* x, Py_ssize_t n, double* top, double* root
) noexcept nogil:
    """Compute a length as a product of the largest magnitude and a number up to sqrt n.

    Only numbers of magnitude at most 1 are squared, so no square is out of range.
    """
    cdef Py_ssize_t j
    cdef double square = 0
    top[0] = 0
    for j in range(n):
        top[0] = max(top[0], <double>x[j], -<double>x[j])
    for j in range(n):
        square += (x[j] / top[0]) ** 2 if top[0] > 0 else 0
    root[0] = sqrt(square)
    return top[0] * root[0]


def encode_queries(
    Queries queries,                     # out
    const floating[:, ::1] Q,            # in
):
    """Compute lengths, margins and codes of queries."""
    cdef Py_ssize_t i, j, n = Q.shape[1]
    cdef double top, root
    cdef double epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    # See codes.h for the codes of AVX2.
    cdef int largest = 63 if queries.instructions == 1 else 127
    queries.margin = 2 * (n + 2) * epsilon + 1e-6
    for i in range(Q.shape[0]):
        queries.lengths[i] = find_length(&Q[i, 0], n, &top, &root)
        if queries.codes.shape[1] > 0:
            queries.errors[i] = round_up(encode_row(
                &Q[i, 0], n, queries.lengths[i], largest, &queries.codes[i, 0],
                &queries.steps[i]))
            queries.reach[i] = round_up(1 + queries.errors[i])
            for j in range(n):
                queries.start[i] -= 128 * queries.codes[i, j]


cdef class Block:
    """Items of a block, without their values."""

    def __init__(self, first_row, alive, longest, codes, steps, errors):
        self.first_row, self.alive, self.longest = first_row, alive, longest
        self.codes, self.steps, self.errors = codes, steps, errors


cdef class Graded:
    """Graded codes of a block, and those of queries for its axes."""

    def __init__(self, items=None, grades=(0, 0, 0), outliers=None, n_queries=0):
        self.is_used = n_queries > 0
        if n_queries == 0:
            return
        self.items, self.outliers = items, outliers
        for grade in range(3):
            self.n_axes[grade] = grades[grade]
            self.n_words[grade] = count_words(grades[grade], grade)
        n_codes = 4 * sum(self.n_words[grade] << grade for grade in range(3))
        self.codes = np.zeros((n_queries, n_codes), dtype=np.int8)
        self.start, self.shift, self.middle = np.zeros((3, n_queries), np.int32)
        self.steps, self.base, self.norm_steps = np.zeros((3, n_queries), np.float32)
        self.norms = np.zeros((n_queries, 4), dtype=np.int8)


def count_words(n_axes, grade):
    """Return the number of words of 4 bytes for codes of 8, 4 or 2 bits."""
    return -(-n_axes // (4 << grade))


def grade_items(
    const float[:, ::1] Z,               # in: items on the axes
    Py_ssize_t first,                    # in: place of the first item in the block
    const int64_t[::1] grades,           # in: number of axes of 8, 4 and 2 bits
    const float[::1] steps,              # in: of each axis
    uint8_t[:, :, :, ::1] codes,         # in, out: zero before
    float[:, ::1] norms,                 # out: bounds of the errors by grade
    double[::1] reach,                   # in, out: length of the longest codes
):
    """Compute graded codes of some items."""
    cdef Py_ssize_t i, j, axis, word, grade, n
    cdef double square, tail
    with nogil:
        for i in range(Z.shape[0]):
            axis = word = 0
            for grade in range(3):
                n = grades[grade]
                if n == 0:
                    norms[i, grade] = 0
                    continue
                norms[i, grade] = round_up(sqrt(pack_codes(
                    &Z[i, axis], &steps[axis], n, 8 >> grade,
                    &codes[(first + i) // GROUP, word, (first + i) % GROUP, 0],
                    &square)))
                reach[grade] = max(reach[grade], sqrt(square))
                axis += n
                word += (n + (4 << grade) - 1) // (4 << grade)
            tail = 0
            for j in range(axis, Z.shape[1]):
                tail += <double>Z[i, j] * Z[i, j]
            norms[i, 3] = round_up(sqrt(tail))


def unit_queries(
    const floating[:, ::1] Q,            # in
    float[:, ::1] units,                 # out
):
    """Divide queries by their lengths; queries of zeros stay zeros."""
    cdef Py_ssize_t i, j
    cdef double top, root
    for i in range(Q.shape[0]):
        find_length(&Q[i, 0], Q.shape[1], &top, &root)
        for j in range(Q.shape[1]):
            units[i, j] = <float>(Q[i, j] / top / root) if top > 0 else 0


def grade_queries(
    Graded graded,                       # out
    const float[:, ::1] Y,               # in: queries on the axes
    const float[::1] base,               # in: scores of the centre
    double margin,                       # in: of rounding errors
    const float[::1] steps,              # in: of each axis
    const double[::1] norm_steps,        # in
    const double[::1] reach,             # in
    int largest,                         # in: largest code
):
    """Compute codes of queries for graded codes of items."""
    cdef Py_ssize_t i, j, axis, last, place, grade
    cdef double t, weight, off, offset, squares, constant, square, norm_step
    cdef double[4] lengths
    cdef double[2] tops
    cdef int k
    for i in range(Y.shape[0]):
        tops[0] = tops[1] = norm_step = 0
        for j in range(graded.n_axes[0] + graded.n_axes[1] + graded.n_axes[2]):
            grade = j >= graded.n_axes[0]
            tops[grade] = max(tops[grade], fabs(<double>Y[i, j] * steps[j]))
        # A step that is a subnormal number would not be exact.
        graded.steps[i] = <float>max(
            max(tops[0], tops[1]) / largest * (1 + 1e-6), 1e-30)
        # The largest power of 2 by which the step of the 8-bit codes can be smaller.
        while graded.shift[i] < 6 and (
            tops[0] * (2 << graded.shift[i]) <= graded.steps[i] * largest
        ):
            graded.shift[i] += 1
        axis = place = 0
        # Dividing the sum of 8-bit codes loses at most 1.
        constant = base[i] + margin + graded.steps[i]
        for grade in range(4):
            t = graded.steps[i]
            if grade == 0:
                t /= 1 << graded.shift[i]
            squares = square = offset = 0
            last = Y.shape[1] if grade == 3 else axis + graded.n_axes[grade]
            for j in range(axis, last):
                square += <double>Y[i, j] * Y[i, j]
                if grade < 3:
                    weight = <double>Y[i, j] * steps[j] / t
                    k = <int>rint(weight)
                    off = weight - k
                    graded.codes[i, place + j - axis] = <int8_t>k
                    squares += off * off
                    offset -= k * 0.5 * ((1 << (8 >> grade)) - 1)
            lengths[grade] = sqrt(square)
            norm_step = max(norm_step, lengths[grade] * norm_steps[grade])
            if grade == 3:
                break
            # Sums of codes start at an integer; the rest is added as a constant.
            if grade == 0:
                graded.start[i] = <int32_t>offset
            else:
                graded.middle[i] += <int32_t>offset
            constant += t * (offset - <int32_t>offset)
            constant += t * sqrt(squares) * reach[grade] * (1 + 1e-6)
            axis += graded.n_axes[grade]
            place += 4 * (graded.n_words[grade] << grade)
        graded.base[i] = round_up_any(constant)
        graded.norm_steps[i] = <float>max(norm_step / (largest - 1), 1e-30)
        for grade in range(4):
            graded.norms[i, grade] = <int8_t>ceil(
                lengths[grade] * norm_steps[grade] / graded.norm_steps[i] * (1 + 1e-6))


cdef inline float round_up_any(double x) noexcept nogil:
    """Return a float32 that is at least x, of any sign."""
    return nextafterf(<float>x, INFINITY)
