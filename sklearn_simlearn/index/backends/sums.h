/* Loops over the 16-bit sums of the inverted file; header only.
 *
 * There is a version of the loops for AVX-512, one for AVX2 and one for other
 * processors.
 */
#ifndef SIMLEARN_SUMS_H
#define SIMLEARN_SUMS_H

#include "simd.h"

/* Codes of all items for a word. */
typedef struct {
    const uint8_t *codes;
    uint16_t magnitude, sign;
} CodeRow;

/* Return a row of which code c adds (factor * c) / 256, or less by at most 1. */
static inline CodeRow make_row(const uint8_t *codes, int32_t factor)
{
    const uint16_t magnitude = (uint16_t)(factor < 0 ? -factor : factor);
    const CodeRow row = {codes, magnitude, factor < 0 ? 0xffff : 0};
    return row;
}

/* All operations use 16 bits, for which there are vector instructions: the magnitude of
 * a product is rounded down, and then the sign is applied. */
static inline uint16_t part_of_code(CodeRow row, int32_t i)
{
    const uint16_t code = (uint16_t)(row.codes[i] << 8);
    return (uint16_t)(((uint32_t)code * row.magnitude) >> 16) ^ row.sign;
}

/* Numbers of postings and of codes of a row that are loaded from memory ahead. The
 * processor alone stops at the end of each page. */
enum { POSTINGS_AHEAD = 512, CODES_AHEAD = 1024 };

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

/* Compilers do not vectorise the plain loop. With the vector types of GCC and Clang, it
 * takes two to three instructions per 8 sums. SSE2 compares signed numbers only, so 2^15
 * is subtracted from both sides. The function is not inlined, so that a test can check
 * its instructions. */
#ifdef __GNUC__
typedef int16_t SumVector __attribute__((vector_size(16)));
typedef uint64_t SumWords __attribute__((vector_size(16)));

static inline int any_large(const uint16_t *sums, int32_t n, uint16_t limit)
{
    const int16_t least = (int16_t)(limit - 1 - 32768);
    SumVector any = {0}, part;
    for (int32_t i = 0; i < n; i += 8) {
        __builtin_memcpy(&part, sums + i, sizeof part); /* of any alignment */
        any |= (SumVector)((part ^ (int16_t)INT16_MIN) > least);
    }
    const SumWords words = (SumWords)any;
    return (words[0] | words[1]) != 0;
}

__attribute__((noinline)) static int32_t find_sums_plain(
    const uint16_t *sums, int32_t n, uint16_t limit, int32_t *out)
{
    int32_t n_found = 0, i = 0;
    for (; i + 128 <= n; i += 128)
        if (any_large(sums + i, 128, limit))
            for (int32_t j = i; j < i + 128; j += 8)
                if (any_large(sums + j, 8, limit))
                    n_found = append_large(sums, j, j + 8, limit, n_found, out);
    return append_large(sums, i, n, limit, n_found, out);
}
#else
#define find_sums_plain(sums, n, limit, out) append_large(sums, 0, n, limit, 0, out)
#endif

#define SIMLEARN_TARGET
#define SIMLEARN_NAME(name) name##_plain
#include "sums_loop.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define SIMLEARN_TARGET __attribute__((target("avx512bw")))
#define SIMLEARN_NAME(name) name##_avx512
#define SIMLEARN_VECTOR __m512i
#define SIMLEARN_LOAD(from) _mm512_loadu_si512(from)
#define SIMLEARN_REPEAT(number) _mm512_set1_epi16(number)
#define SIMLEARN_MAX(a, b) _mm512_max_epu16(a, b)
#define SIMLEARN_AT_LEAST(a, b) _mm512_cmpge_epu16_mask(a, b)
#include "sums_loop.h"

/* A mask of bytes; the lower one of each sum is used. */
#define SIMLEARN_TARGET __attribute__((target("avx2")))
#define SIMLEARN_NAME(name) name##_avx2
#define SIMLEARN_VECTOR __m256i
#define SIMLEARN_LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define SIMLEARN_REPEAT(number) _mm256_set1_epi16(number)
#define SIMLEARN_MAX(a, b) _mm256_max_epu16(a, b)
#define SIMLEARN_AT_LEAST(a, b)                                                 \
    ((uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi16(SIMLEARN_MAX(a, b), a)) & \
     0x55555555u)
#include "sums_loop.h"

#define SIMLEARN_CALL(name, ...)                                               \
    (__builtin_cpu_supports("avx512bw") ? name##_avx512(__VA_ARGS__)           \
     : __builtin_cpu_supports("avx2")   ? name##_avx2(__VA_ARGS__)             \
                                        : name##_plain(__VA_ARGS__))
#else
#define SIMLEARN_CALL(name, ...) name##_plain(__VA_ARGS__)
#endif

/* Positions of the sums of at least `limit`, in order; returns their number. `limit` is
 * at least 1. */
static inline int32_t find_sums(const uint16_t *sums, int32_t n, uint16_t limit,
                                int32_t *out)
{
    return SIMLEARN_CALL(find_sums, sums, n, limit, out);
}

/* sums[places[i]] += the part of code i + constant */
static inline void add_postings(CodeRow row, const uint16_t *places, int32_t n,
                                uint16_t constant, uint16_t *sums)
{
    SIMLEARN_CALL(add_postings, row, places, n, constant, sums);
}

/* sums[i] += the parts of the codes of all rows + constant */
static inline void add_rows(const CodeRow *rows, int32_t n_rows, int32_t n,
                            uint16_t constant, uint16_t *sums)
{
    for (; n_rows >= 4; n_rows -= 4, rows += 4, constant = 0)
        SIMLEARN_CALL(add_four, rows, n, constant, sums);
    for (; n_rows > 0; n_rows--, rows++, constant = 0)
        SIMLEARN_CALL(add_one, rows, n, constant, sums);
}

#endif
