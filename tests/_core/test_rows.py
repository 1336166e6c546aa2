"""Checks of samples, and arithmetic on rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.rows import (
    are_counts,
    bounded_blocks,
    canonical_csr,
    check_counts,
    check_rows,
    find_repeat,
    inverse_document_frequency,
    power,
    row_dots,
    scale_columns,
    scale_rows,
    side_by_side,
    starts_run,
    sum_entries,
    unit_rows,
)
from sklearn_simlearn._core.start import Start
from sklearn_simlearn.contract._samples import storage_states


class Taker(BaseEstimator):
    """Estimator that accepts rows of any kind."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def rows(X, *, taker=None):
    """Return rows, checked by a new or by a fitted estimator."""
    return check_rows(taker or Taker(), X, reset=taker is None)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_storage_state_comes_out_the_same(seed):
    rng = np.random.default_rng(seed)
    dense = rng.poisson(0.5, size=rng.integers(1, 7, size=2)).astype(float)
    for name, X in storage_states(sparse.csr_array(dense)).items():
        before = X.copy()
        checked = rows(X)
        if sparse.issparse(X):
            assert isinstance(checked, sparse.csr_array), name
            assert checked.has_canonical_format
            assert checked.data.all()
            assert checked.indices.dtype == checked.indptr.dtype == np.int32
            assert_array_equal(checked.toarray(), dense, err_msg=name)
            assert X.nnz == before.nnz  # not changed in place
        else:
            assert checked.flags.c_contiguous, name
            assert_array_equal(checked, dense, err_msg=name)


def test_duplicates_that_cancel_leave_no_zero():
    X = sparse.csr_array(([2.0, -2.0, 3.0], [1, 1, 0], [0, 3]), shape=(1, 2))
    assert_array_equal(canonical_csr(X).indices, [0])
    assert X.nnz == 3


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("float64", [1e149, 1e-149], [1e160, 1e-160, -1e151]),
        ("float32", [1e14, 1e-14], [1e18, 1e-18]),
    ],
)
def test_magnitudes_whose_squares_leave_the_range(container, dtype, good, bad):
    X = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], dtype=dtype)
    for value in good:
        X[2, 1] = value
        U = unit_rows(rows(container(X)))
        U = U.toarray() if sparse.issparse(U) else U
        assert_allclose(U, np.array([[1, 0], [0, 0], [0, 1]]), rtol=1e-6)
    for value in bad:
        X[2, 1] = value
        with pytest.raises(ValueError, match="in row 2 of X is"):
            rows(container(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_after_the_fit_are_checked_as_those_of_the_fit(dtype):
    taker = Taker()
    check_rows(taker, np.ones((2, 3)), reset=True)
    X = np.ones((4, 3), dtype=dtype)
    assert rows(X, taker=taker) is X  # a valid array is not copied
    for value, message in [
        (np.nan, "NaN"),
        (np.inf, "infinity"),
        (1e19, "in row 2 of X is") if dtype == "float32" else (1e160, "in row 2"),
    ]:
        bad = X.copy()
        bad[2, 1] = value
        with pytest.raises(ValueError, match=message):
            rows(bad, taker=taker)
    X[1] = 0
    assert_array_equal(rows(X, taker=taker), X)
    assert rows(X.astype(">f4"), taker=taker).dtype.isnative
    assert rows(X[::2], taker=taker).flags.c_contiguous
    assert rows(X.astype(int), taker=taker).dtype == np.float64
    with pytest.raises(ValueError, match="expecting 3 features"):
        rows(X[:, :2], taker=taker)
    with pytest.raises(ValueError, match="0 sample"):
        rows(X[:0], taker=taker)
    with pytest.raises(ValueError, match="Complex"):
        rows(X + 1j, taker=taker)


def test_an_array_without_feature_names_warns():
    pandas = pytest.importorskip("pandas")
    taker = Taker()
    check_rows(taker, pandas.DataFrame({"a": [1.0], "b": [2.0]}), reset=True)
    with pytest.warns(UserWarning, match="feature names"):
        rows(np.ones((2, 2)), taker=taker)


def test_small_values_next_to_large_values():
    X = np.array([[1.0, 1e-200]])
    assert_array_equal(rows(X), X)


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        ([[1, 0, 2], [1, 1, 0]], True),
        ([[1, 0, 2], [2, 2, 0]], False),  # 1 is not the most frequent
        ([[0.5, 0, 1], [1, 1, 0]], False),
        ([[-1, 0, 1], [1, 1, 0]], False),
        ([[0, 0, 0], [0, 0, 0]], False),
        ([[300, 300, 1], [400, 300, 0]], True),  # large counts may be equal
        ([[255, 255, 1], [255, 1, 2]], False),  # white, with smooth edges
    ],
)
def test_detection_of_counts(X, expected):
    X = np.array(X, dtype=float)
    assert are_counts(X) is expected
    assert are_counts(canonical_csr(X)) is expected
    if not expected and ((X < 0).any() or (np.rint(X) != X).any()):
        with pytest.raises(ValueError, match=r"Negative values|compares counts"):
            check_counts(X, "It")


def test_start_is_the_cosine_if_no_word_distinguishes_samples(rng):
    X = 1.0 + rng.poisson(0.4, size=(20, 6))
    X[:, 3] = 0  # in no sample
    for Z in (X, canonical_csr(X)):
        assert Start.fit(Z).idf is None
    X[0, 3] = 1
    assert Start.fit(X).idf is not None


def test_start_is_a_cosine_of_dampened_tfidf(dtype):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, size=(20, 6)).astype(dtype)
    X[:, 0] = 1
    idf = np.log(20 / np.maximum((X > 0).sum(axis=0), 1))
    expected = (X * idf) ** 0.75
    norm = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = expected / np.where(norm > 0, norm, 1)
    for Z in (X, canonical_csr(X)):
        assert_allclose(inverse_document_frequency(Z), idf)
        S = Start.fit(Z).items(Z)
        assert S.dtype == dtype
        S = S.toarray() if sparse.issparse(S) else S
        assert_allclose(S, expected, rtol=1e-5, atol=1e-6)


def test_start_of_embeddings_is_the_cosine():
    X = np.random.default_rng(0).standard_normal((5, 3))
    assert Start.fit(X).idf is None
    assert_allclose(Start(None).items(X), unit_rows(X))
    assert Start.fit(np.ones((4, 3))).idf is None  # idf would be 0 throughout


@given(st.integers(0, 2**32 - 1))
def test_arithmetic_of_rows(seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 6, size=2)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    Y = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    by_row, by_column = rng.standard_normal(n), rng.standard_normal(d)
    extra = rng.standard_normal((n, 2))
    for A in (X, canonical_csr(X)):
        before = A.copy()

        def dense(Z):
            return Z.toarray() if sparse.issparse(Z) else Z

        assert_allclose(dense(scale_rows(A, by_row)), X * by_row[:, None])
        assert_allclose(dense(scale_columns(A, by_column)), X * by_column)
        assert_allclose(dense(power(A, 0.5)), np.sign(X) * np.sqrt(abs(X)))
        assert_allclose(
            dense(scale_rows(side_by_side(A, extra), by_row)),
            np.hstack([X, extra]) * by_row[:, None],
        )
        for B in (Y, canonical_csr(Y)):
            assert_allclose(row_dots(A, B), (X * Y).sum(axis=1), atol=1e-12)
        assert_allclose(row_dots(A, A), (X * X).sum(axis=1))
        assert_array_equal(dense(A), dense(before))


@given(st.integers(0, 2**32 - 1))
def test_sums_of_entries_are_those_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 6, size=2)
    counts = rng.integers(0, 3, size=(n, d)) * rng.integers(0, 2, size=(n, 1))
    X = canonical_csr(counts.astype(np.uint8))
    for dtype in (None, np.int64, np.float64):
        sums = sum_entries(X.data, X.indptr, dtype)
        assert sums.dtype == (np.uint8 if dtype is None else dtype)
        assert_array_equal(sums, counts.sum(axis=1))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_runs_and_repeats_of_pairs(pairs):
    row, column = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = [i == 0 or pairs[i] != pairs[i - 1] for i in range(len(pairs))]
    assert starts_run(row, column).tolist() == expected
    again = [i for i in range(len(pairs)) if pairs[i] in pairs[:i]]
    repeat = (pairs.index(pairs[again[0]]), again[0]) if again else None
    assert find_repeat(row, column) == repeat


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_blocks_are_as_long_as_their_cost_allows(cost, limit):
    blocks = list(bounded_blocks(np.array(cost, dtype=np.int64), limit))
    assert [i for block in blocks for i in range(len(cost))[block]] == [
        *range(len(cost))
    ]
    for block in blocks:
        total = sum(cost[block])
        assert total <= limit or block.stop == block.start + 1
        if block.stop < len(cost):
            assert total + cost[block.stop] > limit
