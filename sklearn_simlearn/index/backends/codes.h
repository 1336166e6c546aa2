/* Bounds of the scores of dense items by codes of 8, 4 and 2 bits; header only.
 *
 * Codes of 64 items are interleaved: a *word* holds 4 bytes of one item, and the words
 * of all 64 items follow each other. The 32-bit lanes of a vector therefore belong to
 * different items. A product of codes adds 4 terms to each lane, and sums across lanes
 * are not needed. A word holds 4 codes of 8 bits, 8 of 4 bits or 16 of 2 bits: the
 * lowest bits of its bytes first.
 *
 * There is a version of the loops for AVX-512 with VNNI, one for AVX2 and one in plain
 * C. `code_instructions` in pack.h selects one for the processor. Sums of codes are
 * integers, and all versions round in the same way, so bounds of equal codes are equal.
 */
#ifndef SIMLEARN_CODES_H
#define SIMLEARN_CODES_H

#include <math.h>

#include "simd.h"

enum { SIMLEARN_GROUP = 64 };

/* Codes of 64 items: words of 8, 4 and 2 bits. Graded codes have no steps; the four
 * bytes of another word at the end are multiplied with the `norms` of the query. */
typedef struct {
    const uint8_t *codes;
    const float *steps;
    const float *errors;
    ptrdiff_t n_words[3];
} CodedItems;

/* Codes of queries, in rows of `n_words` words. The sum of an item begins at `start`. The
 * sum of its codes of 8 bits is divided by 2^shift, rounded down, and added to `middle`:
 * weights of 8-bit codes are smaller than those of other codes. */
typedef struct {
    const int8_t *codes;
    const int32_t *start;
    const int32_t *shift;
    const int32_t *middle;
    const float *steps;
    const float *reach;
    const int8_t *norms;
    const float *norm_steps;
    ptrdiff_t n_words;
} CodedQueries;

/* bounds[q * stride + i], and the largest of them in tops[q * stride / 64]:
 *
 *     steps[q] * sum * steps[i] + reach[q] * errors[i]
 *     steps[q] * sum + reach[q] + norm_steps[q] * norm_sum        of graded codes
 */
static void bound_plain(const CodedItems *items, const CodedQueries *queries,
                        ptrdiff_t q, float *bounds, ptrdiff_t stride, float *tops)
{
    const int8_t *k = queries->codes + 4 * q * queries->n_words;
    const uint8_t *c = items->codes;
    const float step = queries->steps[q], reach = queries->reach[q];
    int32_t sums[SIMLEARN_GROUP];
    float top = -INFINITY;
    for (int i = 0; i < SIMLEARN_GROUP; i++)
        sums[i] = queries->start[q];
    for (int grade = 0; grade < 3; grade++) {
        const int bits = 8 >> grade, mask = (1 << bits) - 1;
        for (ptrdiff_t w = 0; w < items->n_words[grade]; w++, c += 4 * SIMLEARN_GROUP)
            for (int shift = 0; shift < 8; shift += bits, k += 4)
                for (int i = 0; i < SIMLEARN_GROUP; i++)
                    sums[i] += ((c[4 * i] >> shift) & mask) * k[0] +
                               ((c[4 * i + 1] >> shift) & mask) * k[1] +
                               ((c[4 * i + 2] >> shift) & mask) * k[2] +
                               ((c[4 * i + 3] >> shift) & mask) * k[3];
        if (grade == 0)
            for (int i = 0; i < SIMLEARN_GROUP; i++)
                sums[i] = (sums[i] >> queries->shift[q]) + queries->middle[q];
    }
    bounds += q * stride;
    for (int i = 0; i < SIMLEARN_GROUP; i++) {
        if (items->steps) {
            bounds[i] = (float)sums[i] * step * items->steps[i] + reach * items->errors[i];
        } else {
            int32_t norm = 0;
            for (int j = 0; j < 4; j++)
                norm += c[4 * i + j] * queries->norms[4 * q + j];
            bounds[i] = (float)sums[i] * step + reach + queries->norm_steps[q] * (float)norm;
        }
        top = bounds[i] > top ? bounds[i] : top;
    }
    tops[q * (stride / SIMLEARN_GROUP)] = top;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define SIMLEARN_TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define SIMLEARN_NAME(name) name##_vnni
#define SIMLEARN_LANES 16
#define SIMLEARN_DOT(sum, items, query) \
    (vector)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(items), (__m512i)(query))
#define SIMLEARN_MAX(a, b) (reals)_mm512_max_ps((__m512)(a), (__m512)(b))
#define SIMLEARN_QUERIES 6
#define SIMLEARN_ROWS(n) 4
#include "codes_loop.h"

/* Sums of two products saturate at 2^15, so codes of queries are at most 63. */
#define SIMLEARN_TARGET __attribute__((target("avx2")))
#define SIMLEARN_NAME(name) name##_avx2
#define SIMLEARN_LANES 8
#define SIMLEARN_DOT(sum, items, query)                                     \
    ((sum) + (vector)_mm256_madd_epi16(                                     \
                 _mm256_maddubs_epi16((__m256i)(items), (__m256i)(query)),  \
                 _mm256_set1_epi16(1)))
#define SIMLEARN_MAX(a, b) (reals)_mm256_max_ps((__m256)(a), (__m256)(b))
#define SIMLEARN_QUERIES 4
#define SIMLEARN_ROWS(n) (8 / (n))
#include "codes_loop.h"
#endif

/* Bounds of 64 items for all queries; see `bound_plain`. */
static void bound_group(const CodedItems *items, const CodedQueries *queries,
                        ptrdiff_t n_queries, int instructions, float *bounds,
                        ptrdiff_t stride, float *tops)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (instructions == 2) {
        bound_vnni(items, queries, n_queries, bounds, stride, tops);
        return;
    }
    if (instructions == 1) {
        bound_avx2(items, queries, n_queries, bounds, stride, tops);
        return;
    }
#endif
    (void)instructions;
    for (ptrdiff_t q = 0; q < n_queries; q++)
        bound_plain(items, queries, q, bounds, stride, tops);
}

#endif
