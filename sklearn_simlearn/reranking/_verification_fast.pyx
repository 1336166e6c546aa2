"""Kernel of spatial verification: the transform with the most inliers.

A match is a pair of features with the same word. The difference of its two features in
position, scale and angle is a similarity transform from the query's image to the other
image. Every match proposes its transform. The transform that agrees with most matches
is chosen.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t

# Largest number of comparisons of transforms with matches per pair of images. With more
# matches than the square root of this, evenly spaced matches propose transforms.
cdef enum:
    MAX_COMPARISONS = 1 << 26

# Number of least-squares fits, each to the inliers of the previous one.
cdef enum:
    MAX_FITS = 3

# Columns of the features.
cdef enum:
    X, Y, SCALE, LOG_SCALE, COS, SIN

# Rows of the scratch of a thread: those of `Matches`.
cpdef enum:
    N_REALS = 8
    N_INTS = 9


cdef extern from *:
    """
    #include <math.h>
    #include "simd.h"

    typedef struct {
        int32_t n, capacity;
        /* positions in the query's image and in the other image */
        float *qx, *qy, *dx, *dy;
        /* ratio of the scales, its logarithm, and the rotation between the angles */
        float *ratio, *log_ratio, *turn_cos, *turn_sin;
        /* the features, numbered within their images and among the matched features */
        int32_t *q_point, *d_point, *q_number, *d_number;
        /* for each matched feature: the last proposal that has used it */
        int32_t *q_used, *d_used;
        int32_t *is_inlier, *chosen, *kept;
    } Matches;

    /* Mark the matches that agree with match h, and count them:
     *     |d_i - d_h - s R (q_i - q_h)|^2 <= s max_square,
     *     cos(turn_i - turn_h) >= min_cos, |log s_i - log s_h| <= max_log_ratio,
     * where s R = [[a, -b], [b, a]]. A distance in one image is s times that in the
     * other, so the first inequality bounds their geometric mean.
     */
    SIMLEARN_CLONES
    static int32_t mark_agreeing(
        const Matches *m, int32_t h, float max_square, float min_cos,
        float max_log_ratio)
    {
        const float *SIMLEARN_RESTRICT qx = m->qx, *SIMLEARN_RESTRICT qy = m->qy;
        const float *SIMLEARN_RESTRICT dx = m->dx, *SIMLEARN_RESTRICT dy = m->dy;
        const float *SIMLEARN_RESTRICT cosine = m->turn_cos;
        const float *SIMLEARN_RESTRICT sine = m->turn_sin;
        const float *SIMLEARN_RESTRICT log_ratio = m->log_ratio;
        int32_t *SIMLEARN_RESTRICT is_inlier = m->is_inlier;
        const float qx_h = qx[h], qy_h = qy[h], dx_h = dx[h], dy_h = dy[h];
        const float cos_h = cosine[h], sin_h = sine[h], log_h = log_ratio[h];
        const float a = m->ratio[h] * cos_h, b = m->ratio[h] * sin_h;
        const float limit = max_square * m->ratio[h];
        const int32_t n = m->n;
        int32_t n_inliers = 0;
        for (int32_t i = 0; i < n; i++) {
            const float ux = qx[i] - qx_h, uy = qy[i] - qy_h;
            const float ex = (dx[i] - dx_h) - (a * ux - b * uy);
            const float ey = (dy[i] - dy_h) - (b * ux + a * uy);
            int32_t agrees = ex * ex + ey * ey <= limit ? 1 : 0;
            agrees &= cosine[i] * cos_h + sine[i] * sin_h >= min_cos ? 1 : 0;
            agrees &= fabsf(log_ratio[i] - log_h) <= max_log_ratio ? 1 : 0;
            is_inlier[i] = agrees;
            n_inliers += agrees;
        }
        return n_inliers;
    }
    """
    ctypedef struct Matches:
        int32_t n, capacity
        float *qx
        float *qy
        float *dx
        float *dy
        float *ratio
        float *log_ratio
        float *turn_cos
        float *turn_sin
        int32_t *q_point
        int32_t *d_point
        int32_t *q_number
        int32_t *d_number
        int32_t *q_used
        int32_t *d_used
        int32_t *is_inlier
        int32_t *chosen
        int32_t *kept

    int32_t mark_agreeing(
        const Matches* m, int32_t h, float max_square, float min_cos,
        float max_log_ratio) noexcept nogil


cdef class Images:
    """Features of some images, by image and word."""

    cdef const int64_t[::1] start        # in: of the words of each image
    cdef const int32_t[::1] words        # in: different ones of an image, ascending
    cdef const int64_t[::1] first        # in: first feature of each word of each image
    cdef const float[:, ::1] points      # in

    def __init__(self, start, words, first, points):
        self.start, self.words, self.first, self.points = start, words, first, points


cdef class Limits:
    """Tolerances of the matches of a transform."""

    cdef float min_cos
    cdef float max_log_ratio
    cdef int64_t max_pairs_per_word
    cdef int n_unknowns                  # of the fit to inliers: 0, 6 or 8

    def __init__(self, min_cos, max_log_ratio, max_pairs_per_word, n_unknowns):
        self.min_cos, self.max_log_ratio = min_cos, max_log_ratio
        self.max_pairs_per_word, self.n_unknowns = max_pairs_per_word, n_unknowns


def verify(
    Images query_images,
    Images item_images,
    const int64_t[::1] queries,          # in: images to compare, pair by pair
    const int64_t[::1] items,            # in
    const float[::1] max_square,         # in: squared tolerance of each pair
    Limits limits,
    int n_threads,
    float[:, :, ::1] reals,              # scratch: thread, row, match
    int32_t[:, :, ::1] ints,             # scratch
    int32_t[::1] n_inliers,              # in, out: zeros to begin with
    double[:, :, ::1] transforms,        # out: query's image to item's, if any inliers
    const int64_t[::1] inlier_start,     # in: where to write the inliers of each pair
    int32_t[:, ::1] inliers,             # out: features by their rows in the image
):
    """Verify pairs of images. Inliers are written if `inliers` has any rows."""
    cdef Py_ssize_t i
    cdef bint write = inliers.shape[0] > 0
    if not queries.shape[0] or not query_images.words.shape[0] or (
        not item_images.words.shape[0]
    ):
        return
    for i in prange(
        queries.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic",
        chunksize=4,
    ):
        verify_pair(
            query_images, queries[i], item_images, items[i], max_square[i],
            limits, &reals[threadid(), 0, 0], &ints[threadid(), 0, 0],
            <int32_t>reals.shape[2], &n_inliers[i], &transforms[i, 0, 0],
            &inliers[0, 0] + 2 * inlier_start[i] if write else NULL)


cdef void verify_pair(
    Images query_images, int64_t query, Images item_images, int64_t item,
    float max_square, Limits limits, float* reals, int32_t* ints,
    int32_t capacity, int32_t* n_inliers, double* transform, int32_t* inliers,
) noexcept nogil:
    cdef int32_t i, n_chosen, h = 0, step = 1, best = -1
    cdef float a, b
    cdef Matches m
    share_scratch(&m, reals, ints, capacity)
    find_matches(&m, query_images, query, item_images, item, limits.max_pairs_per_word)
    if m.n > 1:
        step = 1 + (m.n - 1) // max(1, MAX_COMPARISONS // m.n)
    while h < m.n:
        if mark_agreeing(
            &m, h, max_square, limits.min_cos, limits.max_log_ratio
        ) > n_inliers[0]:
            n_chosen = choose(&m, h)
            if n_chosen > n_inliers[0]:
                n_inliers[0] = n_chosen
                best = h
        h += step
    if best < 0:
        return
    mark_agreeing(&m, best, max_square, limits.min_cos, limits.max_log_ratio)
    choose(&m, m.n)
    a, b = m.ratio[best] * m.turn_cos[best], m.ratio[best] * m.turn_sin[best]
    transform[0], transform[1] = a, -b
    transform[2] = m.dx[best] - (<double>a * m.qx[best] - <double>b * m.qy[best])
    transform[3], transform[4] = b, a
    transform[5] = m.dy[best] - (<double>b * m.qx[best] + <double>a * m.qy[best])
    transform[6], transform[7], transform[8] = 0, 0, 1
    if limits.n_unknowns > 0:
        refine(&m, best, max_square, limits, n_inliers, transform)
    if inliers != NULL:
        for i in range(n_inliers[0]):
            inliers[2 * i] = m.q_point[m.chosen[i]]
            inliers[2 * i + 1] = m.d_point[m.chosen[i]]


cdef void share_scratch(
    Matches* m, float* reals, int32_t* ints, int32_t capacity
) noexcept nogil:
    cdef Py_ssize_t row = capacity
    m.n, m.capacity = 0, capacity
    m.qx, m.qy, m.dx, m.dy = reals, reals + row, reals + 2 * row, reals + 3 * row
    m.ratio, m.log_ratio = reals + 4 * row, reals + 5 * row
    m.turn_cos, m.turn_sin = reals + 6 * row, reals + 7 * row
    m.q_point, m.d_point = ints, ints + row
    m.q_number, m.d_number = ints + 2 * row, ints + 3 * row
    m.q_used, m.d_used = ints + 4 * row, ints + 5 * row
    m.is_inlier, m.chosen, m.kept = ints + 6 * row, ints + 7 * row, ints + 8 * row


cdef void find_matches(
    Matches* m, Images query_images, int64_t query, Images item_images,
    int64_t item, int64_t max_pairs_per_word,
) noexcept nogil:
    """Find the matches of two images, up to the size of the scratch memory."""
    cdef int64_t i = query_images.start[query], i_stop = query_images.start[query + 1]
    cdef int64_t j = item_images.start[item], j_stop = item_images.start[item + 1]
    cdef int64_t q_zero = query_images.first[i], d_zero = item_images.first[j]
    cdef int64_t q_begin, q_end, d_begin, d_end, p, r
    cdef int32_t n_q = 0, n_d = 0, word_q, word_d
    while i < i_stop and j < j_stop:
        word_q, word_d = query_images.words[i], item_images.words[j]
        if word_q == word_d:
            q_begin, q_end = query_images.first[i], query_images.first[i + 1]
            d_begin, d_end = item_images.first[j], item_images.first[j + 1]
            # Divide, because the product of two large numbers may overflow.
            if q_end - q_begin <= max_pairs_per_word // (d_end - d_begin):
                if (q_end - q_begin) * (d_end - d_begin) > m.capacity - m.n:
                    break
                for p in range(q_begin, q_end):
                    for r in range(d_begin, d_end):
                        add_match(
                            m, &query_images.points[p, 0], &item_images.points[r, 0])
                        m.q_point[m.n] = <int32_t>(p - q_zero)
                        m.d_point[m.n] = <int32_t>(r - d_zero)
                        m.q_number[m.n] = n_q + <int32_t>(p - q_begin)
                        m.d_number[m.n] = n_d + <int32_t>(r - d_begin)
                        m.n += 1
                n_q += <int32_t>(q_end - q_begin)
                n_d += <int32_t>(d_end - d_begin)
        # Avoid branches, which could not be predicted.
        i += word_q <= word_d
        j += word_d <= word_q
    for i in range(n_q):
        m.q_used[i] = -1
    for i in range(n_d):
        m.d_used[i] = -1


cdef inline void add_match(Matches* m, const float* q, const float* d) noexcept nogil:
    m.qx[m.n], m.qy[m.n] = q[X], q[Y]
    m.dx[m.n], m.dy[m.n] = d[X], d[Y]
    m.ratio[m.n] = d[SCALE] / q[SCALE]
    m.log_ratio[m.n] = d[LOG_SCALE] - q[LOG_SCALE]
    m.turn_cos[m.n] = q[COS] * d[COS] + q[SIN] * d[SIN]
    m.turn_sin[m.n] = q[COS] * d[SIN] - q[SIN] * d[COS]


cdef int32_t choose(Matches* m, int32_t proposal) noexcept nogil:
    """Choose inliers in their order, using each feature once; return their number."""
    cdef int32_t i, n_chosen = 0
    for i in range(m.n):
        if (
            m.is_inlier[i]
            and m.q_used[m.q_number[i]] != proposal
            and m.d_used[m.d_number[i]] != proposal
        ):
            m.q_used[m.q_number[i]] = proposal
            m.d_used[m.d_number[i]] = proposal
            m.chosen[n_chosen] = i
            n_chosen += 1
    return n_chosen


# -- least squares --


cdef void refine(
    Matches* m, int32_t best, float max_square, Limits limits,
    int32_t* n_inliers, double* transform,
) noexcept nogil:
    """Fit an affine map or a homography as long as the number of inliers rises."""
    cdef double fitted[9]
    cdef int32_t i, n_chosen
    cdef int fit
    for fit in range(MAX_FITS):
        if not fit_transform(m, n_inliers[0], limits.n_unknowns, fitted):
            return
        for i in range(n_inliers[0]):
            m.kept[i] = m.chosen[i]
        mark_near(m, best, fitted, max_square, limits)
        n_chosen = choose(m, m.n + 1 + fit)
        if n_chosen <= n_inliers[0]:
            for i in range(n_inliers[0]):
                m.chosen[i] = m.kept[i]
            return
        n_inliers[0] = n_chosen
        for i in range(9):
            transform[i] = fitted[i]


cdef void mark_near(
    Matches* m, int32_t h, const double* transform, float max_square,
    Limits limits,
) noexcept nogil:
    """Mark the matches that a transform maps closely enough.

    Their rotation and scale must also agree with those of match h.
    """
    cdef int32_t i
    cdef double w, ex, ey
    for i in range(m.n):
        w = transform[6] * m.qx[i] + transform[7] * m.qy[i] + transform[8]
        ex = transform[0] * m.qx[i] + transform[1] * m.qy[i] + transform[2]
        ey = transform[3] * m.qx[i] + transform[4] * m.qy[i] + transform[5]
        ex, ey = ex / w - m.dx[i], ey / w - m.dy[i]
        m.is_inlier[i] = (
            ex * ex + ey * ey <= max_square * m.ratio[h]
            and m.turn_cos[i] * m.turn_cos[h] + m.turn_sin[i] * m.turn_sin[h]
            >= limits.min_cos
            and fabs(m.log_ratio[i] - m.log_ratio[h]) <= limits.max_log_ratio)


cdef bint fit_transform(
    const Matches* m, int32_t n_chosen, int n_unknowns, double* fitted
) noexcept nogil:
    """Solve least squares for the chosen matches; return False if it is singular.

    With eight unknowns t, a match (x, y) -> (u, v) gives two equations,
        t0 x + t1 y + t2 - t6 x u - t7 y u = u,
        t3 x + t4 y + t5 - t6 x v - t7 y v = v,
    and t6 = t7 = 0 with six unknowns. Positions are centred and scaled first.
    """
    cdef double A[8][9]
    cdef double row[9]
    cdef double q_centre[3]
    cdef double d_centre[3]
    cdef double x, y, u, v
    cdef int32_t i
    cdef int side, j, k
    if 2 * n_chosen < n_unknowns:
        return False
    if not centre(m.qx, m.qy, m.chosen, n_chosen, q_centre):
        return False
    if not centre(m.dx, m.dy, m.chosen, n_chosen, d_centre):
        return False
    for j in range(8):
        for k in range(9):
            A[j][k] = 0
    for i in range(n_chosen):
        x = (m.qx[m.chosen[i]] - q_centre[0]) * q_centre[2]
        y = (m.qy[m.chosen[i]] - q_centre[1]) * q_centre[2]
        u = (m.dx[m.chosen[i]] - d_centre[0]) * d_centre[2]
        v = (m.dy[m.chosen[i]] - d_centre[1]) * d_centre[2]
        for side in range(2):
            for j in range(6):
                row[j] = 0
            row[3 * side], row[3 * side + 1], row[3 * side + 2] = x, y, 1
            row[8] = v if side else u
            row[6], row[7] = -x * row[8], -y * row[8]
            for j in range(n_unknowns):
                for k in range(n_unknowns):
                    A[j][k] += row[j] * row[k]
                A[j][8] += row[j] * row[8]
    if not solve(A, n_unknowns):
        return False
    for j in range(8):
        fitted[j] = A[j][8] if j < n_unknowns else 0
    fitted[8] = 1
    # From centred positions to pixels: columns for the query's image, rows for the
    # other image.
    for j in range(3):
        fitted[3 * j] *= q_centre[2]
        fitted[3 * j + 1] *= q_centre[2]
        fitted[3 * j + 2] -= (
            fitted[3 * j] * q_centre[0] + fitted[3 * j + 1] * q_centre[1])
    for k in range(3):
        fitted[k] = fitted[k] / d_centre[2] + d_centre[0] * fitted[6 + k]
        fitted[3 + k] = fitted[3 + k] / d_centre[2] + d_centre[1] * fitted[6 + k]
    if fitted[8] == 0:
        return False
    for k in range(8):
        fitted[k] /= fitted[8]
    fitted[8] = 1
    return True


cdef bint centre(
    const float* x, const float* y, const int32_t* chosen, int32_t n_chosen,
    double* out,
) noexcept nogil:
    """Compute the mean of some positions, and the inverse distance from it."""
    cdef double square = 0
    cdef int32_t i
    out[0] = out[1] = 0
    for i in range(n_chosen):
        out[0] += x[chosen[i]] / <double>n_chosen
        out[1] += y[chosen[i]] / <double>n_chosen
    for i in range(n_chosen):
        square += (x[chosen[i]] - out[0]) ** 2 + (y[chosen[i]] - out[1]) ** 2
    out[2] = sqrt(n_chosen / square) if square > 0 else 0
    return square > 0


cdef bint solve(double[8][9] A, int n) noexcept nogil:
    """Solve n equations by Gauss-Jordan elimination; store the solution in column 8."""
    cdef int column, row, pivot, k
    cdef double factor
    for column in range(n):
        pivot = column
        for row in range(column + 1, n):
            if fabs(A[row][column]) > fabs(A[pivot][column]):
                pivot = row
        # Entries are at most about the number of matches. NaN also fails this test.
        if not fabs(A[pivot][column]) > 1e-9:
            return False
        for k in range(9):
            A[column][k], A[pivot][k] = A[pivot][k], A[column][k]
        for row in range(n):
            if row != column:
                factor = A[row][column] / A[column][column]
                for k in range(column, 9):
                    A[row][k] -= factor * A[column][k]
    for column in range(n):
        A[column][8] /= A[column][column]
    return True
