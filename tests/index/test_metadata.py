"""Metadata: `load` restores it unchanged, or `save` raises an error."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import Normalizer

from sklearn_simlearn._core.storage import DamagedError, pack, unpack
from sklearn_simlearn.index import SimilarityIndex, _metadata
from sklearn_simlearn.index._texts import encode_bytes

BIG = 2**60 + 1  # cannot be represented as float64


def save(metadata, folder):
    n_items = len(metadata)
    X = np.random.default_rng(0).normal(size=(n_items, 4))
    index = SimilarityIndex(Normalizer()).fit(X, metadata=metadata)
    index.save(folder, include_estimator=False)
    return index


def save_and_load(metadata, folder):
    save(metadata, folder)
    return SimilarityIndex.load(folder, verify=True).metadata_


PANDAS = {
    "integers": pd.Series([1, 2, BIG]),
    "small integers": pd.Series([1, 2, 3], dtype="int8"),
    "floats": pd.Series([1.5, np.nan, 3.0], dtype="float32"),
    "truths": pd.Series([True, False, True]),
    "times": pd.Series(pd.to_datetime(["2020-01-01", None, "2021-01-01"])),
    "durations": pd.Series(pd.to_timedelta([1, 2, None], unit="s")),
    "strings": pd.Series(["a", "", None], dtype="str"),
    "nullable strings": pd.Series(["a", None, "\ud800"], dtype="string[python]"),
    "objects": pd.Series(["a", 1, None], dtype=object),
    "integers as objects": pd.Series([BIG, None, 3], dtype=object),
    "strings as objects": pd.Series(["a", "b", None], dtype=object),
    "dicts": pd.Series([{"a": [1, 2]}, None, {"b": {}}], dtype=object),
    "nullable integers": pd.Series([BIG, None, 3], dtype="Int64"),
    "nullable bytes": pd.Series([255, None, 3], dtype="UInt8"),
    "nullable floats": pd.Series([0.1, None, 3], dtype="Float32"),
    "nullable truths": pd.Series([True, None, False], dtype="boolean"),
    "categories": pd.Series(["b", None, "a"], dtype="category"),
    "ordered categories": pd.Series(
        pd.Categorical([3, 1, None], categories=[3, 2, 1], ordered=True)
    ),
}


@pytest.mark.parametrize("kind", PANDAS)
def test_columns_of_pandas_come_back(kind, tmp_path):
    frame = pd.DataFrame({"x": PANDAS[kind], 7: range(3)})
    opened = save_and_load(frame, tmp_path)
    pd.testing.assert_frame_equal(opened, frame, check_column_type=False)
    values, expected = opened["x"].tolist(), frame["x"].tolist()
    for value, given in zip(values, expected, strict=True):
        assert type(value) is type(given)
    # A second save stores the same table.
    index = SimilarityIndex.load(tmp_path)
    index.save(tmp_path, include_estimator=False)
    pd.testing.assert_frame_equal(SimilarityIndex.load(tmp_path).metadata_, opened)


def test_columns_of_polars_come_back(tmp_path):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "integers": [BIG, None, 3],
            "whole": [BIG, 2, 3],
            "bytes": pl.Series([255, None, 3], dtype=pl.UInt8),
            "floats": pl.Series([0.1, None, float("nan")], dtype=pl.Float32),
            "truths": [True, None, False],
            "strings": ["a", None, ""],
            "none": pl.Series([None] * 3, dtype=pl.String),
            "dates": [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)],
            "times": [
                datetime.datetime(2020, 1, 1),
                None,
                datetime.datetime(2021, 1, 1),
            ],
            "durations": [datetime.timedelta(1), None, datetime.timedelta(2)],
            "categories": pl.Series(["b", None, "a"], dtype=pl.Categorical),
            "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["c", "b", "a"])),
            "lists": pl.Series([[BIG, None], None, []], dtype=pl.List(pl.Int64)),
        }
    )
    opened = save_and_load(frame, tmp_path)
    assert opened.schema == frame.schema
    assert opened.equals(frame)
    assert opened["integers"].to_list() == [BIG, None, 3]


def test_dicts_and_records_come_back(tmp_path):
    rows = [{"a": BIG, "b": None}, {"a": [1, {"c": 0.1}]}, {"\ud800": "\udcff"}]
    assert list(save_and_load(rows, tmp_path)) == rows
    records = np.array([(BIG, "a"), (2, "b")], dtype=[("n", "i8"), ("name", "U1")])
    opened = save_and_load(records, tmp_path)
    assert opened.dtype == records.dtype
    assert opened.tolist() == records.tolist()


def frame_with_names(*names):
    return pd.DataFrame(np.zeros((2, len(names))), columns=pd.Index(names))


REFUSED = {
    "duplicate names": (frame_with_names("a", "b", "a"), "the name 'a'"),
    "levels of names": (
        pd.DataFrame([[1, 2]] * 2, columns=pd.MultiIndex.from_product([["a"], [0, 1]])),
        r"column \('a', 0\) is not a string",
    ),
    "floats as names": (frame_with_names(0.5), r"column 0\.5 is not a string"),
    "time zones": (
        pd.DataFrame({"t": pd.to_datetime(["2020", "2021"]).tz_localize("UTC")}),
        "column 't' is of type datetime64.*time zone",
    ),
    "periods": (
        pd.DataFrame({"t": pd.period_range("2020", periods=2)}),
        "column 't' is of type period",
    ),
    "tuples": (pd.DataFrame({"t": [(1, 2), (3, 4)]}), "column 't', row 0 holds.*tuple"),
    "times as objects": (
        pd.DataFrame({"t": pd.Series([datetime.date(2020, 1, 1)] * 2, dtype=object)}),
        "column 't', row 0 holds a value of type date",
    ),
    "numbers as keys": ([{"a": 1}, {2: 1}], "row 1 has the key 2.*strings as keys"),
    "numbers as inner keys": (
        [{"a": {1: 2}}] * 2,
        "row 0 at the key 'a' has the key 1, which is not a string",
    ),
    "tuples in dicts": ([{"a": (1, 2)}] * 2, "at the key 'a' holds.*tuple"),
    "arrays in dicts": ([{"a": np.ones(2)}] * 2, "at the key 'a' holds.*ndarray"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_values_that_would_change_are_refused(kind, tmp_path):
    metadata, message = REFUSED[kind]
    with pytest.raises(ValueError, match=f"metadata cannot be saved: .*{message}"):
        save(metadata, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_types_of_polars_that_would_change_are_refused(tmp_path):
    pl = pytest.importorskip("polars")
    for values in (
        pl.Series([{"a": 1}, {"a": 2}]),
        pl.Series([datetime.datetime(2020, 1, 1)] * 2, dtype=pl.Datetime("us", "UTC")),
        pl.Series([datetime.time(1)] * 2),
        pl.Series([print, print], dtype=pl.Object),
    ):
        with pytest.raises(ValueError, match=r"column 'x' is of type .*\. Convert it"):
            save(pl.DataFrame({"x": values}), tmp_path / "index")
    assert not (tmp_path / "index").exists()


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (["String"], ['"a"', DEEP]),
        (["Categorical"], [DEEP, DEEP]),
        (["List", ["Int64"]], ["[1]", DEEP]),
        (["List", ["Int64"]], ["[1]", '["a"]']),
        (["Enum", ["a", json.loads(DEEP)]], ['"a"', '"a"']),
        (["Enum", [1, 2]], ["1", "2"]),
    ],
)
def test_forged_columns_of_polars_are_refused(form, rows):
    """Check that polars, which waits for ever, does not get these values."""
    pytest.importorskip("polars")
    parts = encode_bytes([row.encode() for row in rows], "json")
    arrays = {f"column0_{name}": part for name, part in parts.items()}
    _, arrays = unpack(pack({}, arrays))
    description = {"kind": "polars", "columns": [["a", form]], "n_rows": 2}
    with pytest.raises(DamagedError, match="a table in it cannot be read"):
        _metadata.from_arrays(arrays, description)


@pytest.mark.parametrize("n_rows", [-1, 10**30, 2.5, "3", None])
def test_a_forged_number_of_rows_is_refused(n_rows):
    _, arrays = unpack(pack({}, {}))
    description = {"kind": "pandas", "columns": [], "n_rows": n_rows}
    with pytest.raises(DamagedError, match="a table in it cannot be read"):
        _metadata.from_arrays(arrays, description)
