"""Files of TREC: judgements (qrels) and results (runs)."""

import codecs
import gzip
import math
import os
import re
import secrets
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.rows import find_repeat, starts_run
from sklearn_simlearn._core.targets import number_ids, read_column, read_ids

# Longest line in bytes. It limits memory for files that are not text and may have no
# line ends.
MAX_LINE = 2**16

INTEGER = re.compile(rb"[+-]?[0-9]{1,9}")
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


# -- readers --


def read_qrels(path: str | os.PathLike[str]) -> Bunch:
    """Read judgements from a file in the format of TREC.

    Each line holds four fields, separated by spaces or tabs: the id of a query, an
    iteration, which is ignored, the id of a document, and its relevance, an integer. A
    file whose name ends in ``.gz`` is decompressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    qrels : :class:`~sklearn.utils.Bunch`
        Columns with one entry per line: ``query`` and ``document``, ids as strings, and
        ``relevance``, int64. :func:`judgements_from_table` converts them to
        :class:`Judgements`; :func:`run_report` evaluates a run with them.

    Raises
    ------
    ValueError
        If a line is not in this format, or repeats the query and document of another
        line. The message names the file and the line.

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

    Each line holds six fields, separated by spaces or tabs: the id of a query, ``Q0``,
    the id of a document, its rank, its score and the name of the run. Results are
    ordered by score. The rank is ignored, as in trec_eval. A file whose name ends in
    ``.gz`` is decompressed.

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
        If a line is not in this format, repeats the query and document of another line,
        or has another name of the run. The message names the file and the line.

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
        if not rank.isdigit():
            rows.fail(f"the rank {_show(rank)} is not a number from 0")
        score = float(value) if NUMBER.fullmatch(value) else math.inf
        if not math.isfinite(score):
            rows.fail(f"the score {_show(value)} is not a finite number")
        if name != (tag := tag or name):
            rows.fail(f"the run is named {_show(name)}, but {_show(tag)} above")
        scores.append(score)
    columns = rows.columns()
    return Bunch(
        **columns, score=np.array(scores, dtype=np.float64), tag=rows.decode(tag)
    )


class _Rows:
    """Rows of a file, each with a query and a document.

    Each id is stored once; rows hold its number.

    Parameters
    ----------
    path : str or path-like
    fields : str
        Names of the fields, for messages. The first field is the query, the third is
        the document.
    """

    def __init__(self, path: str | os.PathLike[str], fields: str) -> None:
        self.path = Path(path)
        self.fields = fields.split()
        self.line = 0
        # Numbers of the ids of queries and of documents.
        self._numbers: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._rows = array("q"), array("q")

    def __iter__(self) -> Iterator[list[bytes]]:
        n_fields, (queries, documents) = len(self.fields), self._numbers
        add_query, add_document = (rows.append for rows in self._rows)
        for line in self._lines():
            fields = line.split()
            if len(fields) != n_fields:
                found = f"{len(fields)} fields" if fields else "an empty line"
                self.fail(f"{found} instead of {' '.join(self.fields)}")
            query, document = fields[0], fields[2]
            if query not in queries:
                self.decode(query)
                queries[query] = len(queries)
            if document not in documents:
                self.decode(document)
                documents[document] = len(documents)
            add_query(queries[query])
            add_document(documents[document])
            yield fields
        if self.line == 0:
            self.fail("the file is empty")

    def _lines(self) -> Iterator[bytes]:
        """Yield decompressed lines of limited length."""
        open_file = gzip.open if self.path.suffix == ".gz" else open
        with open_file(self.path, "rb") as file:
            try:
                while line := file.readline(MAX_LINE + 1):
                    self.line += 1
                    if len(line) > MAX_LINE:
                        self.fail(f"the line is longer than {MAX_LINE} bytes")
                    if self.line == 1:
                        line = line.removeprefix(codecs.BOM_UTF8)
                    yield line
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                self.fail(f"the file is damaged after this line: {error}")

    def decode(self, value: bytes) -> str:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            self.fail(f"{_show(value)} is not in UTF-8")
        if "\0" in text:
            self.fail(f"{_show(value)} contains a null character")
        return text

    def columns(self) -> dict[str, np.ndarray]:
        """Return the ids of all rows; raise if a pair occurs twice."""
        query, document = (np.array(rows, dtype=np.int64) for rows in self._rows)
        repeat = find_repeat(query, document)
        if repeat is not None:
            self.line = repeat[1] + 1
            self.fail(f"repeats the query and document of line {repeat[0] + 1}")
        names = [
            np.array([id_.decode() for id_ in numbers], dtype=object)
            for numbers in self._numbers
        ]
        return {"query": names[0][query], "document": names[1][document]}

    def fail(self, fault: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.line}: {fault}.")


def _show(value: bytes) -> str:
    return repr(value[:50].decode(errors="replace"))


# -- writers --


def write_qrels(path: str | os.PathLike[str], qrels: Any) -> None:
    """Write judgements to a file in the format of TREC.

    An existing file is replaced only when the new one is complete. A file whose name
    ends in ``.gz`` is compressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    qrels : Judgements, pandas or polars DataFrame, or dict of columns
        Judgements with ids of queries and documents, or a table with the columns
        ``query``, ``document`` and ``relevance``. Relevance must be an integer.

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
            raise ValueError(
                "qrels must have ids: pass query_ids and document_ids to Judgements."
            )
        stored = qrels.relevance.tocoo()
        qrels = {
            "query": qrels.query_ids[stored.row],
            "document": qrels.document_ids[stored.col],
            "relevance": stored.data,
        }
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    rows = read_rows(qrels, "relevance", "qrels", queries, documents)
    if (rows.value != np.rint(rows.value)).any():
        raise ValueError("The relevance must be an integer in a TREC file.")
    if (np.abs(rows.value) >= 2.0**63).any():
        raise ValueError("The relevance must fit into 64 bits in a TREC file.")
    _check_fields(queries, documents)
    columns = (column.astype(np.int64).tolist() for column in rows)
    query_names, document_names = list(queries), list(documents)
    with _replacing(path) as file:
        for query, document, value in zip(*columns, strict=True):
            line = f"{query_names[query]} 0 {document_names[document]} {value}\n"
            file.write(line.encode())


def write_run(
    path: str | os.PathLike[str], run: Any, *, tag: str = "sklearn_simlearn"
) -> None:
    """Write results to a file in the format of TREC.

    The results of a query are ordered by score and, if scores are equal, by document
    id, both descending, as in trec_eval. Note that trec_eval reads scores in single
    precision, so it may treat scores as equal that are different here. An existing file
    is replaced only when the new one is complete. A file whose name ends in ``.gz`` is
    compressed.

    Parameters
    ----------
    path : str or path-like
        The file.

    run : pandas or polars DataFrame, or dict of columns
        Table with the columns ``query``, ``document`` and ``score``.

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
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    rows = read_rows(run, "score", "run", queries, documents)
    _check_fields(queries, documents, [tag])
    rows = rows.take(order_rows(rows, documents))
    rank = np.arange(1, len(rows.query) + 1) - np.searchsorted(rows.query, rows.query)
    columns = (column.tolist() for column in (*rows, rank))
    query_names, document_names = list(queries), list(documents)
    with _replacing(path) as file:
        for query, document, score, place in zip(*columns, strict=True):
            names = f"{query_names[query]} Q0 {document_names[document]}"
            file.write(f"{names} {place} {score!r} {tag}\n".encode())


class NumberedRows(NamedTuple):
    """Rows of a table, with a number for each query and document.

    Attributes
    ----------
    query, document : ndarray of shape (n_rows,), int64
    value : ndarray of shape (n_rows,), float64
    """

    query: np.ndarray
    document: np.ndarray
    value: np.ndarray

    def take(self, rows: np.ndarray) -> "NumberedRows":
        """Return some of the rows."""
        return NumberedRows(*(column[rows] for column in self))


def read_rows(
    table: Any,
    value: str,
    name: str,
    queries: dict[str, int],
    documents: dict[str, int],
) -> NumberedRows:
    """Check a table with a query, a document and a number in each row.

    Parameters
    ----------
    table : frame or dict of columns
    value : str
        Column of finite numbers.
    name : str
        Name of the table, for messages.
    queries, documents : dict
        Numbers of the ids. New ids are added.
    """
    query, document = (
        number_ids(
            read_ids(read_column(table, column), f"The column {column!r} of {name}"),
            numbers,
        )
        for column, numbers in (("query", queries), ("document", documents))
    )
    values = np.asarray(read_column(table, value))
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ValueError(f"The column {value!r} of {name} must hold finite numbers.")
    if not len(query) == len(document) == len(values):
        raise ValueError(f"The columns of {name} differ in length.")
    if len(query) == 0:
        raise ValueError(f"{name} has no rows.")
    repeat = find_repeat(query, document)
    if repeat is not None:
        first, row = repeat
        raise ValueError(
            f"Row {row} of {name} repeats the query and the document of row {first}: "
            f"{list(queries)[query[row]]!r} and {list(documents)[document[row]]!r}."
        )
    return NumberedRows(query, document, values.astype(np.float64))


def order_rows(rows: NumberedRows, documents: dict[str, int]) -> np.ndarray:
    """Return the order of trec_eval: by query, score descending, and id descending."""
    order = np.lexsort((-rows.value, rows.query))
    is_first = starts_run(rows.query[order], rows.value[order])
    is_last = np.append(is_first[1:], True)
    tied = order[~(is_first & is_last)]
    # Only ids of tied documents are compared.
    numbers, document = np.unique(rows.document[tied], return_inverse=True)
    names = list(documents)
    by_name = sorted(range(len(numbers)), key=lambda i: names[numbers[i]])
    place = np.empty(len(numbers), dtype=np.int64)
    place[by_name] = np.arange(len(numbers))
    key = np.zeros(len(order), dtype=np.int64)
    key[tied] = place[document]
    return np.lexsort((-key, -rows.value, rows.query))


def _check_fields(*columns: Iterable[str]) -> None:
    for id_ in chain(*columns):
        if id_.encode().split() != [id_.encode()] or "\0" in id_:
            raise ValueError(
                f"{id_[:50]!r} cannot be a field of a TREC file: it is empty or "
                "contains white space or a null character."
            )


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Yield a file with a temporary name; rename it when it is complete."""
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
