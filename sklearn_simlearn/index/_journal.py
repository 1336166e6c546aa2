"""Journal of the changes of a saved index.

The journal is an SQLite database in the sub-folder of the arrays of the index. It
belongs to one save, because the next save creates a new sub-folder without a journal. A
change is on the disk when `Journal.append` returns. Nothing in a journal is unpickled.
"""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.storage import (
    HEADER,
    damaged,
    pack,
    read_generation,
    unpack,
)
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._state import Change

JOURNAL = "journal.sqlite3"

# File whose lock the writing process holds.
LOCK = "writer.lock"

TABLE = "CREATE TABLE changes (number INTEGER PRIMARY KEY, data BLOB NOT NULL)"

# Seconds to wait for another process that reads the database or copies its log into it.
PATIENCE = 10


class ReplacedError(ValueError):
    """Raised if another index was saved in the folder of a journal."""


class Journal:
    """Journal of the current index in a folder, open for writing.

    Only the process that holds the lock of `lock_writer` may open it.

    Parameters
    ----------
    folder : path-like
        Folder of a saved index.

    Attributes
    ----------
    generation : str
        Name of the sub-folder of the arrays of the index.

    n_changes : int
        Number of changes in the journal.
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        self._header = _identify_header(self._folder)
        self.generation = read_generation(self._folder)
        path = self._folder / self.generation / JOURNAL
        try:
            self._connection = _connect(path, "mode=rwc")
            try:
                self.n_changes = self._start()
            except BaseException:
                self.close()
                raise
        except sqlite3.Error as error:
            raise OSError(f"The journal {path} cannot be opened: {error}.") from error

    def _start(self):
        """Create the table if it does not exist; return the number of changes."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if not _list_schema(self._connection):
            self._connection.execute(TABLE)
        _check_schema(self._connection)
        rows = self._connection.execute("SELECT count(*) FROM changes")
        return rows.fetchone()[0]

    @property
    def is_current(self):
        """Return whether the folder still holds the index of this journal."""
        header = _identify_header(self._folder)
        if header != self._header:
            if read_generation(self._folder) != self.generation:
                return False
            self._header = header
        return True

    def append(self, change):
        """Store a change on the disk.

        Raises
        ------
        ReplacedError
            If another index was saved in the folder.

        OSError
            If the change cannot be written.
        """
        data = _pack_change(change)
        if not self.is_current:
            raise ReplacedError(
                "Another index was saved in this folder. This change was not stored, "
                "because it belongs to the previous index."
            )
        try:
            self._connection.execute("INSERT INTO changes (data) VALUES (?)", (data,))
        except sqlite3.Error as error:
            raise OSError(f"The journal could not be written: {error}.") from error
        self.n_changes += 1

    def close(self):
        """Close the file. Later changes raise an error."""
        self._connection.close()


def replay(state, folder, *, n_threads):
    """Return a state with the changes in the journal of a folder of arrays.

    Parameters
    ----------
    state : State
        State that was saved.

    folder : Path
        Sub-folder of the arrays of the index.

    n_threads : int
        Number of threads.
    """
    path = folder / JOURNAL
    if not os.path.lexists(path):
        return state
    number = 0
    while True:
        # Without this file, no process writes. Then the database can be opened as
        # immutable, and SQLite creates no other files. A process that only reads may
        # not be allowed to create them.
        is_live = path.with_name(f"{JOURNAL}-wal").exists()
        try:
            options = "mode=ro" if is_live else "mode=ro&immutable=1"
            with closing(_connect(path, options)) as connection:
                _check_schema(connection)
                rows = connection.execute(
                    "SELECT number, data FROM changes WHERE number > ? ORDER BY number",
                    (number,),
                )
                for number, data in rows:  # noqa: B007
                    if state.should_compact:
                        state = state.compact(n_threads=n_threads)
                    change = _unpack_change(data, state)
                    state = state.apply(change, n_threads=n_threads)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise damaged(f"its journal cannot be read ({error})") from error
        if is_live or not path.with_name(f"{JOURNAL}-wal").exists():
            return state


# Tables of a change.
PARTS = ("encoded", "metadata", "raw", "thumbnails")


def _pack_change(change):
    """Return a change as bytes."""
    header, arrays = {"kind": change.kind, "tables": {}}, {"ids": change.ids}
    for name in PARTS:
        table = getattr(change, name)
        if table is not None:
            parts, header["tables"][name] = _metadata.to_arrays(table, name)
            arrays |= {f"{name}_{part}": array for part, array in parts.items()}
    return pack(header, arrays)


def _unpack_change(data, state):
    """Return a change; raise unless it matches the state."""
    if not isinstance(data, bytes):
        raise damaged("a change in its journal is not a blob")
    header, arrays = unpack(data)
    kind, tables = header.get("kind"), header.get("tables")
    if kind not in ("add", "upsert", "remove") or not isinstance(tables, dict):
        raise damaged("a change in its journal has an unknown kind")
    try:
        ids = state.ids.convert(arrays.read("ids"))
        if kind == "remove":
            return Change(kind, ids)
        parts = {
            name: _metadata.from_arrays(arrays.group(f"{name}_"), tables.get(name))
            for name in PARTS
            if name in tables or name == "encoded"
        }
        return Change(kind, **_check_parts(state, ids, **parts))
    except (ValueError, TypeError) as error:
        raise damaged(f"a change in its journal is invalid ({error})") from error


def _check_parts(state, ids, encoded, metadata=None, raw=None, thumbnails=None):
    """Return the parts of a change; raise unless they match the state."""
    encoded = as_kind(encoded, state.backend, state.items.dtype)
    if encoded.shape != (len(ids), state.items.n_features):
        raise ValueError("encoded items have the wrong shape")
    values = encoded.data if sparse.issparse(encoded) else encoded
    if not np.isfinite(values).all():
        raise ValueError("encoded items are not finite")
    if (raw is None) != (state.raw is None):
        raise ValueError("original items are missing, or the index does not store them")
    if raw is not None and not _metadata.are_alike(raw, state.raw.first_part):
        raise ValueError("original items do not have the type of the other items")
    if thumbnails is not None and (
        state.thumbnails is None
        or len(thumbnails) != len(ids)
        or not isinstance(thumbnails, _metadata.StoredBytes)
    ):
        raise ValueError("thumbnails are of another type or number than the items")
    new = state.read_new(encoded if raw is None else raw, ids, metadata)
    thumbnails = None if thumbnails is None else list(thumbnails)
    return {"encoded": encoded, "thumbnails": thumbnails, **new}


# -- SQLite --


def _connect(path, options):
    for end in ("", "-wal", "-shm", "-journal"):
        _check_file(path.with_name(path.name + end))
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,  # each statement is a transaction
        check_same_thread=False,
    )
    # The file may be forged: its schema must not call functions.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _list_schema(connection):
    return connection.execute("SELECT sql FROM sqlite_master").fetchall()


def _check_schema(connection):
    """Raise unless a database has the table of changes, and nothing else."""
    if _list_schema(connection) != [(TABLE,)]:
        raise damaged("its journal does not have the expected table")


# -- files --


def _identify_header(folder):
    """Return a value that changes if the header of the folder is replaced."""
    found = os.stat(folder / HEADER)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _check_file(path):
    """Raise if a file exists and is not a regular one.

    The folder may be forged. A link could lead to a file outside of the folder, and the
    end of a pipe may never come.
    """
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise damaged(f"{path.name} is not a regular file")


def lock_writer(folder):
    """Lock a folder for the process that writes; return a file to close at the end."""
    path = Path(folder, LOCK)
    _check_file(path)
    file = open(path, "a+b")  # noqa: SIM115
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"Another process writes to the index in {folder}. Stop it, or open "
            "the index read-only."
        ) from None
    return file
