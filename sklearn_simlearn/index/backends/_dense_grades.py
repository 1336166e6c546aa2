"""Graded codes of dense items: many bits for axes of large variance, few for others.

The items of a block are centred and rotated to their principal axes, which come from a
sample of its rows. The first axes have codes of 8 bits, the next ones of 4, then of 2
bits, and the others none. Let m, x and A be the centre, a centred item and the axes, in
units of the longest item L, d / L = m + x. Let z = A'x, and z~ be the numbers that
the codes represent. With the query q / |q| on the axes, y = A'q / |q|, and the four
groups g of axes,

(graded-bound)  <q, d> / (|q| L) <= <q, m> / |q| + <y, z~> + sum_g |y_g| |z_g - z~_g| .

An item has four bytes for the norms |z_g - z~_g|, rounded up. The query has 8-bit codes
k with a step t for the weights w of the codes c of an item, <y, z~> = <w, c>, so

    <w, c> <= t <k, c> + sum_g |w_g - t k_g| max |c_g| .

The weights of 8-bit codes are small, so their step is t / 2^h, and their sum is divided
by 2^h. Rounding it down loses at most t.

Rounding. Let u = 2^-24, n features, G = n u / (1 - n u), and X the largest length of an
x. Nothing above requires that A is orthogonal or z is exact, except x = A z. With the
Frobenius norm D of I - AA', which bounds the spectral norm, and the error of a product
in float32 in any order, |z - A'x| <= G sqrt(n) (1 + D) |x|,

    |x - A z| <= (D + (1 + D)^2 G sqrt(n)) X .

The error of y is at most G sqrt(n) (1 + D), and is multiplied with |z| <= (1 + D)^2 X.
The error of <q, m> / |q| is at most G. Rounding q / |q| and d / L - m to float32 adds
at most 8 u, and the sum of the three terms of a bound, whose magnitudes are at most
about 8, at most 64 u. `_find_margin` adds these up and doubles the sum.

Norms of some items may be much larger than those of others. Such *outliers* have no
bound and are always scored.
"""

from itertools import combinations_with_replacement

import numpy as np
from scipy.linalg import eigh

from sklearn_simlearn.index.backends._blocked_items import check, check_range
from sklearn_simlearn.index.backends._dense_codes_fast import (
    Graded,
    count_words,
    grade_items,
    grade_queries,
)

GRADED_LAYOUT = {
    "graded": np.uint8,
    "grades": np.int64,
    "axes": np.float32,
    "centre": np.float32,
    "axis_steps": np.float32,
    "norm_steps": np.float64,
    "reach": np.float64,
    "margin": np.float64,
    "outliers": np.int32,
}

# Range of the number of features for which there are graded codes. With fewer features,
# they save no time. With more, projecting the items takes long.
GRADED = range(64, 1537)

# Blocks of fewer values, or of fewer items per feature, have no graded codes. The 8-bit
# codes of small blocks fit into the caches. Reading them there takes less time.
SMALLEST_BLOCK = 2**24
ITEMS_PER_FEATURE = 16

# Number of rows that determine the principal axes, that are used as queries, and whose
# bounds are estimated.
N_SAMPLE = 20_000
N_TRIALS = 32
N_BOUNDED = 4_000

# Step of a code relative to the standard deviation, and mean squared error relative to
# the variance, of the best uniform codes of a normal distribution with 8, 4 and 2 bits.
STEPS = 0.031, 0.335, 0.996
ERRORS = 0.0001, 0.0115, 0.119, 1.0

# Number of bytes that are read in the time of scoring an item at a random position: a
# constant, and the number per feature.
SCORING = 3_000, 13

# Numbers of results of the searches whose time is estimated.
FEW, MANY = 10, 100

# Graded codes are used if the expected time of a search for few results is at most this
# share of that with codes of 8 bits. Codes of blocks with fewer than MANY_PER_FEATURE
# items per feature may fit into the caches, where reading takes less time.
GAIN, GAIN_OF_FEW = 0.75, 0.5
MANY_PER_FEATURE = 64

# Bytes of the step and of the error of an item, which are read with codes of 8 bits.
STEP_AND_ERROR = 8

# Largest memory of all codes, as a share of that of the items in float32.
MEMORY = 0.45

ITEMS_AT_A_TIME = 4_096

# Number of items whose codes are interleaved.
GROUP = 64


def make_grades(items, longest, is_coded):
    """Return the graded codes of a block; empty arrays if they would not save time."""
    n_items, n_features = items.shape
    is_large = items.size >= SMALLEST_BLOCK
    is_large = is_large and n_items >= ITEMS_PER_FEATURE * n_features
    if is_coded and n_features in GRADED and is_large:
        n_sample = min(n_items, N_SAMPLE)
        sample = items[np.linspace(0, n_items - 1, n_sample).astype(np.int64)]
        sample = (sample / longest).astype(np.float32)
        centre = sample.mean(axis=0)
        centred = sample - centre
        variances, axes = eigh(centred.T.astype(np.float64) @ centred / len(sample))
        variances = np.maximum(variances[::-1], 0)
        axes = np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)
        grades = _choose_grades(sample, centre, axes, n_items)
        if grades is not None:
            bits = np.repeat(STEPS, grades)
            kept = np.sqrt(variances[: len(bits)])
            steps = np.zeros(n_features, dtype=np.float32)
            steps[: len(bits)] = np.maximum(bits * kept, 1e-12)
            return _make_codes(items, longest, grades, axes, centre, steps)
    n_groups = -(-n_items // GROUP)
    empty = {"graded": (n_groups, 0, GROUP, 4), "axes": (0, 0)}
    return tuple(
        np.empty(empty.get(name, 0), dtype=dtype)
        for name, dtype in GRADED_LAYOUT.items()
    )


def _choose_grades(sample, centre, axes, n_items):
    """Return the numbers of axes of 8, 4 and 2 bits, or None if 8 bits are better.

    Rows of the sample are used as queries. The estimated time is that of reading the
    codes and of scoring the items whose bound reaches the k-th score.
    """
    n_features = sample.shape[1]
    queries = sample[:: max(len(sample) // N_TRIALS, 1)]
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    Y, Z = queries / np.maximum(lengths, 1e-30) @ axes, (sample - centre) @ axes
    scores = Y @ Z.T
    # The best item of the sample is the query itself.
    ranks = [1 + k * len(sample) // n_items for k in (FEW, MANY)]
    ranks = np.minimum(ranks, len(sample) - 1)
    limits = -np.sort(-scores, axis=1)[:, ranks].T[..., np.newaxis]
    bounded = slice(None, None, max(len(sample) // N_BOUNDED, 1))
    gaps = limits - scores[:, bounded]
    # Squared lengths of queries and items on the first axes.
    marks = [n_features * i // 16 for i in (0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16)]
    of_queries, of_items = (
        np.pad(np.cumsum(np.square(X), axis=1), ((0, 0), (1, 0)))[:, marks]
        for X in (Y, Z[bounded])
    )
    of_item = SCORING[0] + SCORING[1] * n_features
    # Bytes of the axes, which a query is rotated to, per item.
    of_axes = 4 * n_features**2 / n_items
    gain = GAIN if n_items >= MANY_PER_FEATURE * n_features else GAIN_OF_FEW
    best, least = None, np.inf
    most = gain * (n_features + STEP_AND_ERROR) - of_axes
    # Memory that is left for graded codes after codes of 8 bits, norms and axes.
    room = (4 * MEMORY - 1) * n_features - STEP_AND_ERROR - 4 - of_axes
    for ends in combinations_with_replacement(range(len(marks)), 3):
        edges = [0, *ends, len(marks) - 1]
        grades = np.diff(np.take(marks, edges[:4]))
        n_bytes = 4 * sum(count_words(n, grade) for grade, n in enumerate(grades))
        if n_bytes == 0 or n_bytes > min(room, most):
            continue
        of_query, of_error = (
            np.sqrt(np.diff(squares[:, edges], axis=1).clip(0))
            for squares in (of_queries, of_items)
        )
        slack = of_query * np.sqrt(ERRORS, dtype=np.float32) @ of_error.T
        # Shares of items that are scored in searches for few and for many results.
        few, many = (gaps <= slack).mean(axis=(1, 2))
        cost = n_bytes + (3 * few + many) / 4 * of_item
        if n_bytes + few * of_item < most and cost < least:
            best, least = grades.astype(np.int64), cost
    return best


def _make_codes(items, longest, grades, axes, centre, steps):
    n_items, n_groups = len(items), -(-len(items) // GROUP)
    n_words = sum(count_words(n, grade) for grade, n in enumerate(grades))
    codes = np.zeros((n_groups, n_words + 1, GROUP, 4), dtype=np.uint8)
    norms = np.zeros((n_groups * GROUP, 4), dtype=np.float32)
    reach, farthest = np.zeros(3), 0.0
    for first in range(0, n_items, ITEMS_AT_A_TIME):
        part = slice(first, min(first + ITEMS_AT_A_TIME, n_items))
        X = (items[part] * (1 / longest)).astype(np.float32) - centre
        farthest = max(farthest, np.einsum("ij,ij->i", X, X).max())
        grade_items(X @ axes, first, grades, steps, codes, norms[part], reach)
    # Few items are outliers; there are none if all norms are similar.
    largest = norms[:n_items].max(axis=0)
    usual = np.partition(norms[:n_items], int(0.999 * n_items), axis=0)
    largest = np.minimum(largest, 2 * usual[int(0.999 * n_items)]).astype(np.float64)
    norm_steps = np.maximum(largest / 255 * (1 + 1e-6), 1e-30)
    rounded = np.ceil(norms / norm_steps)
    outliers = np.flatnonzero((rounded > 255).any(axis=1)).astype(np.int32)
    words = np.minimum(rounded, 255).astype(np.uint8)
    codes[:, -1] = words.reshape(n_groups, GROUP, 4)
    margin = _find_margin(axes, np.sqrt(farthest))
    reach *= 1 + 1e-6
    return codes, grades, axes, centre, steps, norm_steps, reach, margin, outliers


def _find_margin(axes, farthest):
    """Return the bound of the rounding errors as an array; see the module docstring."""
    n = len(axes)
    square = axes.astype(np.float64) @ axes.T
    off = np.linalg.norm(square - np.eye(n))
    error = n * 2.0**-24 / (1 - n * 2.0**-24)
    product = (1 + off) ** 3 * error * np.sqrt(n)
    return np.full(1, 2 * ((off + 2 * product) * farthest + error + 72 * 2.0**-24))


def grade(units, arrays, instructions):
    """Return graded codes of a block and of queries of length 1."""
    items, grades, axes, centre, steps, norm_steps, reach, margin, outliers = arrays
    if items.shape[1] == 0:
        return Graded()
    graded = Graded(items, grades, outliers, len(units))
    largest = 63 if instructions == 1 else 127
    on_axes, on_centre = units @ axes, units @ centre
    grade_queries(
        graded, on_axes, on_centre, margin[0], steps, norm_steps, reach, largest
    )
    return graded


def find_graded_shapes(arrays, n_groups):
    """Return the shapes that the arrays must have."""
    items, _, axes, *_, outliers = arrays
    n_words, n = items.shape[1] if items.ndim == 4 else 0, len(axes)
    if n_words == 0:
        return [(n_groups, 0, GROUP, 4), (0,), (0, 0), *[(0,)] * 6]
    shapes = [(n_groups, n_words, GROUP, 4), (3,), (n, n), (n,), (n,), (4,), (3,), (1,)]
    return [*shapes, (len(outliers),)]


def check_grades(arrays, n_features, length):
    """Raise unless the kernels can read the arrays."""
    items, grades, axes, *_, outliers = arrays
    if items.shape[1] == 0:
        return
    check(
        len(axes) == n_features
        and (grades >= 0).all()
        and 0 < grades.sum() <= n_features,
        "'grades' is out of range",
    )
    n_words = sum(count_words(int(n), grade) for grade, n in enumerate(grades))
    check(items.shape[1] == n_words + 1, "'graded' does not fit 'grades'")
    check_range(outliers, length, "outliers")
    check((outliers[1:] > outliers[:-1]).all(), "'outliers' must ascend")
