"""Filters: dicts on metadata, lists of ids and masks, for all queries or for each."""

from datetime import UTC, date, datetime
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sample_data import polars_frame
from scipy import sparse
from sklearn.preprocessing import Normalizer

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._conditions import SortedColumns, read_conditions
from sklearn_simlearn.index._parted_table import PartedTable
from sklearn_simlearn.similarities import CosineSimilarity

N = 60


def make_columns(rng):
    return {
        "lang": rng.choice(["de", "en", "fr"], N).tolist(),
        "price": [None if i % 7 == 0 else float(i % 10) for i in range(N)],
        "year": rng.integers(2000, 2010, N).tolist(),
        "sold": (rng.random(N) < 0.3).tolist(),
        "seen": [datetime(2024, 1, 1 + i % 9, 12) for i in range(N)],
        "day": [date(2024, 1, 1 + i % 9) for i in range(N)],
    }


def make_table(kind, columns):
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "polars":
        return polars_frame(columns, strict=False)
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    if kind == "list":  # a missing value may be a missing key
        return [{k: v for k, v in row.items() if v is not None} for row in rows]
    dtype = [
        ("lang", "U2"),
        ("price", "f8"),
        ("year", "i4"),
        ("sold", "?"),
        ("seen", "M8[s]"),
        ("day", object),
    ]
    rows = [
        tuple(np.nan if value is None else value for value in row.values())
        for row in rows
    ]
    return np.array(rows, dtype=dtype)


# A filter, and the same condition on a dict of a row without missing values.
FILTERS = [
    ({"lang": "de"}, lambda r: r["lang"] == "de"),
    ({"lang": np.str_("de")}, lambda r: r["lang"] == "de"),
    ({"lang": ["de", "fr", "it"]}, lambda r: r["lang"] in ("de", "fr")),
    ({"lang": ("!=", "de")}, lambda r: r["lang"] != "de"),
    ({"price": ("<", 5)}, lambda r: r["price"] is not None and r["price"] < 5),
    ({"price": {">=": 3, "<": 7}}, lambda r: r["price"] in (3, 4, 5, 6)),
    ({"price": ("!=", 4)}, lambda r: r["price"] not in (None, 4)),
    ({"price": None}, lambda r: r["price"] is None),
    ({"price": float("nan")}, lambda r: r["price"] is None),
    ({"price": ("!=", None)}, lambda r: r["price"] is not None),
    ({"year": [2001, 2001.0, 2002]}, lambda r: r["year"] in (2001, 2002)),
    (
        {"year": ("<=", 2004.5), "lang": "en"},
        lambda r: r["year"] < 2005 and "en" in r["lang"],
    ),
    ({"sold": True, "year": (">", 2002)}, lambda r: r["sold"] and r["year"] > 2002),
    ({"seen": ("<", datetime(2024, 1, 4))}, lambda r: r["seen"].day < 4),
    ({"seen": (">=", date(2024, 1, 4))}, lambda r: r["seen"].day >= 4),
    ({"day": date(2024, 1, 2)}, lambda r: r["day"].day == 2),
    ({"lang": []}, lambda r: False),
    ({}, lambda r: True),
]


def find_rows(table, filter):
    found = table.find(filter)
    return np.flatnonzero(found) if found.dtype == bool else found


@pytest.mark.parametrize("kind", ["list", "pandas", "polars", "structured"])
def test_a_dict_selects_rows_of_every_kind_of_metadata(kind, rng):
    columns = make_columns(rng)
    table = make_table(kind, columns)
    rows = make_table("list", columns)
    whole = PartedTable(table)
    parted = PartedTable(table[:40]).append(table[40:52]).append(table[52:])
    for filter, holds in FILTERS:
        mask = [holds({"price": None} | row) for row in rows]
        for tested in (whole, parted):
            assert_array_equal(find_rows(tested, filter), np.flatnonzero(mask), filter)


def test_columns_are_sorted_once_per_part(rng):
    rows = make_table("list", make_columns(rng))
    table = PartedTable(rows[:40])
    table.find({"lang": "de"})
    longer = table.append(rows[40:45])
    longer.find({"lang": "de"})
    assert longer._columns[0] is table._columns[0]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ({"colour": 1}, "unknown column 'colour'. Columns: .*'lang'"),
        ({"price": ("<", None)}, "compares 'price' with a missing value"),
        ({"price": {"~": 1}}, "unknown operator '~'.*Operators"),
        ({"price": [1, None]}, "filter by None"),
        ({"price": "5"}, "'price' holds numbers; got '5'"),
        ({"lang": 5}, "'lang' holds strings; got 5"),
        ({"sold": 1}, "'sold' holds booleans; got 1"),
        ({"day": datetime(2024, 1, 2)}, "'day' holds dates; got"),
        ({"seen": ("<", datetime(2024, 1, 2, tzinfo=UTC))}, "'seen' holds times; got"),
        ({"day": "yesterday"}, "'day', which holds dates, with 'yesterday'. Write"),
        ({"day": "2024-01-02T12:00"}, "Write them as in '2024-01-31'"),
        ({"seen": (">", "2024-01-02T12:00+00:00")}, "'seen' holds times; got"),
        ({"mixed": 5}, "'mixed' of the metadata holds int, str"),
        ({"nested": 5}, "'nested' of the metadata holds list"),
    ],
)
def test_a_dict_that_does_not_fit_the_metadata(filter, message, rng):
    rows = make_table("list", make_columns(rng))
    for i, row in enumerate(rows):
        row |= {"mixed": i if i % 2 else "a", "nested": [i]}
    index = SimilarityIndex(Normalizer()).fit(rng.random((N, 3)), metadata=rows)
    with pytest.raises(ValueError, match=message):
        index.search(rng.random((1, 3)), filter=filter)


@pytest.mark.parametrize("kind", ["pandas", "polars", "list"])
def test_dates_and_times_as_texts(kind, rng):
    columns = SortedColumns(make_table(kind, make_columns(rng)))
    for filter, same in [
        ({"seen": (">=", "2024-01-05")}, {"seen": (">=", datetime(2024, 1, 5))}),
        ({"seen": "2024-01-05T12:00"}, {"seen": datetime(2024, 1, 5, 12)}),
        ({"seen": ["2024-01-02 12:00"]}, {"seen": [datetime(2024, 1, 2, 12)]}),
    ]:
        found = columns.find(read_conditions(filter, columns.names))
        assert_array_equal(found, columns.find(read_conditions(same, columns.names)))
        assert 0 < len(found) < N
    if kind == "pandas":  # a date of pandas is an object
        return
    found = columns.find(read_conditions({"day": "2024-01-03"}, columns.names))
    assert_array_equal(found, np.arange(2, N, 9))


def test_a_dict_needs_metadata(rng):
    index = SimilarityIndex(Normalizer()).fit(rng.random((N, 3)))
    with pytest.raises(ValueError, match="A dict as filter requires metadata"):
        index.search(rng.random((1, 3)), filter={"lang": "de"})


def test_a_column_without_values():
    columns = SortedColumns([{"a": None}, {}])
    for value, rows in [(None, [0, 1]), (3, []), ("x", []), (("!=", 3), [])]:
        found = columns.find(read_conditions({"a": value}, {"a"}))
        assert_array_equal(found, rows)


def brute_force(S, k, allowed):
    """Return ids of the best allowed items per query; -1 if there are no more."""
    ids = np.full((len(S), k), -1)
    for i, rows in enumerate(allowed):
        best = rows[np.lexsort((rows, -S[i, rows]))][:k]
        ids[i, : len(best)] = best
    return ids


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_filters_of_each_query(kind, rng, tmp_path):
    X = sparse.random_array((N, 20), density=0.3, rng=rng, format="csr")
    X = X if kind == "sparse" else X.toarray()
    columns = make_columns(rng)
    model = CosineSimilarity(use_idf=False).fit(X)
    index = SimilarityIndex(model).fit(
        X, metadata=[{"lang": lang} for lang in columns["lang"]]
    )
    index.save(tmp_path)
    index.remove([3, 5, 7, 11])
    left = index.ids_
    lang = np.array(columns["lang"])
    mask = rng.random(len(left)) < 0.5
    filters = [
        {"lang": "de"},
        None,
        [2, 3, 40, 1000],
        mask,
        lambda row: row["lang"] == "fr",
        {"lang": "it"},
    ]
    allowed = [
        left[lang[left] == "de"],
        left,
        np.array([2, 40]),
        left[mask],
        left[lang[left] == "fr"],
        left[:0],
    ]
    S = model.similarity(X[:6], X)
    for k in (1, 4, 100):
        _, ids = index.search(X[:6], k, filter=filters)
        assert_array_equal(ids, brute_force(S, k, allowed))
    _, ids = index.search(X[:6], 4, filter=filters, exclude=[left[:10]] * 6)
    allowed = [np.setdiff1d(rows, left[:10]) for rows in allowed]
    assert_array_equal(ids, brute_force(S, 4, allowed))
    loaded = SimilarityIndex.load(tmp_path, estimator=model)
    _, ids = loaded.search(X[:2], 4, filter={"lang": "de"})
    assert_array_equal(ids, brute_force(S[:2], 4, [np.flatnonzero(lang == "de")] * 2))
    masks = rng.random((6, len(left))) < 0.5
    _, ids = index.search(X[:6], 4, filter=masks)
    assert_array_equal(ids, brute_force(S, 4, [left[mask] for mask in masks]))
    _, ids = index.search(X[:2], 4, filter=left[:6].reshape(2, 3))
    assert_array_equal(ids, brute_force(S[:2], 4, left[:6].reshape(2, 3)))
    _, ids = index.search(X[:2], 4, filter=[None, None])
    assert_array_equal(ids, brute_force(S[:2], 4, [left] * 2))
    # A list of numbers of any type holds ids.
    _, ids = index.search(X[:2], 4, filter=[np.int16(2), np.int16(40)])
    assert_array_equal(ids, brute_force(S[:2], 4, [np.array([2, 40])] * 2))
    with pytest.raises(ValueError, match="one filter, or None, per query; got 6 for 2"):
        index.search(X[:2], filter=filters)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("n_allowed", [0, 1, 30, 60, 290, 400])
def test_few_allowed_items_are_scored_directly(kind, n_allowed, dtype, rng):
    """The scores are equal to those of a search of all items, to the last bit."""
    X = sparse.random_array((3000, 40), density=0.2, rng=rng, format="csr", dtype=dtype)
    X.data -= 0.3
    X = X if kind == "sparse" else X.toarray()
    model = CosineSimilarity(use_idf=False).fit(X)
    index = SimilarityIndex(model, backend_options={"block_length": 700}).fit(X)
    index.remove(np.arange(0, 3000, 7))
    allowed = np.sort(rng.choice(3000, n_allowed, replace=False))
    exclude = [allowed[:2], [], [5], [], allowed[:9]]
    mask = np.isin(index.ids_, allowed)
    scores, ids = index.search(X[:5], 3000)
    expected_scores = np.full((5, 20), -np.inf, dtype=dtype)
    expected_ids = np.full((5, 20), -1)
    for i in range(5):
        kept = np.isin(ids[i], allowed) & ~np.isin(ids[i], exclude[i])
        best = np.flatnonzero(kept)[:20]
        expected_scores[i, : len(best)] = scores[i, best]
        expected_ids[i, : len(best)] = ids[i, best]
    filters = allowed, mask, rng.permutation(allowed), allowed.tolist()
    for filter, k in product(filters, (3, 20)):
        scores, ids = index.search(X[:5], k, filter=filter, exclude=exclude)
        assert_array_equal(ids, expected_ids[:, :k])
        assert_array_equal(scores, expected_scores[:, :k])
        assert scores.dtype == dtype


@pytest.mark.parametrize("filter", [0, 1, 2, ("<", 2), (">=", 1), [0, 3], []])
@pytest.mark.parametrize("n_parts", [1, 2])
def test_rows_of_few_and_of_many_items_ascend(filter, n_parts, rng):
    column = rng.permutation(np.repeat([0, 1, 2], [3, 300, 697]))
    table = [{"kind": kind} for kind in column.tolist()]
    parts = PartedTable(*([table], [table[:800], table[800:]])[n_parts - 1])
    if isinstance(filter, tuple):
        operator, value = filter
        mask = column < value if operator == "<" else column >= value
    else:
        mask = np.isin(column, filter)
    rows = find_rows(parts, {"kind": filter})
    assert_array_equal(rows, np.flatnonzero(mask))
