"""Kernels of the ranking measures: ranks of the relevant items, and sums over them.

Only the relevant items of a query are sorted. The other items are counted in the gaps
between them. A cumulative sum over the gaps gives the ranks. See
doc/user_guide/measures.rst.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.math cimport NAN, exp2
from libc.stdint cimport INT32_MIN, int8_t, int32_t, int64_t
from libc.string cimport memcpy
import numpy as np

cdef extern from "simd.h":
    void count_greater_float(
        const float* keys, int32_t n_keys, const float* scores, Py_ssize_t n_scores,
        int32_t* position) noexcept nogil
    void count_greater_double(
        const double* keys, int32_t n_keys, const double* scores, Py_ssize_t n_scores,
        int32_t* position) noexcept nogil
    int32_t count_equal_float(
        const float* keys, const float* scores, Py_ssize_t n_scores,
        const int32_t* position) noexcept nogil
    int32_t count_equal_double(
        const double* keys, const double* scores, Py_ssize_t n_scores,
        const int32_t* position) noexcept nogil
    int32_t mark_relevant(
        const int32_t* bits, const int8_t* relevance, Py_ssize_t n, int32_t* keys
    ) noexcept nogil
    int32_t count_key(const int32_t* keys, Py_ssize_t n, int32_t key) noexcept nogil

# Rank of an irrelevant item whose score equals that of a relevant item.
cdef enum:
    SHARE = 0  # it stays tied: both get the same interval of ranks
    AFTER = 1  # it is ranked after the relevant items (optimistic)
    BEFORE = 2  # it is ranked before them (pessimistic)
    INDEX = 3  # the lower column is ranked first

# Number of scores that are searched at a time: enough to fill vector registers, few
# enough to stay in the L1 cache.
cdef enum:
    CHUNK = 512


def rank_relevant(
    const floating[:, ::1] similarity,   # in
    const int8_t[:, ::1] relevance,      # in: > 0 relevant, 0 irrelevant, < 0 removed
    const int64_t[::1] offsets,          # in: slots of query i are offsets[i:i + 2]
    int ties,
    int n_threads,
    int32_t[::1] n_above,                # out: items ranked strictly above
    int32_t[::1] n_tied,                 # out: items of the same rank, itself included
    int32_t[::1] item,                   # out: column
):
    """Find the ranks of the relevant items of each query, best first.

    Slot j of the outputs belongs to the relevant item that occupies ranks
    n_above[j] + 1 to n_above[j] + n_tied[j], each with equal probability. This is more
    than one rank only if `ties` is SHARE.
    """
    cdef Py_ssize_t n_queries = similarity.shape[0]
    cdef Py_ssize_t n_items = similarity.shape[1]
    cdef Py_ssize_t i
    cdef int32_t most = 1
    for i in range(n_queries):
        most = max(most, <int32_t>(offsets[i + 1] - offsets[i]))
    cdef int32_t room = padded_length(most) + 1

    # One row of scratch memory per thread.
    dtype = np.float32 if floating is float else np.float64
    cdef floating[:, ::1] keys = np.empty((n_threads, room), dtype=dtype)
    cdef floating[:, ::1] keys_scratch = np.empty((n_threads, room), dtype=dtype)
    cdef int32_t[:, :, ::1] scratch = np.empty((n_threads, 5, room), dtype=np.int32)
    cdef int32_t[:, ::1] position = np.empty((n_threads, CHUNK), dtype=np.int32)
    cdef int t

    for i in prange(n_queries, nogil=True, num_threads=n_threads, schedule="dynamic"):
        t = threadid()
        if offsets[i + 1] > offsets[i]:
            rank_one(
                &similarity[i, 0], &relevance[i, 0], n_items,
                <int32_t>(offsets[i + 1] - offsets[i]), ties,
                &keys[t, 0], &keys_scratch[t, 0], scratch[t], &position[t, 0],
                &n_above[offsets[i]], &n_tied[offsets[i]], &item[offsets[i]],
            )


cdef void rank_one(
    const floating* score, const int8_t* relevance, Py_ssize_t n_items,
    int32_t n_relevant, int ties,
    floating* keys, floating* keys_scratch, int32_t[:, ::1] scratch, int32_t* position,
    int32_t* n_above, int32_t* n_tied, int32_t* item,
) noexcept nogil:
    cdef Py_ssize_t j, first, n
    cdef int32_t slot, group, n_groups, n_padded, n_equal, above
    cdef int32_t* item_scratch = &scratch[0, 0]
    cdef int32_t* start = &scratch[1, 0]
    cdef int32_t* gap = &scratch[2, 0]
    cdef int32_t* tied = &scratch[3, 0]
    cdef int32_t* between = &scratch[4, 0]

    slot = 0
    for j in range(n_items):
        if relevance[j] > 0:
            keys[slot] = score[j]
            item[slot] = <int32_t>j
            slot += 1
    sort_descending(keys, item, n_relevant, keys_scratch, item_scratch)

    # Equal keys form one group; group g owns the slots start[g] to start[g + 1] - 1.
    n_groups = 0
    for slot in range(n_relevant):
        if slot == 0 or keys[slot] != keys[slot - 1]:
            start[n_groups] = slot
            keys_scratch[n_groups] = keys[slot]
            n_groups += 1
    start[n_groups] = n_relevant
    n_padded = padded_length(n_groups)
    # The padding is NaN, which is neither greater than nor equal to any score.
    for group in range(n_groups, n_padded + 1):
        keys_scratch[group] = NAN

    # between[group]: number of irrelevant items between two groups. gap[slot]: number
    # of irrelevant items with the score of the slot that are ranked before it.
    # tied[group]: number of irrelevant items that stay tied (SHARE), or of relevant
    # items of the group so far (INDEX).
    for slot in range(n_relevant + 1):
        gap[slot] = 0
        tied[slot] = 0
    for group in range(n_padded + 1):
        between[group] = 0
    first = 0
    while first < n_items:
        n = min(<Py_ssize_t>CHUNK, n_items - first)
        count_greater(keys_scratch, n_padded - 1, score + first, n, position)
        for j in range(n):
            if relevance[first + j] != 0:
                # The last entry collects items that are not counted.
                if ties == INDEX and relevance[first + j] > 0:
                    position[j] = -1 - position[j]
                else:
                    position[j] = n_padded
        # With INDEX, some positions are negative and must not be read.
        n_equal = 1
        if ties != INDEX:
            n_equal = count_equal(keys_scratch, score + first, n, position)
        if n_equal == 0:
            for j in range(n):
                between[position[j]] += 1
        else:
            for j in range(n):
                group = position[j]
                if group < 0:
                    tied[-1 - group] += 1
                elif keys_scratch[group] != score[first + j]:
                    between[group] += 1
                elif ties == SHARE:
                    tied[group] += 1
                elif ties == AFTER:
                    gap[start[group + 1]] += 1
                elif ties == BEFORE:
                    gap[start[group]] += 1
                else:
                    gap[start[group] + tied[group]] += 1
        first += n
    for group in range(n_groups):
        gap[start[group]] += between[group]

    above = 0
    for group in range(n_groups):
        if ties == SHARE:
            above += gap[start[group]]
            for slot in range(start[group], start[group + 1]):
                n_above[slot] = above + start[group]
                n_tied[slot] = tied[group] + start[group + 1] - start[group]
            above += tied[group]
        else:
            for slot in range(start[group], start[group + 1]):
                above += gap[slot]
                n_above[slot] = above + slot
                n_tied[slot] = 1


cdef inline void count_greater(
    const floating* keys, int32_t n_keys, const floating* scores, Py_ssize_t n_scores,
    int32_t* position,
) noexcept nogil:
    if floating is float:
        count_greater_float(keys, n_keys, scores, n_scores, position)
    else:
        count_greater_double(keys, n_keys, scores, n_scores, position)


cdef inline int32_t count_equal(
    const floating* keys, const floating* scores, Py_ssize_t n_scores,
    const int32_t* position,
) noexcept nogil:
    if floating is float:
        return count_equal_float(keys, scores, n_scores, position)
    else:
        return count_equal_double(keys, scores, n_scores, position)


cdef inline int32_t padded_length(int32_t n_keys) noexcept nogil:
    """Return a power of 2 above the number of keys that the search can handle."""
    cdef int32_t length = 16
    while length <= n_keys:
        length *= 2
    return length


cdef void sort_descending(
    floating* keys, int32_t* item, int32_t n, floating* keys_scratch,
    int32_t* item_scratch,
) noexcept nogil:
    """Sort keys and their items by a stable merge sort, largest key first."""
    cdef int32_t width = 8, low, i, j, middle, high, out
    cdef floating key
    cdef int32_t one_item

    for low in range(0, n, 8):  # runs of 8 by insertion, then merged in pairs
        for i in range(low + 1, min(low + 8, n)):
            key, one_item = keys[i], item[i]
            j = i
            while j > low and keys[j - 1] < key:
                keys[j], item[j] = keys[j - 1], item[j - 1]
                j = j - 1
            keys[j], item[j] = key, one_item

    while width < n:
        low = 0
        while low < n:
            middle = min(low + width, n)
            high = min(low + 2 * width, n)
            i, j = low, middle
            for out in range(low, high):
                if j == high or (i < middle and keys[i] >= keys[j]):
                    keys_scratch[out], item_scratch[out] = keys[i], item[i]
                    i = i + 1
                else:
                    keys_scratch[out], item_scratch[out] = keys[j], item[j]
                    j = j + 1
            low = high
        for i in range(n):
            keys[i], item[i] = keys_scratch[i], item_scratch[i]
        width *= 2


cdef inline int64_t group_end(
    const int32_t[::1] n_above, int64_t slot, int64_t last
) noexcept nogil:
    """Return the first slot that is ranked below `slot`."""
    cdef int64_t end = slot + 1
    while end < last and n_above[end] == n_above[slot]:
        end += 1
    return end


# The functions below sum over the slots of :class:`Ranks`. An item that is not on the
# list has n_tied = 0 and comes after the others.


def sum_precisions(
    const int64_t[::1] offsets,          # in
    const int32_t[::1] n_above,          # in
    const int32_t[::1] n_tied,           # in
    int64_t k,
    bint trapezoid,
    bint threshold,
    double[::1] out,                     # out
):
    """Sum the precision at the ranks of the relevant items, up to rank k.

    (ap-ties)  A group of n tied items, r of them relevant, begins after N items, R of
    them relevant. Rank N + i holds a relevant item with probability r / n. Then
    R + (i - 1) (r - 1) / (n - 1) relevant items are above it on average.
    """
    cdef Py_ssize_t query
    cdef int64_t slot, end, i, N, n
    cdef double R, r, above, precision, total
    with nogil:
        for query in range(out.shape[0]):
            total = 0.0
            slot = offsets[query]
            while slot < offsets[query + 1]:
                end = group_end(n_above, slot, offsets[query + 1])
                R, r = slot - offsets[query], end - slot
                N, n = n_above[slot], n_tied[slot]
                if n == 0:
                    break
                if threshold:
                    precision = (R + r) / (N + n)
                    if trapezoid:
                        precision = (precision + (R / N if N > 0 else 1.0)) / 2
                    total += r * precision
                else:
                    for i in range(1, min(n, k - N) + 1):
                        above = R
                        if n > 1:
                            above += (i - 1) * (r - 1) / (n - 1)
                        precision = (above + 1) / (N + i)
                        if trapezoid:
                            precision += above / (N + i - 1) if N + i > 1 else 1.0
                            precision /= 2
                        total += r / n * precision
                slot = end
            out[query] = total


def count_hits(
    const int64_t[::1] offsets,          # in
    const int32_t[::1] n_above,          # in
    const int32_t[::1] n_tied,           # in
    const int64_t[::1] k,                # in: a cut-off per query
    double[::1] out,                     # out
):
    """Compute the expected number of relevant items among the first k."""
    cdef Py_ssize_t query
    cdef int64_t slot
    with nogil:
        for query in range(out.shape[0]):
            out[query] = 0.0
            for slot in range(offsets[query], offsets[query + 1]):
                if n_above[slot] >= k[query] or n_tied[slot] == 0:
                    break
                # The item has each of its n_tied ranks with equal probability.
                out[query] += min(
                    1.0, <double>(k[query] - n_above[slot]) / n_tied[slot])


def first_reciprocal_rank(
    const int64_t[::1] offsets,          # in
    const int32_t[::1] n_above,          # in
    const int32_t[::1] n_tied,           # in
    int64_t k,
    double[::1] out,                     # out
):
    """Compute the expected 1 / rank of the first relevant item, 0 beyond rank k.

    Among n tied items with r relevant, the first relevant one is the i-th with
    probability p_i: p_1 = r / n, p_(i + 1) = p_i (n - i - r + 1) / (n - i).
    """
    cdef Py_ssize_t query
    cdef int64_t slot, i, N, n, r
    cdef double probability
    with nogil:
        for query in range(out.shape[0]):
            out[query] = 0.0
            slot = offsets[query]
            if slot == offsets[query + 1] or n_tied[slot] == 0:
                continue
            r = group_end(n_above, slot, offsets[query + 1]) - slot
            N, n = n_above[slot], n_tied[slot]
            probability = <double>r / n
            for i in range(1, min(n - r + 1, k - N) + 1):
                out[query] += probability / (N + i)
                probability *= <double>(n - i - r + 1) / (n - i) if n > i else 0.0


def best_precision_from(
    const int64_t[::1] offsets,          # in
    const int32_t[::1] n_above,          # in
    const int32_t[::1] n_tied,           # in
    double[::1] out,                     # out: one value per slot
):
    """Compute the highest precision at or below the rank of each relevant item.

    Tied items count as evenly mixed: the j-th of r relevant items among n has rank
    N + j n / r. The precision at an item without a rank is 0.
    """
    cdef Py_ssize_t query
    cdef int64_t slot, end, j
    with nogil:
        for query in range(offsets.shape[0] - 1):
            slot = offsets[query]
            while slot < offsets[query + 1]:
                end = group_end(n_above, slot, offsets[query + 1])
                for j in range(slot, end):
                    out[j] = (j + 1 - offsets[query]) / (
                        n_above[slot]
                        + <double>(j + 1 - slot) * n_tied[slot] / (end - slot)
                    ) if n_tied[slot] > 0 else 0.0
                slot = end
            for j in range(offsets[query + 1] - 2, offsets[query] - 1, -1):
                out[j] = max(out[j], out[j + 1])


# The two functions below measure whole lists; NumPy sorts the lists between the calls.
# Similarities are in single precision. Those that differ only in the last bit are tied.


def mark_lists(
    const int32_t[:, ::1] bits,          # in: the bits of the similarities
    const int8_t[:, ::1] relevance,      # in: > 0 relevant, 0 irrelevant, < 0 removed
    int32_t[:, ::1] keys,                # out: of the first columns, odd if relevant
    double[::1] first,                   # out: precision at 1 over all columns
):
    """Convert similarities to integer keys in their order; measure precision at 1."""
    cdef Py_ssize_t query, n_items = bits.shape[1], n_listed = keys.shape[1]
    cdef int32_t[::1] scratch = np.empty(n_items, dtype=np.int32)
    cdef int32_t* row = &scratch[0]
    cdef int32_t key
    cdef double n_relevant
    with nogil:
        for query in range(bits.shape[0]):
            key = mark_relevant(&bits[query, 0], &relevance[query, 0], n_items, row)
            memcpy(&keys[query, 0], row, n_listed * sizeof(int32_t))
            first[query] = 0.0
            if key & 1:  # relevant; irrelevant items of the same score have key - 1
                n_relevant = count_key(row, n_items, key)
                first[query] = n_relevant / (
                    n_relevant + count_key(row, n_items, key - 1))


def measure_sorted(
    const int32_t[:, ::1] keys,          # in: of `mark_lists`, rows in ascending order
    double[::1] precision,               # out: average precision
    double[::1] first,                   # out: precision at 1
    double[::1] first_of_half,           # out: the same without half of the items
):
    """Compute average precision, and precision at 1 of the list and of half of it.

    Tied items share their ranks, as in `sum_precisions`. If each item is missing with
    probability 1/2, and N items are above n tied items, each of these comes first with
    probability 2^-N (1 - 2^-n) / n.
    """
    cdef Py_ssize_t query, n_items = keys.shape[1]
    cdef int64_t i, N, n
    cdef const int32_t* key
    cdef const int32_t* last
    cdef double R, r, total, half, absent
    cdef const double[::1] inverse = 1 / np.arange(1.0, n_items + 1)  # of the ranks
    with nogil:
        for query in range(keys.shape[0]):
            N, R, total, half = 0, 0.0, 0.0, 0.0
            absent = 1.0  # probability that all items above are missing
            last = &keys[query, 0]
            key = last + n_items - 1
            while key >= last and key[0] != INT32_MIN:
                n, r = 1, key[0] & 1
                while key - n >= last and (key[-n] | 1) == (key[0] | 1):
                    r += key[-n] & 1
                    n += 1
                if N == 0:
                    first[query] = r / n
                if n == 1:  # without a branch, which could not be predicted
                    total += r * (R + 1) * inverse[N]
                    half += r * absent / 2
                    absent /= 2
                else:
                    for i in range(n):
                        total += (
                            r / n * (R + i * (r - 1) / (n - 1) + 1) * inverse[N + i])
                    half += r * absent * (1 - exp2(-n)) / n
                    absent *= exp2(-n)
                N += n
                R += r
                key -= n
            precision[query] = total / R
            first_of_half[query] = half
