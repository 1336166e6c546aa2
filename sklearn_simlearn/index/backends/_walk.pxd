"""Addition of the lists of a query to the sums of a block; header only."""

from libc.stdint cimport int32_t, uint16_t

from sklearn_simlearn._core.prefetch cimport prefetch
from sklearn_simlearn.index.backends._visit cimport (
    CodeRow, List, Visit, add_postings, add_rows, make_row
)

# Number of rows that are added at a time.
cdef enum:
    N_ROWS = 8

# Marks of items.
cdef enum:
    HAS_WORD = 1
    IS_DONE = 2


cdef inline void walk_down_to(Visit* v, double rest) noexcept nogil:
    """Read lists until the other lists add at most `rest`."""
    cdef Py_ssize_t first = v.next_list
    while v.next_list < v.n_lists and v.lists[v.next_list].rest > rest:
        v.n_walked += v.lists[v.next_list].cost
        v.next_list += 1
    walk(v, first, v.next_list)


cdef inline void walk(Visit* v, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """Add some lists to the sums: rows first, several in one pass."""
    cdef CodeRow[N_ROWS] rows
    cdef int32_t n_rows = 0, constant = 0
    cdef Py_ssize_t i
    for i in range(first, last):
        if v.lists[i].is_row:
            rows[n_rows] = make_row(
                v.rows + v.lists[i].begin * v.n_items, v.lists[i].factor)
            constant += (v.lists[i].constant >> 8) + 1
            n_rows += 1
        if n_rows == N_ROWS or (n_rows > 0 and i == last - 1):
            add_rows(rows, n_rows, v.n_items, <uint16_t>constant, v.sums)
            n_rows = constant = 0
    for i in range(first, last):
        if not v.lists[i].is_row:
            walk_list(v, i)


cdef inline void walk_list(const Visit* v, Py_ssize_t i) noexcept nogil:
    """Add postings to the sums, and prefetch later ones."""
    cdef const List* walked = &v.lists[i]
    cdef const List* ahead = walked + 2
    cdef Py_ssize_t p
    if i + 2 < v.n_lists and not ahead.is_row:
        for p in range(ahead.begin, ahead.begin + min(ahead.length, 1024), 32):
            prefetch(&v.places[p])
        for p in range(ahead.begin, ahead.begin + min(ahead.length, 1024), 64):
            prefetch(&v.codes[p])
    add_postings(
        make_row(v.codes + walked.begin, walked.factor), v.places + walked.begin,
        walked.length, <uint16_t>((walked.constant >> 8) + 1), v.sums)


cdef inline void mark_list(Visit* v, const List* marked) noexcept nogil:
    """Mark the items of a list; all items if it is a row."""
    cdef Py_ssize_t p
    if marked.is_row:
        for p in range(marked.length):
            v.marks[p] |= HAS_WORD
    else:
        for p in range(marked.begin, marked.begin + marked.length):
            v.marks[v.places[p]] |= HAS_WORD
