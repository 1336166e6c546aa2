"""SQL statements outside one table: transactions, pgvector, definitions of tables."""

from contextlib import contextmanager

import numpy as np
import psycopg
from psycopg import sql
from psycopg.pq import Format

from sklearn_simlearn.index.postgres._table import Table, define, first_line

ID_TYPES = {
    "int2": np.int64,
    "int4": np.int64,
    "int8": np.int64,
    "text": np.str_,
    "varchar": np.str_,
}


@contextmanager
def transaction(connection, *, is_snapshot=False):
    """Return a context with a cursor in a new transaction.

    Parameters
    ----------
    connection : str or ConnectionPool
        Connection string, or a pool of connections.

    is_snapshot : bool, default=False
        Make the transaction read-only, with all reads from one state of the database.
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
    """Raise unless the database has a recent version of pgvector."""
    version = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    found = cursor.execute(version).fetchone()
    if found is None and create:
        try:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise ValueError(
                "The database does not have the extension pgvector, and it cannot be "
                f"created ({first_line(error)}). Install pgvector on the server, and "
                "let an administrator run CREATE EXTENSION vector."
            ) from error
        found = cursor.execute(version).fetchone()
    if found is None:
        raise ValueError("The database does not have the extension pgvector.")
    if tuple(int(part) for part in found[0].split(".")[:2]) < (0, 8):
        raise ValueError(
            f"The database has pgvector {found[0]}, but 0.8 is required. Update it on "
            "the server and run ALTER EXTENSION vector UPDATE."
        )


def exists(cursor, name):
    """Return whether a table exists."""
    found = cursor.execute("SELECT to_regclass($1)", [name.as_string(cursor)])
    return found.fetchone()[0] is not None


def create_table(cursor, name, *, id_column, item_column, stored, width, ids, columns):
    """Create an empty table for items.

    Parameters
    ----------
    cursor : Cursor

    name : sql.Identifier
        Quoted name of the table.

    id_column, item_column : str
        Columns of ids and items.

    stored : {"vector", "halfvec", "sparsevec"}
        Type of the items.

    width : int
        Number of dimensions of the items.

    ids : ndarray
        Ids that determine the type of the column, integers or strings.

    columns : dict of str to Column
        Columns of metadata.
    """
    # With the collation "C", the order of strings is that of Python on all servers.
    id_type = 'text COLLATE "C"' if ids.dtype.kind == "U" else "bigint"
    definitions = [
        sql.SQL("{} " + id_type + " PRIMARY KEY").format(sql.Identifier(id_column)),
        sql.SQL("{} {}({}) NOT NULL").format(
            sql.Identifier(item_column), sql.Identifier(stored), sql.Literal(width)
        ),
        *define(columns),
    ]
    cursor.execute(
        sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(definitions))
    )


def open_table(cursor, name, *, id_column, item_column):
    """Read the definition of an existing table.

    Parameters
    ----------
    cursor : Cursor

    name : sql.Identifier
        Quoted name of the table.

    id_column, item_column : str
        Columns of ids and items.

    Returns
    -------
    table : Table
    """
    quoted = name.as_string(cursor)
    if not exists(cursor, name):
        raise ValueError(f"The database has no table {quoted}. Create it with `fit`.")
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
                f"The table {quoted} has no column {column!r}, but {sorted(columns)}. "
                "Set `id_column` and `item_column`."
            )
    id_type, *_, has_default = columns[id_column]
    stored, oid, width, number, _ = columns[item_column]
    if id_type not in ID_TYPES:
        raise ValueError(
            f"The ids in column {id_column!r} are of type {id_type}. Ids must be "
            "integers or strings."
        )
    if stored not in ("vector", "halfvec", "sparsevec"):
        raise ValueError(
            f"The column {item_column!r} is of type {stored}. It must be one of "
            "pgvector's types vector, halfvec and sparsevec."
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
