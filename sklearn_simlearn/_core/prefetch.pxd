"""Prefetch memory of postings that are read soon; header only."""

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define SIMLEARN_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define SIMLEARN_PREFETCH(address) ((void)(address))
    #endif
    """
    void prefetch "SIMLEARN_PREFETCH" (const void* address) noexcept nogil
