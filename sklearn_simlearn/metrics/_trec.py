"""Files of TREC: judgements (qrels) and results (runs)."""

import codecs
import gzip
import os
import re
import secrets
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import (
    Judgements,
    number_ids,
    read_column,
    read_ids,
)

# Longest line in bytes; a file that is not text has no line ends.
MAX_LINE = 2**16

INTEGER = re.compile(rb"[+-]?[0-9]{1,9}")
RANK = re.compile(rb"[0-9]{1,18}")
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


# -- readers --


def read_qrels(path: str | os.PathLike[str]) -> Bunch:
    """Read judgements from a file in the format of TREC.

    Each line holds the id of a query, an iteration, which is ignored, the id of a
    document and its relevance, an integer, with spaces or tabs between them. A file
    whose name ends in ``.gz`` is decompressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    qrels : :class:`~sklearn.utils.Bunch`
        Columns with one entry per line: ``query`` and ``document``, ids as strings, and
        ``relevance``, int64. :func:`judgements_from_table` makes :class:`Judgements` of
        them, :func:`run_report` measures a run by them.

    Raises
    ------
    ValueError
        If a line is damaged or judges a pair again. The message names the file and the
        line.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.metrics import read_qrels
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.qrels"
    ...     _ = path.write_text("q1 0 a 2\\nq1 0 b 0\\n")
    ...     qrels = read_qrels(path)
    >>> qrels.document, qrels.relevance
    (array(['a', 'b'], dtype=object), array([2, 0]))
    """
    rows = _Rows(path, "query iteration document relevance")
    relevance = array("q")
    for _, _, _, value in rows:
        if not INTEGER.fullmatch(value):
            rows.fail(f"the relevance {_show(value)} is not an integer")
        relevance.append(int(value))
    return Bunch(**rows.columns(), relevance=np.array(relevance, dtype=np.int64))


def read_run(path: str | os.PathLike[str]) -> Bunch:
    """Read results from a file in the format of TREC.

    Each line holds the id of a query, ``Q0``, the id of a document, its rank, its score
    and the name of the run, with spaces or tabs between them. The order of the results
    is that of the scores: the rank is ignored, as by trec_eval. A file whose name ends
    in ``.gz`` is decompressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    run : :class:`~sklearn.utils.Bunch`
        Columns with one entry per line: ``query`` and ``document``, ids as strings, and
        ``score``, float64; and ``tag``, the name of the run.

    Raises
    ------
    ValueError
        If a line is damaged, lists a document again or has another name of the run. The
        message names the file and the line.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.metrics import read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.run"
    ...     _ = path.write_text("q1 Q0 b 1 2.0 mine\\nq1 Q0 a 2 0.5 mine\\n")
    ...     run = read_run(path)
    >>> run.tag, run.document, run.score
    ('mine', array(['b', 'a'], dtype=object), array([2. , 0.5]))
    """
    rows = _Rows(path, "query Q0 document rank score tag")
    scores, tag = array("d"), b""
    for _, constant, _, rank, value, name in rows:
        if constant not in (b"Q0", b"q0", b"0"):
            rows.fail(f"the second field is {_show(constant)}, not Q0")
        if not RANK.fullmatch(rank):
            rows.fail(f"the rank {_show(rank)} is not a number from 0")
        score = float(value) if NUMBER.fullmatch(value) else np.inf
        if not np.isfinite(score):
            rows.fail(f"the score {_show(value)} is not a finite number")
        tag = tag or name
        if name != tag:
            rows.fail(f"the run is named {_show(name)} and, above, {_show(tag)}")
        scores.append(score)
    columns = rows.columns()
    return Bunch(
        **columns, score=np.array(scores, dtype=np.float64), tag=rows.decode(tag)
    )


class _Rows:
    """Rows of a file with a query and a document in each.

    Ids are kept once, and a number for each row.

    Parameters
    ----------
    path : str or path-like
    fields : str
        Names of the fields, for messages. The first is the query, the third the
        document.
    """

    def __init__(self, path, fields):
        self.path = Path(path)
        self.fields = fields.split()
        self.line = 0
        self._numbers = {}, {}  # id -> number, of queries and of documents
        self._rows = array("q"), array("q")

    def __iter__(self) -> Iterator[list[bytes]]:
        open_file = gzip.open if self.path.suffix == ".gz" else open
        with open_file(self.path, "rb") as file:
            try:
                while line := file.readline(MAX_LINE + 1):
                    yield self._split(line)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                self.fail(f"damaged after this line: {error}")
        if self.line == 0:
            self.fail("the file is empty")

    def _split(self, line):
        self.line += 1
        if len(line) > MAX_LINE:
            self.fail(f"longer than {MAX_LINE} bytes")
        if self.line == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        fields = line.split()
        if len(fields) != len(self.fields):
            self.fail(f"{len(fields)} fields, not {' '.join(self.fields)}")
        for numbers, rows, id_ in zip(
            self._numbers, self._rows, (fields[0], fields[2]), strict=True
        ):
            if id_ not in numbers:
                self.decode(id_)
            rows.append(numbers.setdefault(id_, len(numbers)))
        return fields

    def decode(self, value: bytes) -> str:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            self.fail(f"{_show(value)} is not in UTF-8")
        if "\0" in text:
            self.fail(f"{_show(value)} contains a null character")
        return text

    def columns(self) -> dict[str, np.ndarray]:
        """Ids of all rows; a pair that occurs twice raises."""
        query, document = (np.array(rows, dtype=np.int64) for rows in self._rows)
        order = np.lexsort((document, query))
        repeats = (np.diff(query[order]) == 0) & (np.diff(document[order]) == 0)
        if repeats.any():
            places = np.flatnonzero(repeats)
            place = places[order[places + 1].argmin()]
            self.line = int(order[place + 1]) + 1
            self.fail(f"query and document are those of line {order[place] + 1}")
        names = [
            np.array([id_.decode() for id_ in numbers], dtype=object)
            for numbers in self._numbers
        ]
        return {"query": names[0][query], "document": names[1][document]}

    def fail(self, fault: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.line}: {fault}.")


def _show(value):
    return repr(value[:50].decode(errors="replace"))


# -- writers --


def write_qrels(path: str | os.PathLike[str], qrels: Any) -> None:
    """Write judgements to a file in the format of TREC.

    The file is replaced as a whole. A file whose name ends in ``.gz`` is compressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    qrels : Judgements, pandas or polars DataFrame, or dict of columns
        Judgements with ids of queries and documents, or a table with the columns
        ``query``, ``document`` and ``relevance``. Relevance is in integers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.metrics import Judgements, write_qrels
    >>> ids = {"query_ids": ["q"], "document_ids": ["a", "b"]}
    >>> y = Judgements([[2, 1]], [[0.1], [0.2]], **ids)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_qrels(Path(folder) / "mine.qrels", y)
    ...     (Path(folder) / "mine.qrels").read_text().splitlines()
    ['q 0 a 2', 'q 0 b 1']
    """
    if isinstance(qrels, Judgements):
        if qrels.query_ids is None or qrels.document_ids is None:
            raise ValueError("qrels needs the ids of queries and of documents.")
        stored = qrels.relevance.tocoo()
        qrels = {
            "query": qrels.query_ids[stored.row],
            "document": qrels.document_ids[stored.col],
            "relevance": stored.data,
        }
    query, document, relevance = read_rows(qrels, "relevance", "qrels")
    if (relevance != np.rint(relevance)).any():
        raise ValueError("The relevance in a file of TREC is an integer.")
    _check_fields(query, document)
    with _replacing(path) as file:
        values = relevance.astype(np.int64).tolist()
        for q, d, value in zip(query, document, values, strict=True):
            file.write(f"{q} 0 {d} {value}\n".encode())


def write_run(
    path: str | os.PathLike[str], run: Any, *, tag: str = "sklearn_simlearn"
) -> None:
    """Write results to a file in the format of TREC.

    The results of a query are ordered by score, and by document id, descending, where
    scores are equal: the order of trec_eval. trec_eval reads scores in single
    precision, so scores that differ only beyond it are equal there. The file is
    replaced as a whole. A file whose name ends in ``.gz`` is compressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    run : pandas or polars DataFrame, or dict of columns
        A table with the columns ``query``, ``document`` and ``score``.

    tag : str, default="sklearn_simlearn"
        Name of the run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.metrics import write_run
    >>> results = {"query": ["q", "q"], "document": ["a", "b"], "score": [0.5, 2.0]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(Path(folder) / "mine.run", results, tag="mine")
    ...     (Path(folder) / "mine.run").read_text().splitlines()
    ['q Q0 b 1 2.0 mine', 'q Q0 a 2 0.5 mine']
    """
    query, document, score = read_rows(run, "score", "run")
    _check_fields(query, document, [tag])
    of_query = number_ids(query, {})
    order = np.lexsort((-sort_ids(document), -score, of_query))
    of_query = of_query[order]
    first = np.searchsorted(of_query, of_query)
    with _replacing(path) as file:
        for i, rank in zip(order, np.arange(len(order)) - first + 1, strict=True):
            value = float(score[i])
            line = f"{query[i]} Q0 {document[i]} {rank} {value!r} {tag}\n"
            file.write(line.encode())


def read_rows(
    table: Any, value: str, name: str
) -> tuple[list[str], list[str], np.ndarray]:
    """Columns ``query``, ``document`` and that of the values, checked.

    Parameters
    ----------
    table : frame or dict of columns
    value : str
        Column of finite numbers.
    name : str
        Name of the table, for messages.
    """
    query, document = (
        read_ids(read_column(table, column), f"The column {column!r} of {name}")
        for column in ("query", "document")
    )
    values = np.asarray(read_column(table, value))
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ValueError(f"The column {value!r} of {name} must hold finite numbers.")
    if not len(query) == len(document) == len(values):
        raise ValueError(f"The columns of {name} differ in length.")
    if not query:
        raise ValueError(f"{name} has no rows.")
    pairs = np.column_stack([number_ids(query, {}), number_ids(document, {})])
    order = np.lexsort(pairs.T)
    repeated = ~np.diff(pairs[order], axis=0).any(axis=1)
    if repeated.any():
        row = order[1:][repeated].min()
        raise ValueError(
            f"Row {row} of {name} repeats the query {query[row]!r} and the document "
            f"{document[row]!r}."
        )
    return query, document, values.astype(np.float64)


def sort_ids(ids: list[str]) -> np.ndarray:
    """Place of each id in the sorted order of the different ids."""
    place = {id_: i for i, id_ in enumerate(sorted(set(ids)))}
    return np.array([place[id_] for id_ in ids], dtype=np.int64)


def _check_fields(*columns):
    for id_ in set().union(*columns):
        if id_.encode().split() != [id_.encode()] or "\0" in id_:
            raise ValueError(
                f"{id_[:50]!r} cannot be a field of a file of TREC: it is empty or "
                "contains white space or a null character."
            )


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Write a file under another name, and rename it if all of it was written."""
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with open(aside, "xb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
                    yield compressed
            else:
                yield file
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
