"""SQL statements. Identifiers are quoted, values are bound.

Values use the placeholders of the server, $1, $2, .... The placeholders of psycopg do
not work with column names that contain a per cent sign.
"""

from dataclasses import dataclass

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from sklearn_simlearn.index._conditions import COMPARISONS, read_conditions
from sklearn_simlearn.index._ids import number_on, read_ids
from sklearn_simlearn.index.postgres._pgvector import Wire, to_wire

# Conditions by the operators that `read_conditions` returns.
CONDITIONS = {name: sql.SQL("{} " + name + " {}") for name in ("=", *COMPARISONS)} | {
    "any": sql.SQL("{} = ANY({})"),
    "null": sql.SQL("{} IS NULL"),
    "not null": sql.SQL("{} IS NOT NULL"),
}

MAX_EF_SEARCH = 1000

# Temporary table that receives new items. It is dropped at the end of the transaction.
STAGED = sql.Identifier("pg_temp", "simlearn_items")


@dataclass
class Table:
    """Table of items; the result of `open_table`.

    Attributes
    ----------
    name : sql.Identifier
        Quoted name of the table.

    id_column, item_column : str
        Columns of ids and items.

    id_dtype : dtype
        Type of the ids, int64 or str.

    numbers_itself : bool
        Whether the column of ids has a default, such as a sequence.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of the items.

    type_oid : int
        Object identifier of this type in the database.

    width : int or None
        Number of dimensions of the items; None if the column does not fix it.

    columns : tuple of str
        Names of all columns.

    has_graph : bool
        Whether there is an HNSW graph of all items by inner product.
    """

    name: sql.Identifier
    id_column: str
    item_column: str
    id_dtype: np.dtype
    numbers_itself: bool
    stored: str
    type_oid: int
    width: int | None
    columns: tuple[str, ...]
    has_graph: bool

    def read_ids(self, ids):
        """Return user-provided ids; raise unless they have the type of the table."""
        ids = read_ids(ids)
        if len(ids) and (ids.dtype.kind == "U") != (self.id_dtype.kind == "U"):
            kind = "strings" if self.id_dtype.kind == "U" else "integers"
            raise ValueError(f"The ids of this table are {kind}. Pass {kind}.")
        return ids

    def next_ids(self, cursor, n_items):
        """Return numbers after the largest id, and lock the table for other writers."""
        if self.id_dtype.kind == "U" or self.numbers_itself:
            raise ValueError(
                "Pass the ids of the new items, because the ids of the table are "
                + ("set by a default." if self.numbers_itself else "strings.")
            )
        cursor.execute(self._sql("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
        cursor.execute(self._sql("SELECT coalesce(max({id}), -1) FROM {table}"))
        return number_on(cursor.fetchone()[0] + 1, n_items)

    def count(self, cursor):
        """Return the number of items."""
        cursor.execute(self._sql("SELECT count({item}) FROM {table}"))
        return cursor.fetchone()[0]

    def copy(self, cursor, ids, rows, columns, *, into=None):
        """Send items to the table, or to another one with the same columns."""
        cursor.adapters.register_dumper(Wire, self._dumper)
        values = [column.values for column in columns.values()]
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
            into or self.name, self._names(columns)
        )
        with cursor.copy(statement) as copy:
            types = [column.type for column in columns.values()]
            copy.set_types([self._id_type, self.type_oid, *types])
            wire = to_wire(rows, self.stored)
            for row in zip(ids.tolist(), wire, *values, strict=True):
                copy.write_row(row)

    def insert(self, cursor, ids, rows, columns, *, replace):
        """Add items. Existing ids are replaced, or raise an error."""
        definitions = [
            self._sql("{id} " + self._id_type),
            self._sql("{item} {type}", type=sql.Identifier(self.stored)),
            *define(columns),
        ]
        cursor.execute(
            sql.SQL("CREATE TABLE {} ({}) ON COMMIT DROP").format(
                STAGED, sql.SQL(", ").join(definitions)
            )
        )
        self.copy(cursor, ids, rows, columns, into=STAGED)
        # A column without values has no type, but NULL has any type.
        values = [
            sql.NULL
            if all(value is None for value in column.values)
            else sql.Identifier(name)
            for name, column in columns.items()
        ]
        # Rows are inserted in the order of their ids. Otherwise, two clients that
        # replace the same items in different orders could deadlock.
        insert = self._sql(
            "INSERT INTO {table} ({names}) SELECT {values} FROM {staged} ORDER BY {id}",
            names=self._names(columns),
            values=sql.SQL(", ").join([self._names(()), *values]),
            staged=STAGED,
        )
        if replace:
            assignments = [
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
                for name in (self.item_column, *columns)
            ]
            insert += self._sql(
                " ON CONFLICT ({id}) DO UPDATE SET {assignments}",
                assignments=sql.SQL(", ").join(assignments),
            )
        try:
            cursor.execute(insert)
        except psycopg.errors.UniqueViolation as error:
            raise ValueError(
                f"The table rejects the new items: {error.diag.message_detail} Remove "
                "the old items first, or replace them with `upsert`."
            ) from error

    def delete(self, cursor, ids):
        """Remove items, and return the ids of the removed ones."""
        cursor.execute(
            self._sql("DELETE FROM {table} WHERE {id} = ANY($1) RETURNING {id}"),
            [ids.tolist()],
        )
        return {row[0] for row in cursor.fetchall()}

    def build_graph(self, cursor, *, m, ef_construction):
        """Create an HNSW graph of all items. The server adds later items to it."""
        cursor.execute(
            self._sql(
                "CREATE INDEX ON {table} USING hnsw ({item} {operators}) "
                "WITH (m = {m}, ef_construction = {ef_construction})",
                operators=sql.Identifier(f"{self.stored}_ip_ops"),
                m=sql.Literal(m),
                ef_construction=sql.Literal(ef_construction),
            )
        )
        self.has_graph = True

    def analyze(self, cursor):
        """Collect statistics for the query planner."""
        cursor.execute(self._sql("ANALYZE {table}"))

    def distances(self, cursor, ids, rows):
        """Return Euclidean distances of rows to items by id; NaN if missing."""
        cursor.adapters.register_dumper(Wire, self._dumper)
        cursor.executemany(
            self._sql("SELECT l2_distance({item}, $1) FROM {table} WHERE {id} = $2"),
            zip(to_wire(rows, self.stored), ids.tolist(), strict=True),
            returning=True,
        )
        return np.array(
            [np.nan if not found else found[0][0] for found in _results(cursor)],
            dtype=np.float64,
        )

    def fetch(self, cursor, ids, columns):
        """Return the values of some columns by id, for the ids that exist."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        cursor.execute(
            self._sql(
                "SELECT {id}, {names} FROM {table} WHERE {id} = ANY($1)", names=names
            ),
            [ids.tolist()],
        )
        return {row[0]: row[1:] for row in cursor.fetchall()}

    @property
    def metadata_columns(self):
        """Return the names of the columns other than ids and items."""
        own = (self.id_column, self.item_column)
        return [name for name in self.columns if name not in own]

    def conditions(self, filter, *, first=1):
        """Return a filter as SQL conditions and values, numbered from `first`."""
        if callable(filter) or np.asarray(filter).dtype == bool:
            raise ValueError(
                "filter must be a dict of columns and values, such as "
                '{"year": {">=": 2020}}, or a list of ids. Functions and masks '
                "are not supported."
            )
        if not isinstance(filter, dict):
            filter = {self.id_column: self.read_ids(filter)}
        parts, values = [], []
        for name, operator, value in read_conditions(filter, self.columns):
            number = sql.SQL(f"${first + len(values)}")
            column = sql.Identifier("i", name)
            parts.append(CONDITIONS[operator].format(column, number))
            if value is not None:
                values.append(value)
        return parts, values

    def search(self, cursor, rows, k, *, excluded=None, filter=None, ef_search=None):
        """Return the best items for each query.

        Parameters
        ----------
        cursor : Cursor
            Cursor in a transaction.

        rows : ndarray or csr_array
            Queries; the result of `as_stored`.

        k : int
            Number of items per query.

        excluded : list of lists, default=None
            Ids to exclude, per query.

        filter : dict or list, default=None
            Items to which the results are restricted.

        ef_search : int, default=None
            Number of candidates of a search in the graph. If None, all items are
            compared.

        Returns
        -------
        found : list of lists of (id, score)
            At most k items per query, the best first. Ties are ordered by id.
        """
        cursor.adapters.register_dumper(Wire, self._dumper)
        parts, values = [], []
        if filter is not None:
            parts, values = self.conditions(filter, first=3)
        parts += [
            self._sql("{item} IS NOT NULL"),
            self._sql("{id} IS NOT NULL"),
        ]
        params = [[query, k, *values] for query in to_wire(rows, self.stored)]
        if excluded is not None:
            parts.append(self._sql(f"i.{{id}} <> ALL(${3 + len(values)})"))
            for param, ids in zip(params, excluded, strict=True):
                param.append(ids)
        where = sql.SQL(" AND ").join(parts)
        try:
            if ef_search is None:
                return self._search_all(cursor, params, where)
            found = self._search_graph(cursor, params, where, max(ef_search, k))
            # A search in a graph may stop before it has found k items that pass the
            # filter.
            few = [i for i, rows in enumerate(found) if len(rows) < k]
            again = self._search_all(cursor, [params[i] for i in few], where)
            for i, rows in zip(few, again, strict=True):
                found[i] = rows
            return found
        except (psycopg.errors.UndefinedFunction, psycopg.DataError) as error:
            if filter is None:
                raise
            raise ValueError(
                "The filter does not fit the types of its columns: "
                f"{first_line(error)}."
            ) from error

    def _search_all(self, cursor, params, where):
        # The function, unlike the operator <#>, never uses an approximate index.
        query = self._sql(
            "SELECT i.{id}, inner_product(i.{item}, $1) FROM {table} AS i "
            "WHERE {where} ORDER BY 2 DESC, i.{id}{collate} LIMIT $2",
            where=where,
        )
        if not params:
            return []
        cursor.executemany(query, params, returning=True)
        return list(_results(cursor))

    def _search_graph(self, cursor, params, where, ef_search):
        for name, value in (
            ("hnsw.ef_search", str(min(ef_search, MAX_EF_SEARCH))),
            ("hnsw.iterative_scan", "relaxed_order"),
        ):
            cursor.execute("SELECT set_config($1, $2, true)", [name, value])
        query = self._sql(
            "WITH near AS MATERIALIZED (SELECT i.{id} AS id, "
            "i.{item} <#> $1 AS negative FROM {table} AS i WHERE {where} "
            "ORDER BY i.{item} <#> $1 LIMIT $2) "
            "SELECT id, 0 - negative FROM near ORDER BY negative, id{collate}",
            where=where,
        )
        cursor.executemany(query, params, returning=True)
        return list(_results(cursor))

    @property
    def _id_type(self):
        return "text" if self.id_dtype.kind == "U" else "int8"

    @property
    def _dumper(self):
        """Pass rows to the server as bytes, with the identifier of their type."""
        return type(
            "WireDumper",
            (Dumper,),
            {
                "oid": self.type_oid,
                "format": Format.BINARY,
                "dump": lambda self, row: bytes(row),
            },
        )

    def _names(self, columns):
        names = (self.id_column, self.item_column, *columns)
        return sql.SQL(", ").join(map(sql.Identifier, names))

    def _sql(self, text, **parts):
        """Return SQL with the names of this table and further parts."""
        is_text = self.id_dtype.kind == "U"
        return sql.SQL(text).format(
            table=self.name,
            id=sql.Identifier(self.id_column),
            item=sql.Identifier(self.item_column),
            collate=sql.SQL(' COLLATE "C"' if is_text else ""),
            **parts,
        )


def define(columns):
    """Return the definitions of columns of metadata, as SQL."""
    return [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(column.type))
        for name, column in columns.items()
    ]


def _results(cursor):
    """Return the rows of each statement of `executemany`."""
    has_more = True
    while has_more:
        yield cursor.fetchall()
        has_more = cursor.nextset()


def first_line(error):
    """Return the first line of the message of an error, without a full stop."""
    return str(error).partition("\n")[0].rstrip(".")
