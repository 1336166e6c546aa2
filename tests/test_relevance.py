"""The one reading of y."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from sklearn_simlearn._relevance import check_relevance, stack_targets

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
    assert_array_equal(relevance.positive.toarray().sum(axis=1), relevance.can_query)


def test_labels_of_other_kinds_have_no_distractors():
    for y in (["a", "b", "-1"], [True, False, True], np.array([2, 0, 1], np.uint8)):
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


def test_y_is_left_alone():
    y = sparse.csr_array(([1.0, 1.0, 0.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
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
