"""Kernels of SparseMahalanobisLearner, which read the inverted file.

Notation and equation labels are those of doc/learners/mahalanobis.rst. M is symmetric
with one unknown for each pair of words in its support. `entry_*` lists, for each word,
its entries of M: the number of the pair, and the postings of the other word.

The queries are divided into a fixed number of *parts*. Sums over queries are kept per
part and added in the order of the parts, so results do not depend on the number of
threads.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport qsort
from libc.string cimport memset
import numpy as np

from sklearn_simlearn._core.prefetch cimport prefetch

# Postings are short and scattered: prefetch them this number of words ahead.
cdef enum:
    AHEAD = 6

# Number of unknowns that a thread adds up at a time.
cdef enum:
    CHUNK = 4096

# Number of thresholds whose sums are updated together.
cdef enum:
    SPAN = 64

# Relevant item, with the score below which irrelevant items must stay.
cdef struct Threshold:
    double score
    int32_t place  # index among the relevant items, in the order of the mined ranking


cdef inline void fetch_postings(
    int64_t first, int64_t last, const int32_t[::1] items,
    const floating[::1] item_values,
) noexcept nogil:
    if first < last:
        prefetch(&items[first])
        prefetch(&item_values[first])


def score_selves(
    const int64_t[::1] own_start,        # in: (mahalanobis-own)  dS_ii / dm as rows
    const int32_t[::1] own_pair,         # in
    const floating[::1] own_value,       # in
    const double[::1] m,                 # in
    int n_threads,
    double[::1] out,                     # out
):
    """Compute S_ii of every item."""
    cdef Py_ssize_t item
    cdef int64_t k
    cdef double total
    for item in prange(
        out.shape[0], nogil=True, num_threads=n_threads, schedule="static"
    ):
        total = 0.0
        for k in range(own_start[item], own_start[item + 1]):
            total = total + own_value[k] * m[own_pair[k]]
        out[item] = total


cdef class Words:
    """Items as rows and as postings, and the entries of M, without their values."""

    cdef const int64_t[::1] indptr          # in: items as rows
    cdef const int32_t[::1] words           # in
    cdef const int32_t[::1] items           # in: the postings
    cdef const int64_t[::1] entry_start     # in
    cdef const int32_t[::1] entry_pair      # in
    cdef const int64_t[:, ::1] entry_range  # in: first and last posting

    def __init__(self, indptr, words, items, entry_start, entry_pair, entry_range):
        self.indptr, self.words, self.items = indptr, words, items
        self.entry_start, self.entry_pair = entry_start, entry_pair
        self.entry_range = entry_range


cdef class Mined:
    """Triplets of the queries, implied by rankings and listed."""

    cdef const int64_t[::1] queries         # in: rows of the items
    cdef const double[::1] weight           # in: of each query's triplets
    cdef const int64_t[::1] ranked_start    # in: mined ranking of each query
    cdef const int32_t[::1] ranked          # in: item, or ~item if it is relevant
    cdef const int64_t[::1] relevant_start  # in
    cdef const double[::1] relevance        # in: of relevant items, as they are ranked
    cdef const int64_t[::1] listed_start    # in: listed triplets of each query
    cdef const int32_t[:, ::1] listed       # in: relevant and irrelevant item
    cdef const double[::1] listed_weight    # in

    def __init__(
        self, queries, weight, ranked_start, ranked, relevant_start, relevance,
        listed_start, listed, listed_weight,
    ):
        self.queries, self.weight = queries, weight
        self.ranked_start, self.ranked = ranked_start, ranked
        self.relevant_start, self.relevance = relevant_start, relevance
        self.listed_start, self.listed = listed_start, listed
        self.listed_weight = listed_weight


cdef class Scratch:
    """Arrays that are used for one query at a time: one row per thread."""

    cdef double[:, ::1] unit                # squared similarity of each item
    cdef double[:, ::1] share               # slope in `unit`; zero between queries
    cdef double[:, :, ::1] head             # weights of thresholds, as prefix sums
    cdef int32_t[:, :, ::1] count           # irrelevant items by violated thresholds
    cdef int32_t[:, ::1] n_violated         # thresholds that a ranked item violates
    cdef Threshold[:, ::1] threshold        # of relevant items, sorted
    cdef int32_t[:, ::1] rank               # of the threshold of a relevant item

    def __init__(self, Mined mined, Py_ssize_t n_items, int n_threads):
        n_relevant = np.diff(mined.relevant_start).max(initial=0) + 1
        longest = np.diff(mined.ranked_start).max(initial=0) + 1
        self.unit = np.empty((n_threads, n_items))
        self.share = np.zeros((n_threads, n_items))
        self.head = np.empty((n_threads, 2, n_relevant))
        self.count = np.empty((n_threads, 2, n_relevant), dtype=np.int32)
        self.n_violated = np.empty((n_threads, longest), dtype=np.int32)
        self.threshold = np.empty(
            (n_threads, n_relevant),
            dtype=np.dtype([("score", "f8"), ("place", "i4")], align=True),
        )
        self.rank = np.empty((n_threads, n_relevant), dtype=np.int32)


def differentiate(
    const int64_t[::1] visited,          # in: numbers of the queries to visit
    Mined mined,
    Words words,
    const floating[::1] values,          # in: of items as rows
    const floating[::1] item_values,     # in: of the postings
    const floating[::1] strength,        # in: M, entry by entry
    const double[::1] inverse_self,      # in: 1 / S_ii, or 0
    double margin,
    int n_threads,
    double[::1] value,                   # out: loss of each query
    double[:, ::1] self_slope,           # in, out: part, item
    double[:, ::1] gradient,             # in, out: part, pair
):
    """Compute the losses of some queries, and their derivatives by M.

    (mahalanobis-gradient)  The slope of a pair of a query and an item is a sum over the
    triplets of this pair. The contribution of the self-similarities is added to
    `self_slope`, the rest to `gradient`.
    """
    cdef Py_ssize_t n_visited = visited.shape[0], n_items = inverse_self.shape[0]
    cdef Py_ssize_t n_parts = gradient.shape[0], part, i, q
    cdef Scratch scratch = Scratch(mined, n_items, n_threads)
    cdef floating[:, ::1] score = np.empty(
        (n_threads, n_items), dtype=np.asarray(values).dtype)
    cdef int t

    for part in prange(
        n_parts, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=1
    ):
        t = threadid()
        for i in range(part * n_visited // n_parts, (part + 1) * n_visited // n_parts):
            q = visited[i]
            score_items(
                mined.queries[q], words, values, item_values, strength, n_items,
                &score[t, 0])
            value[q] = to_slopes(
                mined, q, inverse_self, margin, scratch, t, &score[t, 0],
                &self_slope[part, 0])
            if value[q] > 0.0:
                add_gradient(
                    mined.queries[q], words, values, item_values, &score[t, 0],
                    &gradient[part, 0])


def differentiate_scores(
    const int64_t[::1] visited,          # in: numbers of the queries to visit
    Mined mined,
    const double[::1] inverse_self,      # in: 1 / S_ii, or 0
    double margin,
    int n_threads,
    floating[:, ::1] score,              # in, out: S_ij, then slopes; query, item
    double[::1] value,                   # out: loss of each query
    double[:, ::1] self_slope,           # in, out: part, item
):
    """Compute the losses of some queries and their derivatives by S_ij and S_jj."""
    cdef Py_ssize_t n_visited = visited.shape[0], n_parts = self_slope.shape[0], part, i
    cdef Scratch scratch = Scratch(mined, inverse_self.shape[0], n_threads)
    cdef int t

    for part in prange(
        n_parts, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=1
    ):
        t = threadid()
        for i in range(part * n_visited // n_parts, (part + 1) * n_visited // n_parts):
            value[visited[i]] = to_slopes(
                mined, visited[i], inverse_self, margin, scratch, t, &score[i, 0],
                &self_slope[part, 0])


cdef double to_slopes(
    Mined mined, Py_ssize_t q, const double[::1] inverse_self, double margin,
    Scratch scratch, int t, floating* score, double* self_slope,
) noexcept nogil:
    """Return the loss of a query; replace its scores by the derivatives."""
    cdef Py_ssize_t item, query = mined.queries[q], n_items = inverse_self.shape[0]
    cdef double* unit = &scratch.unit[t, 0]
    cdef double* share = &scratch.share[t, 0]
    cdef double weight = mined.weight[q], loss, in_unit, own = 0.0

    for item in range(n_items):
        unit[item] = (score[item] * inverse_self[query]) * (
            score[item] * inverse_self[item])
    loss = add_ranked(
        mined.ranked[mined.ranked_start[q]:mined.ranked_start[q + 1]],
        mined.relevance[mined.relevant_start[q]:mined.relevant_start[q + 1]],
        margin, unit, scratch.head[t], scratch.count[t], &scratch.n_violated[t, 0],
        &scratch.threshold[t, 0], &scratch.rank[t, 0], share)
    loss += add_listed(mined, q, margin, unit, share)
    for item in range(n_items):
        in_unit = weight * share[item]
        self_slope[item] -= in_unit * unit[item] * inverse_self[item]
        own += in_unit * unit[item]
        score[item] = <floating>(
            2.0 * in_unit * score[item] * inverse_self[item] * inverse_self[query])
        share[item] = 0.0
    self_slope[query] -= own * inverse_self[query]
    return max(0.0, weight * loss)  # rounding may make tiny differences negative


cdef void score_items(
    Py_ssize_t query, Words w, const floating[::1] values,
    const floating[::1] item_values, const floating[::1] strength,
    Py_ssize_t n_items, floating* score,
) noexcept nogil:
    """Compute S_ij of all items j."""
    cdef int64_t k, e, p, last = w.indptr[query + 1]
    cdef Py_ssize_t item
    cdef floating step

    for item in range(n_items):
        score[item] = 0.0
    for k in range(w.indptr[query], last):
        if k + 3 * AHEAD < last:
            prefetch(&w.entry_start[w.words[k + 3 * AHEAD]])
        if k + 2 * AHEAD < last:
            e = w.entry_start[w.words[k + 2 * AHEAD]]
            prefetch(&w.entry_range[e, 0])
            prefetch(&strength[e])
        if k + AHEAD < last:
            for e in range(
                w.entry_start[w.words[k + AHEAD]], w.entry_start[w.words[k + AHEAD] + 1]
            ):
                fetch_postings(
                    w.entry_range[e, 0], w.entry_range[e, 1], w.items, item_values)
        for e in range(w.entry_start[w.words[k]], w.entry_start[w.words[k] + 1]):
            step = values[k] * strength[e]
            if step != 0.0:
                for p in range(w.entry_range[e, 0], w.entry_range[e, 1]):
                    score[w.items[p]] += step * item_values[p]


cdef double add_ranked(
    const int32_t[::1] ranked, const double[::1] relevance, double margin,
    const double* unit, double[:, ::1] head, int32_t[:, ::1] count, int32_t* n_violated,
    Threshold* threshold, int32_t* rank, double* share,
) noexcept nogil:
    """Compute the hinge of pairs of a relevant item and an irrelevant one above it.

    (mahalanobis-ranked)  Each relevant item has a threshold. An irrelevant item
    violates the thresholds of lower-ranked relevant items that its score exceeds. A
    first pass reads the ranking upwards. It keeps prefix sums of the weights of the
    relevant items read so far, in the order of their thresholds; the violated ones are
    a prefix. A second pass reads the ranking downwards. It counts the irrelevant items
    by the number of thresholds that they exceed.
    """
    cdef Py_ssize_t n_ranked = ranked.shape[0], n_relevant = relevance.shape[0]
    cdef Py_ssize_t r, place, n_blocks = n_relevant // SPAN + 1
    cdef double loss = 0.0, violated
    cdef int32_t item, low

    if n_relevant == 0:
        return 0.0
    place = 0
    for r in range(n_ranked):
        if ranked[r] < 0:
            threshold[place].score = unit[~ranked[r]] - margin
            threshold[place].place = <int32_t>place
            place += 1
    qsort(threshold, n_relevant, sizeof(Threshold), &compare_thresholds)
    for place in range(n_relevant):
        rank[threshold[place].place] = <int32_t>place
    memset(&head[0, 0], 0, (n_relevant + 1) * sizeof(double))
    memset(&head[1, 0], 0, n_blocks * sizeof(double))
    memset(&count[0, 0], 0, (n_relevant + 1) * sizeof(int32_t))
    memset(&count[1, 0], 0, n_blocks * sizeof(int32_t))

    place = n_relevant
    for r in range(n_ranked - 1, -1, -1):
        item = ranked[r]
        if item < 0:
            place -= 1
            insert(head, n_relevant, rank[place], relevance[place])
        else:
            low = count_below(threshold, n_relevant, unit[item])
            n_violated[r] = low
            violated = head[0, low] + head[1, low // SPAN]
            share[item] += violated
            loss += violated * unit[item]

    place = 0
    for r in range(n_ranked):
        item = ranked[r]
        if item < 0:
            low = rank[place]
            violated = relevance[place] * count_from(count, n_relevant, low)
            share[~item] -= violated
            loss -= violated * threshold[low].score
            place += 1
        elif n_violated[r] > 0:
            low = n_violated[r] - 1
            count[0, low] += 1
            count[1, low // SPAN] += 1
    return loss


cdef int compare_thresholds(const void* a, const void* b) noexcept nogil:
    cdef const Threshold* x = <const Threshold*>a
    cdef const Threshold* y = <const Threshold*>b
    if x.score != y.score:
        return 1 if x.score > y.score else -1
    return (x.place > y.place) - (x.place < y.place)


cdef inline int32_t count_below(
    const Threshold* threshold, Py_ssize_t n, double score
) noexcept nogil:
    """Return the number of thresholds below a score, by a search without branches."""
    cdef Py_ssize_t low = 0, half
    while n > 0:
        half = (n + 1) // 2
        low += half if threshold[low + half - 1].score < score else 0
        n -= half
    return <int32_t>low


cdef inline void insert(
    double[:, ::1] head, Py_ssize_t n, Py_ssize_t place, double amount
) noexcept nogil:
    """Update the prefix sums within blocks, and the sums of all earlier blocks."""
    cdef Py_ssize_t i, block = place // SPAN
    for i in range(place + 1, min(n + 1, (block + 1) * SPAN)):
        head[0, i] += amount
    for i in range(block + 1, n // SPAN + 1):
        head[1, i] += amount


cdef inline int32_t count_from(
    int32_t[:, ::1] count, Py_ssize_t n, Py_ssize_t place
) noexcept nogil:
    """Return the sum of the counts from an index to the end."""
    cdef Py_ssize_t i, block = place // SPAN
    cdef int32_t total = 0
    for i in range(place, min(n, (block + 1) * SPAN)):
        total += count[0, i]
    for i in range(block + 1, n // SPAN + 1):
        total += count[1, i]
    return total


cdef double add_listed(
    Mined mined, Py_ssize_t q, double margin, const double* unit, double* share
) noexcept nogil:
    """Compute the hinge of the listed triplets."""
    cdef int64_t k
    cdef int32_t relevant, irrelevant
    cdef double hinge, weight, loss = 0.0
    for k in range(mined.listed_start[q], mined.listed_start[q + 1]):
        relevant, irrelevant = mined.listed[k, 0], mined.listed[k, 1]
        hinge = unit[irrelevant] - unit[relevant] + margin
        if hinge > 0.0:
            weight = mined.listed_weight[k]
            loss += weight * hinge
            share[relevant] -= weight
            share[irrelevant] += weight
    return loss


cdef void add_gradient(
    Py_ssize_t query, Words w, const floating[::1] values,
    const floating[::1] item_values, const floating* slope, double* gradient,
) noexcept nogil:
    """Add x_iu sum_j slope_j x_jv for words u of the query and v that may match u."""
    cdef int64_t k, e, last = w.indptr[query + 1]
    for k in range(w.indptr[query], last):
        if k + 3 * AHEAD < last:
            prefetch(&w.entry_start[w.words[k + 3 * AHEAD]])
        if k + 2 * AHEAD < last:
            e = w.entry_start[w.words[k + 2 * AHEAD]]
            prefetch(&w.entry_range[e, 0])
            prefetch(&w.entry_pair[e])
        if k + AHEAD < last:
            for e in range(
                w.entry_start[w.words[k + AHEAD]], w.entry_start[w.words[k + AHEAD] + 1]
            ):
                fetch_postings(
                    w.entry_range[e, 0], w.entry_range[e, 1], w.items, item_values)
                prefetch(&gradient[w.entry_pair[e]])
        for e in range(w.entry_start[w.words[k]], w.entry_start[w.words[k] + 1]):
            gradient[w.entry_pair[e]] += values[k] * sum_postings(
                w.entry_range[e, 0], w.entry_range[e, 1], w.items, item_values, slope)


cdef inline floating sum_postings(
    int64_t first, int64_t last, const int32_t[::1] items,
    const floating[::1] item_values, const floating* slope,
) noexcept nogil:
    """Return sum_j slope_j x_jv over postings, by four independent sums."""
    cdef int64_t p = first
    cdef floating a = 0.0, b = 0.0, c = 0.0, d = 0.0
    while p + 4 <= last:
        a += slope[items[p]] * item_values[p]
        b += slope[items[p + 1]] * item_values[p + 1]
        c += slope[items[p + 2]] * item_values[p + 2]
        d += slope[items[p + 3]] * item_values[p + 3]
        p += 4
    while p < last:
        a += slope[items[p]] * item_values[p]
        p += 1
    return (a + b) + (c + d)


def collect(
    const double[:, ::1] self_slope,     # in: part, item
    const int64_t[::1] own_start,        # in
    const int32_t[::1] own_pair,         # in
    const floating[::1] own_value,       # in
    int n_threads,
    double[:, ::1] gradient,             # in, out: part, pair
    double[::1] out,                     # out
):
    """Add the contribution of the self-similarities, and sum the parts."""
    cdef Py_ssize_t n_parts = gradient.shape[0], n_items = self_slope.shape[1]
    cdef Py_ssize_t n_pairs = gradient.shape[1], n_chunks
    cdef Py_ssize_t part, item, p, i, chunk
    cdef int64_t k
    cdef double slope
    for part in prange(n_parts, nogil=True, num_threads=n_threads, schedule="static"):
        for item in range(part * n_items // n_parts, (part + 1) * n_items // n_parts):
            slope = 0.0
            for p in range(n_parts):
                slope = slope + self_slope[p, item]
            if slope != 0.0:
                for k in range(own_start[item], own_start[item + 1]):
                    gradient[part, own_pair[k]] += slope * own_value[k]
    n_chunks = (n_pairs + CHUNK - 1) // CHUNK
    for chunk in prange(n_chunks, nogil=True, num_threads=n_threads, schedule="static"):
        for i in range(chunk * CHUNK, min(n_pairs, (chunk + 1) * CHUNK)):
            out[i] = 0.0
        for p in range(n_parts):
            for i in range(chunk * CHUNK, min(n_pairs, (chunk + 1) * CHUNK)):
                out[i] += gradient[p, i]
