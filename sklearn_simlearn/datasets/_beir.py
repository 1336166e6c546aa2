"""Collections of queries, documents and judgements in the format of BEIR."""

import os
import re
from array import array
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.rows import find_repeat
from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn.datasets._lines import Budget, Numbering, TextFile

HEADER = ["query-id", "corpus-id", "score"]
SCORE = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


@validate_params(
    {"split": [str], "max_bytes": [Interval(Integral, 1, None, closed="left"), None]},
    prefer_skip_nested_validation=True,
)
def load_beir(
    folder: str | os.PathLike[str],
    split: str = "test",
    *,
    max_bytes: int | None = 2**33,
) -> Bunch:
    """Load queries, documents and judgements from a folder in the format of BEIR.

    The folder holds

    - ``corpus.jsonl`` with one JSON object per line and document, with the keys
      ``_id``, ``text`` and, if there are titles, ``title``;
    - ``queries.jsonl`` with one JSON object per query, with ``_id`` and ``text``;
    - ``qrels/test.tsv``, and similar files for other splits: a header line
      ``query-id``, ``corpus-id``, ``score``, then one line per judgement. Fields are
      separated by tabs.

    Each file may be compressed with gzip; then its name ends in ``.gz``. Text is in
    UTF-8. Other keys are ignored. An invalid line raises an error.

    Parameters
    ----------
    folder : str or path-like
        The folder.

    split : str, default="test"
        Name of the file of judgements, without its ending.

    max_bytes : int or None, default=2**33
        Approximate limit of the memory for texts and ids, in bytes. The default is 8
        GiB. None removes the limit.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : list of str, of length n_queries
            Texts of the queries; the same as `queries`.
        target : :class:`~sklearn_simlearn.metrics.Judgements`
            The judgements with the documents and the ids.
        queries : list of str, of length n_queries
            Texts of the queries that have judgements in the split, in the order of
            ``queries.jsonl``.
        query_ids : ndarray of shape (n_queries,), dtype str
            Ids of these texts.
        documents : list of str, of length n_documents
            Titles and texts of all documents, joined by a space.
        document_ids : ndarray of shape (n_documents,), dtype str
            Ids of these texts.
        relevance : csr_array of shape (n_queries, n_documents), float64
            Judgements. A stored 0 means that the pair was judged as not relevant. Pairs
            that are not stored were not judged.
        n_empty_documents : int
            Number of documents without a title and a text. They are kept.

    Raises
    ------
    FileNotFoundError
        If a file is missing.

    ValueError
        If a line is invalid or longer than 16 MiB, if an id or a judgement is repeated,
        if a judgement has an unknown id, or if the files take more than `max_bytes`.
        The message names the file and the line.

    See Also
    --------
    load_texts : Texts with labels, from one table.

    Examples
    --------
    >>> import json
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.datasets import load_beir
    >>> corpus = [
    ...     {"_id": "d1", "title": "Cats", "text": "Cats sleep a lot."},
    ...     {"_id": "d2", "title": "Dogs", "text": "Dogs like to run."},
    ... ]
    >>> queries = [{"_id": "q1", "text": "Which animal sleeps?"}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folder = Path(folder)
    ...     for name, rows in (("corpus", corpus), ("queries", queries)):
    ...         lines = "".join(json.dumps(row) + "\\n" for row in rows)
    ...         _ = (folder / f"{name}.jsonl").write_text(lines)
    ...     (folder / "qrels").mkdir()
    ...     lines = "query-id\\tcorpus-id\\tscore\\nq1\\td1\\t1\\nq1\\td2\\t0\\n"
    ...     _ = (folder / "qrels" / "test.tsv").write_text(lines)
    ...     animals = load_beir(folder)
    >>> animals.queries, animals.documents
    (['Which animal sleeps?'], ['Cats Cats sleep a lot.', 'Dogs Dogs like to run.'])
    >>> animals.target
    Judgements(n_queries=1, n_documents=2, n_judged=2)
    >>> animals.relevance.toarray()
    array([[1., 0.]])
    """
    folder, budget = Path(folder), Budget(max_bytes)
    corpus, queries, qrels = (
        TextFile(path, budget)
        for path in (
            _find(folder, "corpus.jsonl"),
            _find(folder, "queries.jsonl"),
            _find_split(folder, split),
        )
    )
    judgements = _Judgements(qrels)
    query_ids, query_texts = _read_queries(queries, judgements)
    document_ids, documents = _read_documents(corpus)
    relevance = judgements.as_csr(query_ids, queries.path, document_ids, corpus.path)
    target = Judgements(
        relevance,
        documents,
        query_ids=queries.as_array(query_ids),
        document_ids=corpus.as_array(document_ids),
    )
    return Bunch(
        data=query_texts,
        target=target,
        queries=query_texts,
        query_ids=target.query_ids,
        documents=documents,
        document_ids=target.document_ids,
        relevance=target.relevance,
        n_empty_documents=sum(not text for text in documents),
    )


def _find(folder, name):
    """Return the path of a file, plain or compressed."""
    paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if not paths:
        raise FileNotFoundError(
            f"{folder / name}: no such file, with or without .gz. A folder in the "
            "format of BEIR holds corpus.jsonl, queries.jsonl and qrels/test.tsv."
        )
    if len(paths) == 2:
        raise ValueError(f"{paths[0]} exists twice, plain and as .gz. Keep one.")
    return paths[0]


def _find_split(folder, split):
    places = sorted((folder / "qrels").glob("*.tsv*"))
    names = {path.name.removesuffix(".gz").removesuffix(".tsv") for path in places}
    if names and split not in names:
        raise FileNotFoundError(
            f"{folder / 'qrels'} has no split {split!r}; it has "
            f"{', '.join(sorted(names)[:10])}."
        )
    return _find(folder, f"qrels/{split}.tsv")


class _Judgements:
    """Judgements by numbers of ids. Ids are numbered in the order of the file."""

    def __init__(self, file):
        self.file = file
        self.queries, self.documents = {}, {}
        self._rows, self._columns, self._values = array("q"), array("q"), array("d")
        lines = iter(file)
        if next(lines, "").rstrip("\r\n").split("\t") != HEADER:
            file.fail(
                f"the first line must be {' '.join(HEADER)}, separated by tabs", 1
            )
        for line in lines:
            if not line.strip():
                file.fail("the line is empty")
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != 3 or not fields[0] or not fields[1]:
                file.fail(
                    "not a query id, a document id and a score, separated by tabs"
                )
            query, document, score = fields
            if not SCORE.fullmatch(score):
                file.fail(f"the score {score[:20]!r} is not a number")
            self._rows.append(self.queries.setdefault(query, len(self.queries)))
            self._columns.append(
                self.documents.setdefault(document, len(self.documents))
            )
            self._values.append(float(score))
        if not self._rows:
            file.fail("there are no judgements below the header")

    def as_csr(self, query_ids, queries, document_ids, corpus):
        """Return the judgements as a matrix of queries and documents."""
        rows = self._place(self._rows, self.queries, query_ids, queries)
        columns = self._place(self._columns, self.documents, document_ids, corpus)
        repeat = find_repeat(rows, columns)
        if repeat is not None:
            first, again = repeat
            self.file.fail(f"repeats the pair of line {first + 2}", again + 2)
        shape = len(query_ids), len(document_ids)
        order = np.lexsort((columns, rows))
        indptr = np.searchsorted(rows[order], np.arange(shape[0] + 1))
        values = np.frombuffer(self._values)[order]
        return sparse.csr_array((values, columns[order], indptr), shape=shape)

    def _place(self, numbers, ids, known, path):
        """Return the row of each judgement in `known`."""
        row = {id_: i for i, id_ in enumerate(known)}
        rows = np.array([row.get(id_, -1) for id_ in ids], dtype=np.int64)
        numbers = np.frombuffer(numbers, dtype=np.int64)
        unknown = rows[numbers] < 0
        if unknown.any():
            first = int(unknown.argmax())
            id_ = list(ids)[numbers[first]]
            self.file.fail(f"the id {id_[:50]!r} is not in {path}", first + 2)
        return rows[numbers]


def _read_queries(file, judgements):
    """Return ids and texts of the judged queries."""
    ids, texts, numbering = [], [], Numbering()
    for values in file.objects():
        id_ = file.get_name(values, "_id")
        numbering.add(file, id_)
        text = file.get_text(values, "text").strip()
        if id_ in judgements.queries:
            if not text:
                file.fail(f"the query {id_!r} has no text")
            ids.append(id_)
            texts.append(text)
    return ids, texts


def _read_documents(file):
    """Return ids and texts of all documents."""
    texts, numbering = [], Numbering()
    for values in file.objects():
        numbering.add(file, file.get_name(values, "_id"))
        text = file.get_text(values, "text")
        if values.get("title") is not None:
            text = f"{file.get_text(values, 'title')} {text}"
        texts.append(text.strip())
    return list(numbering.lines), texts
