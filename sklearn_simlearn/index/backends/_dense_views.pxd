"""Views of codes of dense items and queries for the loops of codes.h; header only."""

from libc.stdint cimport int8_t, int32_t, uint8_t

from sklearn_simlearn.index.backends._dense_codes_fast cimport (
    GROUP, Block, Graded, Queries
)


cdef extern from "codes.h":
    ctypedef struct CodedItems:
        const uint8_t* codes
        const float* steps
        const float* errors
        Py_ssize_t[3] n_words
    ctypedef struct CodedQueries:
        const int8_t* codes
        const int32_t* start
        const int32_t* shift
        const int32_t* middle
        const float* steps
        const float* reach
        const int8_t* norms
        const float* norm_steps
        Py_ssize_t n_words
    void bound_group(
        const CodedItems* items, const CodedQueries* queries, Py_ssize_t n_queries,
        int instructions, float* bounds, Py_ssize_t stride, float* tops) noexcept nogil


cdef inline CodedQueries view_queries(
    Queries queries, Py_ssize_t first
) noexcept nogil:
    """Return the 8-bit codes of the queries from `first` on."""
    cdef CodedQueries view
    view.codes, view.start = &queries.codes[first, 0], &queries.start[first]
    view.shift = view.middle = &queries.zeros[first]
    view.steps, view.reach = &queries.steps[first], &queries.reach[first]
    view.norms = NULL
    view.norm_steps = NULL
    view.n_words = queries.codes.shape[1] // 4
    return view


cdef inline CodedItems view_group(Block block, Py_ssize_t number) noexcept nogil:
    """Return the 8-bit codes of a group of items."""
    cdef CodedItems group
    group.codes = &block.codes[number, 0, 0, 0]
    group.steps = &block.steps[number * GROUP]
    group.errors = &block.errors[number * GROUP]
    group.n_words[0] = block.codes.shape[1]
    group.n_words[1] = group.n_words[2] = 0
    return group


cdef inline CodedQueries view_graded_queries(Graded graded) noexcept nogil:
    """Return the codes of all queries for graded codes of items."""
    cdef CodedQueries view
    view.codes, view.start = &graded.codes[0, 0], &graded.start[0]
    view.shift, view.middle = &graded.shift[0], &graded.middle[0]
    view.steps, view.reach = &graded.steps[0], &graded.base[0]
    view.norms, view.norm_steps = &graded.norms[0, 0], &graded.norm_steps[0]
    view.n_words = graded.codes.shape[1] // 4
    return view


cdef inline CodedItems view_graded_group(
    Graded graded, Py_ssize_t number
) noexcept nogil:
    """Return the graded codes of a group of items."""
    cdef CodedItems group
    group.codes = &graded.items[number, 0, 0, 0]
    group.steps = group.errors = NULL
    group.n_words = graded.n_words
    return group
