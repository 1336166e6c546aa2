"""Backends of the index, compared with the full product and a stable sort."""

import pickle
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklearn_simlearn._core.products import Postings
from sklearn_simlearn.index.backends import _dense, _dense_grades
from sklearn_simlearn.index.backends._dense import DenseItems
from sklearn_simlearn.index.backends._dense_codes_fast import INSTRUCTIONS
from sklearn_simlearn.index.backends._faiss import FaissItems
from sklearn_simlearn.index.backends._inverted import InvertedFile
from sklearn_simlearn.index.backends._usearch import UsearchItems

each_kind = pytest.mark.parametrize("is_sparse", [True, False])


def store(D):
    return (InvertedFile if sparse.issparse(D) else DenseItems)(D)


def rank(S, k, alive, excluded=None):
    """Return the k best of a full product, by a stable sort."""
    scores = np.full((S.shape[0], k), -np.inf, dtype=S.dtype)
    rows = np.full((S.shape[0], k), -1)
    for query, row in enumerate(S):
        may = alive.copy()
        if excluded is not None:
            may[excluded[1][excluded[0][query] : excluded[0][query + 1]]] = False
        best = np.flatnonzero(may)
        best = best[np.argsort(-row[best], kind="stable")[:k]]
        scores[query, : len(best)], rows[query, : len(best)] = row[best], best
    return scores, rows


def draw(rng, shape, *, density, dtype, signed, integer, is_sparse):
    """Return rows with empty rows and columns; integer rows have ties."""
    X = np.ceil(4 * rng.random(shape)) if integer else rng.random(shape)
    X *= rng.random(shape) < density
    if signed:
        X *= rng.choice([-1, 1], shape)
    X = X.astype(dtype)
    return sparse.csr_array(X) if is_sparse else X


def product(Q, D):
    if sparse.issparse(Q):
        return (Q @ D.T).toarray()
    return Q @ D.T


def stack(parts):
    stack_ = sparse.vstack if sparse.issparse(parts[0]) else np.concatenate
    return stack_(parts)


def freeze(D):
    """Return the same rows in read-only memory."""
    arrays = (D.data, D.indices, D.indptr) if sparse.issparse(D) else (D,)
    for array in arrays:
        array.flags.writeable = False
    return D


def assert_same_search(found, S, k, alive, excluded=None):
    """Assert equal rows and scores. S holds exactly the sums that a search returns."""
    scores, rows = rank(S, k, alive, excluded)
    assert_array_equal(found[1], rows)
    assert_array_equal(found[0], scores)


def assert_close_search(found, S, k, alive, excluded=None):
    """Assert equal rows, except for items whose scores differ only by rounding."""
    scores, rows = rank(S, k, alive, excluded)
    rounding = 64 * np.finfo(S.dtype).eps * max(1, np.abs(S).max(initial=0))
    assert_array_equal(found[1] < 0, rows < 0)
    assert_array_equal(np.isneginf(found[0]), rows < 0)
    kept = rows >= 0
    assert_allclose(found[0][kept], scores[kept], atol=rounding, rtol=0)
    own = S[np.nonzero(kept)[0], found[1][kept]]
    assert_allclose(own, scores[kept], atol=2 * rounding, rtol=0)
    for query, query_rows in enumerate(found[1]):
        query_rows = query_rows[query_rows >= 0]
        assert alive[query_rows].all()
        assert len(np.unique(query_rows)) == len(query_rows)
        if excluded is not None:
            barred = excluded[1][excluded[0][query] : excluded[0][query + 1]]
            assert not np.isin(query_rows, barred).any()


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_items=st.integers(0, 300),
    n_features=st.integers(1, 50),
    density=st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]),
    k=st.sampled_from([1, 2, 3, 17, 400]),
    dtype=st.sampled_from(["float32", "float64"]),
    signs=st.sampled_from(["none", "queries", "items", "both"]),
    integer=st.booleans(),
    block_length=st.sampled_from([5, 64, 128, 65_536]),
    is_sparse=st.booleans(),
    n_added=st.integers(0, 100),
    removes=st.booleans(),
    compacts=st.booleans(),
    restricts=st.booleans(),
    excludes=st.booleans(),
    saves=st.booleans(),
)
def test_search_is_the_full_product_with_a_stable_sort(
    seed, n_items, n_features, density, k, dtype, signs, integer, block_length,
    is_sparse, n_added, removes, compacts, restricts, excludes, saves,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    kind = {"density": density, "dtype": dtype, "integer": integer}
    kind["is_sparse"] = is_sparse
    signed = signs in ("items", "both")
    D = draw(rng, (n_items, n_features), signed=signed, **kind)
    Q = draw(rng, (6, n_features), signed=signs in ("queries", "both"), **kind)
    backend = InvertedFile if is_sparse else DenseItems
    items = backend(freeze(D), block_length=block_length, n_threads=2)
    alive = np.ones(n_items, dtype=bool)
    for n_more in (n_added, n_added // 2, 1) if n_added else ():
        more = draw(rng, (n_more, n_features), signed=signed, **kind)
        items.add(freeze(more), n_threads=2)
        D, alive = stack([D, more]), np.append(alive, np.ones(n_more, dtype=bool))
    if removes and len(alive) > 0:
        removed = rng.integers(0, len(alive), 1 + len(alive) // 4)
        items.remove(removed)
        alive[removed] = False
    if compacts:
        kept = items.compact(n_threads=2)
        assert_array_equal(kept, np.flatnonzero(alive))
        D, alive = D[kept], alive[kept]
    if saves:
        arrays = items.to_arrays()
        items = backend.from_arrays(
            {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)
             for name, a in arrays.items()}
        )  # fmt: skip
    assert (items.n_items, items.n_features) == D.shape
    assert items.dtype == D.dtype
    options = {}
    if restricts:
        options["allowed"] = rng.random(len(alive)) < 0.5
        alive = alive & options["allowed"]
    if excludes and len(alive) > 0:
        counts = rng.integers(0, 5, Q.shape[0])
        rows = rng.integers(0, len(alive), counts.sum())
        options["excluded"] = np.append(0, np.cumsum(counts)), rows

    freeze(Q)
    S = product(Q, D)
    found = items.search(Q, k, **options)
    assert_search = assert_same_search if is_sparse else assert_close_search
    assert_search(found, S, k, alive, options.get("excluded"))
    for one, two in zip(
        found, items.search(Q, k, n_threads=2, **options), strict=True
    ):  # fmt: skip
        assert_array_equal(one, two)


# -- skipped words of the inverted file --


@pytest.mark.parametrize("signs", ["none", "queries", "items"])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_skipping_words_changes_nothing(k, signs, dtype):
    # Long lists of frequent words with small weights, as in texts.
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, 301) ** 0.7
    weight = 1 / np.sqrt(frequency)

    def make(n, signed):
        X = (rng.random((n, 300)) < frequency) * weight * rng.random((n, 300))
        return sparse.csr_array(X * rng.choice([-1, 1], X.shape) if signed else X)

    D = make(5_000, signs == "items").astype(dtype)
    Q = make(20, signs != "none").astype(dtype)
    items = InvertedFile(D, block_length=2_000)
    alive = np.ones(5_000, dtype=bool)
    assert_same_search(items.search(Q, k), product(Q, D), k, alive)
    items.remove(np.arange(0, 5_000, 3))
    alive[::3] = False
    assert_same_search(items.search(Q, k), product(Q, D), k, alive)


def test_rounding_of_bounds_loses_no_item():
    # Items differ only in the order of their words, so scores differ only by rounding.
    rng = np.random.default_rng(0)
    X = rng.random((4_000, 40)).astype(np.float32)
    X[:, 20:] = X[:, :20]
    D, Q = sparse.csr_array(np.round(X, 1) + np.float32(0.1)), sparse.csr_array(X[:20])
    found = InvertedFile(D, block_length=1_000).search(Q, 30)
    assert_same_search(found, product(Q, D), 30, np.ones(4_000, dtype=bool))


def test_queries_of_very_many_words(dtype):
    # More lists than the 16-bit sums of a block support.
    rng = np.random.default_rng(0)
    kind = {"dtype": dtype, "signed": True, "integer": False, "is_sparse": True}
    D = draw(rng, (60, 9_000), density=0.3, **kind)
    Q = draw(rng, (3, 9_000), density=0.9, **kind)
    found = InvertedFile(D, block_length=25).search(Q, 7)
    assert_same_search(found, product(Q, D), 7, np.ones(60, dtype=bool))


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-18, 1e18])
def test_values_of_any_size(scale, dtype):
    rng = np.random.default_rng(0)
    kind = {"dtype": dtype, "signed": True, "integer": False, "is_sparse": True}
    D = draw(rng, (300, 40), density=0.2, **kind) * np.dtype(dtype).type(scale)
    Q = draw(rng, (5, 40), density=0.5, **kind) * np.dtype(dtype).type(scale)
    D.eliminate_zeros()
    found = InvertedFile(D, block_length=100).search(Q, 9)
    assert_same_search(found, product(Q, D), 9, np.ones(300, dtype=bool))


def test_one_heavy_word_does_not_hide_light_ones(dtype):
    # The heavy word uses nearly the whole range of a sum.
    D = np.zeros((500, 30), dtype=dtype)
    D[:3, 0] = 1e6
    D[np.arange(3, 500), 1 + np.arange(497) % 29] = 1 + np.arange(497) % 7
    Q = np.ones((2, 30), dtype=dtype)
    Q[1, ::2] = -1
    D, Q = sparse.csr_array(D), sparse.csr_array(Q)
    for k in (2, 5, 200):
        found = InvertedFile(D, block_length=120).search(Q, k)
        assert_same_search(found, product(Q, D), k, np.ones(500, dtype=bool))


@pytest.mark.parametrize("share", [1, 20])
def test_sums_of_tied_binary_rows_are_rounded_up(share, dtype):
    # One item in `share` has all heavy words, so lists are stored in both ways. Items
    # of later blocks with an additional light word have slightly higher scores.
    D = np.zeros((600, 60), dtype=dtype)
    D[::share, :50] = 1
    better = np.array([200, 400, 440, 560])
    D[better, 50:54] = 1
    D[better, :50] = 1
    for seed in range(20):
        Q = np.zeros((1, 60), dtype=dtype)
        Q[0, :50] = 0.5 + np.random.default_rng(seed).random(50)
        Q[0, 50:54] = 2e-4
        rows = sparse.csr_array(D)
        S = product(sparse.csr_array(Q), rows)
        found = InvertedFile(rows, block_length=100).search(sparse.csr_array(Q), 3)
        assert_same_search(found, S, 3, np.ones(600, dtype=bool))
        assert set(found[1][0]) <= set(better.tolist())


# -- dense items with codes --


def sum_in_order(Q, D):
    """Return the product of dense rows, summed in the order of the kernel."""
    width = -(-Q.shape[1] // 16) * 16
    Q, D = (np.pad(X, ((0, 0), (0, width - X.shape[1]))) for X in (Q, D))
    S = np.zeros((len(Q), len(D), 16), dtype=Q.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, width, 16):
            part = slice(first, first + 16)
            S += Q[:, None, part] * D[None, :, part]
        for half in (8, 4, 2, 1):
            S = S[:, :, :half] + S[:, :, half : 2 * half]
    return S[:, :, 0]


@contextmanager
def instructions(number):
    """Compute bounds with these instructions, or without codes if None."""
    with pytest.MonkeyPatch.context() as patch:
        if number is None:
            patch.setattr(_dense, "CODED", range(0))
        else:
            patch.setattr(_dense, "INSTRUCTIONS", number)
            patch.setattr(_dense, "N_QUERIES_PLAIN", 10_000)
            patch.setattr(_dense, "N_QUERIES_GRADED", 10_000)
        yield


@contextmanager
def grades_of_small_blocks(is_graded=True):
    """Store graded codes of blocks of any size, even if they save no time."""
    with pytest.MonkeyPatch.context() as patch:
        if is_graded:
            patch.setattr(_dense_grades, "GRADED", range(32, 2_000))
            patch.setattr(_dense_grades, "SMALLEST_BLOCK", 1)
            patch.setattr(_dense_grades, "ITEMS_PER_FEATURE", 0)
            patch.setattr(_dense_grades, "GAIN", 1e9)
            patch.setattr(_dense_grades, "GAIN_OF_FEW", 1e9)
            patch.setattr(_dense_grades, "MEMORY", 1e9)
        yield


def assert_best_in_float64(found, Q, D, alive, excluded=None):
    """Assert that no item is missed whose score in float64 is surely better.

    A score in any order of summation differs from the exact one by at most n roundings
    of the sum of magnitudes, and by a denormal number per product.
    """
    n, info = Q.shape[1], np.finfo(Q.dtype)
    Q, D = Q.astype(np.float64), D.astype(np.float64)
    S = Q @ D.T
    error = 2 * (n + 2) * (info.eps * (np.abs(Q) @ np.abs(D).T) + float(info.tiny))
    for query, (scores, rows) in enumerate(zip(*found, strict=True)):
        rows = rows[scores > -np.inf]
        scores = scores[: len(rows)].astype(np.float64)
        assert (np.abs(scores - S[query, rows]) <= error[query, rows]).all()
        missed = alive.copy()
        missed[rows] = False
        if excluded is not None:
            missed[excluded[1][excluded[0][query] : excluded[0][query + 1]]] = False
        least = scores[-1] if len(rows) == found[0].shape[1] else -np.inf
        assert (S[query] - error[query] <= least)[missed].all()


def assert_exact_search(items, Q, D, k, alive=None, **options):
    """Assert that all instructions and numbers of threads give the full product.

    The scores are those of the dtype of the items, in the order of summation of the
    kernel, and the items are also compared with the product in float64.
    """
    alive = np.ones(len(D), dtype=bool) if alive is None else alive
    S = sum_in_order(Q, D)
    found = items.search(Q, k, **options)
    assert_best_in_float64(found, Q, D, alive, options.get("excluded"))
    for number in (None, *range(INSTRUCTIONS + 1)):
        with instructions(number):
            for n_threads in (1, 2):
                found = items.search(Q, k, n_threads=n_threads, **options)
                assert_same_search(found, S, k, alive, options.get("excluded"))


@pytest.mark.parametrize("n_features", [32, 200])
def test_the_error_of_the_code_of_a_query_counts(n_features, dtype):
    # The first component of the query takes the whole range of the code, and items are
    # zero there. Codes of items of integers up to 127 are exact.
    rng = np.random.default_rng(0)
    D = rng.integers(-127, 128, size=(2_000, n_features)).astype(dtype)
    Q = rng.integers(-3, 4, size=(4, n_features)).astype(dtype)
    D[:, 0], Q[:, 0] = 0, 1e6
    D[:, 1] = 127
    assert_exact_search(DenseItems(D, block_length=500), Q, D, 10)


@pytest.mark.parametrize("scale", [1e-40, 1e-18, 1.0, 1e15])
@pytest.mark.parametrize("n_features", [32, 61, 500])
def test_codes_change_nothing(n_features, scale, dtype):
    rng = np.random.default_rng(0)
    kind = {"dtype": dtype, "signed": True, "integer": False, "is_sparse": False}
    D = draw(rng, (3_000, n_features), density=0.7, **kind)
    D[::7] *= 100  # some are much longer than others
    D[1::7] = D[::7][: len(D[1::7])] + 1e-6  # and some are almost equal
    D[5] = 0
    scale = np.dtype(dtype).type(scale)
    Q = draw(rng, (3, n_features), density=0.7, **kind) * scale
    Q[2] = 0
    items = DenseItems(D * scale)
    for k in (1, 10, 500):
        assert_exact_search(items, Q, D * scale, k)


ROWS = {
    "plain": lambda X, rng: X,
    "integers": lambda X, rng: np.round(2 * X),  # many ties
    "outliers": lambda X, rng: X * np.where(rng.random((len(X), 1)) < 0.02, 1e4, 1),
    "any length": lambda X, rng: X * 10.0 ** rng.uniform(-30, 5, (len(X), 1)),
    "one huge component": lambda X, rng: X + 1e5 * (np.arange(X.shape[1]) == 3),
    "constant": lambda X, rng: np.ones_like(X) * rng.integers(-1, 3, (len(X), 1)),
    "denormal": lambda X, rng: X * 1e-42,
    "below any square": lambda X, rng: X * 1e-200,
    "near ties": lambda X, rng: X[:1] + 1e-6 * X,
    "nearly parallel": lambda X, rng: 50 + X,
    "few directions": lambda X, rng: (
        X[:, :3] @ rng.standard_normal((3, X.shape[1])) + 1e-3 * X
    ),
    "zeros": lambda X, rng: 0 * X,
}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.lists(st.sampled_from([*sorted(ROWS), "huge"]), min_size=1, max_size=3),
    query_kind=st.sampled_from(sorted(ROWS)),
    n_features=st.sampled_from([32, 64, 77]),
    dtype=st.sampled_from(["float32", "float64"]),
    k=st.sampled_from([1, 10, 200]),
    is_restricted=st.booleans(),
    is_graded=st.booleans(),
)
def test_bounds_lose_no_item(
    seed, kinds, query_kind, n_features, dtype, k, is_restricted, is_graded
):
    # Parts after the first one are added later, from another distribution.
    rng = np.random.default_rng(seed)

    def make(kind, n):
        X = rng.standard_normal((n, n_features))
        if kind == "huge":  # squares overflow, scores do not
            X *= 1e30 if dtype == "float32" else 1e200
        else:
            X = ROWS[kind](X, rng)
        with np.errstate(over="ignore", under="ignore"):
            return freeze(X.astype(dtype))

    parts = [make(kind, int(rng.integers(1, 1_500))) for kind in kinds]
    Q, D = make(query_kind, 5), np.concatenate(parts)
    with grades_of_small_blocks(is_graded):
        items = DenseItems(parts[0], block_length=2_000)
        for part in parts[1:]:
            items.add(part)
    alive, options = np.ones(len(D), dtype=bool), {}
    if is_restricted:
        items.remove(np.flatnonzero(rng.random(len(D)) < 0.3))
        alive &= items._alive
        options["allowed"] = rng.random(len(D)) < 0.5
        alive &= options["allowed"]
        rows = rng.integers(0, len(D), 15)
        options["excluded"] = np.arange(0, 16, 3), rows
    assert_exact_search(items, Q, D, k, alive, **options)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_items_are_not_copied(is_sparse, dtype):
    kind = {"dtype": dtype, "signed": False, "integer": False, "is_sparse": is_sparse}
    D = draw(np.random.default_rng(0), (100, 40), density=0.5, **kind)
    backend = InvertedFile if is_sparse else DenseItems
    arrays = backend(D, block_length=10).to_arrays()
    values = D.data if is_sparse else D
    for block in range(10):
        name = "values" if is_sparse else "items"
        assert np.shares_memory(arrays[f"{name}_{block}"], values)


def test_sums_of_codes_keep_within_their_type(dtype):
    # All codes have the largest value.
    D = np.ones((40, _dense.CODED[-1]), dtype=dtype)
    D[1::2] = -1
    assert_exact_search(DenseItems(D), D[:2], D, 30)


def test_codes_and_their_errors(dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70, 37)) * np.logspace(-15, 15, 70)[:, None]
    X = X.astype(dtype)
    X[3] = 0
    X[4, 1:] = 0
    arrays = DenseItems(freeze(X)).to_arrays()
    unit, steps = arrays["longest_0"][0], arrays["steps_0"][:70].astype(np.float64)
    codes = arrays["codes_0"].transpose(0, 2, 1, 3).reshape(128, 40) - 128.0
    assert (codes[:, 37:] == 0).all()
    assert (codes[70:] == 0).all()
    codes = codes[:70, :37]
    assert_allclose(unit, np.linalg.norm(X.astype(np.float64), axis=1).max())
    assert (np.abs(codes).max(axis=1)[X.any(axis=1)] == 127).all()
    off = X / unit - steps[:, None] * codes
    assert (np.abs(off) <= 0.500001 * steps[:, None]).all()
    length, errors = np.linalg.norm(off, axis=1), arrays["errors_0"][:70]
    assert (errors >= length).all()
    assert_allclose(errors, length, rtol=2e-6, atol=3e-38)


def make_spectrum(n_items, n_features=64, decay=0.9, seed=0):
    """Return rows with a centre and axes of falling variance, in random directions."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
    X = rng.standard_normal((n_items, n_features)) * decay ** np.arange(n_features)
    return (X @ rotation + rng.random(n_features)).astype(np.float32)


def test_graded_codes_depend_on_the_spectrum(monkeypatch):
    # All axes of a sphere have the same variance: 8 bits take less time.
    n = 16_384
    monkeypatch.setattr(_dense_grades, "SMALLEST_BLOCK", 64 * n)
    falling, sphere = make_spectrum(n), make_spectrum(n, decay=1.0)
    assert DenseItems(make_spectrum(n - 1)).to_arrays()["graded_0"].size == 0
    assert DenseItems(sphere).to_arrays()["graded_0"].size == 0
    items = DenseItems(falling)
    arrays = items.to_arrays()
    n_8, n_4, n_2 = arrays["grades_0"]
    assert 0 < n_8 + n_4 + n_2 < 64
    assert arrays["graded_0"].shape[1] * 4 < 0.7 * 64
    assert items.nbytes < 1.45 * falling.nbytes
    assert_exact_search(items, make_spectrum(3, seed=1), falling, 10)


def test_at_least_one_axis_has_codes(monkeypatch):
    # The lengths alone separate few long items from the others.
    monkeypatch.setattr(_dense_grades, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(_dense_grades, "ITEMS_PER_FEATURE", 1)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_096, 64), dtype=np.float32)
    X[:40] *= 10_000
    items = DenseItems(X)
    arrays = items.to_arrays()
    assert 0 < arrays["grades_0"].sum() < 64
    assert_exact_search(items, X[30:50], X, 10)
    nothing = {"grades_0": np.zeros_like, "graded_0": lambda a: a[:, -1:].copy()}
    for name, change in nothing.items():
        arrays = damage(arrays, name, change)
    with pytest.raises(ValueError, match="'grades' is out of range"):
        DenseItems.from_arrays(arrays).search(X[:1], 3)


@pytest.mark.parametrize("grades", [(64, 0, 0), (0, 64, 0), (0, 0, 64), (3, 9, 17)])
def test_graded_bounds(grades, dtype, monkeypatch):
    # Decode the arrays in float64; the bound must hold for every item.
    X = make_spectrum(1_000)
    X[7] *= 30
    chosen = np.array(grades, dtype=np.int64)
    monkeypatch.setattr(_dense_grades, "_choose_grades", lambda *args: chosen)
    with grades_of_small_blocks():
        arrays = DenseItems(X.astype(dtype)).to_arrays()
    codes = arrays["graded_0"].transpose(0, 2, 1, 3).reshape(1_024, -1)[:1_000]
    axis, first, error = 0, 0, []
    X = X / arrays["longest_0"] - arrays["centre_0"].astype(np.float64)
    Z = X @ arrays["axes_0"].astype(np.float64)
    for n, bits in zip(grades, (8, 4, 2), strict=True):
        n_words = -(-n * bits // 32)
        words = codes[:, first : first + 4 * n_words].reshape(1_000, n_words, 1, 4)
        shifts = np.arange(0, 8, bits).reshape(-1, 1)
        digits = ((words >> shifts) & (2**bits - 1)).reshape(1_000, -1)
        assert (digits[:, n:] == 0).all()
        steps = arrays["axis_steps_0"][axis : axis + n].astype(np.float64)
        shown = steps * (digits[:, :n] - (2**bits - 1) / 2)
        error.append(np.linalg.norm(Z[:, axis : axis + n] - shown, axis=1))
        axis, first = axis + n, first + 4 * n_words
    error.append(np.linalg.norm(Z[:, axis:], axis=1))
    norms = codes[:, first:] * arrays["norm_steps_0"]
    usual = np.setdiff1d(np.arange(1_000), arrays["outliers_0"])
    assert 990 <= len(usual) <= 1_000
    assert (norms[usual] >= np.array(error).T[usual] - arrays["margin_0"]).all()
    assert_allclose(norms[usual], np.array(error).T[usual], atol=0.02)


def test_damaged_grades_are_refused():
    with grades_of_small_blocks():
        items = DenseItems(make_spectrum(300))
    arrays, Q = items.to_arrays(), make_spectrum(1)
    assert arrays["graded_0"].size > 0
    found = DenseItems.from_arrays(arrays).search(Q, 3)
    assert_array_equal(found[1], items.search(Q, 3)[1])
    for name, change in [
        ("grades_0", set_at(1, 65)),
        ("axes_0", lambda a: a[:-1, :-1].copy()),
        ("graded_0", lambda a: a[:, :-1].copy()),
        ("outliers_0", lambda a: np.array([300], dtype=np.int32)),
        ("outliers_0", lambda a: np.array([5, 4], dtype=np.int32)),
        ("norm_steps_0", lambda a: a[:3]),
    ]:
        with pytest.raises(ValueError, match="damaged"):
            DenseItems.from_arrays(damage(arrays, name, change)).search(Q, 3)


def test_codes_of_an_earlier_version_are_computed_again(dtype):
    rng = np.random.default_rng(0)
    D, Q = rng.random((300, 40)).astype(dtype), rng.random((3, 40)).astype(dtype)
    items = DenseItems(D, block_length=100)
    items.remove([5, 250])
    arrays = items.to_arrays()
    for i in range(3):
        arrays[f"codes_{i}"] = np.zeros((100, 40), dtype=np.int8)
    verified = []
    opened = DenseItems.from_arrays(arrays, verify=verified.extend)
    assert set(verified) == {"lengths", "alive", "items_0", "items_1", "items_2"}
    for one, two in zip(opened.search(Q, 9), items.search(Q, 9), strict=True):
        assert_array_equal(one, two)
    del arrays["items_1"]
    with pytest.raises(ValueError, match="damaged"):
        DenseItems.from_arrays(arrays)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_items=st.integers(0, 100),
    density=st.sampled_from([0.0, 0.1, 1.0]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_postings_give_the_product(seed, n_items, density, dtype):
    rng = np.random.default_rng(seed)
    kind = {"density": density, "dtype": dtype, "integer": False, "is_sparse": True}
    D = freeze(draw(rng, (n_items, 20), signed=True, **kind))
    Q = freeze(draw(rng, (7, 20), signed=True, **kind))
    for n_threads in (1, 2):
        assert_array_equal(Postings(D).scores(Q, n_threads=n_threads), product(Q, D))


@each_kind
def test_ties_go_to_the_lower_row(is_sparse, dtype):
    D = np.ones((200, 8), dtype=dtype)
    Q = np.eye(8, dtype=dtype)[:5]
    if is_sparse:
        D, Q = sparse.csr_array(D), sparse.csr_array(Q)
    for n_threads in (1, 2):
        scores, rows = store(D).search(Q, 7, n_threads=n_threads)
        assert_array_equal(rows, np.tile(np.arange(7), (5, 1)))
        assert_array_equal(scores, np.ones((5, 7)))


def test_items_without_a_common_word_rank_before_negative_scores(dtype):
    D = sparse.csr_array(np.array([[1, 0], [0, 1], [-1, 0], [0, 0]], dtype=dtype))
    Q = sparse.csr_array(np.array([[-1, 0], [0, 0]], dtype=dtype))
    scores, rows = InvertedFile(D).search(Q, 4)
    assert_array_equal(rows, [[2, 1, 3, 0], [0, 1, 2, 3]])
    assert_array_equal(scores, [[1, 0, 0, -1], [0, 0, 0, 0]])


@each_kind
def test_nothing_to_find(is_sparse, dtype):
    D, Q = np.zeros((0, 3), dtype=dtype), np.ones((2, 3), dtype=dtype)
    if is_sparse:
        D, Q = sparse.csr_array(D), sparse.csr_array(Q)
    items = store(D)
    scores, rows = items.search(Q, 2)
    assert_array_equal(rows, np.full((2, 2), -1))
    assert_array_equal(scores, np.full((2, 2), -np.inf))
    assert items.search(Q[:0], 2)[1].shape == (0, 2)
    items.add(Q)
    assert_array_equal(items.search(Q, 2)[1], [[0, 1], [0, 1]])


@each_kind
def test_small_additions_leave_few_blocks(is_sparse):
    D = np.ones((1, 3))
    D = sparse.csr_array(D) if is_sparse else D
    items = store(D)
    for _ in range(200):
        items.add(D)
    assert len(items._blocks) < 10
    assert items.n_items == 201


@each_kind
def test_pickle(is_sparse):
    D = np.arange(12.0).reshape(4, 3)
    D = sparse.csr_array(D) if is_sparse else D
    items = store(D)
    items.remove([3])
    thawed = pickle.loads(pickle.dumps(items))
    assert_array_equal(thawed.search(D, 4)[1], items.search(D, 4)[1])


# -- dense scores do not depend on other queries --


def test_dense_search_is_the_same_alone_and_in_a_batch(dtype):
    rng = np.random.default_rng(0)
    D, Q = rng.random((3_000, 37)).astype(dtype), rng.random((300, 37)).astype(dtype)
    items = DenseItems(D, block_length=1_100)
    scores, rows = items.search(Q, 5)
    for i in (0, 100, 299):
        alone = items.search(Q[i : i + 1], 5, n_threads=2)
        assert_array_equal(alone[0][0], scores[i])
        assert_array_equal(alone[1][0], rows[i])
    assert_close_search((scores, rows), Q @ D.T, 5, np.ones(3_000, dtype=bool))


# -- arrays --


def damage(arrays, name, change):
    arrays = {key: array.copy() for key, array in arrays.items()}
    arrays[name] = change(arrays[name])
    return arrays


def set_at(place, value):
    def change(array):
        array[place] = value
        return array

    return change


DAMAGES = {
    "short": ("words_1", lambda a: a[:-1]),
    "two dimensions": ("words_1", lambda a: a[:, None]),
    "dtype": ("values_1", lambda a: a.astype(np.int64)),
    "word too large": ("words_1", set_at(3, 12)),
    "negative word": ("words_1", set_at(3, -1)),
    "place too large": ("places_1", set_at(3, 20)),
    "offsets fall": ("indptr_1", set_at(2, 1_000)),
    "offsets do not begin": ("start_1", set_at(0, 1)),
    "offsets do not end": ("start_1", set_at(-1, 3)),
    "steps short": ("steps_0", lambda a: a[:-1]),
    "step negative": ("steps_0", set_at(3, -1)),
    "step not a number": ("steps_0", set_at(3, np.nan)),
    "rows short": ("rows_0", lambda a: a[:, :-1]),
    "row too many": ("row_words_0", lambda a: np.append(a, a[-1:])),
    "not contiguous": ("values_0", lambda a: np.repeat(a, 2)[::2]),
    "lengths": ("lengths", set_at(0, 11)),
    "negative length": ("lengths", set_at(0, -1)),
    "alive": ("alive", lambda a: a[:-1]),
    "alive forged": ("alive", lambda a: np.full(len(a), 7, np.uint8).view(bool)),
    "width": ("shape", set_at(0, 13)),
    "block length": ("shape", set_at(1, 100_000)),
    "precision": ("shape", set_at(2, 4)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_arrays_are_refused(name):
    # Half of the words are frequent, so that each block has rows.
    rng = np.random.default_rng(0)
    X = rng.random((50, 12)) * (rng.random((50, 12)) < np.repeat([0.5, 0.1], 6))
    D = sparse.csr_array(X)
    arrays = InvertedFile(D, block_length=20).to_arrays()
    with pytest.raises(ValueError, match="damaged"):
        InvertedFile.from_arrays(damage(arrays, *DAMAGES[name])).search(D, 3)
    del arrays["places_2"]
    with pytest.raises(ValueError, match="places_2"):
        InvertedFile.from_arrays(arrays)


@each_kind
def test_arrays_are_verified_once_and_only_when_read(is_sparse):
    D = np.arange(60.0).reshape(20, 3)
    D = sparse.csr_array(D) if is_sparse else D
    backend = type(store(D))
    arrays, verified = backend(D, block_length=10).to_arrays(), []
    items = backend.from_arrays(arrays, verify=verified.extend)
    assert set(verified) == {"shape", "lengths", "alive"}
    for _ in range(2):
        items.search(D, 3)
    items.verify()
    assert sorted(verified) == sorted(arrays)


@pytest.mark.parametrize("density", [0.05, 0.17, 0.2, 0.9])
def test_memory_of_the_inverted_file(density, dtype):
    rng = np.random.default_rng(0)
    D = sparse.random_array((2_000, 500), density=density, rng=rng, dtype=dtype)
    D = sparse.csr_array(D)
    D.indices, D.indptr = D.indices.astype(np.int32), D.indptr.astype(np.int32)
    size = D.data.nbytes + D.indices.nbytes + D.indptr.nbytes
    assert InvertedFile(D).nbytes <= 1.8 * size


# -- other libraries --

FOREIGN = {
    "Flat": (FaissItems, {}),
    "IVF": (FaissItems, {"factory": "IVF4,Flat", "nprobe": 4}),
    "trees": (FaissItems, {"factory": "IVF4,Flat", "nprobe": 4, "n_indexes": 3}),
    "HNSW": (FaissItems, {"factory": "HNSW32", "efSearch": 400}),
    "usearch": (UsearchItems, {"exact": True}),
    "usearch graph": (UsearchItems, {"expansion_search": 400}),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_exhaustive_search_by_others_is_exact(name):
    backend, options = FOREIGN[name]
    pytest.importorskip("faiss" if backend is FaissItems else "usearch")
    rng = np.random.default_rng(0)
    D = rng.standard_normal((300, 12)).astype(np.float32)
    Q = rng.standard_normal((7, 12)).astype(np.float32)
    items = backend(freeze(D[:250]), **options)
    # A graph that two threads extend may have items that a search does not reach.
    items.add(D[250:], n_threads=1 if name == "usearch graph" else 2)
    items.remove([1, 5, 299])
    alive = np.ones(300, dtype=bool)
    alive[[1, 5, 299]] = False
    S = Q @ D.T
    assert_close_search(items.search(Q, 9), S, 9, alive)
    assert_close_search(items.search(Q, 400), S, 400, alive)
    best = items.search(Q, 2, n_threads=2)[1]
    excluded = np.arange(0, 15, 2), best.ravel()
    assert_close_search(items.search(Q, 9, excluded=excluded), S, 9, alive, excluded)
    allowed = np.arange(300) % 10 == 0
    found = items.search(Q, 20, allowed=allowed)
    assert_close_search(found, S, 20, alive & allowed)

    opened = backend.from_arrays(items.to_arrays())
    assert_array_equal(opened.search(Q, 9)[1], items.search(Q, 9)[1])
    opened.add(D[:1])
    assert opened.n_items == 301
    kept = items.compact()
    assert_array_equal(kept, np.flatnonzero(alive))
    assert_close_search(items.search(Q, 9), S[:, kept], 9, alive[kept])


@pytest.mark.parametrize("stored", ["float16", "int8"])
def test_short_numbers_find_nearly_the_same(stored):
    pytest.importorskip("usearch")
    rng = np.random.default_rng(0)
    D = rng.standard_normal((500, 32)) * rng.uniform(0.5, 2, (500, 1))
    Q = rng.standard_normal((20, 32))
    items = UsearchItems(D.astype(np.float32), stored=stored, exact=True)
    scores, rows = items.search(Q, 10)
    expected, best = rank(Q @ D.T, 10, np.ones(500, dtype=bool))
    common = [len(np.intersect1d(a, b)) for a, b in zip(rows, best, strict=True)]
    assert np.mean(common) > 9
    assert_allclose(scores, expected, rtol=0.05)


def test_invalid_factories_of_faiss_are_refused():
    pytest.importorskip("faiss")
    D = np.ones((20, 4), dtype=np.float32)
    with pytest.raises(ValueError, match="factory='Fat'"):
        FaissItems(D, factory="Fat")
    with pytest.raises(ValueError, match="n_indexes > 1"):
        FaissItems(D, n_indexes=2)
    with pytest.raises(ValueError, match="Add items, or"):
        FaissItems(D, factory="IVF64,Flat")


@pytest.mark.parametrize(
    ("backend", "package"), [(FaissItems, "faiss"), (UsearchItems, "usearch")]
)
def test_missing_package_names_its_extra(backend, package, monkeypatch):
    for name in (package, f"{package}.index"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"\.\[{package}\]"):
        backend(np.ones((3, 2)))
