"""Kernels of HistogramRankSVM: scores, cuts and the small dual problem.

Notation and equation labels are those of doc/learners/histogram.rst. Counts are
truncated at n. A posting packs an item and its count of the word into one integer,
``item << COUNT_BITS | count``, so that one array is read instead of two.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport qsort
import numpy as np

from sklearn_simlearn._core.blas cimport axpy, dot
from sklearn_simlearn._core.prefetch cimport prefetch

cdef enum:
    N_COUNT_BITS = 4
    COUNT_MASK = 15

COUNT_BITS, MAX_COUNT = N_COUNT_BITS, COUNT_MASK

# Postings are short and scattered: prefetch them this number of words ahead.
cdef enum:
    AHEAD = 12

cdef fused relevance_t:
    int8_t  # relevant or not
    double  # graded relevance

# Score of a relevant item minus the margin of 1, with sums over the items before it in
# sorted order.
cdef struct Margin:
    double score
    Py_ssize_t item
    double weight_before
    double weighted_before


cdef class Words:
    """Words of queries as rows, and the inverted file of the items."""

    cdef const int64_t[::1] indptr          # in: queries as rows
    cdef const int32_t[::1] words           # in
    cdef const uint8_t[::1] counts          # in
    cdef const int64_t[::1] start           # in: the inverted file of the items
    cdef const uint32_t[::1] postings       # in
    cdef const int32_t[::1] group           # in: of each word

    def __init__(self, indptr, words, counts, start, postings, group):
        self.indptr, self.words, self.counts = indptr, words, counts
        self.start, self.postings, self.group = start, postings, group


def score_queries(
    Words words,
    const double[:, :, ::1] gain,        # in
    const double[::1] of_query,          # in: s(q, 0)
    const double[::1] of_item,           # in: s(0, d)
    const double[::1] scale,             # in: of each item
    int n_threads,
    floating[:, :] out,                  # out: rows contiguous
):
    """Compute the similarity of queries to items: (histogram-inverted)."""
    cdef Py_ssize_t n_items = out.shape[1]
    cdef Py_ssize_t query, d
    cdef int t
    cdef double[:, ::1] score = np.empty((n_threads, n_items))
    for query in prange(
        out.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        t = threadid()
        score_items(query, words, gain, of_item, scale, &score[t, 0])
        for d in range(n_items):
            out[query, d] = <floating>(of_query[query] + score[t, d])


cdef void score_items(
    Py_ssize_t query, Words w, const double[:, :, ::1] gain,
    const double[::1] of_item, const double[::1] scale, double* score,
) noexcept nogil:
    """Compute s(q, d) - s(q, 0) by the gains of shared words: (histogram-inverted)."""
    cdef int64_t k, p, last = w.indptr[query + 1]
    cdef Py_ssize_t d
    cdef const double* row
    for d in range(of_item.shape[0]):
        score[d] = of_item[d]
    for k in range(w.indptr[query], last):
        if k + 2 * AHEAD < last:
            prefetch(&w.start[w.words[k + 2 * AHEAD]])
            prefetch(&w.group[w.words[k + 2 * AHEAD]])
        if k + AHEAD < last:
            prefetch(&w.postings[w.start[w.words[k + AHEAD]]])
        row = &gain[w.group[w.words[k]], w.counts[k], 0]
        for p in range(w.start[w.words[k]], w.start[w.words[k] + 1]):
            score[w.postings[p] >> N_COUNT_BITS] += row[w.postings[p] & COUNT_MASK]
    for d in range(of_item.shape[0]):
        score[d] *= scale[d]


def find_cuts(
    const int64_t[::1] query_rows,       # in: items that query
    const relevance_t[:, ::1] relevance, # in: > 0 relevant, 0 irrelevant, < 0 left out
    Words words,                         # in: the items, which query each other
    const int32_t[:, :, ::1] totals,     # in: item, group, count
    const double[:, :, ::1] gain,        # in
    const double[::1] of_item,           # in: s(0, d)
    const double[::1] scale,             # in: of each item
    bint pairwise,                       # in: which loss
    int n_threads,
    double[::1] value,                   # out: loss of each query
    double[::1] offset,                  # out
    double[:, :, :, ::1] cut,            # out: query, group, count of query, of item
):
    """Compute the loss of each query and the plane that touches it from below.

    (histogram-cut)  offset + <cut, gain> equals the loss at the given gains and is at
    most the loss at any other. Row 0 of a group counts all words of the items, row
    j >= 1 counts the words that the query has j times.
    """
    cdef Py_ssize_t n_items = relevance.shape[1]
    cdef Py_ssize_t n_words = words.start.shape[0] - 1
    cdef Py_ssize_t i, d
    cdef int t

    # One row of scratch memory per thread.
    cdef Py_ssize_t n_margins = n_items + 1 if pairwise else 1
    cdef double[:, ::1] score = np.empty((n_threads, n_items))
    cdef double[:, ::1] share = np.zeros((n_threads, n_items))
    cdef double[:, ::1] head = np.empty((n_threads, n_margins))
    cdef Margin[:, ::1] margin = np.empty(
        (n_threads, n_margins),
        dtype=[("score", "f8"), ("item", np.intp), ("weight_before", "f8"),
               ("weighted_before", "f8")],
    )
    cdef uint8_t[:, ::1] query_count = np.zeros((n_threads, n_words), dtype=np.uint8)

    for i in prange(
        query_rows.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        t = threadid()
        score_items(query_rows[i], words, gain, of_item, scale, &score[t, 0])
        if pairwise:
            pair_loss(
                &relevance[i, 0], n_items, &score[t, 0], &margin[t, 0], &head[t, 0],
                &share[t, 0], &value[i], &offset[i],
            )
        else:
            max_loss(
                &relevance[i, 0], n_items, &score[t, 0], &share[t, 0], &value[i],
                &offset[i],
            )
        for d in range(n_items):
            share[t, d] *= scale[d]
        gather(
            query_rows[i], n_items, words, totals, &query_count[t, 0], &share[t, 0],
            &cut[i, 0, 0, 0])


cdef void max_loss(
    const relevance_t* relevance, Py_ssize_t n_items, const double* score,
    double* share, double* value, double* offset,
) noexcept nogil:
    """Compute the mean hinge of 1 - s(q, u) + the highest s(q, v): (histogram-max)."""
    cdef Py_ssize_t item, highest = -1
    cdef double total = 0.0, hinge

    for item in range(n_items):
        if relevance[item] > 0:
            total += relevance[item]
        elif relevance[item] == 0 and (highest < 0 or score[item] > score[highest]):
            highest = item

    value[0] = offset[0] = 0.0
    for item in range(n_items):
        if relevance[item] > 0:
            hinge = 1.0 - score[item] + score[highest]
            if hinge > 0.0:
                value[0] += relevance[item] / total * hinge
                offset[0] += relevance[item] / total
                share[item] = -relevance[item] / total
    share[highest] = offset[0]


cdef void pair_loss(
    const relevance_t* relevance, Py_ssize_t n_items, const double* score,
    Margin* margin, double* head, double* share, double* value, double* offset,
) noexcept nogil:
    """Compute the mean hinge of 1 - s(q, u) + s(q, v): (histogram-pairwise).

    An irrelevant item violates the margins s(q, u) - 1 below its score. These are the
    first of the sorted margins, so sums over them are prefix sums.
    """
    cdef Py_ssize_t item, k, high, middle, n_relevant = 0, n_irrelevant = 0
    cdef double weight = 0.0, weighted_margin = 0.0, total

    for item in range(n_items):
        if relevance[item] > 0:
            margin[n_relevant].score = score[item] - 1.0
            margin[n_relevant].item = item
            n_relevant += 1
        elif relevance[item] == 0:
            n_irrelevant += 1
    qsort(margin, n_relevant, sizeof(Margin), &compare_margins)
    for k in range(n_relevant + 1):
        margin[k].weight_before = weight
        margin[k].weighted_before = weighted_margin
        head[k] = 0.0
        if k < n_relevant:
            weight += relevance[margin[k].item]
            weighted_margin += relevance[margin[k].item] * margin[k].score
    total = weight * n_irrelevant

    value[0] = offset[0] = 0.0
    for item in range(n_items):
        if relevance[item] == 0:
            k, high = 0, n_relevant
            while k < high:
                middle = (k + high) // 2
                if margin[middle].score < score[item]:
                    k = middle + 1
                else:
                    high = middle
            head[k] += 1.0
            value[0] += (
                margin[k].weight_before * score[item] - margin[k].weighted_before)
            share[item] = margin[k].weight_before / total
            offset[0] += share[item]
    value[0] /= total

    # head[k]: irrelevant items that violate the first k margins, then the k-th.
    for k in range(n_relevant - 1, -1, -1):
        head[k] += head[k + 1]
        item = margin[k].item
        share[item] = -head[k + 1] * relevance[item] / total


cdef int compare_margins(const void* a, const void* b) noexcept nogil:
    cdef double x = (<const Margin*>a).score, y = (<const Margin*>b).score
    return (x > y) - (x < y)


cdef void gather(
    Py_ssize_t query, Py_ssize_t n_items, Words w, const int32_t[:, :, ::1] totals,
    uint8_t* query_count, double* share, double* cut,
) noexcept nogil:
    """Sum the counts of items with a share that match the query; clear the shares.

    Reads either the rows of these items or the postings of the query's words, whichever
    have fewer entries.
    """
    cdef int64_t k, p, n_along_rows = 0, n_along_postings = 0
    cdef Py_ssize_t item, g, count
    cdef Py_ssize_t n_groups = totals.shape[1], n_counts = totals.shape[2]
    cdef double* row

    for k in range(w.indptr[query], w.indptr[query + 1]):
        n_along_postings += w.start[w.words[k] + 1] - w.start[w.words[k]]
    for item in range(n_items):
        if share[item] != 0.0:
            n_along_rows += w.indptr[item + 1] - w.indptr[item]
            for g in range(n_groups):
                row = cut + g * n_counts * n_counts
                for count in range(n_counts):
                    row[count] += share[item] * totals[item, g, count]

    if n_along_rows < n_along_postings:
        for k in range(w.indptr[query], w.indptr[query + 1]):
            query_count[w.words[k]] = w.counts[k]
        for item in range(n_items):
            if share[item] != 0.0:
                for k in range(w.indptr[item], w.indptr[item + 1]):
                    if query_count[w.words[k]]:
                        row = cut + n_counts * (
                            w.group[w.words[k]] * n_counts + query_count[w.words[k]])
                        row[w.counts[k]] += share[item]
        for k in range(w.indptr[query], w.indptr[query + 1]):
            query_count[w.words[k]] = 0
    else:
        for k in range(w.indptr[query], w.indptr[query + 1]):
            row = cut + n_counts * (w.group[w.words[k]] * n_counts + w.counts[k])
            for p in range(w.start[w.words[k]], w.start[w.words[k] + 1]):
                row[w.postings[p] & COUNT_MASK] += share[w.postings[p] >> N_COUNT_BITS]

    for item in range(n_items):
        share[item] = 0.0


def ascend(
    const double[:, :, ::1] planes,      # in: query, slot, parameter
    const double[:, ::1] offsets,        # in
    double[:, ::1] mass,                 # in, out: dual variables
    const double[::1] capacity,          # in: largest sum of the masses of a query
    double alpha,
    double[::1] theta,                   # out
    Py_ssize_t n_sweeps,
):
    """Ascend the dual of (histogram-master), one pair of planes per step.

    A step moves mass from the lowest plane of a query that has mass to its highest
    plane, at most until both are equally high. One of the planes is the zero plane,
    which holds the rest of the capacity. Empty slots have offset -inf. The first sweep
    visits all queries; later sweeps visit the queries for which it made a step.

    Returns
    -------
    dual : float
        The dual objective at these masses: a lower bound.

    primal : float
        The objective of the planes at theta, never below the dual.
    """
    cdef Py_ssize_t n_queries = planes.shape[0]
    cdef Py_ssize_t n_slots = planes.shape[1]
    cdef Py_ssize_t n = planes.shape[2]
    cdef Py_ssize_t query, slot, highest, lowest, i, n_active, n_moved
    cdef Py_ssize_t sweep = 0
    cdef double height, top, bottom, free, norm2, step
    cdef double dual, primal
    cdef double[::1] direction = np.empty(n)
    cdef Py_ssize_t[::1] active = np.arange(n_queries)

    with nogil:
        find_theta(planes, mass, alpha, theta)
        n_active = n_queries
        while sweep < n_sweeps:
            n_moved = 0
            for i in range(n_active):
                query = active[i]
                free = capacity[query]
                for slot in range(n_slots):
                    free -= mass[query, slot]
                # -1 is the zero plane.
                highest = lowest = -1
                top = 0.0
                bottom = 0.0 if free > 1e-12 * capacity[query] else INFINITY
                for slot in range(n_slots):
                    if offsets[query, slot] == -INFINITY:
                        continue
                    height = offsets[query, slot] + dot(
                        n, &planes[query, slot, 0], &theta[0])
                    if height > top:
                        top, highest = height, slot
                    if mass[query, slot] > 0.0 and height < bottom:
                        bottom, lowest = height, slot
                if top <= bottom:
                    continue
                if sweep == 0:
                    active[n_moved] = query
                    n_moved += 1

                for slot in range(n):
                    direction[slot] = 0.0
                if highest >= 0:
                    axpy(n, 1.0, &planes[query, highest, 0], &direction[0])
                if lowest >= 0:
                    axpy(n, -1.0, &planes[query, lowest, 0], &direction[0])
                norm2 = dot(n, &direction[0], &direction[0])
                step = free if lowest < 0 else mass[query, lowest]
                if norm2 > 0.0:
                    step = min(step, alpha * (top - bottom) / norm2)
                if highest >= 0:
                    mass[query, highest] += step
                if lowest >= 0:
                    mass[query, lowest] -= step
                axpy(n, -step / alpha, &direction[0], &theta[0])
            if sweep == 0:
                n_active = n_moved
            sweep += 1

        # Compute theta again, so that rounding errors of the steps do not affect the
        # bound.
        find_theta(planes, mass, alpha, theta)
        primal = alpha / 2 * dot(n, &theta[0], &theta[0])
        dual = -primal
        for query in range(n_queries):
            top = 0.0
            for slot in range(n_slots):
                if offsets[query, slot] != -INFINITY:
                    dual += mass[query, slot] * offsets[query, slot]
                    height = offsets[query, slot] + dot(
                        n, &planes[query, slot, 0], &theta[0])
                    top = max(top, height)
            primal += capacity[query] * top
    return dual, primal


cdef void find_theta(
    const double[:, :, ::1] planes, const double[:, ::1] mass, double alpha,
    double[::1] theta,
) noexcept nogil:
    """Compute theta = -sum of mass * plane / alpha."""
    cdef Py_ssize_t query, slot
    theta[:] = 0.0
    for query in range(planes.shape[0]):
        for slot in range(planes.shape[1]):
            if mass[query, slot] > 0.0:
                axpy(
                    planes.shape[2], -mass[query, slot] / alpha,
                    &planes[query, slot, 0], &theta[0],
                )
