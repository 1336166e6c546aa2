/* Inner loops that are compiled for several instruction sets; header only.
 *
 * The binary stays portable: if compiler and loader support it (GCC or Clang on
 * Linux with glibc), each function below is compiled for AVX-512, AVX2 and the
 * baseline, and the loader selects one for the processor. Elsewhere only the baseline
 * is compiled. All versions add in the same order, and none fuses a product with a sum
 * (-ffp-contract=off), so their results are equal.
 */
#ifndef SIMLEARN_SIMD_H
#define SIMLEARN_SIMD_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && \
    defined(__GNUC__) && !defined(__clang__)
#define SIMLEARN_CLONES \
    __attribute__((unused, target_clones("avx512f", "avx2", "default")))
#elif defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && \
    defined(__clang__) && __clang_major__ >= 17
/* Clang does not accept `target_clones` together with another attribute. */
#define SIMLEARN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#elif defined(__GNUC__)
#define SIMLEARN_CLONES __attribute__((unused))
#else
#define SIMLEARN_CLONES
#endif

/* No other pointer refers to this memory, so that loops with stores are vectorised. */
#ifdef _MSC_VER
#define SIMLEARN_RESTRICT __restrict
#else
#define SIMLEARN_RESTRICT restrict
#endif

/* Add up sixteen partial sums in a fixed order: part[0] is the sum. Loops of constant
 * length stay in registers.
 */
#define SIMLEARN_FOLD(width)                 \
    for (int lane = 0; lane < width; lane++) \
        part[lane] += part[lane + width];
#define SIMLEARN_ADD_UP SIMLEARN_FOLD(8) SIMLEARN_FOLD(4) SIMLEARN_FOLD(2) SIMLEARN_FOLD(1)

/* Declare part, and set part[0] to the product of two rows of n numbers. */
#define SIMLEARN_DOT_ROW(real, x, y, n)                 \
    real part[16] = {0};                                \
    ptrdiff_t j = 0;                                    \
    for (; j + 16 <= n; j += 16)                        \
        for (int lane = 0; lane < 16; lane++)           \
            part[lane] += (x)[j + lane] * (y)[j + lane]; \
    for (int lane = 0; j + lane < n; lane++)            \
        part[lane] += (x)[j + lane] * (y)[j + lane];    \
    SIMLEARN_ADD_UP

/* position[i] = number of the descending `keys` that are greater than scores[i].
 *
 * The search has no branches and makes each step for all scores, so that the inner loops
 * are vectorised. The first step compares with fifteen keys at once, which needs no
 * gathering; the next steps are binary. `n_keys` is 2^k - 1, at least 15. The caller
 * pads the keys with NaN, which is not greater than any score.
 */
#define SIMLEARN_COUNT_GREATER(name, real)                                          \
    SIMLEARN_CLONES                                                                 \
    static void name(const real *keys, int32_t n_keys, const real *scores,          \
                     ptrdiff_t n_scores, int32_t *position)                         \
    {                                                                               \
        const int32_t stride = (n_keys + 1) / 16;                                   \
        real pivots[15];                                                            \
        for (int k = 0; k < 15; k++)                                                \
            pivots[k] = keys[(k + 1) * stride - 1];                                 \
        for (ptrdiff_t i = 0; i < n_scores; i++) {                                  \
            int32_t n_greater = 0;                                                  \
            for (int k = 0; k < 15; k++)                                            \
                n_greater += pivots[k] > scores[i];                                 \
            position[i] = n_greater * stride;                                       \
        }                                                                           \
        for (int32_t step = stride / 2; step > 0; step /= 2)                        \
            for (ptrdiff_t i = 0; i < n_scores; i++)                                \
                position[i] += keys[position[i] + step - 1] > scores[i] ? step : 0; \
    }

SIMLEARN_COUNT_GREATER(count_greater_float, float)
SIMLEARN_COUNT_GREATER(count_greater_double, double)

/* Number of scores that equal the key at their position. */
#define SIMLEARN_COUNT_EQUAL(name, real)                                            \
    SIMLEARN_CLONES                                                                 \
    static int32_t name(const real *keys, const real *scores, ptrdiff_t n_scores,   \
                        const int32_t *position)                                    \
    {                                                                               \
        int32_t n_equal = 0;                                                        \
        for (ptrdiff_t i = 0; i < n_scores; i++)                                    \
            n_equal += keys[position[i]] == scores[i];                              \
        return n_equal;                                                             \
    }

SIMLEARN_COUNT_EQUAL(count_equal_float, float)
SIMLEARN_COUNT_EQUAL(count_equal_double, double)

/* keys[i] = score i as an integer of the same order, with its lowest bit replaced by 1
 * if the item is relevant; the smallest integer if it is not on the list. Returns the
 * largest key. `bits` are the bits of float scores; both zeros are equal.
 */
SIMLEARN_CLONES
static int32_t mark_relevant(const int32_t *bits, const int8_t *relevance, ptrdiff_t n,
                             int32_t *SIMLEARN_RESTRICT keys)
{
    int32_t largest = INT32_MIN;
    for (ptrdiff_t i = 0; i < n; i++) {
        int32_t sign = relevance[i];
        int32_t key = bits[i] ^ ((bits[i] >> 31) & INT32_MAX);
        key = (bits[i] & INT32_MAX) == 0 ? 0 : key & ~1;
        key |= sign > 0;
        keys[i] = sign < 0 ? INT32_MIN : key;
    }
    /* With this loop inside the first one, gcc would vectorise neither. */
    for (ptrdiff_t i = 0; i < n; i++)
        largest = keys[i] > largest ? keys[i] : largest;
    return largest;
}

SIMLEARN_CLONES
static int32_t count_key(const int32_t *keys, ptrdiff_t n, int32_t key)
{
    int32_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        count += keys[i] == key;
    return count;
}

/* Number of at most 255 values that equal `kind`. */
SIMLEARN_CLONES
static uint8_t count_kind(const int8_t *kinds, ptrdiff_t n, int8_t kind)
{
    uint8_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        count += kinds[i] == kind;
    return count;
}

/* Place of the row that has the largest product with the query; the first of several. */
#define SIMLEARN_FIND_LARGEST(name, real)                                         \
    SIMLEARN_CLONES                                                               \
    static ptrdiff_t name(const real *X, ptrdiff_t n_features, const real *query, \
                          const int64_t *rows, ptrdiff_t n_rows)                  \
    {                                                                             \
        ptrdiff_t best = 0;                                                       \
        real largest = 0;                                                         \
        for (ptrdiff_t i = 0; i < n_rows; i++) {                                  \
            const real *x = X + rows[i] * n_features;                             \
            SIMLEARN_DOT_ROW(real, x, query, n_features)                          \
            if (i == 0 || part[0] > largest) {                                    \
                largest = part[0];                                                \
                best = i;                                                         \
            }                                                                     \
        }                                                                         \
        return best;                                                              \
    }
SIMLEARN_FIND_LARGEST(find_largest_float, float)
SIMLEARN_FIND_LARGEST(find_largest_double, double)

/* scores += step * (gain - loss) */
SIMLEARN_CLONES
static void add_difference(double *scores, double step, const double *gain,
                           const double *loss, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        scores[i] += step * (gain[i] - loss[i]);
}

/* Number of triplets that violate their optimality condition by more than `slack`.
 * Triplet t has the gradient score - others[t] - 1.
 */
SIMLEARN_CLONES
static int64_t count_violations(double score, const double *others, const double *alpha,
                                ptrdiff_t n, double C, double slack)
{
    int64_t count = 0;
    for (ptrdiff_t t = 0; t < n; t++) {
        double g = score - others[t] - 1.0;
        count += ((g > slack) & (alpha[t] > 0.0)) ? 1 : 0;
        count += ((g < -slack) & (alpha[t] < C)) ? 1 : 0;
    }
    return count;
}

/* inverse[t] = 1 / max(smallest, square + squares[t] - 2 products[t]) */
SIMLEARN_CLONES
static void invert_curvatures(double square, const double *squares,
                              const double *products, ptrdiff_t n, double smallest,
                              double *SIMLEARN_RESTRICT inverse)
{
    for (ptrdiff_t t = 0; t < n; t++) {
        double curvature = square + squares[t] - 2.0 * products[t];
        inverse[t] = 1.0 / (curvature > smallest ? curvature : smallest);
    }
}

/* Load memory that is read soon into the caches. */
static inline void prefetch_bytes(const void *first, ptrdiff_t n_bytes)
{
#ifdef __GNUC__
    for (ptrdiff_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch((const char *)first + i);
#else
    (void)first, (void)n_bytes;
#endif
}

#endif
