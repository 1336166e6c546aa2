"""Kernels of the inverted file.

Per block of items and word j the file keeps the *postings*: the places i of the items
in the block that have the word, with their values d_ij, the largest of them m_j, and,
where items have negative values, the smallest. For a query q no item gains more by word
j than its *bound*, b_j = max(0, q_j m_j), or by the smallest value if q_j < 0.

Every score that is returned is the sum of q_j d_ij in the order of the words: the same
number for any pruning, number of threads and division into blocks.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.float cimport DBL_EPSILON, DBL_MIN, FLT_EPSILON, FLT_MIN
from libc.math cimport INFINITY, fabs
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport qsort
from libc.string cimport memset
import numpy as np

from sklearn_simlearn._prefetch cimport prefetch
from sklearn_simlearn.index._top cimport (
    find_large, is_listed, just_below, push, sort_best
)

# Postings lie anywhere: ask for them this many words ahead.
cdef enum:
    AHEAD = 6

# Places of a block, all that 16 bits can tell apart.
cdef enum:
    N_PLACES = 65536

# Rows that are summed up side by side.
cdef enum:
    N_LANES = 4

# Scores that are looked through before the limit for the next ones is raised.
cdef enum:
    STEP = 1024

# Postings that can be walked while a row is fetched.
cdef enum:
    MISS = 128

# The postings of a word of the query.
cdef struct List:
    double bound
    double worth  # bound per posting
    double rest  # bounds of this list and all after it
    double magnitude  # of the largest gain or loss
    double weight
    int64_t begin
    int64_t end

# An item that may be one of the best, with what walked lists make of it.
cdef struct Candidate:
    double score
    int64_t place

LIST = np.dtype(
    [(name, "f8") for name in ("bound", "worth", "rest", "magnitude", "weight")]
    + [("begin", "i8"), ("end", "i8")]
)
CANDIDATE = np.dtype([("score", "f8"), ("place", "i8")])


def invert(
    const int32_t[::1] indptr,           # in: items as rows
    const int32_t[::1] words,            # in
    const floating[::1] values,          # in
    Py_ssize_t n_words,
):
    """The postings of a block of items, and their largest and smallest values.

    Returns
    -------
    start : ndarray of shape (n_words + 1,)
        Word j has the postings from start[j] to start[j + 1].

    places : ndarray of shape (n_postings,)
        Places of the items in the block, in ascending order per word.

    weights : ndarray of shape (n_postings,)
        Their values.

    most : ndarray of shape (n_words,)
        The largest value per word, 0 at least.

    least : ndarray of shape (n_words,) or (0,)
        The smallest value per word, 0 at most; empty if there is no negative one.
    """
    cdef Py_ssize_t n_items = indptr.shape[0] - 1, i, j
    cdef int32_t k, p
    cdef floating largest, smallest, overall = 0

    dtype = np.asarray(values).dtype
    # One more in front: while lists are filled, start[j + 1] is the end of word j.
    heads_ = np.zeros(n_words + 2, dtype=np.int32)
    places_ = np.empty(words.shape[0], dtype=np.uint16)
    weights_ = np.empty(words.shape[0], dtype=dtype)
    most_ = np.empty(n_words, dtype=dtype)
    least_ = np.empty(n_words, dtype=dtype)
    cdef int32_t[::1] heads = heads_
    cdef uint16_t[::1] places = places_
    cdef floating[::1] weights = weights_, most = most_, least = least_

    with nogil:
        for k in range(words.shape[0]):
            heads[words[k] + 2] += 1
        for j in range(n_words):
            heads[j + 2] += heads[j + 1]
        for i in range(n_items):
            for k in range(indptr[i], indptr[i + 1]):
                p = heads[words[k] + 1]
                heads[words[k] + 1] = p + 1
                places[p] = <uint16_t>i
                weights[p] = values[k]
        for j in range(n_words):
            largest, smallest = 0, 0
            for p in range(heads[j], heads[j + 1]):
                largest = max(largest, weights[p])
                smallest = min(smallest, weights[p])
            most[j], least[j] = largest, smallest
            overall = min(overall, smallest)
    if overall == 0:
        least_ = np.empty(0, dtype=dtype)
    return heads_[:-1], places_, weights_, most_, least_


def score_queries(
    const int64_t[::1] indptr,           # in: queries as rows
    const int32_t[::1] query_words,      # in
    const floating[::1] query_values,    # in
    const int32_t[::1] start,            # in: postings of a block
    const uint16_t[::1] places,          # in
    const floating[::1] weights,         # in
    int n_threads,
    floating[:, :] out,                  # in, out: zeros on entry, rows contiguous
):
    """Inner products of queries and the items of a block.

    The terms are added in the order of SciPy's product of the two, so both give equal
    results to the last bit.
    """
    cdef Py_ssize_t query
    cdef int64_t k, last
    cdef int32_t word
    if out.shape[1] == 0:
        return
    for query in prange(
        out.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        last = indptr[query + 1]
        for k in range(indptr[query], last):
            if k + 2 * AHEAD < last:
                prefetch(&start[query_words[k + 2 * AHEAD]])
            if k + AHEAD < last:
                word = query_words[k + AHEAD]
                if start[word] < start[word + 1]:
                    prefetch(&places[start[word]])
                    prefetch(&weights[start[word]])
            word = query_words[k]
            if start[word] < start[word + 1]:
                walk(
                    &places[start[word]], &weights[start[word]],
                    start[word + 1] - start[word], query_values[k], &out[query, 0])


cdef inline void walk(
    const uint16_t* places, const floating* weights, Py_ssize_t n, floating factor,
    floating* scores,
) noexcept nogil:
    """Add the postings of a word."""
    cdef Py_ssize_t p
    for p in range(n):
        scores[places[p]] += factor * weights[p]


def make_scratch(n_threads, n_words, n_lists, k, dtype):
    """Memory that `find_best` works in, one row per thread."""
    return (
        np.zeros((n_threads, n_words + 1), dtype=dtype),
        np.empty((n_threads, N_PLACES), dtype=dtype),
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
    const floating[::1] weights,         # in
    const floating[::1] most,            # in
    const floating[::1] least,           # in
    const uint8_t[::1] alive,            # in: items to choose from
    const int64_t[::1] excluded_start,   # in: rows left out per query, in order
    const int64_t[::1] excluded,         # in
    int n_threads,
    floating[:, ::1] query_scratch,      # in, out: zeros
    floating[:, ::1] score_scratch,
    int32_t[:, ::1] found_scratch,
    Candidate[:, ::1] candidate_scratch,
    List[:, ::1] list_scratch,
    floating[:, ::1] pick_score_scratch,
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
                start, most, least, &list_scratch[t, 0]),
            &list_scratch[t, 0], first_row, indptr, words, values, places, weights,
            alive, excluded_start[query], excluded_start[query + 1], excluded,
            &query_scratch[t, 0], &score_scratch[t, 0], &found_scratch[t, 0],
            &candidate_scratch[t, 0], &pick_score_scratch[t, 0], &pick_scratch[t, 0],
            best_scores.shape[1], &best_scores[query, 0], &best_rows[query, 0],
            &n_found[query], &share[query],
        )
        for k in range(query_indptr[query], query_indptr[query + 1]):
            query_scratch[t, query_words[k]] = 0


cdef Py_ssize_t list_postings(
    int64_t begin, int64_t end, const int32_t[::1] query_words,
    const floating[::1] query_values, const int32_t[::1] start,
    const floating[::1] most, const floating[::1] least, List* lists,
) noexcept nogil:
    """The lists of a query in the order of its words; returns their number."""
    cdef Py_ssize_t n_lists = 0
    cdef int64_t k
    cdef int32_t word
    cdef double at_most, at_least
    for k in range(begin, end):
        if k + AHEAD < end:
            prefetch(&start[query_words[k + AHEAD]])
            prefetch(&most[query_words[k + AHEAD]])
        word = query_words[k]
        if start[word] < start[word + 1]:
            at_most = query_values[k] * <double>most[word]
            at_least = 0.0
            if least.shape[0] > 0:
                at_least = query_values[k] * <double>least[word]
            lists[n_lists].bound = max(at_most, at_least, 0.0)
            lists[n_lists].magnitude = max(fabs(at_most), fabs(at_least))
            lists[n_lists].weight = query_values[k]
            lists[n_lists].begin = start[word]
            lists[n_lists].end = start[word + 1]
            n_lists += 1
    return n_lists


cdef void visit(
    Py_ssize_t n_lists, List* lists, int64_t first_row, const int32_t[::1] indptr,
    const int32_t[::1] words, const floating[::1] values, const uint16_t[::1] places,
    const floating[::1] weights, const uint8_t[::1] alive, int64_t excluded_begin,
    int64_t excluded_end, const int64_t[::1] excluded, const floating* query,
    floating* scores, int32_t* found, Candidate* candidates, floating* pick_scores,
    int64_t* picks, Py_ssize_t k, floating* best_scores, int64_t* best_rows,
    int64_t* n_found, double* share,
) noexcept nogil:
    """Look through a block for the best items of one query.

    (search-bound)  Lists are walked by their bound per posting, the largest first. An
    item that gained a by them scores at most a + r, where r is the sum of the bounds of
    the lists that are left. Once r is a share of the k-th score t so far, the rest is
    skipped: an item with a + r < t is not among the k best, the others are scored by
    their rows, the most promising first, which lifts t meanwhile.
    """
    cdef int32_t n_items = <int32_t>(indptr.shape[0] - 1), n_large, place, first
    cdef Py_ssize_t n_candidates = 0, n_group, next_list = 0, i
    cdef int64_t n_postings = 0, n_walked = 0, n_summed = 0, n_picks = 0, row
    cdef double magnitude = 0.0, margin, rest, half
    cdef double epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    cdef double tiny = FLT_MIN if floating is float else DBL_MIN
    cdef int64_t[N_LANES] group

    for i in range(n_lists):
        n_postings += lists[i].end - lists[i].begin
        magnitude += lists[i].magnitude
    if n_items >= 16 * k and n_postings >= n_items // 4:
        for i in range(n_lists):
            lists[i].worth = lists[i].bound / (lists[i].end - lists[i].begin)
        qsort(lists, n_lists, sizeof(List), &compare_worth)
        lists[n_lists].rest = 0.0
        for i in range(n_lists - 1, -1, -1):
            lists[i].rest = lists[i + 1].rest + lists[i].bound
        # Sums of the same terms in another order, or of bounds, differ by less.
        margin = 2.0 * (n_lists + 2) * (epsilon * magnitude + tiny)

        memset(scores, 0, n_items * sizeof(floating))
        if n_found[0] < k:
            # Half of what can be gained shows which items are likely to be good.
            half = lists[0].rest / 2.0
            while next_list < n_lists and lists[next_list].rest > half:
                n_walked += walk_list(
                    next_list, n_lists, lists, places, weights, scores)
                next_list += 1
            first = 0
            while first < n_items:
                n_large = find_large(
                    scores + first, min(STEP, n_items - first),
                    pick_scores[0] if n_picks == k else -INFINITY, found)
                for i in range(n_large):
                    place = first + found[i]
                    if alive[place] and not is_listed(
                        first_row + place, &excluded[0], excluded_begin, excluded_end
                    ):
                        push(
                            pick_scores, picks, &n_picks, k, scores[place],
                            <int64_t>place)
                first += STEP
            score_rows(
                n_picks, picks, first_row, indptr, words, values, query, k, best_scores,
                best_rows, n_found)
            for i in range(n_picks):
                scores[picks[i]] = -INFINITY  # whatever is added to it

        if n_found[0] == k and best_scores[0] > 0:
            while next_list < n_lists and (
                lists[next_list].rest > share[0] * best_scores[0]
            ):
                n_walked += walk_list(
                    next_list, n_lists, lists, places, weights, scores)
                next_list += 1
            rest = lists[next_list].rest + margin
            n_large = find_large(
                scores, n_items, just_below(<floating>(best_scores[0] - rest)), found)
            for i in range(n_large):
                place = found[i]
                if alive[place] and not is_listed(
                    first_row + place, &excluded[0], excluded_begin, excluded_end
                ):
                    candidates[n_candidates].score = scores[place]
                    candidates[n_candidates].place = place
                    n_candidates += 1
            for i in range(n_candidates // 2 - 1, -1, -1):
                sink(candidates, n_candidates, i, candidates[i])
            while n_candidates > 0 and candidates[0].score + rest >= best_scores[0]:
                n_group = 0
                while n_candidates > 0 and n_group < N_LANES:
                    place = <int32_t>candidates[0].place
                    group[n_group] = place
                    fetch_row(indptr[place], indptr[place + 1], words, values)
                    n_summed += MISS + indptr[place + 1] - indptr[place]
                    n_group += 1
                    n_candidates -= 1
                    sink(candidates, n_candidates, 0, candidates[n_candidates])
                score_rows(
                    n_group, group, first_row, indptr, words, values, query, k,
                    best_scores, best_rows, n_found)
            if n_summed > n_walked // 2:
                share[0] = max(share[0] * 0.8, 0.05)
            elif n_summed < n_walked // 8:
                share[0] = min(share[0] * 1.25, 0.9)
            return

    # Few items, short lists, or not k items that score above 0: bounds are no use.
    memset(scores, 0, n_items * sizeof(floating))
    qsort(lists, n_lists, sizeof(List), &compare_begin)
    for i in range(n_lists):
        walk_list(i, n_lists, lists, places, weights, scores)
    for i in range(n_picks):
        scores[picks[i]] = -INFINITY
    # Rows ascend from block to block, so an item that is no better comes too late.
    n_large = find_large(
        scores, n_items, best_scores[0] if n_found[0] == k else -INFINITY, found)
    for i in range(n_large):
        row = first_row + found[i]
        if n_found[0] < k or scores[found[i]] > best_scores[0]:
            if alive[found[i]] and not is_listed(
                row, &excluded[0], excluded_begin, excluded_end
            ):
                push(best_scores, best_rows, n_found, k, scores[found[i]], row)


cdef int compare_worth(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const List*>a).worth, y = (<const List*>b).worth
    return (x < y) - (x > y)


cdef int compare_begin(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const List*>a).begin, y = (<const List*>b).begin
    return (x > y) - (x < y)


cdef inline int64_t walk_list(
    Py_ssize_t i, Py_ssize_t n_lists, const List* lists, const uint16_t[::1] places,
    const floating[::1] weights, floating* scores,
) noexcept nogil:
    """Walk one list, and ask for the one after the next; returns its length."""
    cdef int64_t begin = lists[i].begin, end = lists[i].end
    if i + 2 < n_lists:
        prefetch(&places[lists[i + 2].begin])
        prefetch(&weights[lists[i + 2].begin])
    walk(
        &places[begin], &weights[begin], end - begin, <floating>lists[i].weight, scores)
    return end - begin


cdef inline void sink(
    Candidate* heap, Py_ssize_t n, Py_ssize_t place, Candidate candidate
) noexcept nogil:
    """Put a candidate at a place of a heap with the largest score at its root."""
    cdef Py_ssize_t child = 2 * place + 1
    while child < n:
        if child + 1 < n and heap[child + 1].score > heap[child].score:
            child += 1
        if not heap[child].score > candidate.score:
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
