"""Queries and items of requests as samples that the estimator of an index takes."""

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET
from scipy import sparse

from sklearn_simlearn.feature_extraction._decode import decode, read_header
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._forms import (
    as_frame,
    check_columns,
    find_form,
    list_steps,
    read_records,
)
from sklearn_simlearn.serve import _schemas as schemas
from sklearn_simlearn.serve._values import describe_columns


def check_steps(index):
    """Raise if the estimator would open files whose names a request contains."""
    for step in list_steps(index.estimator_):
        if getattr(step, "input", "content") != "content":
            raise ValueError(
                f"{type(step).__name__}(input={step.input!r}) opens files by the names "
                "in its input, so this index cannot be served. Fit it on texts instead."
            )


class Reader:
    """Converter of the queries and items of requests to samples.

    Parameters
    ----------
    index : SimilarityIndex

    max_pixels : int
        Largest number of pixels of all photographs of a request.
    """

    def __init__(self, index, max_pixels):
        state = index._state
        self.form = find_form(index)
        if self.form == "text":
            check_steps(index)
        self._sample = state.sample.first_part
        self._n_features = state.features.n_features
        self._dtype = state.items.dtype
        self._max_pixels = max_pixels

    def describe(self):
        """Return the schema of a query or item."""
        match self.form:
            case "vector":
                return schemas.describe_vector(self._n_features, self._dtype)
            case "photograph":
                return schemas.describe_photograph()
            case "record" if not isinstance(self._sample, Sequence):
                return schemas.describe_record(describe_columns(self._sample))
            case "record":
                return {"type": "object"}
        return {"type": "string", "examples": ["words of a text"]}

    def make_sample(self):
        """Return an example of a sample in the form of the index."""
        if self.form == "photograph":
            return [np.zeros((16, 16, 3), dtype=np.uint8)]
        return _metadata.take(self._sample, np.arange(1))

    def read(self, messages):
        """Return samples, one per message.

        Parameters
        ----------
        messages : list of Query or Item
            Messages whose field for the form of the index is given.
        """
        values = [getattr(message, self.form) for message in messages]
        if any(value is UNSET for value in values):
            raise ValueError(
                f"Queries and items of this index must have the field {self.form!r}."
            )
        return getattr(self, f"_read_{self.form}")(values)

    def _read_text(self, values):
        return values

    def _read_photograph(self, values):
        pixels, n_pixels = [], 0
        options = {"mode": "rgb", "max_size": None, "max_pixels": self._max_pixels}
        for number, data in enumerate(values):
            try:
                header = read_header(data)
                n_pixels += header.width * header.height
                if n_pixels > self._max_pixels:
                    raise ValueError(
                        f"has {header.width} x {header.height} pixels, but all "
                        f"photographs of a request may have {self._max_pixels}. Send "
                        "fewer or smaller photographs"
                    )
                pixels.append(decode(data, **options))
            except ValueError as error:
                raise ValueError(f"Photograph {number} {error}.") from None
        return pixels

    def _read_record(self, values):
        return read_records(values, self._sample)

    def _read_vector(self, values):
        if any(isinstance(value, dict) for value in values):
            rows = [self._read_sparse(value) for value in values]
            X = sparse.vstack(rows, format="csr", dtype=self._dtype)
            data = X.data
        else:
            n_features = self._n_features
            for value in values:
                if len(value) != n_features:
                    raise ValueError(
                        f"A vector must have {n_features} numbers; got {len(value)}."
                    )
            with np.errstate(over="ignore"):
                X = data = np.array(values, dtype=self._dtype)
        if not np.isfinite(data).all():
            raise ValueError(f"A number of a vector is too large for {self._dtype}.")
        return X

    def _read_sparse(self, value):
        if not isinstance(value, dict):
            return sparse.csr_array(self._read_vector([value]))
        columns = [_read_column(name, self._n_features) for name in value]
        if len(set(columns)) < len(columns):
            raise ValueError("A feature of a vector is given twice.")
        with np.errstate(over="ignore"):
            numbers = np.array(list(value.values()), dtype=self._dtype)
        return sparse.csr_array(
            (numbers, (np.zeros(len(columns), dtype=np.int32), columns)),
            shape=(1, self._n_features),
        )


def _read_column(name, n_features):
    is_number = name.isascii() and name.isdigit() and len(name) < 19
    if not (is_number and int(name) < n_features):
        raise ValueError(
            f"{name!r:.40} is not the number of a feature, from 0 to {n_features - 1}."
        )
    return int(name)


def join(parts):
    """Return the concatenation of samples of one form."""
    first, *others = parts
    for other in others:
        if sparse.issparse(other) != sparse.issparse(first):
            first, other = sparse.csr_array(first), sparse.csr_array(other)
        first = _metadata.join(first, other)
    return first


def as_metadata(rows, like):
    """Return rows of requests as metadata of the type of an index.

    Parameters
    ----------
    rows : list of dict

    like : list of dict, frame or structured array
        Some metadata of the index.
    """
    if isinstance(like, Sequence):
        return rows
    names = list(like.dtype.names if isinstance(like, np.ndarray) else like.columns)
    check_columns(rows, names, "metadata")
    if isinstance(like, np.ndarray):
        return np.array(
            [tuple(row[name] for name in names) for row in rows], dtype=like.dtype
        )
    return as_frame(rows, like)
