"""Kernel of the angular ranker: the SMO solver.

Notation and equation labels are those of doc/learners/angular.rst. A block holds some
candidates of one reference query and some triplets among them. One thread processes a
block from start to end, so the result does not depend on the number of threads.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t
import numpy as np

cdef extern from "simd.h":
    void add_difference(
        double* scores, double step, const double* gain, const double* loss,
        Py_ssize_t n) noexcept nogil
    int64_t count_violations(
        double score, const double* others, const double* alpha, Py_ssize_t n,
        double C, double slack) noexcept nogil
    void invert_curvatures(
        double square, const double* squares, const double* products, Py_ssize_t n,
        double smallest, double* inverse) noexcept nogil

# Replaces a curvature of zero, which candidates with equal features have. Any positive
# number is valid, since the step is cut at the bounds.
cdef double SMALLEST = np.finfo(np.float64).tiny

# Number of conjugate-gradient steps at a time. Before, single-triplet steps do a
# multiple of their work.
cdef enum:
    N_CONJUGATE = 16
    N_WORK = 8


cdef struct Problem:
    const double* gram
    const int32_t* relevant
    const int32_t* irrelevant
    double* alpha
    double* scores
    double* inverse  # one over the curvature of each triplet
    int32_t* run_end  # of the runs of triplets, at the first triplet of each
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
    """Solve (angular-dual) for the triplets of each block, with the others fixed.

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
    cdef int32_t[:, :, ::1] places = np.empty(
        (n_threads, 2, most_triplets), dtype=np.int32)
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
                places[thread], of_triplets[thread], of_candidates[thread],
                &alpha[triplet_offsets[b]], &scores[offsets[b]], &report[b, 0],
            )


cdef void solve_block(
    const double* gram, Py_ssize_t n_candidates,
    const int32_t* relevant, const int32_t* irrelevant, Py_ssize_t n_triplets,
    double C, double tol, int64_t max_iter,
    int32_t[:, ::1] places, double[:, ::1] of_triplets, double[:, ::1] of_candidates,
    double* alpha, double* scores, double* report,
) noexcept nogil:
    cdef Problem problem
    cdef Scratch scratch
    problem.gram, problem.n_candidates = gram, n_candidates
    problem.relevant, problem.irrelevant = relevant, irrelevant
    problem.n_triplets, problem.C = n_triplets, C
    problem.alpha, problem.scores = alpha, scores
    problem.inverse, problem.run_end = &of_triplets[0, 0], &places[1, 0]
    scratch.free = &places[0, 0]
    scratch.step, scratch.last_step = &of_triplets[1, 0], &of_triplets[2, 0]
    scratch.score_step = &of_candidates[0, 0]
    scratch.last_score_step = &of_candidates[1, 0]

    find_runs(&problem, scratch.score_step)
    report[0] = minimise(&problem, &scratch, tol, max_iter * n_triplets)

    cdef Py_ssize_t t
    cdef double g
    report[1], report[2], report[3], report[4] = 0.0, 0.0, 0.0, 0.0
    for t in range(n_triplets):
        g = gradient(&problem, t)
        if is_violated(&problem, t, g, report[1]):
            report[1] = fabs(g)
        report[2] += alpha[t]
        report[3] += alpha[t] * (g + 1.0)
        report[4] += max(0.0, -g)


cdef void find_runs(Problem* p, double* squares) noexcept nogil:
    """Divide the triplets into runs, and find the curvatures.

    The triplets of a run have the same relevant candidate, and consecutive irrelevant
    candidates, so that their gradients can be computed together.
    """
    cdef Py_ssize_t t = 0, end, i, j
    for i in range(p.n_candidates):
        squares[i] = p.gram[i * p.n_candidates + i]
    while t < p.n_triplets:
        i, j, end = p.relevant[t], p.irrelevant[t], t + 1
        while (
            end < p.n_triplets and p.relevant[end] == i
            and p.irrelevant[end] == j + end - t
        ):
            end += 1
        invert_curvatures(
            squares[i], squares + j, p.gram + i * p.n_candidates + j, end - t,
            SMALLEST, p.inverse + t)
        p.run_end[t] = <int32_t>end
        t = end


cdef int64_t minimise(
    Problem* p, Scratch* scratch, double tol, int64_t max_steps
) noexcept nogil:
    """Run the algorithm (angular-smo); return the number of steps.

    All triplets are visited in turn. Then only those strictly between the bounds are
    visited, until their largest violation is a tenth of that of all triplets. The
    algorithm ends when a visit to all triplets moves none.
    """
    cdef int64_t interval = N_WORK * N_CONJUGATE * p.n_candidates
    cdef int64_t n_steps = 0, due = interval, moved
    cdef Py_ssize_t n_free, k, t, i
    cdef double worst, slack
    cdef bint has_last
    while n_steps < max_steps:
        moved = sweep_all(p, tol, &worst)
        if moved == 0:
            break
        n_steps += moved
        slack = max(tol, worst / 10)
        n_free = 0
        for t in range(p.n_triplets):
            scratch.free[n_free] = <int32_t>t
            n_free += (p.alpha[t] > 0.0) & (p.alpha[t] < p.C)
        if n_steps >= due:
            conjugate(p, scratch, n_free, tol)
            due = n_steps + interval
        has_last = False
        while n_steps < max_steps:
            for k in range(n_free):
                scratch.step[k] = -p.alpha[scratch.free[k]]
            for i in range(p.n_candidates):
                scratch.score_step[i] = -p.scores[i]
            moved = sweep(p, scratch.free, n_free, slack)
            if moved == 0:
                break
            n_steps += moved
            has_last = extrapolate(p, scratch, n_free, has_last)
            if n_steps >= due:
                conjugate(p, scratch, n_free, tol)
                due, has_last = n_steps + interval, False
    return n_steps


cdef int64_t sweep_all(Problem* p, double slack, double* worst) noexcept nogil:
    """Visit all triplets in turn and solve (angular-step) for those that violate.

    Return the number of changes; store the largest violation in `worst`.
    """
    cdef Py_ssize_t t = 0, end
    cdef int64_t moved = 0
    cdef double g
    worst[0] = 0.0
    while t < p.n_triplets:
        end = p.run_end[t]
        if count_violations(
            p.scores[p.relevant[t]], p.scores + p.irrelevant[t], p.alpha + t, end - t,
            p.C, slack,
        ) == 0:
            t = end
        while t < end:
            g = gradient(p, t)
            if is_violated(p, t, g, slack):
                worst[0] = max(worst[0], fabs(g))
                moved += move(p, t, g)
            t += 1
    return moved


cdef int64_t sweep(
    Problem* p, const int32_t* which, Py_ssize_t n, double slack
) noexcept nogil:
    """Visit some triplets as `sweep_all` does; return the number of changes."""
    cdef Py_ssize_t k, t
    cdef int64_t moved = 0
    cdef double g
    for k in range(n):
        t = which[k]
        g = gradient(p, t)
        if is_violated(p, t, g, slack):
            moved += move(p, t, g)
    return moved


cdef inline bint move(Problem* p, Py_ssize_t t, double g) noexcept nogil:
    """Solve (angular-step) for a triplet; return whether it changes."""
    cdef double alpha = min(max(p.alpha[t] - g * p.inverse[t], 0.0), p.C)
    if alpha == p.alpha[t]:
        return False
    add_difference(
        p.scores, alpha - p.alpha[t],
        p.gram + p.relevant[t] * p.n_candidates,
        p.gram + p.irrelevant[t] * p.n_candidates, p.n_candidates)
    p.alpha[t] = alpha
    return True


cdef inline double gradient(Problem* p, Py_ssize_t t) noexcept nogil:
    return p.scores[p.relevant[t]] - p.scores[p.irrelevant[t]] - 1.0


cdef inline bint is_violated(
    Problem* p, Py_ssize_t t, double g, double slack
) noexcept nogil:
    """Return whether (angular-kkt) is violated by more than `slack`."""
    return fabs(g) > slack and (p.alpha[t] > 0.0 if g > 0.0 else p.alpha[t] < p.C)


cdef bint extrapolate(
    Problem* p, Scratch* scratch, Py_ssize_t n_free, bint has_last
) noexcept nogil:
    """Minimise over the plane of this sweep's step d and the last one p, in the box.

    (angular-plane): with u = Q d, v = Q p and g the gradient, the weights a of d and b
    of p solve  [d'u d'v; d'v p'v] [a; b] = -[d'g; p'g].  Returns True if the full step
    was taken. A shorter step is not used for the next plane.
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
            return False  # the face has changed, so the last step is not in the plane
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


cdef void conjugate(
    Problem* p, Scratch* scratch, Py_ssize_t n_free, double tol
) noexcept nogil:
    """Run conjugate gradients over the triplets strictly between the bounds.

    (angular-face): if the features of candidates are equal or linearly dependent, Q is
    singular, and along some directions only the box ends the descent. Sweeps and planes
    may need millions of small steps there; conjugate gradients need one step for each
    distinct eigenvalue. A step that reaches the box leads to a smaller face, where
    conjugate gradients start again.
    """
    cdef double* d = scratch.step
    cdef double beta, square = 0.0, last, slope, curvature, length, worst, g
    cdef Py_ssize_t k, t, i
    cdef int _iteration
    for _iteration in range(N_CONJUGATE):
        last, square, worst = square, 0.0, 0.0
        for k in range(n_free):
            t = scratch.free[k]
            if 0.0 < p.alpha[t] < p.C:
                g = gradient(p, t)
                worst = max(worst, fabs(g))
                square += g * g
        if worst <= tol:
            return
        beta = square / last if last > 0.0 else 0.0
        slope, curvature, length = 0.0, 0.0, INFINITY
        for k in range(n_free):
            t = scratch.free[k]
            if 0.0 < p.alpha[t] < p.C:
                g = gradient(p, t)
                d[k] = beta * d[k] - g if beta > 0.0 else -g
                slope += d[k] * g
            else:
                d[k] = 0.0
        if slope >= 0.0:
            return
        find_score_step(p, scratch, n_free)
        for k in range(n_free):
            t = scratch.free[k]
            if d[k] != 0.0:
                curvature += d[k] * (
                    scratch.score_step[p.relevant[t]]
                    - scratch.score_step[p.irrelevant[t]])
                length = min(
                    length, (p.C - p.alpha[t] if d[k] > 0.0 else -p.alpha[t]) / d[k])
        if curvature > 0.0 and -slope < length * curvature:
            length = -slope / curvature
        else:
            square = 0.0  # the step reached the box: start again
        for k in range(n_free):
            t = scratch.free[k]
            p.alpha[t] = min(max(p.alpha[t] + length * d[k], 0.0), p.C)
        for i in range(p.n_candidates):
            p.scores[i] += length * scratch.score_step[i]


cdef void find_score_step(
    Problem* p, Scratch* scratch, Py_ssize_t n_free
) noexcept nogil:
    """Compute the scores of the step of the free triplets: K times its sums."""
    cdef double* weight = scratch.last_score_step
    cdef double* out = scratch.score_step
    cdef const double* row
    cdef Py_ssize_t k, t, i, j
    for i in range(p.n_candidates):
        weight[i] = out[i] = 0.0
    for k in range(n_free):
        t = scratch.free[k]
        weight[p.relevant[t]] += scratch.step[k]
        weight[p.irrelevant[t]] -= scratch.step[k]
    for j in range(p.n_candidates):
        row = p.gram + j * p.n_candidates
        for i in range(p.n_candidates):
            out[i] += weight[j] * row[i]
