"""All that is said to PostgreSQL, in SQL whose names are quoted and values bound.

Values are numbered as the server does it, $1, $2, ...: psycopg's own placeholders would
take a per cent sign in the name of a column for one of theirs.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from sklearn_simlearn.index._ids import read_ids
from sklearn_simlearn.index.postgres._columns import COMPARISONS, read_filter
from sklearn_simlearn.index.postgres._pgvector import Wire, to_wire

ID_TYPES = {
    "int2": np.int64,
    "int4": np.int64,
    "int8": np.int64,
    "text": np.str_,
    "varchar": np.str_,
}

# Conditions by the operators that `read_filter` returns.
CONDITIONS = {name: sql.SQL("{} " + name + " {}") for name in ("=", *COMPARISONS)} | {
    "any": sql.SQL("{} = ANY({})"),
    "null": sql.SQL("{} IS NULL"),
    "not null": sql.SQL("{} IS NOT NULL"),
}

MAX_EF_SEARCH = 1000

# New items wait here until all of them are on the server. It is dropped at the end of
# the transaction.
STAGED = sql.Identifier("pg_temp", "simlearn_items")


@contextmanager
def transaction(connection, *, is_snapshot=False):
    """A cursor in a transaction of its own.

    Parameters
    ----------
    connection : str or ConnectionPool
        Where to connect to, or connections to take one from.

    is_snapshot : bool, default=False
        Whether to read only, and all of it from one state of the database.
    """
    if isinstance(connection, str):
        opened = psycopg.connect(connection)
    else:
        opened = connection.connection()
    with opened as live, live.transaction(), psycopg.RawCursor(live) as cursor:
        cursor.format = Format.BINARY
        if is_snapshot:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield cursor


def require_pgvector(cursor, *, create):
    """Make sure that the database has the extension, and a recent one."""
    version = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    found = cursor.execute(version).fetchone()
    if found is None and create:
        try:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise ValueError(
                "The database lacks the extension pgvector, and it cannot be made here "
                f"({_first_line(error)}): install pgvector on the server and have an "
                "administrator run CREATE EXTENSION vector."
            ) from error
        found = cursor.execute(version).fetchone()
    if found is None:
        raise ValueError("The database lacks the extension pgvector, so has no items.")
    if tuple(int(part) for part in found[0].split(".")[:2]) < (0, 8):
        raise ValueError(
            f"The database has pgvector {found[0]}, and 0.8 is needed: update it on "
            "the server and run ALTER EXTENSION vector UPDATE."
        )


def exists(cursor, name):
    """Whether there is a table of this name."""
    found = cursor.execute("SELECT to_regclass($1)", [name.as_string(cursor)])
    return found.fetchone()[0] is not None


def create_table(cursor, name, *, id_column, item_column, stored, width, ids, columns):
    """Make an empty table for items.

    Parameters
    ----------
    cursor : Cursor

    name : sql.Identifier
        Of the table.

    id_column, item_column : str
        Columns of ids and items.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of the items.

    width : int
        Their number of dimensions.

    ids : ndarray
        Ids to come, integers or strings.

    columns : dict of str to Column
        Metadata to come.
    """
    # Byte by byte, strings have one order on all servers, which is Python's.
    id_type = 'text COLLATE "C"' if ids.dtype.kind == "U" else "bigint"
    definitions = [
        sql.SQL("{} " + id_type + " PRIMARY KEY").format(sql.Identifier(id_column)),
        sql.SQL("{} {}({}) NOT NULL").format(
            sql.Identifier(item_column), sql.Identifier(stored), sql.Literal(width)
        ),
        *_define(columns),
    ]
    cursor.execute(
        sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(definitions))
    )


def open_table(cursor, name, *, id_column, item_column):
    """Look at a table that is there.

    Parameters
    ----------
    cursor : Cursor

    name : sql.Identifier
        Of the table.

    id_column, item_column : str
        Columns of ids and items.

    Returns
    -------
    table : Table
    """
    quoted = name.as_string(cursor)
    if not exists(cursor, name):
        raise ValueError(f"The database has no table {quoted}: `fit` makes one.")
    cursor.execute(
        "SELECT a.attname, t.typname, a.atttypid, a.atttypmod, a.attnum, "
        "a.atthasdef OR a.attidentity <> '' FROM pg_attribute a "
        "JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass($1) "
        "AND a.attnum > 0 AND NOT a.attisdropped",
        [quoted],
    )
    columns = {row[0]: row[1:] for row in cursor.fetchall()}
    for column in (id_column, item_column):
        if column not in columns:
            raise ValueError(
                f"The table {quoted} has no column {column!r}, but {sorted(columns)}: "
                "give `id_column` and `item_column`."
            )
    id_type, *_, has_default = columns[id_column]
    stored, oid, width, number, _ = columns[item_column]
    if id_type not in ID_TYPES:
        raise ValueError(
            f"The ids in column {id_column!r} are of type {id_type}: only integers and "
            "strings can be ids."
        )
    if stored not in ("vector", "halfvec", "sparsevec"):
        raise ValueError(
            f"The column {item_column!r} is of type {stored}, which is none of "
            "pgvector's vector, halfvec and sparsevec."
        )
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_index x "
        "JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am m ON m.oid = c.relam "
        "JOIN pg_opclass o ON o.oid = x.indclass[0] "
        "WHERE x.indrelid = to_regclass($1) AND x.indkey[0] = $2 AND x.indisvalid "
        "AND x.indpred IS NULL AND m.amname = 'hnsw' AND o.opcname = $3)",
        [quoted, number, f"{stored}_ip_ops"],
    )
    return Table(
        name=name,
        id_column=id_column,
        item_column=item_column,
        id_dtype=np.dtype(ID_TYPES[id_type]),
        numbers_itself=has_default,
        stored=stored,
        type_oid=oid,
        width=None if width < 0 else width,
        columns=tuple(columns),
        has_graph=cursor.fetchone()[0],
    )


@dataclass
class Table:
    """A table of items, as `open_table` found it.

    Attributes
    ----------
    name : sql.Identifier
        Its quoted name.

    id_column, item_column : str
        Columns of ids and items.

    id_dtype : dtype
        int64 or str.

    numbers_itself : bool
        Whether the column of ids has a default, such as a sequence.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of the items.

    type_oid : int
        The number that it has in this database.

    width : int or None
        Their number of dimensions, where the table has one for all.

    columns : tuple of str
        All columns.

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
        """Ids of the user, if they are of the kind of the table's."""
        ids = read_ids(ids)
        if len(ids) and (ids.dtype.kind == "U") != (self.id_dtype.kind == "U"):
            kind = "strings" if self.id_dtype.kind == "U" else "integers"
            raise ValueError(f"The ids of this table are {kind}.")
        return ids

    def next_ids(self, cursor, n_items):
        """Numbers for new items, after the largest id; other writers wait meanwhile."""
        if self.id_dtype.kind == "U" or self.numbers_itself:
            raise ValueError(
                "Give the ids of the new items: the table's are "
                + ("numbered by a default." if self.numbers_itself else "strings.")
            )
        cursor.execute(self._say("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
        cursor.execute(self._say("SELECT coalesce(max({id}) + 1, 0) FROM {table}"))
        start = cursor.fetchone()[0]
        return np.arange(start, start + n_items)

    def count(self, cursor):
        """Number of items."""
        cursor.execute(self._say("SELECT count({item}) FROM {table}"))
        return cursor.fetchone()[0]

    def copy(self, cursor, ids, rows, columns, *, into=None):
        """Send items to the table, or to another one with such columns."""
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
        """Add items; those whose ids are there are replaced, or else refused."""
        definitions = [
            self._say("{id} " + self._id_type),
            self._say("{item} {type}", type=sql.Identifier(self.stored)),
            *_define(columns),
        ]
        cursor.execute(
            sql.SQL("CREATE TABLE {} ({}) ON COMMIT DROP").format(
                STAGED, sql.SQL(", ").join(definitions)
            )
        )
        self.copy(cursor, ids, rows, columns, into=STAGED)
        # In the order of the ids: two clients that replace the same items in different
        # orders would wait for each other for ever.
        insert = self._say(
            "INSERT INTO {table} ({names}) SELECT {names} FROM {staged} ORDER BY {id}",
            names=self._names(columns),
            staged=STAGED,
        )
        if replace:
            assignments = [
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
                for name in (self.item_column, *columns)
            ]
            insert += self._say(
                " ON CONFLICT ({id}) DO UPDATE SET {assignments}",
                assignments=sql.SQL(", ").join(assignments),
            )
        try:
            cursor.execute(insert)
        except psycopg.errors.UniqueViolation as error:
            raise ValueError(
                f"The table refuses the new items: {error.diag.message_detail} Remove "
                "the old ones first, or replace them by `upsert`."
            ) from error

    def delete(self, cursor, ids):
        """Remove items; returns the ids of those that were there."""
        cursor.execute(
            self._say("DELETE FROM {table} WHERE {id} = ANY($1) RETURNING {id}"),
            [ids.tolist()],
        )
        return {row[0] for row in cursor.fetchall()}

    def build_graph(self, cursor, *, m, ef_construction):
        """Link all items in an HNSW graph, and later ones as they come."""
        cursor.execute(
            self._say(
                "CREATE INDEX ON {table} USING hnsw ({item} {operators}) "
                "WITH (m = {m}, ef_construction = {ef_construction})",
                operators=sql.Identifier(f"{self.stored}_ip_ops"),
                m=sql.Literal(m),
                ef_construction=sql.Literal(ef_construction),
            )
        )
        self.has_graph = True

    def analyze(self, cursor):
        """Collect the statistics by which the server plans."""
        cursor.execute(self._say("ANALYZE {table}"))

    def distances(self, cursor, ids, rows):
        """Euclidean distances from rows to the items with these ids; NaN if missing."""
        cursor.adapters.register_dumper(Wire, self._dumper)
        cursor.executemany(
            self._say("SELECT l2_distance({item}, $1) FROM {table} WHERE {id} = $2"),
            zip(to_wire(rows, self.stored), ids.tolist(), strict=True),
            returning=True,
        )
        return np.array(
            [np.nan if not found else found[0][0] for found in _results(cursor)],
            dtype=np.float64,
        )

    def conditions(self, filter, *, first=1):
        """A filter as SQL, and the values it is about, numbered from `first` on."""
        if callable(filter) or np.asarray(filter).dtype == bool:
            raise ValueError(
                "filter must be a dict of columns and values, such as "
                '{"year": {">=": 2020}}, or a list of ids: the server does not run '
                "functions and has no masks."
            )
        if not isinstance(filter, dict):
            filter = {self.id_column: self.read_ids(filter)}
        parts, values = [], []
        for name, operator, value in read_filter(filter, self.columns):
            number = sql.SQL(f"${first + len(values)}")
            column = sql.Identifier("i", name)
            parts.append(CONDITIONS[operator].format(column, number))
            if value is not None:
                values.append(value)
        return parts, values

    def search(self, cursor, rows, k, *, excluded=None, filter=None, ef_search=None):
        """The best items for each query.

        Parameters
        ----------
        cursor : Cursor
            In a transaction.

        rows : ndarray or csr_array
            Queries, from `as_stored`.

        k : int
            Number of items per query.

        excluded : list of lists, default=None
            Ids to leave out, per query.

        filter : dict or list, default=None
            Which items may be found.

        ef_search : int, default=None
            Searches the graph, with a list of this length; None looks at all items.

        Returns
        -------
        found : list of lists of (id, score)
            At most k per query, the best first, of equal ones the lower id.
        """
        cursor.adapters.register_dumper(Wire, self._dumper)
        parts, values = [], []
        if filter is not None:
            parts, values = self.conditions(filter, first=3)
        parts += [self._say("{item} IS NOT NULL"), self._say("{id} IS NOT NULL")]
        params = [[query, k, *values] for query in to_wire(rows, self.stored)]
        if excluded is not None:
            parts.append(self._say(f"i.{{id}} <> ALL(${3 + len(values)})"))
            for param, ids in zip(params, excluded, strict=True):
                param.append(ids)
        where = sql.SQL(" AND ").join(parts)
        try:
            if ef_search is None:
                return self._search_all(cursor, params, where)
            found = self._search_graph(cursor, params, where, max(ef_search, k))
            # A graph may run out of items that pass, although there are more.
            few = [i for i, rows in enumerate(found) if len(rows) < k]
            again = self._search_all(cursor, [params[i] for i in few], where)
            for i, rows in zip(few, again, strict=True):
                found[i] = rows
            return found
        except (psycopg.errors.UndefinedFunction, psycopg.DataError) as error:
            if filter is None:
                raise
            raise ValueError(
                f"The filter does not go with its columns: {_first_line(error)}."
            ) from error

    def _search_all(self, cursor, params, where):
        # By the function, not by the operator <#>: no approximate index answers it.
        query = self._say(
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
        query = self._say(
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
        """Hands rows over as they are, under the number of their type."""
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

    def _say(self, text, **parts):
        """SQL with the names of this table, and what else it takes."""
        is_text = self.id_dtype.kind == "U"
        return sql.SQL(text).format(
            table=self.name,
            id=sql.Identifier(self.id_column),
            item=sql.Identifier(self.item_column),
            collate=sql.SQL(' COLLATE "C"' if is_text else ""),
            **parts,
        )


def _define(columns):
    return [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(column.type))
        for name, column in columns.items()
    ]


def _results(cursor):
    """The rows of each statement that `executemany` ran."""
    has_more = True
    while has_more:
        yield cursor.fetchall()
        has_more = cursor.nextset()


def _first_line(error):
    return str(error).partition("\n")[0].rstrip(".")
