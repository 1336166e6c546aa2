/* Loops of codes.h for one instruction set, defined by macros; included once for each.
 *
 * SIMLEARN_ROWS(n) vectors of items are multiplied with n queries at a time, so that all
 * sums stay in registers, and each code is loaded once for these queries.
 */
#define vector SIMLEARN_NAME(vector)
#define reals SIMLEARN_NAME(reals)

typedef int32_t vector __attribute__((vector_size(4 * SIMLEARN_LANES)));
typedef float reals __attribute__((vector_size(4 * SIMLEARN_LANES)));

/* Load a vector from memory of any alignment. */
SIMLEARN_TARGET __attribute__((always_inline)) static inline vector SIMLEARN_NAME(load)(
    const void *from)
{
    vector loaded;
    __builtin_memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

/* Vector of 4 bytes in each lane. */
SIMLEARN_TARGET __attribute__((always_inline)) static inline vector SIMLEARN_NAME(repeat)(
    const int8_t *bytes)
{
    int32_t word;
    __builtin_memcpy(&word, bytes, 4);
    return (vector){0} + word;
}

/* Add the products of words of codes of `n_bits` bits to the sums of n queries. */
SIMLEARN_TARGET __attribute__((always_inline)) static inline void SIMLEARN_NAME(add)(
    const int n, const int n_bits, ptrdiff_t n_words, const uint8_t *codes,
    const int8_t *k, ptrdiff_t stride, vector sums[6][8])
{
    const int mask = (1 << n_bits) - 1;
    for (ptrdiff_t w = 0; w < n_words; w++, codes += 4 * SIMLEARN_GROUP)
#pragma GCC unroll 4
        for (int shift = 0; shift < 8; shift += n_bits, k += 4) {
            vector c[8];
#pragma GCC unroll 8
            for (int r = 0; r < SIMLEARN_ROWS(n); r++) {
                c[r] = SIMLEARN_NAME(load)(codes + 4 * SIMLEARN_LANES * r);
                if (n_bits < 8)
                    c[r] = (c[r] >> shift) & (mask * 0x01010101);
            }
#pragma GCC unroll 6
            for (int j = 0; j < n; j++) {
                const vector query = SIMLEARN_NAME(repeat)(k + j * stride);
#pragma GCC unroll 8
                for (int r = 0; r < SIMLEARN_ROWS(n); r++)
                    sums[j][r] = SIMLEARN_DOT(sums[j][r], c[r], query);
            }
        }
}

/* Bounds of a part of a group for n queries from query q on; n is a constant. */
SIMLEARN_TARGET __attribute__((always_inline)) static inline void SIMLEARN_NAME(part)(
    const int n, const CodedItems *items, const CodedQueries *queries, ptrdiff_t first,
    ptrdiff_t q, float *bounds, ptrdiff_t stride, float *tops)
{
    vector sums[6][8];
    const ptrdiff_t *n_words = items->n_words, row = 4 * queries->n_words;
    const uint8_t *codes = items->codes + 4 * first;
    const int8_t *k = queries->codes + q * row;
#pragma GCC unroll 6
    for (int j = 0; j < n; j++)
#pragma GCC unroll 8
        for (int r = 0; r < SIMLEARN_ROWS(n); r++)
            sums[j][r] = (vector){0} + queries->start[q + j];
    SIMLEARN_NAME(add)(n, 8, n_words[0], codes, k, row, sums);
    codes += n_words[0] * 4 * SIMLEARN_GROUP, k += 4 * n_words[0];
#pragma GCC unroll 6
    for (int j = 0; j < n; j++)
#pragma GCC unroll 8
        for (int r = 0; r < SIMLEARN_ROWS(n); r++)
            sums[j][r] = (sums[j][r] >> queries->shift[q + j]) + queries->middle[q + j];
    SIMLEARN_NAME(add)(n, 4, n_words[1], codes, k, row, sums);
    codes += n_words[1] * 4 * SIMLEARN_GROUP, k += 8 * n_words[1];
    SIMLEARN_NAME(add)(n, 2, n_words[2], codes, k, row, sums);
    codes += n_words[2] * 4 * SIMLEARN_GROUP;
#pragma GCC unroll 6
    for (int j = 0; j < n; j++) {
        float *out = bounds + (q + j) * stride + first;
        float *top = tops + (q + j) * (stride / SIMLEARN_GROUP);
        const float step = queries->steps[q + j], reach = queries->reach[q + j];
        reals most;
#pragma GCC unroll 8
        for (int r = 0; r < SIMLEARN_ROWS(n); r++) {
            const ptrdiff_t i = SIMLEARN_LANES * r;
            reals bound = __builtin_convertvector(sums[j][r], reals) * step;
            if (items->steps) {
                bound = bound * (reals)SIMLEARN_NAME(load)(items->steps + first + i) +
                        reach * (reals)SIMLEARN_NAME(load)(items->errors + first + i);
            } else {
                const vector norm = SIMLEARN_DOT(
                    (vector){0}, SIMLEARN_NAME(load)(codes + 4 * i),
                    SIMLEARN_NAME(repeat)(queries->norms + 4 * (q + j)));
                bound = bound + reach +
                        queries->norm_steps[q + j] * __builtin_convertvector(norm, reals);
            }
            __builtin_memcpy(out + i, &bound, sizeof bound);
            most = r == 0 ? bound : SIMLEARN_MAX(most, bound);
        }
        float largest = first == 0 ? -INFINITY : *top;
        for (int lane = 0; lane < SIMLEARN_LANES; lane++)
            largest = most[lane] > largest ? most[lane] : largest;
        *top = largest;
    }
}

SIMLEARN_TARGET static void SIMLEARN_NAME(bound)(
    const CodedItems *items, const CodedQueries *queries, ptrdiff_t n_queries,
    float *bounds, ptrdiff_t stride, float *tops)
{
    ptrdiff_t q = 0;
#define SIMLEARN_PARTS(n)                                                             \
    for (; q + n <= n_queries; q += n)                                                \
        for (int i = 0; i < SIMLEARN_GROUP; i += SIMLEARN_LANES * SIMLEARN_ROWS(n))   \
            SIMLEARN_NAME(part)(n, items, queries, i, q, bounds, stride, tops);
    SIMLEARN_PARTS(SIMLEARN_QUERIES)
    SIMLEARN_PARTS(2)
    SIMLEARN_PARTS(1)
#undef SIMLEARN_PARTS
}

#undef vector
#undef reals
#undef SIMLEARN_TARGET
#undef SIMLEARN_NAME
#undef SIMLEARN_LANES
#undef SIMLEARN_DOT
#undef SIMLEARN_MAX
#undef SIMLEARN_ROWS
#undef SIMLEARN_QUERIES
