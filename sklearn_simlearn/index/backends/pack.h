/* Codes of dense items for codes.h; header only. */
#ifndef SIMLEARN_PACK_H
#define SIMLEARN_PACK_H

#include <stddef.h>
#include <stdint.h>

/* Instructions that compute bounds: 2 for VNNI, 1 for AVX2, 0 for plain C. */
static int code_instructions(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw"))
        return 2;
    return __builtin_cpu_supports("avx2") ? 1 : 0;
#else
    return 0;
#endif
}

/* Codes of n numbers for steps of a grade, shifted to be positive. The codes of `n_bits`
 * bits are added to the words of an item, which are 256 bytes apart and zero. Returns the
 * sum of the squared errors z - step * (code - (2^n_bits - 1) / 2); `square` is the sum
 * of the squared codes without their shift. */
static double pack_codes(const float *z, const float *steps, ptrdiff_t n, int n_bits,
                         uint8_t *words, double *square)
{
    const int most = (1 << n_bits) - 1, per_byte = 8 / n_bits;
    double error = 0, sum = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const double exact = (double)z[j] / steps[j] + 0.5 * most;
        const double inside = exact < 0 ? 0 : exact > most ? most : exact;
        const int code = (int)(inside + 0.5);
        const double off = (exact - code) * steps[j], centred = code - 0.5 * most;
        const ptrdiff_t place = j / 4 % per_byte, w = j / (4 * per_byte);
        words[w * 256 + j % 4] |= (uint8_t)(code << (n_bits * place));
        error += off * off;
        sum += centred * centred;
    }
    *square = sum;
    return error;
}

#endif
