"""Search of one query in one block: lists, sums and candidates; header only."""

from libc.float cimport DBL_MIN
from libc.math cimport INFINITY, ceil, fabs, floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

# Range of the sums within 16 bits, and the part of it that rounding may use per list.
cdef enum:
    WIDTH = 60000
    SLACK = 6
    MANY_LISTS = 4096

# Sum of items that are already scored. Other items have a sum of at least 1.
cdef enum:
    DONE = 0


cdef extern from "sums.h":
    ctypedef struct CodeRow:
        pass
    CodeRow make_row(const uint8_t* codes, int32_t factor) noexcept nogil
    void add_postings(
        CodeRow row, const uint16_t* places, int32_t n, uint16_t constant,
        uint16_t* sums) noexcept nogil
    void add_rows(
        const CodeRow* rows, int32_t n_rows, int32_t n, uint16_t constant,
        uint16_t* sums) noexcept nogil
    void fill_sums(uint16_t* sums, int32_t n, uint16_t value) noexcept nogil
    uint16_t start_sum(
        float bound, float low, float factor, int32_t origin) noexcept nogil
    void start_sums(
        const float* bounds, int32_t n, float low, float factor, int32_t origin,
        uint16_t* sums) noexcept nogil
    int32_t find_sums(
        const uint16_t* sums, int32_t n, uint16_t limit, int32_t* out) noexcept nogil

# Postings of a word of the query, or its row.
cdef struct List:
    double weight  # q_j s_j
    double bound
    double worth  # largest gain or loss per posting
    double rest  # sum of the bounds of this list and all after it
    int64_t begin
    int32_t length
    int32_t cost  # in units of postings
    int32_t factor  # 256 q_j s_j / unit, rounded up
    int32_t constant
    int32_t is_row

# Item that may be among the best, with its sum over the lists read so far.
cdef struct Candidate:
    int32_t sum
    int32_t place

# State of the search of one query in one block.
cdef struct Visit:
    int64_t first_row  # of the block
    const int32_t* indptr  # items of the block as rows
    const int32_t* words
    const void* values
    int32_t n_items
    int32_t zero  # code of 0
    const uint16_t* places  # postings of the block
    const uint8_t* codes
    const uint8_t* rows
    const uint8_t* alive  # items that may be returned
    const int64_t* listed  # the only rows to score; NULL if all are scored
    Py_ssize_t n_listed
    Py_ssize_t k
    const int64_t* excluded  # rows
    int64_t excluded_begin
    int64_t excluded_end
    int64_t* best_rows  # heap of the best so far; scores are passed separately
    int64_t* n_found
    double* share  # bound on skipped lists, as a share of the k-th score
    Py_ssize_t n_lists
    Py_ssize_t next_list  # lists before it are already read
    List* lists
    uint16_t* sums
    uint8_t* marks
    int32_t* found
    Candidate* candidates
    float* pick_sums
    int64_t* picks
    int64_t n_picks
    double unit  # step of the sums
    double margin  # bound of the rounding error of sums
    int32_t origin  # sum of an item without a word of the query
    int64_t n_walked  # work done, in units of postings
    int64_t n_summed
    # A hybrid item has a dense part, too, whose score is at most its bound. Smaller
    # bounds than `low` count as `low`; the largest one is `high`. All are 0 without a
    # dense part.
    const float* bounds  # in units of `bound_unit`, up to a constant
    double low
    double high
    float low_bound  # the bound that represents `low`
    double bound_unit
    const void* dense_items
    const void* dense_query
    Py_ssize_t n_dense


cdef inline bint bound(Visit* v, double epsilon, double tiny) noexcept nogil:
    """Sort the lists, sum the bounds after each, and choose the step of the sums.

    Return False if there are too many lists, or too small numbers, for 16-bit sums.
    """
    cdef double total = v.high - v.low
    cdef Py_ssize_t i, n_lists = v.n_lists
    for i in range(n_lists):
        total += 256 * fabs(v.lists[i].weight)
    v.unit = 1.0
    if n_lists > 0 or total > 0:
        v.unit = total / (WIDTH - SLACK * min(n_lists, MANY_LISTS))
    if n_lists > MANY_LISTS or not DBL_MIN <= v.unit < INFINITY:
        return False
    # Bound of the rounding error of sums of the terms, or of their bounds, in any
    # order.
    v.margin = 2.0 * (n_lists + 2) * (epsilon * total + tiny)
    v.margin += 4.0 * epsilon * (fabs(v.low) + fabs(v.high))
    sort_lists(v.lists, n_lists)
    v.lists[n_lists].rest = 0.0
    for i in range(n_lists - 1, -1, -1):
        v.lists[i].rest = v.lists[i + 1].rest + v.lists[i].bound
    v.origin = scale_lists(n_lists, v.lists, v.unit, v.zero)
    return True


cdef inline void sort_lists(List* lists, Py_ssize_t n) noexcept nogil:
    """Sort lists by descending worth.

    Shell's method: `qsort`, which calls a function for each comparison, would take a
    tenth of a search with 160 words.
    """
    cdef Py_ssize_t gap = n, i, place
    cdef List moved
    while gap > 1:
        gap = max(5 * gap // 11, 1)
        for i in range(gap, n):
            moved, place = lists[i], i
            while place >= gap and lists[place - gap].worth < moved.worth:
                lists[place] = lists[place - gap]
                place -= gap
            lists[place] = moved


cdef inline int32_t scale_lists(
    Py_ssize_t n_lists, List* lists, double unit, int32_t zero
) noexcept nogil:
    """Set factors and constants of the lists; return the sum that represents 0.

    A code c adds (factor c + constant) / 256 >= q_j d_ij / unit. The constant accounts
    for rounding and for the interval in (search-code).
    """
    cdef Py_ssize_t i
    cdef int32_t factor, constant
    cdef double origin = 1.0, exact
    for i in range(n_lists):
        exact = fabs(lists[i].weight) / unit * 256
        constant = 255 + (130 if zero else 0)
        if lists[i].weight > 0:
            factor = <int32_t>ceil(exact)
            constant += 1 + (factor >> 12)
        else:
            factor = -<int32_t>floor(exact)
            constant += 1 + (-factor >> 12) - factor
        lists[i].factor = factor
        lists[i].constant = constant - factor * zero
        if zero or lists[i].weight < 0:
            origin += exact * (0.5 if zero else 1.0) + SLACK / 2
    return <int32_t>origin


cdef inline int32_t find_limit(const Visit* v, double worst) noexcept nogil:
    """Return the smallest sum of an item that may be among the best, at least 1.

    `worst` is the k-th score so far.
    """
    cdef double limit
    if v.n_found[0] < v.k:
        return 1
    limit = v.origin + floor(
        (worst - v.low - (v.lists[v.next_list].rest + v.margin)) / v.unit)
    return <int32_t>min(max(limit, 1.0), 65536.0)


cdef inline void begin_sums(Visit* v, int32_t n_items) noexcept nogil:
    """Set the sums before any list is read."""
    if v.bounds == NULL:
        fill_sums(v.sums, n_items, <uint16_t>v.origin)
    else:
        start_sums(
            v.bounds, n_items, v.low_bound, <float>(v.bound_unit / v.unit), v.origin,
            v.sums)


cdef inline double bound_words(const Visit* v, int64_t place) noexcept nogil:
    """Return a bound of the score of the sparse part of an item with a dense part."""
    cdef int32_t start = start_sum(
        v.bounds[place], v.low_bound, <float>(v.bound_unit / v.unit), v.origin)
    return (v.sums[place] - start) * v.unit + v.lists[v.next_list].rest + v.margin


cdef inline void leave_picks(Visit* v) noexcept nogil:
    """Mark the picks as scored."""
    cdef int64_t i
    for i in range(v.n_picks):
        v.sums[v.picks[i]] = DONE


cdef inline void sink(
    Candidate* heap, Py_ssize_t n, Py_ssize_t place, Candidate candidate
) noexcept nogil:
    """Insert a candidate at a position of a heap whose root has the largest sum."""
    cdef Py_ssize_t child = 2 * place + 1
    while child < n:
        if child + 1 < n and heap[child + 1].sum > heap[child].sum:
            child += 1
        if not heap[child].sum > candidate.sum:
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = candidate
