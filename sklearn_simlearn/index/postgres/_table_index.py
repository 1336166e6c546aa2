"""Base class of an index whose items are in a table: access to the table."""

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.rows import row_dots
from sklearn_simlearn._core.sklearn import num_samples, validate_parameter_constraints
from sklearn_simlearn.index._base import BaseIndex
from sklearn_simlearn.index._encoded_items import encode_items
from sklearn_simlearn.index._explanation import ExplainMixin
from sklearn_simlearn.index._filters import PerQuery, check_lists
from sklearn_simlearn.index._ids import check_ids
from sklearn_simlearn.index.postgres._columns import check_name, read_columns
from sklearn_simlearn.index.postgres._pgvector import as_stored, from_wire


class TableIndex(ExplainMixin, BaseIndex):
    """Base class of an index whose items are in a table of a database."""

    @property
    def n_items_(self) -> int:
        """Return the number of items in the table."""
        table = self._fitted_table()
        with open_server().transaction(self.connection, is_snapshot=True) as cursor:
            return table.count(cursor)

    @property
    def stored_(self) -> str:
        """Return the type of the items."""
        return self._fitted_table().stored

    def _check_params(self):
        validate_parameter_constraints(
            self._parameter_constraints,
            self.get_params(deep=False),
            caller_name=type(self).__name__,
        )

    def _insert(self, X, ids, metadata, *, replace):
        self._check_estimator()
        table = self._table
        n_items = num_samples(X)
        if ids is not None:
            ids = table.read_ids(check_ids(ids, n_items, X, metadata))
        columns = self._read_columns(metadata, n_items)
        unknown = sorted(columns.keys() - set(table.columns))
        if unknown:
            raise ValueError(
                f"The table has no columns {unknown} for the metadata. Add them with "
                "ALTER TABLE, and call `attach` again."
            )
        rows = self._as_stored(
            encode_items(self._model, X), X, in_graph=table.has_graph
        )
        with open_server().transaction(self.connection) as cursor:
            if ids is None:
                ids = table.next_ids(cursor, n_items)
            table.insert(cursor, ids, rows, columns, replace=replace)
        return self

    def _as_stored(self, encoded, X, *, in_graph=False):
        """Return the encodings of X in the type of the table."""
        has_width = hasattr(self, "n_features_in_")
        if has_width and not hasattr(self.estimator_, "n_features_in_"):
            # Estimators without a fit do not check the features of X.
            validate_data(self, X, reset=False, skip_check_array=True)
        _check_width(self._table, encoded)
        return as_stored(encoded, self._table.stored, in_graph=in_graph)

    def _name(self):
        """Return the quoted name of the table."""
        parts = (self.table,) if isinstance(self.table, str) else self.table
        if len(parts) not in (1, 2):
            raise ValueError(
                f"table must be a name or a (schema, name); got {self.table!r}."
            )
        for part in (*parts, self.id_column, self.item_column):
            check_name(part)
        if self.id_column == self.item_column:
            raise ValueError("id_column and item_column must differ.")
        return open_server().sql.Identifier(*parts)

    def _look_at(self, cursor):
        return open_server().open_table(
            cursor,
            self._name(),
            id_column=self.id_column,
            item_column=self.item_column,
        )

    def _read_columns(self, metadata, n_items):
        return read_columns(metadata, n_items, {self.id_column, self.item_column})

    def _read_exclude(self, exclude, n_results):
        """Return the lists of ids to exclude from each result."""
        check_lists("exclude", exclude, n_results)
        return [self._table.read_ids(np.atleast_1d(part)).tolist() for part in exclude]

    def _fetch_metadata(self, ids):
        """Return a dict of columns per id; an empty one for unknown ids."""
        columns = self._table.metadata_columns
        with open_server().transaction(self.connection, is_snapshot=True) as cursor:
            found = self._table.fetch(cursor, np.unique(ids), columns)
        return [
            dict(zip(columns, found.get(id_, ()), strict=False)) for id_ in ids.tolist()
        ]

    def _snapshot(self):
        check_is_fitted(self)
        return self

    def _find_encoded(self, ids):
        table = self._table
        ids = table.read_ids(ids)
        with open_server().transaction(self.connection, is_snapshot=True) as cursor:
            found = table.fetch(cursor, ids, [table.item_column])
        rows = [found.get(id_, (None,))[0] for id_ in ids.tolist()]
        known = np.array([row is not None for row in rows], dtype=bool)
        items = from_wire([row for row in rows if row is not None], table.stored)
        return known, items

    def _fitted_table(self):
        """Return the table; raise AttributeError before `fit`."""
        if not hasattr(self, "_table"):
            raise AttributeError("The index is not fitted yet.")
        return self._table

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_table")


def open_server():
    """Import and return the module that requires psycopg."""
    import_optional("psycopg", "pgvector", "PostgresIndex")
    from sklearn_simlearn.index.postgres import _server

    return _server


def group_queries(batch, filter):
    """Yield ranges of queries with the same filter."""
    if not isinstance(filter, PerQuery):
        yield batch, filter
        return
    for i in range(batch.start, batch.stop):
        yield slice(i, i + 1), filter[i]


def _check_width(table, encoded):
    if table.width not in (None, encoded.shape[1]):
        raise ValueError(
            f"The encodings of the estimator have {encoded.shape[1]} features, but the "
            f"stored items have {table.width}."
        )


def compare(cursor, table, model, X, ids):
    """Raise unless the estimator encodes items as they are stored in the table."""
    encoded = encode_items(model, X)
    _check_width(table, encoded)
    rows = as_stored(encoded, table.stored)
    distances = table.distances(cursor, table.read_ids(ids), rows)
    if np.isnan(distances).any():
        missing = ids[np.isnan(distances)][:3].tolist()
        raise ValueError(f"The table has no items with the ids {missing}.")
    eps = np.finfo(rows.dtype).eps
    lengths = np.sqrt(row_dots(encoded, encoded))
    if (distances > 100 * eps * lengths).any():
        raise ValueError(
            "The estimator does not encode items as they are stored in the table. Use "
            "the estimator that the table was created with, or fit an index with "
            "another table."
        )
