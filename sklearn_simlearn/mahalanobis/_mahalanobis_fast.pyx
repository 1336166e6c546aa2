"""Kernels of SparseMahalanobisLearner: walks through the inverted file.

Notation and equation labels are those of doc/learners/mahalanobis.rst. M is symmetric
with one unknown for each pair of words in its support. `entry_*` lists, for each word,
its entries of M: the number of the pair, and the postings of the other word.

Sums over queries are kept apart by *part*, a fixed share of the queries, and added up
in the order of the parts: results do not depend on the number of threads.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport qsort
import numpy as np

from sklearn_simlearn._core.prefetch cimport prefetch

# Postings are short and lie anywhere: ask for them this many words ahead.
cdef enum:
    AHEAD = 6

# Unknowns that a thread adds up at a time.
cdef enum:
    CHUNK = 4096

# A relevant item, with the score that an irrelevant one must stay below.
cdef struct Threshold:
    double score
    int32_t place  # among the relevant items, in the order of the mined ranking


def find_common(
    Py_ssize_t first,                    # the words from here
    const int64_t[::1] start,            # in: words as rows, of unit length
    const int32_t[::1] items,            # in
    const floating[::1] item_values,     # in
    const int64_t[::1] indptr,           # in: items as rows, with the same values
    const int32_t[::1] words,            # in
    const floating[::1] values,          # in
    int n_threads,
    int32_t[:, ::1] nearest,             # out: words with the largest products, or -1
):
    """The words that are most often in the same items; the lower ones on a tie."""
    cdef Py_ssize_t n_words = start.shape[0] - 1, n_nearest = nearest.shape[1]
    cdef Py_ssize_t row, n_touched, i, place
    cdef int64_t p, k
    cdef int32_t word, other
    cdef floating step
    cdef int t
    cdef floating[:, ::1] score = np.zeros(
        (n_threads, n_words), dtype=np.asarray(values).dtype)
    cdef int32_t[:, ::1] touched = np.empty((n_threads, n_words), dtype=np.int32)

    for row in prange(
        nearest.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        t = threadid()
        word = <int32_t>(first + row)
        n_touched = 0
        for p in range(start[word], start[word + 1]):
            for k in range(indptr[items[p]], indptr[items[p] + 1]):
                step = item_values[p] * values[k]
                if step > 0:  # no underflow, so a word that has a score is listed
                    if score[t, words[k]] == 0:
                        touched[t, n_touched] = words[k]
                        n_touched = n_touched + 1
                    score[t, words[k]] += step
        score[t, word] = 0
        for place in range(n_nearest):
            nearest[row, place] = -1
        for i in range(n_touched):
            other = touched[t, i]
            if other != word:
                place = n_nearest
                while place > 0 and is_closer(
                    other, nearest[row, place - 1], &score[t, 0]
                ):
                    if place < n_nearest:
                        nearest[row, place] = nearest[row, place - 1]
                    place = place - 1
                if place < n_nearest:
                    nearest[row, place] = other
        for i in range(n_touched):
            score[t, touched[t, i]] = 0


cdef inline bint is_closer(
    int32_t word, int32_t rival, const floating* score
) noexcept nogil:
    if rival < 0 or score[word] > score[rival]:
        return True
    return score[word] == score[rival] and word < rival


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
    """S_ii of every item."""
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
    """Losses of some queries, and how they change with M.

    (mahalanobis-gradient)  Each pair of a query and an item gets its share of the
    triplets it is in. What the self-similarities contribute is left in `self_slope`,
    the rest is added to `gradient`.
    """
    cdef Py_ssize_t n_visited = visited.shape[0], n_items = inverse_self.shape[0]
    cdef Py_ssize_t n_parts = gradient.shape[0], part, i, q
    cdef Py_ssize_t most_relevant = np.diff(mined.relevant_start).max(initial=0)
    cdef Py_ssize_t longest = np.diff(mined.ranked_start).max(initial=0)
    cdef int t

    # One row of scratch per thread.
    dtype = np.asarray(values).dtype
    cdef floating[:, ::1] score = np.empty((n_threads, n_items), dtype=dtype)
    cdef floating[:, ::1] slope = np.empty((n_threads, n_items), dtype=dtype)
    cdef double[:, ::1] unit = np.empty((n_threads, n_items))
    cdef double[:, ::1] share = np.zeros((n_threads, n_items))
    cdef double[:, :, ::1] tree = np.empty((n_threads, 3, most_relevant + 1))
    cdef int32_t[:, ::1] n_violated = np.empty((n_threads, longest + 1), dtype=np.int32)
    cdef Threshold[:, ::1] threshold = np.empty(
        (n_threads, most_relevant + 1),
        dtype=np.dtype([("score", "f8"), ("place", "i4")], align=True),
    )
    cdef int32_t[:, ::1] rank = np.empty((n_threads, most_relevant + 1), dtype=np.int32)

    for part in prange(
        n_parts, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=1
    ):
        t = threadid()
        for i in range(part * n_visited // n_parts, (part + 1) * n_visited // n_parts):
            q = visited[i]
            score_items(
                mined.queries[q], words, values, item_values, strength, inverse_self,
                &score[t, 0], &unit[t, 0])
            value[q] = mined.weight[q] * (
                add_ranked(
                    mined.ranked[mined.ranked_start[q]:mined.ranked_start[q + 1]],
                    mined.relevance[
                        mined.relevant_start[q]:mined.relevant_start[q + 1]],
                    margin, &unit[t, 0], tree[t], &n_violated[t, 0], &threshold[t, 0],
                    &rank[t, 0], &share[t, 0])
                + add_listed(mined, q, margin, &unit[t, 0], &share[t, 0])
            )
            if value[q] > 0.0:
                to_scores(
                    mined.queries[q], mined.weight[q], inverse_self, &score[t, 0],
                    &unit[t, 0], &share[t, 0], &slope[t, 0], &self_slope[part, 0])
                add_gradient(
                    mined.queries[q], words, values, item_values, &slope[t, 0],
                    &gradient[part, 0])
            else:
                # A sum of tiny losses may round to 0, but not their shares.
                clear(n_items, &share[t, 0])


cdef void score_items(
    Py_ssize_t query, Words w, const floating[::1] values,
    const floating[::1] item_values, const floating[::1] strength,
    const double[::1] inverse_self, floating* score, double* unit,
) noexcept nogil:
    """S_ij and its square over S_ii S_jj, for all items j."""
    cdef int64_t k, e, p, last = w.indptr[query + 1]
    cdef Py_ssize_t item, n_items = inverse_self.shape[0]
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
    for item in range(n_items):
        unit[item] = (score[item] * inverse_self[query]) * (
            score[item] * inverse_self[item])


cdef double add_ranked(
    const int32_t[::1] ranked, const double[::1] relevance, double margin,
    const double* unit, double[:, ::1] tree, int32_t* n_violated, Threshold* threshold,
    int32_t* rank, double* share,
) noexcept nogil:
    """Hinge of all pairs of a relevant item and an irrelevant one ranked above it.

    (mahalanobis-ranked)  An irrelevant item violates the thresholds, of relevant items
    ranked below it, that its score exceeds. Going up the ranking, the relevant items
    met so far are in Fenwick trees by the order of their thresholds, so the violated
    ones are a head of the tree. Going down, the irrelevant ones are, by how many
    thresholds they exceed.
    """
    cdef Py_ssize_t n_ranked = ranked.shape[0], n_relevant = relevance.shape[0]
    cdef Py_ssize_t r, place
    cdef double* weight = &tree[0, 0]
    cdef double* weighted = &tree[1, 0]
    cdef double* count = &tree[2, 0]
    cdef double loss = 0.0, violated, total
    cdef int32_t item, low, high, middle

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
    clear(n_relevant + 1, weight)
    clear(n_relevant + 1, weighted)
    clear(n_relevant + 1, count)

    place = n_relevant
    for r in range(n_ranked - 1, -1, -1):
        item = ranked[r]
        if item < 0:
            place -= 1
            low = rank[place]
            insert(weight, n_relevant, low, relevance[place])
            insert(weighted, n_relevant, low, relevance[place] * threshold[low].score)
        elif unit[item] > threshold[0].score:
            low, high = 1, <int32_t>n_relevant
            while low < high:
                middle = (low + high) // 2
                if threshold[middle].score < unit[item]:
                    low = middle + 1
                else:
                    high = middle
            n_violated[r] = low
            violated = head(weight, low)
            if violated > 0.0:
                share[item] += violated
                loss += violated * unit[item] - head(weighted, low)
        else:
            n_violated[r] = 0

    place, total = 0, 0.0
    for r in range(n_ranked):
        item = ranked[r]
        if item < 0:
            # All but those that exceed no more than the lower thresholds.
            violated = total - head(count, rank[place])
            share[~item] -= violated * relevance[place]
            place += 1
        elif n_violated[r] > 0:
            insert(count, n_relevant, n_violated[r] - 1, 1.0)
            total += 1.0
    return loss


cdef int compare_thresholds(const void* a, const void* b) noexcept nogil:
    cdef const Threshold* x = <const Threshold*>a
    cdef const Threshold* y = <const Threshold*>b
    if x.score != y.score:
        return 1 if x.score > y.score else -1
    return (x.place > y.place) - (x.place < y.place)


cdef inline void insert(
    double* tree, Py_ssize_t size, Py_ssize_t place, double amount
) noexcept nogil:
    """Add to a Fenwick tree."""
    cdef Py_ssize_t i = place + 1
    while i <= size:
        tree[i] += amount
        i += i & -i


cdef inline double head(const double* tree, Py_ssize_t n) noexcept nogil:
    """Sum of the first n places of a Fenwick tree."""
    cdef double total = 0.0
    while n > 0:
        total += tree[n]
        n -= n & -n
    return total


cdef double add_listed(
    Mined mined, Py_ssize_t q, double margin, const double* unit, double* share
) noexcept nogil:
    """Hinge of the triplets that are listed one by one."""
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


cdef void to_scores(
    Py_ssize_t query, double weight, const double[::1] inverse_self,
    const floating* score, const double* unit, double* share, floating* slope,
    double* self_slope,
) noexcept nogil:
    """From slopes in the normalised similarities to slopes in S_ij, S_ii and S_jj.

    The shares are cleared.
    """
    cdef Py_ssize_t item
    cdef double in_unit, own = 0.0
    for item in range(inverse_self.shape[0]):
        in_unit = weight * share[item]
        self_slope[item] -= in_unit * unit[item] * inverse_self[item]
        own += in_unit * unit[item]
        slope[item] = <floating>(
            2.0 * in_unit * score[item] * inverse_self[item] * inverse_self[query])
        share[item] = 0.0
    self_slope[query] -= own * inverse_self[query]


cdef void add_gradient(
    Py_ssize_t query, Words w, const floating[::1] values,
    const floating[::1] item_values, const floating* slope, double* gradient,
) noexcept nogil:
    """Add x_iu sum_j slope_j x_jv, for words u of a query and v linked to them."""
    cdef int64_t k, e, p, last = w.indptr[query + 1]
    cdef floating total
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
            total = 0.0
            for p in range(w.entry_range[e, 0], w.entry_range[e, 1]):
                total += slope[w.items[p]] * item_values[p]
            gradient[w.entry_pair[e]] += values[k] * total


cdef void clear(Py_ssize_t n, double* x) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        x[i] = 0.0


def collect(
    const double[:, ::1] self_slope,     # in: part, item
    const int64_t[::1] own_start,        # in
    const int32_t[::1] own_pair,         # in
    const floating[::1] own_value,       # in
    int n_threads,
    double[:, ::1] gradient,             # in, out: part, pair
    double[::1] out,                     # out
):
    """Add what self-similarities contribute, and sum up the parts."""
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
