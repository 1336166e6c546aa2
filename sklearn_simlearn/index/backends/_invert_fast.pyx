"""Construction of the inverted file.

For each block of items and each word j, the file stores the *postings*: the positions i
of the items in the block that have the word, each with an 8-bit *code* of its value
d_ij,

(search-code)  s_j (c_ij - 1) <= d_ij <= s_j c_ij ,

where the step s_j is the largest magnitude of the word divided by the largest code. A
word that occurs in many items is stored as a *row*: the codes of all items in order,
without positions.
"""

from cython cimport floating
from libc.float cimport DBL_EPSILON, DBL_MIN, FLT_EPSILON, FLT_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
import numpy as np

from sklearn_simlearn._core.prefetch cimport prefetch

# A word is stored as a row if it occurs in at least one item in this number. A posting
# takes 3 bytes and a code of a row takes 1 byte, so a row takes at most twice the
# memory of postings, and less time.
cdef enum:
    RARE = 6

# Codes of blocks with negative values represent -128 to 127.
cdef enum:
    ZERO = 128

# Number of postings whose memory is prefetched before they are written.
cdef enum:
    AHEAD = 16


def invert(
    const int32_t[::1] indptr,           # in: items as rows
    const int32_t[::1] words,            # in
    const floating[::1] values,          # in
    Py_ssize_t n_words,
):
    """Return the postings of a block of items.

    Returns
    -------
    start : ndarray of shape (n_words + 1,)
        The postings of word j are start[j] to start[j + 1] - 1.

    places : ndarray of shape (n_postings,)
        Positions of the items in the block, in ascending order per word.

    codes : ndarray of shape (n_postings,)
        Codes of the postings.

    row_words : ndarray of shape (n_rows,)
        Words that are stored as rows, in ascending order. They have no postings.

    rows : ndarray of shape (n_rows, n_items)
        Codes of all items for these words.

    steps : ndarray of shape (n_words,)
        Value of the code 1.

    zero : ndarray of shape (1,)
        Code of the value 0.
    """
    cdef Py_ssize_t n_items = indptr.shape[0] - 1, i, j
    cdef Py_ssize_t n_rows = 0, n_postings = 0
    cdef int32_t k, p, code, offset
    cdef floating value, top, least = 0
    cdef floating epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    cdef floating tiny = FLT_MIN if floating is float else DBL_MIN

    dtype = np.asarray(values).dtype
    counts_ = np.zeros(n_words, dtype=np.int32)
    steps_ = np.zeros(n_words, dtype=dtype)
    start_ = np.empty(n_words + 1, dtype=np.int32)
    cdef int32_t[::1] counts = counts_, start = start_
    cdef floating[::1] steps = steps_

    with nogil:
        for k in range(words.shape[0]):
            value = values[k]
            least = min(least, value)
            counts[words[k]] += 1
            steps[words[k]] = max(steps[words[k]], value, -value)
        for j in range(n_words):
            start[j] = <int32_t>n_postings
            if is_frequent(counts[j], n_items):
                n_rows += 1
            else:
                n_postings += counts[j]
        start[n_words] = <int32_t>n_postings
    zero_ = np.array([ZERO if least < 0 else 0], dtype=np.uint8)
    offset = zero_[0]
    top = 255 - offset

    # Position of the next posting of each word, or -1 - row for words that are rows.
    heads_ = start_[:n_words].copy()
    inverses_ = np.empty(n_words, dtype=dtype)
    places_ = np.empty(n_postings, dtype=np.uint16)
    codes_ = np.empty(n_postings, dtype=np.uint8)
    row_words_ = np.empty(n_rows, dtype=np.int32)
    rows_ = np.full((n_rows, n_items), offset, dtype=np.uint8)
    cdef int32_t[::1] heads = heads_, row_words = row_words_
    cdef floating[::1] inverses = inverses_
    cdef uint16_t[::1] places = places_
    cdef uint8_t[::1] codes = codes_
    cdef uint8_t[:, ::1] rows = rows_

    with nogil:
        n_rows = 0
        for j in range(n_words):
            if is_frequent(counts[j], n_items):
                row_words[n_rows] = <int32_t>j
                n_rows += 1
                heads[j] = -<int32_t>n_rows
            # Slightly larger, so that rounding does not raise a code above the largest
            # one.
            steps[j] = max(steps[j] / top * (1 + 4 * epsilon), tiny)
            inverses[j] = 1 / steps[j]
        for i in range(n_items):
            for k in range(indptr[i], indptr[i + 1]):
                if k + AHEAD < words.shape[0]:
                    p = heads[words[k + AHEAD]]
                    if p >= 0:
                        prefetch(&places[p])
                        prefetch(&codes[p])
                j = words[k]
                value = values[k] * inverses[j]
                code = <int32_t>value
                code += offset + (value > code)
                p = heads[j]
                if p >= 0:
                    heads[j] = p + 1
                    places[p] = <uint16_t>i
                    codes[p] = <uint8_t>code
                else:
                    p = -1 - p
                    rows[p, i] = <uint8_t>code
    return start_, places_, codes_, row_words_, rows_, steps_, zero_


cdef inline bint is_frequent(int32_t count, Py_ssize_t n_items) noexcept nogil:
    return count > 0 and RARE * <int64_t>count >= n_items
