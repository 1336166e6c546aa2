"""Columns of pandas and polars frames as arrays, with their types."""

from collections import Counter

import numpy as np

from sklearn_simlearn.index._texts import StoredTexts, encode_texts

# Kinds of NumPy dtypes whose columns are stored without conversion.
PLAIN = "biufmM"

# Types of polars for numbers, and for dates and times.
NUMBERS = ("Boolean", "Float32", "Float64") + tuple(
    f"{sign}Int{n_bits}" for sign in ("", "U") for n_bits in (8, 16, 32, 64)
)
TIMES = ("Date", "Datetime", "Duration")

# Masked arrays of pandas by the kind of their values.
MASKED = {
    "b": "BooleanArray",
    "i": "IntegerArray",
    "u": "IntegerArray",
    "f": "FloatingArray",
}


def columns_to_arrays(table, kind, name):
    """Return the arrays of a frame and a description of its columns.

    Parameters
    ----------
    table : pandas or polars frame

    kind : {"pandas", "polars"}

    name : str
        Name of the table for error messages.
    """
    names = list(table.columns)
    n_times = Counter(names)
    for column in names:
        if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
            raise ValueError(
                f"{name} cannot be saved: the name of column {column!r} is not a "
                "string. Rename the columns, for example with frame.columns = "
                "[str(name) for name in frame.columns]."
            )
        if n_times[column] > 1:
            raise ValueError(
                f"{name} cannot be saved: several columns have the name {column!r}. "
                "Give each column its own name."
            )
    encode = _encode_pandas if kind == "pandas" else _encode_polars
    arrays, columns = {}, []
    for i, column in enumerate(names):
        parts, form = encode(table[column], name, column)
        arrays |= {f"column{i}_{part}": array for part, array in parts.items()}
        columns.append([column if isinstance(column, str) else int(column), form])
    return arrays, columns


def columns_from_arrays(arrays, columns, kind, n_rows):
    """Return the frame that `columns_to_arrays` converted; raise if that fails."""
    decode = _decode_pandas if kind == "pandas" else _decode_polars
    series = {}
    for i, (column, form) in enumerate(columns):
        series[column] = decode(arrays.group(f"column{i}_"), form)
    if len(series) < len(columns):
        raise ValueError("columns have the same name")
    if {len(values) for values in series.values()} - {n_rows}:
        raise ValueError("columns differ in length")
    if not series and not 0 <= n_rows <= np.iinfo(np.int64).max:
        raise ValueError("the number of rows is invalid")
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(series, index=range(n_rows))
    import polars as pl

    return pl.DataFrame(series)


# -- pandas --


def _encode_pandas(series, name, column):
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in PLAIN:
        return {"values": series.to_numpy()}, {"type": "plain"}
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return encode_texts(list(series), name, column), {"type": "object"}
    if isinstance(dtype, pd.StringDtype):
        is_nan = dtype.na_value is not pd.NA
        missing = np.asarray(series.isna())
        texts = [
            None if is_missing else text
            for text, is_missing in zip(series, missing, strict=True)
        ]
        form = {"type": "string", "storage": dtype.storage, "is_nan": is_nan}
        return encode_texts(texts, name, column), form
    if isinstance(dtype, pd.CategoricalDtype):
        categories = dtype.categories.to_series()
        parts, form = _encode_pandas(categories, name, column)
        parts = {f"categories_{part}": array for part, array in parts.items()}
        parts["codes"] = series.cat.codes.to_numpy()
        form = {"type": "category", "ordered": bool(dtype.ordered), "categories": form}
        return parts, form
    values = getattr(dtype, "numpy_dtype", None)
    array_type = MASKED.get(getattr(values, "kind", None))
    if array_type is not None and isinstance(
        series.array, getattr(pd.arrays, array_type)
    ):
        mask = np.asarray(series.isna())
        known = series.array.copy()
        known[mask] = 0 if array_type != "BooleanArray" else False
        parts = {"values": known.to_numpy(dtype=values), "mask": mask}
        return parts, {"type": "masked"}
    raise _unknown(name, column, dtype)


def _decode_pandas(arrays, form):
    import pandas as pd

    kind = form["type"]
    if kind == "plain":
        return pd.Series(_read_plain(arrays, "values"))
    if kind == "object":
        return pd.Series(list(StoredTexts(arrays)), dtype=object)
    if kind == "string":
        texts = list(StoredTexts(arrays))
        if not all(text is None or isinstance(text, str) for text in texts):
            raise ValueError("a column of strings holds other values")
        return pd.Series(texts, dtype=_string_dtype(form["storage"], form["is_nan"]))
    if kind == "category":
        categories = _decode_pandas(arrays.group("categories_"), form["categories"])
        return pd.Series(
            pd.Categorical.from_codes(
                _read_plain(arrays, "codes"),
                categories=pd.Index(categories),
                ordered=bool(form["ordered"]),
            )
        )
    if kind == "masked":
        values, mask = _read_plain(arrays, "values"), _read_plain(arrays, "mask")
        array_type = getattr(pd.arrays, MASKED[values.dtype.kind])
        return pd.Series(array_type(np.array(values), np.array(mask)))
    raise ValueError("a column has an unknown type")


def _string_dtype(storage, is_nan):
    import pandas as pd

    if storage not in ("python", "pyarrow"):
        raise ValueError("a column of strings has an unknown storage")
    options = {"na_value": np.nan} if is_nan else {}
    try:
        return pd.StringDtype(storage, **options)
    except ImportError:  # pyarrow is missing
        return pd.StringDtype("python", **options)


# -- polars --


def _encode_polars(series, name, column):
    form = _describe_polars(series.dtype)
    if form is None:
        raise _unknown(name, column, series.dtype)
    if form[0] in TIMES:
        return {"values": series.to_numpy()}, form
    if form[0] not in NUMBERS:
        return encode_texts(series.to_list(), name, column), form
    is_truth = form[0] == "Boolean"
    values = series.fill_null(False if is_truth else 0).to_numpy()
    return {"values": values, "mask": series.is_null().to_numpy()}, form


def _describe_polars(dtype):
    """Return a type of polars as a list for JSON; None if it cannot be stored."""
    name = type(dtype).__name__
    if name in ("DataTypeClass", "type"):
        name = dtype.__name__
    if name == "Datetime" and dtype.time_zone is not None:
        return None
    if name in (*NUMBERS, *TIMES, "String", "Categorical"):
        return [name]
    if name == "Enum":
        return [name, dtype.categories.to_list()]
    if name == "List":
        inner = _describe_polars(dtype.inner)
        if inner is not None and inner[0] not in TIMES:
            return [name, inner]
    return None


def _decode_polars(arrays, form):
    import polars as pl

    if form[0] in TIMES:
        return pl.Series(_read_plain(arrays, "values"))
    if form[0] not in NUMBERS:
        rows = list(StoredTexts(arrays))
        # Polars does not return if values of another type are nested deeply.
        if not all(_fits(value, form) for value in rows):
            raise ValueError("a column holds values of another type")
        return pl.Series(rows, dtype=_polars_dtype(form))
    values, mask = _read_plain(arrays, "values"), _read_plain(arrays, "mask")
    if mask.shape != values.shape or mask.dtype != bool:
        raise ValueError("a mask does not fit its column")
    series = pl.Series(values)
    if series.dtype != _polars_dtype(form):
        raise ValueError("the type of a column does not match its description")
    if not mask.any():
        return series
    keep = pl.Series(~mask)
    return pl.select(pl.when(keep).then(series)).to_series()


def _fits(value, form):
    """Return whether a value from JSON is missing or of a type of polars."""
    if value is None:
        return True
    if form[0] == "List":
        return isinstance(value, list) and all(_fits(part, form[1]) for part in value)
    return isinstance(value, int | float if form[0] in NUMBERS else str)


def _polars_dtype(form):
    import polars as pl

    name = form[0]
    if name == "Enum":
        if not _fits(form[1], ["List", ["String"]]):
            raise ValueError("the categories of a column are not strings")
        return pl.Enum(form[1])
    if name == "List":
        return pl.List(_polars_dtype(form[1]))
    if name not in (*NUMBERS, "String", "Categorical"):
        raise ValueError("a column has an unknown type")
    return getattr(pl, name)


# -- both --


def _read_plain(arrays, part):
    values = arrays.read(part)
    if values.ndim != 1 or values.dtype.kind not in PLAIN:
        raise ValueError("a column has the wrong shape or dtype")
    return values


def _unknown(name, column, dtype):
    return ValueError(
        f"{name} cannot be saved: column {column!r} is of type {dtype}. Convert it to "
        "numbers, strings, times without time zone or categories, or leave it out."
    )
