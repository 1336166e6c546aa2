/* Loops of sums.h for one instruction set, defined by macros; included once for each. */

/* sums[i] += the parts of the codes of four rows + constant */
SIMLEARN_TARGET static void SIMLEARN_NAME(add_four)(
    const CodeRow *rows, int32_t n, uint16_t constant, uint16_t *SIMLEARN_RESTRICT sums)
{
    const CodeRow a = rows[0], b = rows[1], c = rows[2], d = rows[3];
    for (int32_t first = 0; first < n; first += 512) {
        const int32_t last = n - first < 512 ? n : first + 512;
        if (n - first > CODES_AHEAD)
            for (int row = 0; row < 4; row++)
                prefetch_bytes(rows[row].codes + first + CODES_AHEAD, 512);
        for (int32_t i = first; i < last; i++)
            sums[i] += (uint16_t)(part_of_code(a, i) + part_of_code(b, i) +
                                  part_of_code(c, i) + part_of_code(d, i) + constant);
    }
}

/* sums[i] += the part of the code of a row + constant */
SIMLEARN_TARGET static void SIMLEARN_NAME(add_one)(
    const CodeRow *rows, int32_t n, uint16_t constant, uint16_t *SIMLEARN_RESTRICT sums)
{
    const CodeRow a = rows[0];
    for (int32_t first = 0; first < n; first += 512) {
        const int32_t last = n - first < 512 ? n : first + 512;
        if (n - first > CODES_AHEAD)
            prefetch_bytes(a.codes + first + CODES_AHEAD, 512);
        for (int32_t i = first; i < last; i++)
            sums[i] += (uint16_t)(part_of_code(a, i) + constant);
    }
}

/* sums[places[i]] += the part of code i + constant
 *
 * Parts are computed for several postings at a time, with vector instructions. */
SIMLEARN_TARGET static void SIMLEARN_NAME(add_postings)(
    CodeRow row, const uint16_t *places, int32_t n, uint16_t constant,
    uint16_t *SIMLEARN_RESTRICT sums)
{
    uint16_t parts[128];
    while (n > 0) {
        const int32_t n_parts = n < 128 ? n : 128;
        if (n > POSTINGS_AHEAD) {
            prefetch_bytes(places + POSTINGS_AHEAD, 256);
            prefetch_bytes(row.codes + POSTINGS_AHEAD, 128);
        }
        int32_t i = 0;
        for (; i < n_parts; i++)
            parts[i] = (uint16_t)(part_of_code(row, i) + constant);
        for (i = 0; i + 4 <= n_parts; i += 4) {
            sums[places[i]] += parts[i];
            sums[places[i + 1]] += parts[i + 1];
            sums[places[i + 2]] += parts[i + 2];
            sums[places[i + 3]] += parts[i + 3];
        }
        for (; i < n_parts; i++)
            sums[places[i]] += parts[i];
        n -= n_parts, places += n_parts, row.codes += n_parts;
    }
}

#ifdef SIMLEARN_VECTOR
/* See `find_sums`. It is not inlined, so that a test can look at its instructions. */
SIMLEARN_TARGET __attribute__((noinline)) static int32_t SIMLEARN_NAME(find_sums)(
    const uint16_t *sums, int32_t n, uint16_t limit, int32_t *out)
{
    const int n_lanes = sizeof(SIMLEARN_VECTOR) / 2;
    const SIMLEARN_VECTOR least = SIMLEARN_REPEAT((int16_t)limit);
    int32_t n_found = 0, i = 0;
    for (; i + 128 <= n; i += 128) {
        SIMLEARN_VECTOR top = SIMLEARN_LOAD(sums + i);
        for (int j = n_lanes; j < 128; j += n_lanes)
            top = SIMLEARN_MAX(top, SIMLEARN_LOAD(sums + i + j));
        if (!SIMLEARN_AT_LEAST(top, least))
            continue;
        for (int j = 0; j < 128; j += n_lanes) {
            uint32_t bits = SIMLEARN_AT_LEAST(SIMLEARN_LOAD(sums + i + j), least);
            for (; bits; bits &= bits - 1)
                out[n_found++] = i + j + __builtin_ctz(bits) * n_lanes / 32;
        }
    }
    return append_large(sums, i, n, limit, n_found, out);
}
#endif

#undef SIMLEARN_TARGET
#undef SIMLEARN_NAME
#undef SIMLEARN_VECTOR
#undef SIMLEARN_LOAD
#undef SIMLEARN_REPEAT
#undef SIMLEARN_MAX
#undef SIMLEARN_AT_LEAST
