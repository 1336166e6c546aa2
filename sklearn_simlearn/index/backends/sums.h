/* Loops over the 16-bit sums of the inverted file; header only. */
#ifndef SIMLEARN_SUMS_H
#define SIMLEARN_SUMS_H

#include "simd.h"

/* sums[i] += (factor * codes[i] + constant) / 256, or one more.
 *
 * All operations use 16 bits, for which there are vector instructions: the magnitude of
 * a product is rounded down, and then the sign is applied.
 */
SIMLEARN_CLONES
static void add_codes(const uint8_t *codes, int32_t n, int32_t factor, int32_t constant,
                      uint16_t *sums)
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

/* Append the positions from `first` to `last` whose sum is at least `limit`. */
static inline int32_t append_large(const uint16_t *sums, int32_t first, int32_t last,
                                   uint16_t limit, int32_t n_found, int32_t *out)
{
    for (int32_t i = first; i < last; i++) {
        out[n_found] = i; /* overwritten unless counted */
        n_found += sums[i] >= limit;
    }
    return n_found;
}

/* Return whether one of 64 sums is at least `limit`, and one of 8 sums.
 *
 * Compilers leave the plain loop scalar. The vectors of GCC and Clang are two to three
 * instructions per 8 sums on any x86-64: SSE2 compares signed numbers only, so both
 * sides are moved down by 2^15.
 */
#ifdef __GNUC__
typedef int16_t simlearn_int16x8 __attribute__((vector_size(16)));
typedef uint64_t simlearn_uint64x2 __attribute__((vector_size(16)));

static inline simlearn_int16x8 compare_8(const uint16_t *sums, uint16_t limit)
{
    const int16_t s = INT16_MIN, b = (int16_t)(limit - 1 - 32768);
    const simlearn_int16x8 shift = {s, s, s, s, s, s, s, s};
    const simlearn_int16x8 below = {b, b, b, b, b, b, b, b};
    simlearn_int16x8 part;
    __builtin_memcpy(&part, sums, sizeof part); /* of any alignment */
    return (simlearn_int16x8)((part ^ shift) > below);
}

static inline int is_any(simlearn_int16x8 mask)
{
    const simlearn_uint64x2 halves = (simlearn_uint64x2)mask;
    return (halves[0] | halves[1]) != 0;
}

static inline int has_large_64(const uint16_t *sums, uint16_t limit)
{
    simlearn_int16x8 any = compare_8(sums, limit);
    for (int j = 8; j < 64; j += 8)
        any |= compare_8(sums + j, limit);
    return is_any(any);
}

static inline int has_large_8(const uint16_t *sums, uint16_t limit)
{
    return is_any(compare_8(sums, limit));
}
#else
static inline int has_large_64(const uint16_t *sums, uint16_t limit)
{
    uint16_t any = 0;
    for (int j = 0; j < 64; j++)
        any |= sums[j] >= limit;
    return any;
}

static inline int has_large_8(const uint16_t *sums, uint16_t limit)
{
    return 1;
}
#endif

/* Positions of the sums of at least `limit`, in order; returns their number.
 *
 * `limit` is at least 1. Not inlined, so that a test can look at its instructions.
 */
#ifdef __GNUC__
__attribute__((noinline, unused))
#endif
static int32_t find_sums(const uint16_t *sums, int32_t n, uint16_t limit, int32_t *out)
{
    int32_t n_found = 0, i = 0;
    for (; i + 64 <= n; i += 64)
        if (has_large_64(sums + i, limit))
            for (int32_t j = i; j < i + 64; j += 8)
                if (has_large_8(sums + j, limit))
                    n_found = append_large(sums, j, j + 8, limit, n_found, out);
    return append_large(sums, i, n, limit, n_found, out);
}

#endif
