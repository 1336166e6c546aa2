"""Relevance of samples, read from `y`."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, indexable

from sklearn_simlearn._core.relevance import check_relevance, stack_targets
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn.metrics import PairwiseRelevance

ALL = slice(None)


@pytest.mark.parametrize(
    "y",
    [
        [3, 7, 3, -1, 7, -1],
        [3.0, 7.0, 3.0, -1.0, 7.0, -1.0],
        np.array([3, 7, 3, -1, 7, -1], dtype=object),
        pd.Series([3, 7, 3, -1, 7, -1]),
        [-5, 7, -5, -1, 7, -1],
    ],
    ids=["list", "float", "object", "series", "other negative labels"],
)
def test_integer_labels_with_distractors(y):
    relevance = check_relevance(y)
    expected = np.zeros((6, 6))
    for a, b in [(0, 2), (1, 4)]:
        expected[[a, a, b, b], [a, b, a, b]] = 1
    assert_array_equal(relevance.block(ALL, ALL), expected)
    assert_array_equal(relevance.can_query, [1, 1, 1, 0, 1, 0])
    assert_array_equal(relevance.objects(), [0, 1, 0, -1, 1, -1])
    assert_array_equal(relevance.memberships.toarray().sum(axis=1), relevance.can_query)


def test_labels_of_other_kinds_have_no_distractors():
    for y in (
        ["a", "b", "-1"],
        np.array(["a", "bc", "-1"], dtype=np.dtypes.StringDType()),
        [True, False, True],
        np.array([2, 0, 1], np.uint8),
    ):
        assert check_relevance(y).can_query.all()


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_relevance_matrix(container):
    y = container(
        np.array(
            [
                [2.0, 0.0, 0.0],  # relevant in column 0
                [0.5, 0.0, 1.0],  # in 0 and 2
                [0.0, 0.0, 3.0],  # in 2
                [-1.0, 0.0, 0.0],  # junk for the queries of 0
                [-1.0, 0.0, 1.0],  # junk for 0, relevant in 2
                [0.0, 0.0, 0.0],  # a distractor
            ]
        )
    )
    relevance = check_relevance(y, n_samples=6)
    expected = [
        [1, 1, 0, -1, -1, 0],
        [1, 1, 1, -1, 1, 0],  # sample 4 shares column 2: no junk for sample 1
        [0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    assert_array_equal(relevance.block(ALL, ALL), expected)
    assert_array_equal(relevance.can_query, [1, 1, 1, 0, 1, 0])
    assert_array_equal(relevance.objects(), [0, 0, 0, -1, 0, -1])
    graded = relevance.graded_block(np.array([1]), ALL)
    assert_array_equal(graded, [[1.0, 0.25 + 1.0, 3.0, -1.0, 1.0, 0.0]])
    assert_array_equal(
        relevance.block(np.array([4, 0]), slice(1, 3)),
        np.array(expected)[[4, 0]][:, 1:3],
    )


def test_matrix_of_one_hot_columns_equals_labels():
    labels = np.array([0, 1, 2, 1, 0, -1])
    matrix = (labels[:, None] == np.arange(3)).astype(float)
    for block in ("block", "graded_block"):
        assert_array_equal(
            getattr(check_relevance(matrix), block)(ALL, ALL),
            getattr(check_relevance(labels), block)(ALL, ALL),
        )


def test_y_is_not_changed():
    y = sparse.csr_array(([1.0, 1.0, 0.0], [0, 0, 1], [0, 2, 3]), shape=(2, 3))
    check_relevance(y)
    assert y.nnz == 3


def test_stacked_targets():
    assert_array_equal(stack_targets(["a"], ["b", "a"]), ["a", "b", "a"])
    mixed = stack_targets(sparse.csr_array(np.eye(2)), np.ones((1, 2)))
    assert_array_equal(mixed.toarray(), [[1, 0], [0, 1], [1, 1]])
    with pytest.raises(ValueError, match="of one kind"):
        stack_targets([0, 1], np.eye(2))
    with pytest.raises(ValueError, match="of one kind"):
        stack_targets(np.eye(3), np.eye(2))
    with pytest.raises(ValueError, match="of one type"):
        stack_targets([0, 1], ["a", "b"])


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, "requires y to be passed"),
        ([0.5, 1.0], ValueError, "holds real numbers.*graded relevance"),
        ([0.0, np.nan], ValueError, "Input y contains NaN"),
        (["a", None], ValueError, "NaN or None.*-1"),
        (pd.Series(["a", pd.NA], dtype=object), ValueError, "NaN or None.*-1"),
        (np.array(["a", 1], dtype=object), TypeError, "mixes labels"),
        ([1j, 2j], ValueError, "Complex"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), ValueError, "Unknown label"),
        ([-1, 1, 1, -1], ValueError, "ambiguous.*Use 0 and 1"),
        ([[0, 1], [2]], ValueError, "ragged.*MultiLabelBinarizer"),
        (np.array([[0, 1], [2]], dtype=object), ValueError, "MultiLabelBinarizer"),
        (np.zeros((2, 2, 2)), ValueError, "1-dimensional .labels. or 2-dimensional"),
        (np.zeros((4, 1)), ValueError, "single column.*ravel"),
        (np.array([[np.inf, 0.0]]), ValueError, "y contains infinity"),
        ([["a", "b"]], ValueError, "could not convert"),
    ],
)
def test_bad_targets(y, error, message):
    with pytest.raises(error, match=message):
        check_relevance(y)


def test_wrong_length():
    with pytest.raises(ValueError, match="same number of samples; got 3 and 4"):
        check_relevance([0, 1, 0], n_samples=4)


# -- pairs --

PAIRS = np.array(
    [
        [9.0, 2.0, 0.0, 0.0, 0.0],  # the diagonal is ignored
        [1.0, 0.0, 1.0, -3.0, 0.0],
        [0.0, 0.5, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, -1.0, 0.0],
    ]
)


@pytest.mark.parametrize(
    "container", [np.asarray, sparse.csr_array, sparse.csc_matrix, sparse.dia_array]
)
def test_pairwise_relevance(container):
    relevance = check_relevance(PairwiseRelevance(container(PAIRS)), n_samples=5)
    expected = [
        [1, 1, 0, 0, 0],
        [1, 1, 1, -1, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, -1, 0],
    ]
    assert_array_equal(relevance.block(ALL, ALL), expected)
    assert_array_equal(relevance.can_query, [1, 1, 1, 0, 0])
    assert_array_equal(relevance.objects(), [0, 0, 0, -1, -1])
    assert_array_equal(relevance.memberships.toarray(), [[1], [1], [1], [0], [0]])
    assert_array_equal(
        relevance.graded_block(np.array([1, 2]), slice(0, 4)),
        [[1, 1, 1, -1], [0, 0.5, 1, 0]],
    )
    assert_array_equal(relevance.find_queries(), [1, 1, 1, 0, 0])
    part = relevance.take(np.array([2, 1, 3]))
    assert_array_equal(part.block(ALL, ALL), [[1, 1, 0], [1, 1, -1], [0, 0, 0]])
    assert_array_equal(part.find_queries(), [1, 0, 0])


def test_pairs_in_one_direction_link_both():
    y = np.zeros((4, 4))
    y[0, 2] = 1
    relevance = check_relevance(PairwiseRelevance(y))
    assert_array_equal(relevance.can_query, [1, 0, 0, 0])
    assert_array_equal(relevance.objects(), [0, -1, 0, -1])


def test_pairwise_relevance_is_sliced_by_scikit_learn():
    y = PairwiseRelevance(PAIRS)
    _, indexed = indexable(np.zeros((5, 1)), y)
    assert indexed is y
    assert len(y) == 5
    for rows in ([3, 1, 0], np.array([3, 1, 0]), np.array([1, 1, 0, 1, 0], bool)):
        picked = np.arange(5)[rows]
        expected = PAIRS[np.ix_(picked, picked)]
        np.fill_diagonal(expected, 0)
        part = _safe_indexing(y, rows)
        assert_array_equal(part.matrix.toarray(), expected)
    assert_array_equal(
        _safe_indexing(y, slice(1, 3)).matrix.toarray(), [[0, 1], [0.5, 0]]
    )
    train, test = train_test_split(y, random_state=0)
    assert (len(train), len(test)) == (3, 2)
    thawed = pickle.loads(pickle.dumps(y))
    assert_array_equal(thawed.matrix.toarray(), y.matrix.toarray())


def test_bad_pairs():
    with pytest.raises(
        ValueError, match=r"one row and one column per sample.*\(2, 3\)"
    ):
        PairwiseRelevance(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="matrix contains NaN"):
        PairwiseRelevance([[0, np.nan], [0, 0]])
    with pytest.raises(TypeError, match="is not an array: use its attribute `matrix`"):
        np.asarray(PairwiseRelevance(PAIRS))
    with pytest.raises(ValueError, match="same number of samples; got 5 and 4"):
        check_relevance(PairwiseRelevance(PAIRS), n_samples=4)
    with pytest.raises(ValueError, match="relates the samples of one set only"):
        stack_targets(PairwiseRelevance(PAIRS), PairwiseRelevance(PAIRS))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_a_matrix_with_more_columns_than_rows_is_questioned(container):
    y = np.zeros((4, 9))
    y[np.arange(4), [0, 2, 4, 6]] = y[:, 8] = 1
    y[:, 1] = -1  # columns without a relevant sample do not count
    with pytest.warns(UserWarning, match="5 columns with relevant.*Judgements"):
        check_relevance(container(y))
    check_relevance(container(y), has_database=True)
    y[0, 0] = 0
    check_relevance(container(y))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_square_matrices_are_questioned(container):
    symmetric = container(np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    with pytest.raises(ValueError, match=r"ambiguous.*PairwiseRelevance\(y\)"):
        check_relevance(symmetric)
    with pytest.raises(ValueError, match="append an empty column"):
        check_relevance(container(np.triu(np.ones((3, 3)))))
    columns = container(np.array([[1.0, 0, 0], [1, 0, 0], [0, 0, 1]]))
    with pytest.warns(UserWarning, match="columns are read as objects") as caught:
        relevance = check_relevance(columns)
    assert caught[0].filename == __file__
    assert_array_equal(relevance.objects(), [0, 0, 1])


# -- queries, batch by batch --


@st.composite
def targets(draw):
    """Return labels, columns or pairs of few samples, with every special case."""
    n_samples = draw(st.integers(2, 8))
    if draw(st.booleans()):
        labels = arrays(np.int64, n_samples, elements=st.integers(-1, 2))
        return draw(labels.filter(lambda y: set(y) != {-1, 1}))
    values = st.sampled_from([-1.0, 0.0, 0.0, 1.0, 1e-150])
    if draw(st.booleans()):
        return PairwiseRelevance(
            draw(arrays(np.float64, (n_samples, n_samples), elements=values))
        )
    n_columns = draw(st.integers(1, 4).filter(lambda n: n != n_samples))
    matrix = arrays(np.float64, (n_samples, n_columns), elements=values)
    return sparse.csr_array(draw(matrix))


@pytest.mark.filterwarnings("ignore:y has .* columns with relevant")
@given(y=targets())
@settings(max_examples=200, deadline=None)
def test_queries_are_those_with_relevant_and_irrelevant_others(y):
    relevance = check_relevance(y)
    n_samples = len(relevance)
    whole = relevance.block(ALL, ALL)
    np.fill_diagonal(whole, -1)
    expected = (whole > 0).any(axis=1) & (whole == 0).any(axis=1)
    assert_array_equal(relevance.find_queries(), expected)
    some = np.arange(n_samples) % 2 == 0
    assert_array_equal(relevance.find_queries(some), expected & some)
    # Samples of one kind are relevant to the same.
    whole = relevance.block(ALL, ALL) > 0
    kinds = relevance.kinds()
    for i, j in zip(*np.triu_indices(n_samples), strict=True):
        if kinds[i] == kinds[j]:
            assert_array_equal(whole[i], whole[j])
    if expected.any():
        relevance.require_triplets()
        query, positive, negative = (
            triplet_sampler(relevance).draw(50, np.random.default_rng(0)).T
        )
        assert (query != positive).all()
        assert (relevance.block(ALL, ALL)[query, positive] == 1).all()
        assert (relevance.block(ALL, ALL)[query, negative] == 0).all()
        assert set(query) <= set(np.flatnonzero(expected))
    else:
        with pytest.raises(ValueError, match="y holds no triplet"):
            relevance.require_triplets()
        with pytest.raises(ValueError, match="y holds no triplet"):
            triplet_sampler(relevance)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("kind", ["labels", "columns", "pairs"])
def test_batches_add_up_to_the_whole(kind, graded, rng):
    n_samples = 60
    y = {
        "labels": rng.integers(-1, 4, size=n_samples),
        "columns": rng.choice([-1, 0, 0, 0, 2.0], size=(n_samples, 5)),
        "pairs": PairwiseRelevance(rng.choice([-1, 0, 2.0], size=(60, 60))),
    }[kind]
    relevance = check_relevance(y)
    queries = rng.permutation(n_samples)[:50]
    find = relevance.graded_block if graded else relevance.block
    expected = find(queries, ALL)
    expected[np.arange(50), queries] = -1
    # Each query takes 32 * 60 bytes: room for seven of them.
    with config_context(working_memory=7.5 * 32 * n_samples / 2**20):
        parts = list(relevance.batches(queries, graded=graded))
        narrow = list(relevance.batches(queries, graded=graded, n_bytes=64))
    assert [len(rows) for _, rows, _ in parts] == [7] * 7 + [1]
    assert len(narrow) == 17
    for batch, rows, block in parts + narrow:
        assert_array_equal(rows, queries[batch])
        assert_array_equal(block, expected[batch])
    # Queries that need a comparison with all samples are found in every batch.
    with config_context(working_memory=7.5 * 32 * n_samples / 2**20):
        found = relevance.find_queries()
    assert_array_equal(found, relevance.find_queries())


def test_queries_in_doubt_are_found_in_every_batch():
    # Two columns of 40 samples overlap. Only samples in both columns have no irrelevant
    # sample.
    y = np.zeros((60, 12))
    y[:40, 0] = y[20:, 1] = 1
    # The samples in both columns form ten further pairs.
    for i in range(10):
        y[20 + 2 * i : 22 + 2 * i, 2 + i] = [0.5, 1]
    y[40, 0] = -1
    relevance = check_relevance(y)
    with config_context(working_memory=2.5 * 32 * 60 / 2**20):
        found = relevance.find_queries()
    assert_array_equal(found, (np.arange(60) < 20) | (np.arange(60) >= 40))


def test_reading_and_finding_queries_take_linear_time():
    # All pairs of 200,000 samples would take minutes and 40 GB.
    labels = np.arange(200_000) % 500
    relevance = check_relevance(labels)
    assert relevance.find_queries().all()
    ones = check_relevance(sparse.csr_array(np.ones((200_000, 1))))
    with pytest.raises(ValueError, match="y holds no triplet"):
        ones.require_triplets()
    columns = check_relevance(relevance.memberships)
    assert columns.find_queries().all()
    pairs = sparse.diags_array(np.ones(199_999), offsets=1)
    assert check_relevance(PairwiseRelevance(pairs)).find_queries().sum() == 199_999


# -- extremes --


def test_tiny_weights_are_relevant_or_refused():
    y = np.array([[1e-140, 0, 0], [1e-140, 0, 0], [0, 1, 0], [0, 1, 1]])
    relevance = check_relevance(y)
    assert relevance.graded_block(ALL, ALL)[0, 1] > 0
    assert_array_equal(relevance.block(ALL, ALL)[0], [1, 1, 0, 0])
    for bad in (1e-200, 1e200):
        with pytest.raises(ValueError, match="scale y to weights from 1e-150"):
            check_relevance(y * bad)
    pairs = PairwiseRelevance([[0, 5e-324, 0], [1e308, 0, 0], [0, 0, 0]])
    assert_array_equal(check_relevance(pairs).can_query, [1, 1, 0])


@pytest.mark.parametrize(
    "y",
    [
        np.array([np.int64(3), np.int64(3), np.int64(-1)], dtype=object),
        np.array([3, np.int32(3), -1.0], dtype=object),
        pd.Series([3, 3, -1], dtype="Int64"),
        np.array([2**70, 2**70, -1], dtype=object),
    ],
    ids=["numpy integers", "mixed numbers", "nullable", "large"],
)
def test_distractors_among_objects(y):
    assert_array_equal(check_relevance(y).labels, [0, 0, -1])


@pytest.mark.parametrize(
    ("dtype", "n_bits"), [(np.float64, 53), (np.float32, 24), (np.float16, 11)]
)
def test_float_labels_that_would_merge_are_refused(dtype, n_bits):
    y = np.array([2**n_bits - 1, 2**n_bits - 2, 5], dtype=dtype)
    assert_array_equal(check_relevance(y).labels, [2, 1, 0])
    with pytest.raises(ValueError, match=rf"2\*\*{n_bits} or more.*as integers"):
        check_relevance(y * 2)
    assert_array_equal(check_relevance([2**53, 2**53 + 1]).labels, [0, 1])
