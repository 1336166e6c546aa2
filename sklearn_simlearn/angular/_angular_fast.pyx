"""Kernels of the angular ranker: Gram matrices of the candidates, and the SMO solver.

Notation and equation labels are those of doc/learners/angular.rst. A block holds some
candidates of one reference query and some triplets among them. Each block is worked on
by one thread from start to end, so nothing depends on the number of threads.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t
import numpy as np

from sklearn_simlearn._core.blas cimport dot, gemv, syrk

cdef extern from "simd.h":
    void add_difference(
        double* scores, double step, const double* gain, const double* loss,
        Py_ssize_t n) noexcept nogil

ctypedef fused index:
    int32_t
    int64_t

# What stands in for a curvature of zero, of candidates with equal features: any
# positive number does, since the step is cut at the bounds.
cdef double SMALLEST = np.finfo(np.float64).tiny


# -- Gram matrices, (angular-gram) --


def grams_dense(
    const floating[:, ::1] X,            # in
    const floating[:, ::1] references,   # in
    const int64_t[::1] reference,        # in: of each block
    const int64_t[::1] candidates,       # in: rows of X, block after block
    const int64_t[::1] offsets,          # in: block b has offsets[b:b + 2]
    const int64_t[::1] gram_offsets,     # in: and this slice of the Gram matrices
    bint diagonal,
    double kappa,
    int n_threads,
    double[::1] grams,                   # out
):
    """K = Z Z' + kappa t t' of each block, whatever the precision of X in float64."""
    cdef Py_ssize_t n_blocks = reference.shape[0]
    cdef Py_ssize_t n_features = X.shape[1]
    cdef int64_t most = 1
    cdef Py_ssize_t b
    for b in range(n_blocks):
        most = max(most, offsets[b + 1] - offsets[b])
    cdef double[:, ::1] Z = np.empty((n_threads, most * n_features))
    cdef double[:, ::1] q = np.empty((n_threads, n_features))
    cdef double[:, ::1] t = np.empty((n_threads, most))
    cdef int thread

    for b in prange(n_blocks, nogil=True, num_threads=n_threads, schedule="dynamic"):
        thread = threadid()
        gram_dense(
            X, &references[reference[b], 0], &candidates[offsets[b]],
            offsets[b + 1] - offsets[b], n_features, diagonal, kappa,
            &Z[thread, 0], &q[thread, 0], &t[thread, 0], &grams[gram_offsets[b]],
        )


cdef void gram_dense(
    const floating[:, ::1] X, const floating* reference, const int64_t* rows,
    Py_ssize_t n_rows, Py_ssize_t n_features, bint diagonal, double kappa,
    double* Z, double* q, double* t, double* gram,
) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef double norm2 = 1.0
    cdef const floating* x
    for i in range(n_rows):
        x = &X[rows[i], 0]
        for k in range(n_features):
            Z[i * n_features + k] = x[k] * <double>reference[k] if diagonal else x[k]
    # t_i = <x_i, q>, where a diagonal Z has q in it already.
    for k in range(n_features):
        q[k] = 1.0 if diagonal else reference[k]
    if not diagonal:
        norm2 = dot(n_features, q, q)
    gemv(n_rows, n_features, Z, q, t)
    syrk(n_rows, n_features, Z, gram)
    add_rank_one(n_rows, norm2, kappa, t, gram)


def grams_csr(
    const floating[::1] data,            # in: X
    const index[::1] indices,            # in
    const int64_t[::1] indptr,           # in
    const floating[::1] q_data,          # in: the references
    const index[::1] q_indices,          # in
    const int64_t[::1] q_indptr,         # in
    Py_ssize_t n_features,
    const int64_t[::1] reference,        # in
    const int64_t[::1] candidates,       # in
    const int64_t[::1] offsets,          # in
    const int64_t[::1] gram_offsets,     # in
    bint diagonal,
    double kappa,
    int n_threads,
    double[::1] grams,                   # out
):
    """As `grams_dense`, for rows in CSR format without duplicates."""
    cdef Py_ssize_t n_blocks = reference.shape[0]
    cdef int64_t most = 1
    cdef Py_ssize_t b
    for b in range(n_blocks):
        most = max(most, offsets[b + 1] - offsets[b])
    # A row laid out over all features; zero between its uses.
    cdef double[:, ::1] q = np.zeros((n_threads, n_features))
    cdef double[:, ::1] x = np.zeros((n_threads, n_features))
    cdef double[:, ::1] t = np.empty((n_threads, most))
    cdef int thread

    for b in prange(n_blocks, nogil=True, num_threads=n_threads, schedule="dynamic"):
        thread = threadid()
        gram_csr(
            data, indices, indptr, q_data, q_indices, q_indptr[reference[b]],
            q_indptr[reference[b] + 1], &candidates[offsets[b]],
            offsets[b + 1] - offsets[b], diagonal, kappa,
            &q[thread, 0], &x[thread, 0], &t[thread, 0], &grams[gram_offsets[b]],
        )


cdef void gram_csr(
    const floating[::1] data, const index[::1] indices, const int64_t[::1] indptr,
    const floating[::1] q_data, const index[::1] q_indices, int64_t q_start,
    int64_t q_end, const int64_t* rows, Py_ssize_t n_rows, bint diagonal,
    double kappa, double* q, double* x, double* t, double* gram,
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef int64_t k
    cdef double norm2 = 0.0, total
    for k in range(q_start, q_end):
        q[q_indices[k]] = q_data[k]
        norm2 += <double>q_data[k] * <double>q_data[k]
    for i in range(n_rows):
        t[i] = 0.0
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            total = q[indices[k]] * <double>data[k]
            t[i] += total
            x[indices[k]] = total * q[indices[k]] if diagonal else <double>data[k]
        for j in range(i + 1):
            total = 0.0
            for k in range(indptr[rows[j]], indptr[rows[j] + 1]):
                total += x[indices[k]] * <double>data[k]
            gram[i * n_rows + j] = total
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            x[indices[k]] = 0.0
    for k in range(q_start, q_end):
        q[q_indices[k]] = 0.0
    add_rank_one(n_rows, 1.0 if diagonal else norm2, kappa, t, gram)


cdef void add_rank_one(
    Py_ssize_t n, double scale, double kappa, const double* t, double* gram
) noexcept nogil:
    """gram = scale * gram + kappa * outer(t, t), both triangles from the lower one."""
    cdef Py_ssize_t i, j
    for i in range(n):
        for j in range(i + 1):
            gram[i * n + j] = scale * gram[i * n + j] + kappa * t[i] * t[j]
            gram[j * n + i] = gram[i * n + j]


# -- The solver --


cdef struct Problem:
    const double* gram
    const int32_t* relevant
    const int32_t* irrelevant
    double* alpha
    double* scores
    double* inverse  # one over the curvature of each triplet
    double C
    Py_ssize_t n_candidates
    Py_ssize_t n_triplets


cdef struct Scratch:
    int32_t* free
    double* step  # of the free triplets in this sweep, and of the scores
    double* score_step
    double* last_step  # the same, of the step before
    double* last_score_step


def smo(
    const double[::1] grams,             # in
    const int64_t[::1] gram_offsets,     # in
    const int64_t[::1] offsets,          # in: of the candidates
    const int32_t[::1] relevant,         # in: candidate of the block, per triplet
    const int32_t[::1] irrelevant,       # in
    const int64_t[::1] triplet_offsets,  # in
    double C,
    double tol,
    int64_t max_iter,
    int n_threads,
    double[::1] alpha,                   # in, out: a start within the bounds
    double[::1] scores,                  # in, out: of the candidates at alpha
    double[:, ::1] report,               # out: see below
):
    """Solve (angular-dual) for the triplets of each block, all else held fixed.

    At most `max_iter` steps per triplet are taken. The columns of `report` are the
    number of steps, the largest violation of (angular-kkt), the sum of alpha, the sum
    of alpha_ij (s_i - s_j) and the sum of the hinge losses.
    """
    cdef Py_ssize_t n_blocks = report.shape[0]
    cdef int64_t most = 1, most_triplets = 1
    cdef Py_ssize_t b
    for b in range(n_blocks):
        most = max(most, offsets[b + 1] - offsets[b])
        most_triplets = max(most_triplets, triplet_offsets[b + 1] - triplet_offsets[b])
    cdef int32_t[:, ::1] free = np.empty((n_threads, most_triplets), dtype=np.int32)
    cdef double[:, :, ::1] of_triplets = np.empty((n_threads, 3, most_triplets))
    cdef double[:, :, ::1] of_candidates = np.empty((n_threads, 2, most))
    cdef int thread

    for b in prange(n_blocks, nogil=True, num_threads=n_threads, schedule="dynamic"):
        thread = threadid()
        if triplet_offsets[b + 1] == triplet_offsets[b]:
            report[b, :] = 0.0
        else:
            solve_block(
                &grams[gram_offsets[b]], offsets[b + 1] - offsets[b],
                &relevant[triplet_offsets[b]], &irrelevant[triplet_offsets[b]],
                triplet_offsets[b + 1] - triplet_offsets[b], C, tol, max_iter,
                &free[thread, 0], &of_triplets[thread, 0, 0],
                &of_triplets[thread, 1, 0], &of_triplets[thread, 2, 0],
                &of_candidates[thread, 0, 0], &of_candidates[thread, 1, 0],
                &alpha[triplet_offsets[b]], &scores[offsets[b]], &report[b, 0],
            )


cdef void solve_block(
    const double* gram, Py_ssize_t n_candidates,
    const int32_t* relevant, const int32_t* irrelevant, Py_ssize_t n_triplets,
    double C, double tol, int64_t max_iter,
    int32_t* free, double* inverse, double* step, double* last_step,
    double* score_step, double* last_score_step,
    double* alpha, double* scores, double* report,
) noexcept nogil:
    cdef Problem problem
    cdef Scratch scratch
    problem.gram, problem.n_candidates = gram, n_candidates
    problem.relevant, problem.irrelevant = relevant, irrelevant
    problem.n_triplets, problem.C = n_triplets, C
    problem.alpha, problem.scores, problem.inverse = alpha, scores, inverse
    scratch.free, scratch.step, scratch.last_step = free, step, last_step
    scratch.score_step, scratch.last_score_step = score_step, last_score_step

    cdef Py_ssize_t t, i, j
    for t in range(n_triplets):
        i, j = relevant[t], irrelevant[t]
        inverse[t] = 1.0 / max(
            SMALLEST,
            gram[i * n_candidates + i] + gram[j * n_candidates + j]
            - 2.0 * gram[i * n_candidates + j])
    report[0] = minimise(&problem, &scratch, tol, max_iter * n_triplets)

    cdef double g
    report[1], report[2], report[3], report[4] = 0.0, 0.0, 0.0, 0.0
    for t in range(n_triplets):
        g = gradient(&problem, t)
        report[1] = max(report[1], violation(&problem, t, g))
        report[2] += alpha[t]
        report[3] += alpha[t] * (g + 1.0)
        report[4] += max(0.0, -g)


cdef int64_t minimise(
    Problem* p, Scratch* scratch, double tol, int64_t max_steps
) noexcept nogil:
    """Algorithm of (angular-smo); returns the number of steps taken.

    All triplets are visited in turn, then those strictly between the bounds alone
    until they are ten times better than the worst of all. It ends with a visit to all
    triplets that finds none to move.
    """
    cdef int64_t n_steps = 0, moved
    cdef Py_ssize_t n_free, k, t, i
    cdef double worst, slack
    cdef bint has_last
    while n_steps < max_steps:
        moved = sweep(p, NULL, p.n_triplets, tol, &worst)
        if moved == 0:
            break
        n_steps += moved
        slack = max(tol, worst / 10)
        n_free = 0
        for t in range(p.n_triplets):
            if 0.0 < p.alpha[t] < p.C:
                scratch.free[n_free] = <int32_t>t
                n_free += 1
        has_last = False
        while n_steps < max_steps:
            for k in range(n_free):
                scratch.step[k] = -p.alpha[scratch.free[k]]
            for i in range(p.n_candidates):
                scratch.score_step[i] = -p.scores[i]
            moved = sweep(p, scratch.free, n_free, slack, &worst)
            if moved == 0:
                break
            n_steps += moved
            has_last = extrapolate(p, scratch, n_free, has_last)
    return n_steps


cdef int64_t sweep(
    Problem* p, const int32_t* which, Py_ssize_t n, double slack, double* worst
) noexcept nogil:
    """Visit triplets in turn and solve (angular-step) for those that violate.

    Returns how many moved, and in `worst` the largest violation met.
    """
    cdef Py_ssize_t k, t
    cdef int64_t moved = 0
    cdef double g, wrong, alpha
    worst[0] = 0.0
    for k in range(n):
        t = k if which == NULL else which[k]
        g = gradient(p, t)
        wrong = violation(p, t, g)
        if wrong <= slack:
            continue
        worst[0] = max(worst[0], wrong)
        alpha = min(max(p.alpha[t] - g * p.inverse[t], 0.0), p.C)
        if alpha == p.alpha[t]:
            continue
        add_difference(
            p.scores, alpha - p.alpha[t],
            p.gram + p.relevant[t] * p.n_candidates,
            p.gram + p.irrelevant[t] * p.n_candidates, p.n_candidates)
        p.alpha[t] = alpha
        moved += 1
    return moved


cdef inline double gradient(Problem* p, Py_ssize_t t) noexcept nogil:
    return p.scores[p.relevant[t]] - p.scores[p.irrelevant[t]] - 1.0


cdef inline double violation(Problem* p, Py_ssize_t t, double g) noexcept nogil:
    """(angular-kkt): zero where a bound holds alpha back."""
    if (g > 0.0 and p.alpha[t] == 0.0) or (g < 0.0 and p.alpha[t] == p.C):
        return 0.0
    return fabs(g)


cdef bint extrapolate(
    Problem* p, Scratch* scratch, Py_ssize_t n_free, bint has_last
) noexcept nogil:
    """Minimise over the plane of this sweep's step d and the last one p, in the box.

    (angular-plane): with u = Q d, v = Q p and g the gradient, the weights a and b of
    the two solve  [d'u d'v; d'v p'v] [a; b] = -[d'g; p'g].  Returns whether the step
    was taken in full: only then is it worth a place in the next plane.
    """
    cdef double* d = scratch.step
    cdef double* d_scores = scratch.score_step
    cdef double* last = scratch.last_step
    cdef double* last_scores = scratch.last_score_step
    cdef Py_ssize_t k, t, i, j
    cdef double g, u, v, both, a, b = 0.0, share = 1.0
    cdef double dg = 0.0, du = 0.0, pg = 0.0, dv = 0.0, pv = 0.0
    for i in range(p.n_candidates):
        d_scores[i] += p.scores[i]
    for k in range(n_free):
        t = scratch.free[k]
        d[k] += p.alpha[t]
        if d[k] == 0.0:
            continue
        if p.alpha[t] == 0.0 or p.alpha[t] == p.C:
            return False  # the face has changed, and with it the plane
        i, j = p.relevant[t], p.irrelevant[t]
        dg += d[k] * (p.scores[i] - p.scores[j] - 1.0)
        du += d[k] * (d_scores[i] - d_scores[j])
    if du <= 0.0:
        return False
    a = -dg / du
    if has_last:
        for k in range(n_free):
            t = scratch.free[k]
            i, j = p.relevant[t], p.irrelevant[t]
            g = p.scores[i] - p.scores[j] - 1.0
            u = d_scores[i] - d_scores[j]
            v = last_scores[i] - last_scores[j]
            pg += last[k] * g
            dv += last[k] * u
            pv += last[k] * v
        both = du * pv - dv * dv
        if both > 1e-10 * du * pv:
            a = (pg * dv - dg * pv) / both
            b = (dg * dv - pg * du) / both

    for k in range(n_free):
        t = scratch.free[k]
        u = a * d[k] + (b * last[k] if b != 0.0 else 0.0)
        if p.alpha[t] + u > p.C:
            share = min(share, (p.C - p.alpha[t]) / u)
        elif p.alpha[t] + u < 0.0:
            share = min(share, -p.alpha[t] / u)
    for k in range(n_free):
        t = scratch.free[k]
        u = share * (a * d[k] + (b * last[k] if b != 0.0 else 0.0))
        p.alpha[t] = min(max(p.alpha[t] + u, 0.0), p.C)
        last[k] = d[k] + u
    for i in range(p.n_candidates):
        u = share * (
            a * d_scores[i] + (b * last_scores[i] if b != 0.0 else 0.0))
        p.scores[i] += u
        last_scores[i] = d_scores[i] + u
    return share == 1.0
