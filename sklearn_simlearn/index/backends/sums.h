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

/* sums[i] = value */
SIMLEARN_CLONES
static void fill_sums(uint16_t *sums, int32_t n, uint16_t value)
{
    for (int32_t i = 0; i < n; i++)
        sums[i] = value;
}

/* Sum of an item before any list is read: the bound of its dense part, rounded up. The
 * product is at most 60,000, so its rounding error is less than 1. */
static inline uint16_t start_sum(float bound, float low, float factor, int32_t origin)
{
    const float gain = (bound - low) * factor;
    return (uint16_t)(origin + 2 + (int32_t)(gain > 0 ? gain : 0));
}

SIMLEARN_CLONES
static void start_sums(const float *bounds, int32_t n, float low, float factor,
                       int32_t origin, uint16_t *sums)
{
    for (int32_t i = 0; i < n; i++)
        sums[i] = start_sum(bounds[i], low, factor, origin);
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

/* Positions of the sums of at least `limit`, in order; returns their number.
 *
 * `limit` is at least 1. Compilers leave the plain loop scalar. The vectors of GCC and
 * Clang are two to three instructions per 8 or 16 sums: SSE2 and AVX2 compare signed
 * numbers only, so both sides are moved down by 2^15. GCC splits vectors that are wider
 * than those of the processor into single sums, so there is a function per width. They
 * are not inlined, so a test can look at their instructions.
 */
#ifdef __GNUC__
#define SIMLEARN_FIND_SUMS(name, n_lanes)                                            \
    typedef int16_t name##_vector __attribute__((vector_size(2 * n_lanes)));         \
    typedef uint64_t name##_words __attribute__((vector_size(2 * n_lanes)));         \
    SIMLEARN_TARGET static inline int name##_any(const uint16_t *sums, int32_t n,    \
                                                 uint16_t limit)                     \
    {                                                                                \
        const int16_t least = (int16_t)(limit - 1 - 32768);                          \
        name##_vector any = {0}, part;                                               \
        for (int32_t i = 0; i < n; i += n_lanes) {                                   \
            __builtin_memcpy(&part, sums + i, sizeof part); /* of any alignment */   \
            any |= (name##_vector)((part ^ (int16_t)INT16_MIN) > least);             \
        }                                                                            \
        const name##_words words = (name##_words)any;                                \
        uint64_t bits = 0;                                                           \
        for (int i = 0; i < n_lanes / 4; i++)                                        \
            bits |= words[i];                                                        \
        return bits != 0;                                                            \
    }                                                                                \
    SIMLEARN_TARGET __attribute__((noinline, unused)) static int32_t name(           \
        const uint16_t *sums, int32_t n, uint16_t limit, int32_t *out)               \
    {                                                                                \
        int32_t n_found = 0, i = 0;                                                  \
        for (; i + 128 <= n; i += 128)                                               \
            if (name##_any(sums + i, 128, limit))                                    \
                for (int32_t j = i; j < i + 128; j += n_lanes)                       \
                    if (name##_any(sums + j, n_lanes, limit))                        \
                        n_found =                                                    \
                            append_large(sums, j, j + n_lanes, limit, n_found, out); \
        return append_large(sums, i, n, limit, n_found, out);                        \
    }

#define SIMLEARN_TARGET
SIMLEARN_FIND_SUMS(find_sums_16, 8)
#undef SIMLEARN_TARGET
#ifdef __x86_64__
#define SIMLEARN_TARGET __attribute__((target("avx2")))
SIMLEARN_FIND_SUMS(find_sums_32, 16)
#undef SIMLEARN_TARGET
#endif
#endif

static inline int32_t find_sums(const uint16_t *sums, int32_t n, uint16_t limit,
                                int32_t *out)
{
#if defined(__GNUC__) && defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return find_sums_32(sums, n, limit, out);
#endif
#ifdef __GNUC__
    return find_sums_16(sums, n, limit, out);
#else
    return append_large(sums, 0, n, limit, 0, out);
#endif
}

#endif
