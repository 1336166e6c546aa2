"""Search of the inverted file that `_invert_fast` builds.

For a query q, word j adds at most its *bound* b_j to the score of an item. The bound is
the largest q_j d_ij that a code can represent, and at least 0. The contributions of
some words to an item are added in 16 bits and rounded up at each step, so the sums are
upper bounds, too. The remaining candidates are scored exactly. Every returned score is
the sum of q_j d_ij in the order of the words. It does not depend on pruning, number of
threads or division into blocks.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.float cimport DBL_EPSILON, DBL_MIN, FLT_EPSILON, FLT_MIN
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
import numpy as np

from sklearn_simlearn._core.prefetch cimport prefetch
from sklearn_simlearn.index.backends._visit cimport (
    DONE, Candidate, List, Visit, begin_sums, bound, find_limit, find_sums, leave_picks,
    sink
)
from sklearn_simlearn.index.backends._walk cimport (
    IS_DONE, mark_list, walk, walk_down_to
)
from sklearn_simlearn.index.backends._score cimport (
    MISS, fetch_row, score_hybrid, score_rows
)
from sklearn_simlearn.index.backends._top cimport is_listed, push, sort_best

# Number of words to prefetch ahead, because postings are scattered in memory.
cdef enum:
    AHEAD = 6

# Number of positions in a block: all values of 16 bits.
cdef enum:
    N_PLACES = 65536

# Number of codes of a row that are added in the time of one posting.
cdef enum:
    CODES_PER_POSTING = 8

# Number of items that are prefetched at a time.
cdef enum:
    N_GROUP = 8

# Number of sums that are compared before the limit is updated.
cdef enum:
    STEP = 1024

LIST = np.dtype(
    [(name, "f8") for name in ("weight", "bound", "worth", "rest")]
    + [("begin", "i8")]
    + [(name, "i4") for name in ("length", "cost", "factor", "constant", "is_row")],
    align=True,
)
CANDIDATE = np.dtype([("sum", "i4"), ("place", "i4")])


cdef class Queries:
    """Queries as rows, without their values, with the rows to exclude for each."""

    cdef const int64_t[::1] indptr          # in
    cdef const int32_t[::1] words           # in
    cdef const int64_t[::1] excluded_start  # in: start of the rows of each query
    cdef const int64_t[::1] excluded        # in: excluded rows, sorted per query
    cdef double[::1] share                  # in, out: share of the k-th score to skip

    def __init__(self, indptr, words, excluded_start, excluded, share):
        self.indptr, self.words, self.share = indptr, words, share
        self.excluded_start, self.excluded = excluded_start, excluded


cdef class Block:
    """Items of a block as rows and as postings."""

    cdef readonly int64_t first_row
    cdef readonly int32_t n_items
    cdef const int32_t[::1] indptr          # in: items as rows
    cdef const int32_t[::1] words           # in
    cdef const int32_t[::1] start           # in: postings of these items
    cdef const uint16_t[::1] places         # in
    cdef const uint8_t[::1] codes           # in
    cdef const int32_t[::1] row_words       # in
    cdef const uint8_t[:, ::1] rows         # in
    cdef int32_t zero                       # code of 0
    cdef object values                      # arrays of float32 or float64
    cdef object steps                       # of the words

    def __init__(
        self, first_row, indptr, words, values, start, places, codes, row_words, rows,
        steps, zero,
    ):
        self.first_row, self.n_items = first_row, len(indptr) - 1
        self.indptr, self.words, self.values = indptr, words, values
        self.start, self.places, self.codes = start, places, codes
        self.row_words, self.rows = row_words, rows
        self.steps, self.zero = steps, zero[0]


cdef class Bounds:
    """Bounds of the scores of the dense parts of a block."""

    cdef readonly const float[:, ::1] bounds  # in: a row per query
    cdef Py_ssize_t first                   # place of the first item in a row
    cdef readonly const double[:, ::1] ranges  # in: ranges of the bounds of each query

    def __init__(self, bounds, first, ranges):
        self.bounds, self.first, self.ranges = bounds, first, ranges


cdef class Scratch:
    """Scratch memory of `find_best`, one row per thread."""

    cdef uint16_t[:, ::1] sums
    cdef uint8_t[:, ::1] marks
    cdef int32_t[:, ::1] found
    cdef Candidate[:, ::1] candidates
    cdef List[:, ::1] lists
    cdef float[:, ::1] pick_sums
    cdef int64_t[:, ::1] picks

    def __init__(self, n_threads, n_lists, k):
        self.sums = np.empty((n_threads, N_PLACES), dtype=np.uint16)
        self.marks = np.empty((n_threads, N_PLACES), dtype=np.uint8)
        self.found = np.empty((n_threads, N_PLACES), dtype=np.int32)
        self.candidates = np.empty((n_threads, N_PLACES), dtype=CANDIDATE)
        self.lists = np.empty((n_threads, n_lists + 1), dtype=LIST)
        self.pick_sums = np.empty((n_threads, k), dtype=np.float32)
        self.picks = np.empty((n_threads, k), dtype=np.int64)


def find_best(
    Queries queries,
    const floating[::1] query_values,    # in
    blocks,                              # in: Block by Block, in the order of rows
    const uint8_t[::1] alive,            # in: rows that may be returned
    const int64_t[::1] listed,           # in: only rows to score, ascending, or None
    const floating[:, ::1] dense_queries,  # in: without columns if not hybrid
    find_dense,                          # in: function of a block; None if not hybrid
    int n_threads,
    Scratch scratch,
    floating[:, ::1] query_rows,         # in, out: zeros, one row per thread
    floating[:, ::1] best_scores,        # in, out: heaps of the queries
    int64_t[:, ::1] best_rows,           # in, out
    int64_t[::1] n_found,                # in, out
):
    """Update the heaps of each query with the items of all blocks.

    `find_dense` returns the dense items of a block and their `Bounds`, which are None
    if rows are listed.
    """
    cdef const floating[:, ::1] dense_items
    cdef const floating[::1] values, steps
    cdef Block block
    cdef Bounds bounds = None
    cdef Visit common
    cdef Py_ssize_t query, n_before = 0
    cdef int64_t k
    cdef int t
    for block in blocks:
        PyErr_CheckSignals()
        if block.n_items == 0:
            continue
        values, steps = block.values, block.steps
        common = open_block(block, values, alive)
        if listed is not None:
            n_before += take_listed(&common, listed[n_before:])
            if common.n_listed == 0:
                continue
        if find_dense is not None:
            dense_items, bounds = find_dense(block, listed is not None)
            common.n_dense = dense_items.shape[1]
            common.dense_items = &dense_items[0, 0]
        for query in prange(
            best_scores.shape[0], nogil=True, num_threads=n_threads,
            schedule="dynamic", chunksize=1,
        ):
            t = threadid()
            for k in range(queries.indptr[query], queries.indptr[query + 1]):
                query_rows[t, queries.words[k]] = query_values[k]
            start_visit(
                common, queries, query, query_values, block, bounds, steps,
                dense_queries, scratch, t, &query_rows[t, 0], best_scores[query],
                &best_rows[query, 0], &n_found[query])
            for k in range(queries.indptr[query], queries.indptr[query + 1]):
                query_rows[t, queries.words[k]] = 0


cdef Visit open_block(
    Block block, const floating[::1] values, const uint8_t[::1] alive
) noexcept nogil:
    """Return the part of the state that is equal for all queries."""
    cdef Visit v
    v.first_row, v.n_items, v.zero = block.first_row, block.n_items, block.zero
    v.alive, v.listed = &alive[block.first_row], NULL
    v.indptr = &block.indptr[0]
    v.words = v.values = NULL
    if values.shape[0] > 0:
        v.words, v.values = &block.words[0], &values[0]
    v.places = &block.places[0] if block.places.shape[0] > 0 else NULL
    v.codes = &block.codes[0] if block.codes.shape[0] > 0 else NULL
    v.rows = &block.rows[0, 0] if block.rows.shape[0] > 0 else NULL
    v.n_dense, v.bounds = 0, NULL
    v.low = v.high = 0
    v.next_list = v.n_picks = v.n_walked = v.n_summed = 0
    return v


cdef Py_ssize_t take_listed(Visit* v, const int64_t[::1] listed) noexcept nogil:
    """Set the listed rows of a block, which are the first ones; return their number."""
    cdef int64_t stop = v.first_row + v.n_items
    v.n_listed = 0
    while v.n_listed < listed.shape[0] and listed[v.n_listed] < stop:
        v.n_listed += 1
    if v.n_listed > 0:
        v.listed = &listed[0]
    return v.n_listed


cdef void start_visit(
    Visit v, Queries queries, Py_ssize_t query, const floating[::1] query_values,
    Block block, Bounds bounds, const floating[::1] steps,
    const floating[:, ::1] dense_queries, Scratch scratch, int t,
    const floating* query_row, floating[::1] best_scores, int64_t* best_rows,
    int64_t* n_found,
) noexcept nogil:
    """Update the heap of one query with the items of a block."""
    if v.n_dense > 0:
        v.dense_query = &dense_queries[query, 0]
    if bounds is not None:
        v.bounds = &bounds.bounds[query, bounds.first]
        v.low_bound = <float>bounds.ranges[query, 0]
        v.bound_unit = bounds.ranges[query, 2]
        v.low = v.low_bound * v.bound_unit + bounds.ranges[query, 3]
        v.high = bounds.ranges[query, 1] * v.bound_unit + bounds.ranges[query, 3]
    v.k = best_scores.shape[0]
    v.excluded = &queries.excluded[0]
    v.excluded_begin = queries.excluded_start[query]
    v.excluded_end = queries.excluded_start[query + 1]
    v.best_rows, v.n_found, v.share = best_rows, n_found, &queries.share[query]
    v.sums, v.marks = &scratch.sums[t, 0], &scratch.marks[t, 0]
    v.found, v.candidates = &scratch.found[t, 0], &scratch.candidates[t, 0]
    v.pick_sums, v.picks = &scratch.pick_sums[t, 0], &scratch.picks[t, 0]
    v.lists = &scratch.lists[t, 0]
    v.n_lists = list_postings(
        queries.indptr[query], queries.indptr[query + 1], queries.words, query_values,
        block, steps, v.lists)
    visit(&v, query_row, &best_scores[0])


cdef Py_ssize_t list_postings(
    int64_t begin, int64_t end, const int32_t[::1] query_words,
    const floating[::1] query_values, Block block, const floating[::1] steps,
    List* lists,
) noexcept nogil:
    """Set the lists of a query, in the order of its words; return their number."""
    cdef Py_ssize_t n_lists = 0, row = 0
    cdef int32_t word, n_items = block.n_items, zero = block.zero
    cdef int64_t k
    cdef double gain
    cdef List* made
    for k in range(begin, end):
        if k + AHEAD < end:
            prefetch(&block.start[query_words[k + AHEAD]])
            prefetch(&steps[query_words[k + AHEAD]])
        word = query_words[k]
        made = &lists[n_lists]
        while row < block.row_words.shape[0] and block.row_words[row] < word:
            row += 1
        if row < block.row_words.shape[0] and block.row_words[row] == word:
            made.is_row = True
            made.begin, made.length = row, n_items
            made.cost = 1 + n_items // CODES_PER_POSTING
        elif block.start[word] < block.start[word + 1]:
            made.is_row = False
            made.begin = block.start[word]
            made.length = block.start[word + 1] - block.start[word]
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
    Visit* v, const floating* query, floating* best_scores
) noexcept nogil:
    """Update the heap of one query with the items of a block.

    (search-bound) Lists are read in descending order of their largest gain or loss per
    posting. If the sum of an item over these lists is a, its score is at most a + r,
    where r is the sum of the bounds of the other lists. If r falls below a share of the
    current k-th score t, the other lists are skipped. An item with a + r < t is not
    among the k best. The other items are scored in descending order of a, which raises
    t.
    """
    cdef bint is_first = v.n_found[0] < v.k
    cdef Py_ssize_t n_candidates
    if reads_few(v) or not bound(
        v, FLT_EPSILON if floating is float else DBL_EPSILON,
        FLT_MIN if floating is float else DBL_MIN,
    ):
        score_all(v, query, best_scores)
        return
    if not is_first and v.high + v.lists[0].rest + v.margin < best_scores[0]:
        return
    begin_sums(v, v.n_items)
    if is_first:
        # After the first half of the possible gain, the sums show which items are
        # likely to score high.
        walk_down_to(v, v.lists[0].rest / 2.0)
        pick(v)
        score_rows(v, v.n_picks, v.picks, query, best_scores)
    if v.n_found[0] == v.k:
        walk_down_to(v, v.share[0] * (best_scores[0] - v.low))
    leave_picks(v)
    if is_first and v.bounds != NULL:
        # Sums with all words are more exact. Score the largest ones first: a high k-th
        # score leaves few candidates.
        pick(v)
        score_rows(v, v.n_picks, v.picks, query, best_scores)
        leave_picks(v)
    if v.bounds == NULL and v.listed == NULL and (
        find_limit(v, best_scores[0]) <= v.origin
    ):
        take_wordless(v, best_scores)
    n_candidates = prune(v, find_limit(v, best_scores[0]))
    if v.bounds == NULL:
        score_candidates(v, n_candidates, query, best_scores)
    else:
        score_hybrid(v, n_candidates, query, best_scores)
    if v.n_summed > v.n_walked // 2:
        v.share[0] = min(v.share[0], max(v.share[0] * 0.8, 0.05))
    elif v.n_summed < v.n_walked // 32:
        v.share[0] = min(v.share[0] * 1.25, 0.9)


cdef inline bint reads_few(const Visit* v) noexcept nogil:
    """Return whether reading the listed items takes less time than their sums."""
    cdef int64_t cost = 0
    cdef Py_ssize_t i
    if v.listed == NULL:
        return False
    for i in range(v.n_lists):
        cost += v.lists[i].cost
    return v.n_dense > 0 or (
        cost > v.n_listed * (MISS + v.indptr[v.n_items] // v.n_items))


cdef void score_all(
    Visit* v, const floating* query, floating* best_scores
) noexcept nogil:
    """Score all items, or all listed items, without sums."""
    cdef int64_t[N_GROUP] group
    cdef Py_ssize_t n = v.n_items if v.listed == NULL else v.n_listed, n_group = 0, i
    cdef int32_t place
    for i in range(n):
        place = <int32_t>(i if v.listed == NULL else v.listed[i] - v.first_row)
        if is_eligible(v, place):
            fetch_row(v, place, query)
            group[n_group] = place
            n_group += 1
        if n_group == N_GROUP or i == n - 1:
            score_rows(v, n_group, group, query, best_scores)
            n_group = 0


cdef void pick(Visit* v) noexcept nogil:
    """Find the positions of the k largest sums."""
    cdef int32_t first = 0, n_large
    v.n_picks = 0
    if v.listed != NULL:
        n_large = find_listed(v, DONE + 1)
        push_picks(v, 0, n_large)
        return
    while first < v.n_items:
        n_large = find_sums(
            v.sums + first, min(STEP, v.n_items - first),
            <uint16_t>(v.pick_sums[0] + 1) if v.n_picks == v.k else DONE + 1, v.found)
        push_picks(v, first, n_large)
        first += STEP


cdef inline void push_picks(Visit* v, int32_t first, int32_t n_large) noexcept nogil:
    """Push the items that were found onto the heap of picks."""
    # Local copies, because the compiler would read the fields again after each push.
    cdef Py_ssize_t k = v.k
    cdef const uint16_t* sums = v.sums
    cdef const int32_t* found = v.found
    cdef float* pick_sums = v.pick_sums
    cdef int64_t* picks = v.picks
    cdef int64_t n_picks = v.n_picks
    cdef int32_t place, i
    for i in range(n_large):
        place = first + found[i]
        if is_eligible(v, place):
            push(pick_sums, picks, &n_picks, k, <float>sums[place], <int64_t>place)
    v.n_picks = n_picks


cdef inline int32_t find_listed(Visit* v, int32_t limit) noexcept nogil:
    """Find the listed items whose sum is at least `limit`; return their number."""
    cdef int32_t n_large = 0
    cdef Py_ssize_t i
    for i in range(v.n_listed):
        v.found[n_large] = <int32_t>(v.listed[i] - v.first_row)
        n_large += v.sums[v.found[n_large]] >= limit
    return n_large


cdef void take_wordless(Visit* v, floating* best_scores) noexcept nogil:
    """Push items without a word of the query, which score 0; read all lists."""
    cdef int32_t n_items = v.n_items, place
    cdef Py_ssize_t i
    for place in range(n_items):
        v.marks[place] = IS_DONE if v.sums[place] == DONE else 0
    walk(v, v.next_list, v.n_lists)
    for i in range(v.n_lists):
        mark_list(v, &v.lists[i])
    v.next_list = v.n_lists
    for place in range(n_items):
        if not v.marks[place] and is_eligible(v, place):
            push(
                best_scores, v.best_rows, v.n_found, v.k, <floating>0,
                v.first_row + place)
        if not v.marks[place] or v.marks[place] & IS_DONE:
            v.sums[place] = DONE


cdef Py_ssize_t prune(Visit* v, int32_t limit) noexcept nogil:
    """Find the items whose sum is at least `limit`; return their number."""
    cdef Py_ssize_t n_candidates = 0, i
    cdef int32_t n_large = 0, place
    if v.listed != NULL:
        n_large = find_listed(v, limit)
    elif limit <= 65535:
        n_large = find_sums(v.sums, v.n_items, <uint16_t>limit, v.found)
    for i in range(n_large):
        place = v.found[i]
        if is_eligible(v, place):
            prefetch(&v.indptr[place])
            v.candidates[n_candidates].sum = v.sums[place]
            v.candidates[n_candidates].place = place
            n_candidates += 1
    return n_candidates


cdef void score_candidates(
    Visit* v, Py_ssize_t n_candidates, const floating* query, floating* best_scores
) noexcept nogil:
    """Score candidates, largest sum first, until the others are not among the best."""
    cdef int64_t[N_GROUP] group
    cdef Py_ssize_t n_group, i
    cdef int32_t place
    for i in range(n_candidates // 2 - 1, -1, -1):
        sink(v.candidates, n_candidates, i, v.candidates[i])
    while n_candidates > 0 and v.candidates[0].sum >= find_limit(v, best_scores[0]):
        n_group = 0
        while n_candidates > 0 and n_group < N_GROUP:
            place = v.candidates[0].place
            group[n_group] = place
            fetch_row(v, place, query)
            v.n_summed += MISS + v.indptr[place + 1] - v.indptr[place]
            n_group += 1
            n_candidates -= 1
            sink(v.candidates, n_candidates, 0, v.candidates[n_candidates])
        score_rows(v, n_group, group, query, best_scores)


cdef inline bint is_eligible(const Visit* v, int32_t place) noexcept nogil:
    return v.alive[place] and not is_listed(
        v.first_row + place, v.excluded, v.excluded_begin, v.excluded_end)


def finish_search(
    const int64_t[::1] n_found,          # in
    floating[:, ::1] best_scores,        # in, out: heaps on entry, sorted on return
    int64_t[:, ::1] best_rows,           # in, out
):
    """Sort the best items of each query."""
    cdef Py_ssize_t query
    with nogil:
        for query in range(best_scores.shape[0]):
            sort_best(&best_scores[query, 0], &best_rows[query, 0], n_found[query])
