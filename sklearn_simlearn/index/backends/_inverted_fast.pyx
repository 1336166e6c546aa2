"""Search of the inverted file, whose postings and codes `_invert_fast` makes.

For a query q no item gains more by word j than its *bound* b_j, which is the largest
q_j d_ij that a code can stand for, and 0 at least. What an item gains by some words is
summed up in 16 bits and rounded up at each step, so the sums are bounds as well. The
items that remain are scored by their own values. Every score that is returned is the
sum of q_j d_ij in the order of the words: the same number for any pruning, number of
threads and division into blocks.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.float cimport DBL_EPSILON, DBL_MIN, FLT_EPSILON, FLT_MIN
from libc.math cimport INFINITY, ceil, fabs, floor
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport qsort
import numpy as np

from sklearn_simlearn._core.prefetch cimport prefetch
from sklearn_simlearn.index.backends._top cimport is_listed, push, sort_best

# Postings lie anywhere: ask for them this many words ahead.
cdef enum:
    AHEAD = 6

# Places of a block, all that 16 bits can tell apart.
cdef enum:
    N_PLACES = 65536

# Postings that can be walked while so many codes of a row are added.
cdef enum:
    CODES_PER_POSTING = 8

# Sums take so many of their 65536 values, and rounding some of these per list.
cdef enum:
    WIDTH = 60000
    SLACK = 6
    MANY_LISTS = 4096

# Sum of items that are scored already; others have at least 1.
cdef enum:
    DONE = 0

# Marks of items.
cdef enum:
    HAS_WORD = 1
    IS_DONE = 2

# Items that are scored side by side, and that are fetched at a time.
cdef enum:
    N_LANES = 4
    N_GROUP = 8

# Sums that are looked through before the limit for the next ones is raised.
cdef enum:
    STEP = 1024

# Postings that can be walked while an item is fetched.
cdef enum:
    MISS = 128


cdef extern from *:
    """
    #include "simd.h"

    /* sums[i] += (factor * codes[i] + constant) / 256, or one more.
     *
     * It keeps to 16 bits, for which there are instructions: the magnitude of a product
     * is rounded down, and the sign is put on after that.
     */
    SIMLEARN_CLONES
    static void add_codes(const uint8_t *codes, int32_t n, int32_t factor,
                          int32_t constant, uint16_t *sums)
    {
        const uint16_t magnitude = (uint16_t)(factor < 0 ? -factor : factor);
        const uint16_t sign = factor < 0 ? 0xffff : 0;
        const uint16_t bias = (uint16_t)((constant >> 8) + (factor > 0) - sign);
        for (int32_t i = 0; i < n; i++) {
            uint16_t code = (uint16_t)(codes[i] << 8);
            uint16_t part = (uint16_t)(((uint32_t)code * magnitude) >> 16);
            sums[i] += (uint16_t)((part ^ sign) + bias);
        }
    }

    /* Places of the sums of at least `limit`, in order; returns their number. */
    SIMLEARN_CLONES
    static int32_t find_sums(const uint16_t *sums, int32_t n, uint16_t limit,
                             int32_t *out)
    {
        int32_t n_found = 0, i = 0;
        for (; i + 64 <= n; i += 64) {
            uint16_t any = 0;
            for (int j = 0; j < 64; j++)
                any |= sums[i + j] >= limit;
            if (any)
                for (int j = 0; j < 64; j++) {
                    out[n_found] = i + j; /* overwritten unless counted */
                    n_found += sums[i + j] >= limit;
                }
        }
        for (; i < n; i++)
            if (sums[i] >= limit)
                out[n_found++] = i;
        return n_found;
    }
    """
    void add_codes(
        const uint8_t* codes, int32_t n, int32_t factor, int32_t constant,
        uint16_t* sums) noexcept nogil
    int32_t find_sums(
        const uint16_t* sums, int32_t n, uint16_t limit, int32_t* out) noexcept nogil

# The postings of a word of the query, or its row.
cdef struct List:
    double weight  # q_j s_j
    double bound
    double worth  # what can be gained or lost per posting
    double rest  # bounds of this list and all after it
    int64_t begin
    int32_t length
    int32_t cost  # in postings
    int32_t factor  # q_j s_j in steps of the sums by 256, rounded up
    int32_t constant
    int32_t is_row

# An item that may be one of the best, with what walked lists make of it.
cdef struct Candidate:
    int32_t sum
    int32_t place

LIST = np.dtype(
    [(name, "f8") for name in ("weight", "bound", "worth", "rest")]
    + [("begin", "i8")]
    + [(name, "i4") for name in ("length", "cost", "factor", "constant", "is_row")],
    align=True,
)
CANDIDATE = np.dtype([("sum", "i4"), ("place", "i4")])


def make_scratch(n_threads, n_words, n_lists, k, dtype):
    """Memory that `find_best` works in, one row per thread."""
    return (
        np.zeros((n_threads, n_words + 1), dtype=dtype),
        np.empty((n_threads, N_PLACES), dtype=np.uint16),
        np.empty((n_threads, N_PLACES), dtype=np.uint8),
        np.empty((n_threads, N_PLACES), dtype=np.int32),
        np.empty((n_threads, N_PLACES), dtype=CANDIDATE),
        np.empty((n_threads, n_lists + 1), dtype=LIST),
        np.empty((n_threads, k), dtype=dtype),
        np.empty((n_threads, k), dtype=np.int64),
    )


def find_best(
    const int64_t[::1] query_indptr,     # in: queries as rows
    const int32_t[::1] query_words,      # in
    const floating[::1] query_values,    # in
    int64_t first_row,                   # of the block
    const int32_t[::1] indptr,           # in: items of the block as rows
    const int32_t[::1] words,            # in
    const floating[::1] values,          # in
    const int32_t[::1] start,            # in: their postings
    const uint16_t[::1] places,          # in
    const uint8_t[::1] codes,            # in
    const int32_t[::1] row_words,        # in
    const uint8_t[:, ::1] rows,          # in
    const floating[::1] steps,           # in
    const uint8_t[::1] zero,             # in
    const uint8_t[::1] alive,            # in: items to choose from
    const int64_t[::1] excluded_start,   # in: rows left out per query, in order
    const int64_t[::1] excluded,         # in
    int n_threads,
    floating[:, ::1] query_scratch,      # in, out: zeros
    uint16_t[:, ::1] sum_scratch,
    uint8_t[:, ::1] mark_scratch,
    int32_t[:, ::1] found_scratch,
    Candidate[:, ::1] candidate_scratch,
    List[:, ::1] list_scratch,
    floating[:, ::1] pick_sum_scratch,
    int64_t[:, ::1] pick_scratch,
    floating[:, ::1] best_scores,        # in, out: heap of the best in earlier blocks
    int64_t[:, ::1] best_rows,           # in, out
    int64_t[::1] n_found,                # in, out
    double[::1] share,                   # in, out: of the k-th score, to skip
):
    """Look through a block for the best items of each query."""
    cdef Py_ssize_t query
    cdef int64_t k
    cdef int t
    if indptr.shape[0] == 1:
        return
    for query in prange(
        best_scores.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic",
        chunksize=1,
    ):
        t = threadid()
        for k in range(query_indptr[query], query_indptr[query + 1]):
            query_scratch[t, query_words[k]] = query_values[k]
        visit(
            list_postings(
                query_indptr[query], query_indptr[query + 1], query_words, query_values,
                start, row_words, <int32_t>rows.shape[1], steps, zero[0],
                &list_scratch[t, 0]),
            &list_scratch[t, 0], first_row, indptr, words, values, places, codes, rows,
            zero[0], alive, excluded_start[query], excluded_start[query + 1], excluded,
            &query_scratch[t, 0], &sum_scratch[t, 0], &mark_scratch[t, 0],
            &found_scratch[t, 0], &candidate_scratch[t, 0], &pick_sum_scratch[t, 0],
            &pick_scratch[t, 0], best_scores.shape[1], &best_scores[query, 0],
            &best_rows[query, 0], &n_found[query], &share[query],
        )
        for k in range(query_indptr[query], query_indptr[query + 1]):
            query_scratch[t, query_words[k]] = 0


cdef Py_ssize_t list_postings(
    int64_t begin, int64_t end, const int32_t[::1] query_words,
    const floating[::1] query_values, const int32_t[::1] start,
    const int32_t[::1] row_words, int32_t n_items, const floating[::1] steps,
    int32_t zero, List* lists,
) noexcept nogil:
    """The lists of a query in the order of its words; returns their number."""
    cdef Py_ssize_t n_lists = 0, row = 0
    cdef int64_t k
    cdef int32_t word
    cdef double gain
    cdef List* made
    for k in range(begin, end):
        if k + AHEAD < end:
            prefetch(&start[query_words[k + AHEAD]])
            prefetch(&steps[query_words[k + AHEAD]])
        word = query_words[k]
        made = &lists[n_lists]
        while row < row_words.shape[0] and row_words[row] < word:
            row += 1
        if row < row_words.shape[0] and row_words[row] == word:
            made.is_row = True
            made.begin, made.length = row, n_items
            made.cost = 1 + n_items // CODES_PER_POSTING
        elif start[word] < start[word + 1]:
            made.is_row = False
            made.begin, made.length = start[word], start[word + 1] - start[word]
            made.cost = made.length
        else:
            continue
        made.weight = query_values[k] * <double>steps[word]
        gain = fabs(made.weight) * (zero if zero else 255) * (1 + 1e-6)
        made.bound = gain if zero or made.weight > 0 else 0.0
        made.worth = gain / made.cost
        n_lists += 1
    return n_lists


cdef void visit(
    Py_ssize_t n_lists, List* lists, int64_t first_row, const int32_t[::1] indptr,
    const int32_t[::1] words, const floating[::1] values, const uint16_t[::1] places,
    const uint8_t[::1] codes, const uint8_t[:, ::1] rows, int32_t zero,
    const uint8_t[::1] alive, int64_t excluded_begin, int64_t excluded_end,
    const int64_t[::1] excluded, const floating* query, uint16_t* sums,
    uint8_t* marks, int32_t* found, Candidate* candidates, floating* pick_sums,
    int64_t* picks, Py_ssize_t k, floating* best_scores, int64_t* best_rows,
    int64_t* n_found, double* share,
) noexcept nogil:
    """Look through a block for the best items of one query.

    (search-bound)  Lists are walked by what can be gained or lost per posting, the
    largest first. An item that gained a by them scores at most a + r, where r is the
    sum of the bounds of the lists that are left. Once r is a share of the k-th score t
    so far, the rest is skipped: an item with a + r < t is not among the k best, the
    others are scored, the most promising first, which lifts t meanwhile.
    """
    cdef int32_t n_items = <int32_t>(indptr.shape[0] - 1), origin, limit, place
    cdef int32_t n_large
    cdef Py_ssize_t n_candidates = 0, n_group, next_list = 0, i
    cdef int64_t n_walked = 0, n_summed = 0, n_picks = 0
    cdef bint is_first
    cdef double total = 0.0, unit, margin, half
    cdef double epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    cdef double tiny = FLT_MIN if floating is float else DBL_MIN
    cdef int64_t[N_GROUP] group

    for i in range(n_lists):
        total += 256 * fabs(lists[i].weight)
    unit = total / (WIDTH - SLACK * min(n_lists, MANY_LISTS)) if n_lists > 0 else 1.0
    if n_lists > MANY_LISTS or not DBL_MIN <= unit < INFINITY:
        # No sum would tell items apart.
        for place in range(n_items):
            if is_eligible(
                place, first_row, alive, excluded, excluded_begin, excluded_end
            ):
                group[0] = place
                score_rows(
                    1, group, first_row, indptr, words, values, query, k, best_scores,
                    best_rows, n_found)
        return
    # Sums of the same terms in another order, or of bounds, differ by less.
    margin = 2.0 * (n_lists + 2) * (epsilon * total + tiny)
    qsort(lists, n_lists, sizeof(List), &compare_worth)
    lists[n_lists].rest = 0.0
    for i in range(n_lists - 1, -1, -1):
        lists[i].rest = lists[i + 1].rest + lists[i].bound
    if n_found[0] == k and lists[0].rest + margin < best_scores[0]:
        return
    origin = scale_lists(n_lists, lists, unit, zero)
    for place in range(n_items):
        sums[place] = <uint16_t>origin

    is_first = n_found[0] < k
    if is_first:
        # Half of what can be gained shows which items are likely to be good.
        half = lists[0].rest / 2.0
        while next_list < n_lists and lists[next_list].rest > half:
            n_walked += walk_list(next_list, n_lists, lists, places, codes, rows, sums)
            next_list += 1
        n_picks = pick(
            n_items, first_row, alive, excluded_begin, excluded_end, excluded, sums,
            found, k, pick_sums, picks)
        score_rows(
            n_picks, picks, first_row, indptr, words, values, query, k, best_scores,
            best_rows, n_found)
    if n_found[0] == k:
        while next_list < n_lists and (
            lists[next_list].rest > share[0] * best_scores[0]
        ):
            n_walked += walk_list(next_list, n_lists, lists, places, codes, rows, sums)
            next_list += 1
    if is_first:
        # Now it shows better, and a high score of the k-th leaves few candidates.
        for i in range(n_picks):
            sums[picks[i]] = DONE
        n_picks = pick(
            n_items, first_row, alive, excluded_begin, excluded_end, excluded, sums,
            found, k, pick_sums, picks)
        score_rows(
            n_picks, picks, first_row, indptr, words, values, query, k, best_scores,
            best_rows, n_found)
        for i in range(n_picks):
            sums[picks[i]] = DONE
    limit = find_limit(
        n_found[0] == k, best_scores[0], lists[next_list].rest + margin, unit, origin)
    if limit <= origin:
        # An item without any word of the query may be among the best: it scores 0.
        for place in range(n_items):
            marks[place] = IS_DONE if sums[place] == DONE else 0
        for i in range(n_lists):
            if i >= next_list:
                walk_list(i, n_lists, lists, places, codes, rows, sums)
            mark_list(&lists[i], places, marks)
        next_list = n_lists
        for place in range(n_items):
            if not marks[place] and is_eligible(
                place, first_row, alive, excluded, excluded_begin, excluded_end
            ):
                push(best_scores, best_rows, n_found, k, 0, first_row + place)
            if not marks[place] or marks[place] & IS_DONE:
                sums[place] = DONE
    margin += lists[next_list].rest
    limit = find_limit(n_found[0] == k, best_scores[0], margin, unit, origin)
    n_large = 0
    if limit <= 65535:
        n_large = find_sums(sums, n_items, <uint16_t>limit, found)
    for i in range(n_large):
        place = found[i]
        if is_eligible(place, first_row, alive, excluded, excluded_begin, excluded_end):
            candidates[n_candidates].sum = sums[place]
            candidates[n_candidates].place = place
            n_candidates += 1
    for i in range(n_candidates // 2 - 1, -1, -1):
        sink(candidates, n_candidates, i, candidates[i])
    while n_candidates > 0 and candidates[0].sum >= limit:
        n_group = 0
        while n_candidates > 0 and n_group < N_GROUP:
            place = candidates[0].place
            group[n_group] = place
            fetch_row(indptr[place], indptr[place + 1], words, values)
            n_summed += MISS + indptr[place + 1] - indptr[place]
            n_group += 1
            n_candidates -= 1
            sink(candidates, n_candidates, 0, candidates[n_candidates])
        score_rows(
            n_group, group, first_row, indptr, words, values, query, k, best_scores,
            best_rows, n_found)
        limit = find_limit(n_found[0] == k, best_scores[0], margin, unit, origin)
    if n_summed > n_walked // 2:
        share[0] = max(share[0] * 0.8, 0.05)
    elif n_summed < n_walked // 8:
        share[0] = min(share[0] * 1.25, 0.9)


cdef int64_t pick(
    int32_t n_items, int64_t first_row, const uint8_t[::1] alive,
    int64_t excluded_begin, int64_t excluded_end, const int64_t[::1] excluded,
    const uint16_t* sums, int32_t* found, Py_ssize_t k, floating* pick_sums,
    int64_t* picks,
) noexcept nogil:
    """The places of the k largest sums; returns their number."""
    cdef int64_t n_picks = 0
    cdef int32_t first = 0, n_large, place, i
    while first < n_items:
        n_large = find_sums(
            sums + first, min(STEP, n_items - first),
            <uint16_t>(pick_sums[0] + 1) if n_picks == k else DONE + 1, found)
        for i in range(n_large):
            place = first + found[i]
            if is_eligible(
                place, first_row, alive, excluded, excluded_begin, excluded_end
            ):
                push(
                    pick_sums, picks, &n_picks, k, <floating>sums[place],
                    <int64_t>place)
        first += STEP
    return n_picks


cdef inline bint is_eligible(
    int32_t place, int64_t first_row, const uint8_t[::1] alive,
    const int64_t[::1] excluded, int64_t excluded_begin, int64_t excluded_end,
) noexcept nogil:
    return alive[place] and not is_listed(
        first_row + place, &excluded[0], excluded_begin, excluded_end)


cdef int compare_worth(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const List*>a).worth, y = (<const List*>b).worth
    return (x < y) - (x > y)


cdef int32_t scale_lists(
    Py_ssize_t n_lists, List* lists, double unit, int32_t zero
) noexcept nogil:
    """Factors and constants of the lists; returns the sum that stands for 0.

    A code c adds (factor c + constant) / 256 >= q_j d_ij / unit. Besides rounding, the
    constant makes up for what (search-code) leaves open.
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


cdef inline int32_t find_limit(
    bint is_full, double worst, double rest, double unit, int32_t origin
) noexcept nogil:
    """The least sum of an item that may be among the best, 1 at least."""
    cdef double limit
    if not is_full:
        return 1
    limit = floor((worst - rest) / unit) + origin
    return <int32_t>min(max(limit, 1.0), 65536.0)


cdef inline int64_t walk_list(
    Py_ssize_t i, Py_ssize_t n_lists, const List* lists, const uint16_t[::1] places,
    const uint8_t[::1] codes, const uint8_t[:, ::1] rows, uint16_t* sums,
) noexcept nogil:
    """Add up a list, and ask for the one after the next; returns its cost."""
    cdef const List* ahead
    cdef Py_ssize_t p
    cdef int64_t begin = lists[i].begin
    cdef int32_t factor = lists[i].factor, constant = lists[i].constant
    if i + 2 < n_lists and not lists[i + 2].is_row:
        ahead = &lists[i + 2]
        for p in range(ahead.begin, ahead.begin + min(ahead.length, 1024), 32):
            prefetch(&places[p])
        for p in range(ahead.begin, ahead.begin + min(ahead.length, 1024), 64):
            prefetch(&codes[p])
    if lists[i].is_row:
        add_codes(&rows[begin, 0], lists[i].length, factor, constant, sums)
    else:
        for p in range(begin, begin + lists[i].length):
            sums[places[p]] += <uint16_t>((factor * codes[p] + constant) >> 8)
    return lists[i].cost


cdef inline void mark_list(
    const List* marked, const uint16_t[::1] places, uint8_t* marks
) noexcept nogil:
    """Mark the items of a list, or all if it is a row."""
    cdef Py_ssize_t p
    if marked.is_row:
        for p in range(marked.length):
            marks[p] |= HAS_WORD
    else:
        for p in range(marked.begin, marked.begin + marked.length):
            marks[places[p]] |= HAS_WORD


cdef inline void sink(
    Candidate* heap, Py_ssize_t n, Py_ssize_t place, Candidate candidate
) noexcept nogil:
    """Put a candidate at a place of a heap with the largest sum at its root."""
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


cdef inline void fetch_row(
    int32_t begin, int32_t end, const int32_t[::1] words, const floating[::1] values
) noexcept nogil:
    cdef int32_t k
    for k in range(begin, end, 16):
        prefetch(&words[k])
        prefetch(&values[k])
        if floating is double:
            prefetch(&values[k] + 8)


cdef void score_rows(
    Py_ssize_t n, const int64_t* places, int64_t first_row, const int32_t[::1] indptr,
    const int32_t[::1] words, const floating[::1] values, const floating* query,
    Py_ssize_t k, floating* best_scores, int64_t* best_rows, int64_t* n_found,
) noexcept nogil:
    """Score items by their rows, and take them among the best if they are.

    Words that the query has not add 0. A sum waits for its last addition, so several
    rows are added up side by side.
    """
    cdef Py_ssize_t first = 0, lane
    cdef int32_t j, n_common
    cdef int32_t[N_LANES] begin
    cdef int32_t[N_LANES] end
    cdef floating[N_LANES] total
    while first < n:
        for lane in range(first + N_LANES, min(first + 2 * N_LANES, n)):
            fetch_row(indptr[places[lane]], indptr[places[lane] + 1], words, values)
        n_common = INT32_MAX
        for lane in range(N_LANES):
            begin[lane], end[lane], total[lane] = 0, 0, 0
            if first + lane < n:
                begin[lane] = indptr[places[first + lane]]
                end[lane] = indptr[places[first + lane] + 1]
            n_common = min(n_common, end[lane] - begin[lane])
        for j in range(n_common):
            for lane in range(N_LANES):
                total[lane] += (
                    query[words[begin[lane] + j]] * values[begin[lane] + j])
        for lane in range(min(N_LANES, n - first)):
            for j in range(begin[lane] + n_common, end[lane]):
                total[lane] += query[words[j]] * values[j]
            push(
                best_scores, best_rows, n_found, k, total[lane],
                first_row + places[first + lane])
        first += N_LANES


def finish_search(
    const int64_t[::1] n_found,          # in
    floating[:, ::1] best_scores,        # in, out: heaps on entry, sorted on return
    int64_t[:, ::1] best_rows,           # in, out
):
    """Order the best items of each query."""
    cdef Py_ssize_t query
    with nogil:
        for query in range(best_scores.shape[0]):
            sort_best(&best_scores[query, 0], &best_rows[query, 0], n_found[query])
