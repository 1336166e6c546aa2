"""Reader of texts in tables, with or without labels."""

import csv
import os
import re
from numbers import Integral
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn.datasets._lines import Budget, Numbering, TextFile

# Delimiters of tables by the ending of the file. None means JSON lines.
ENDINGS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}

# Values of tables that are not texts. A number with leading zeros is a text.
INTEGER = "-?(?:0|[1-9][0-9]{0,17})"
TYPES = {
    INTEGER: int,
    rf"{INTEGER}(?:\.[0-9]{{1,20}})?(?:[eE][+-]?[0-9]{{1,2}})?": float,
    "true|false": "true".__eq__,
    "True|False": "True".__eq__,
}

# Bytes in memory of an entry of the metadata, without the characters of its value.
VALUE_COST = 64


@validate_params(
    {
        "text": [str],
        "label": [str, None],
        "id": [str, None],
        "max_bytes": [Interval(Integral, 1, None, closed="left"), None],
    },
    prefer_skip_nested_validation=True,
)
def load_texts(
    path: str | os.PathLike[str],
    text: str = "text",
    *,
    label: str | None = None,
    id: str | None = None,
    max_bytes: int | None = 2**33,
) -> Bunch:
    """Load texts from a CSV file or a file of JSON lines.

    Parameters
    ----------
    path : str or path-like
        The file, in UTF-8. ``.csv`` and ``.tsv`` are tables with a header line, whose
        columns are separated by commas or tabs. ``.jsonl`` and ``.ndjson`` hold one
        JSON object per line. The file may be compressed with gzip; then its name ends
        in ``.gz``.

    text : str, default="text"
        Column, or key, of the texts.

    label : str, default=None
        Column of the labels. If None, labels are not read.

    id : str, default=None
        Column of the ids, which must be unique. If None, ids are not read.

    max_bytes : int or None, default=2**33
        Approximate limit of the memory for texts, labels and ids, in bytes. The default
        is 8 GiB. None removes the limit.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        texts : list of str, of length n_texts
            The texts, for :class:`~sklearn.feature_extraction.text.CountVectorizer`
            and the like.
        target : ndarray of shape (n_texts,), dtype int, or None
            Number of the class. If the label is empty or null, the text is a distractor
            with class -1. None if `label` is None.
        target_names : ndarray of shape (n_classes,), dtype str, or None
            Labels of the classes, sorted.
        ids : ndarray of shape (n_texts,), dtype str, or None
            The ids. None if `id` is None.
        metadata : list of dict, of length n_texts, or None
            Values of the other columns, for an index. A column of a table whose values
            are all numbers, or all ``true`` or ``false``, is converted; empty values
            are None. None if there are no other columns.
        n_empty_texts : int
            Number of texts that are empty or consist of spaces. They are kept.

    Raises
    ------
    FileNotFoundError
        If there is no such file.

    ValueError
        If a line is damaged, lacks one of the columns or repeats an id, or if the file
        takes more than `max_bytes`. The message names the file and the line.

    See Also
    --------
    load_beir : Queries, documents and judgements.
    load_image_folder : Photographs.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_simlearn.datasets import load_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "questions.csv"
    ...     lines = "question,topic\\nWhere is my card?,card\\nWhat is a loan?,loan\\n"
    ...     _ = path.write_text(lines)
    ...     questions = load_texts(path, "question", label="topic")
    >>> questions.texts
    ['Where is my card?', 'What is a loan?']
    >>> questions.target, questions.target_names
    (array([0, 1]), array(['card', 'loan'], dtype='<U4'))
    >>> questions.metadata is None
    True
    """
    file, delimiter = _open(path, max_bytes)
    columns = [name for name in (text, label, id) if name is not None]
    if delimiter is None:
        rows = file.objects()
    else:
        rows = _read_table(file, delimiter, columns)
    texts, labels, ids, others = [], [], Numbering(), []
    for row in rows:
        texts.append(file.get_text(row, text))
        if label is not None:
            labels.append(_get_label(file, row, label))
        if id is not None:
            ids.add(file, file.get_name(row, id))
        others.append({name: row[name] for name in row if name not in columns})
        file.budget.take(file.path, VALUE_COST * len(others[-1]))
    if not texts:
        raise ValueError(f"{file.path} contains no texts.")
    data = Bunch(texts=texts, target=None, target_names=None, ids=None, metadata=None)
    if any(others):
        data.metadata = others if delimiter is None else _convert(others)
    if label is not None:
        data.target, names = number_labels(labels)
        data.target_names = file.as_array(names)
    if id is not None:
        data.ids = file.as_array(list(ids.lines))
    data.n_empty_texts = sum(not one.strip() for one in texts)
    return data


def number_labels(labels: list[str]) -> tuple[np.ndarray, list[str]]:
    """Return the class of each label, -1 for an empty one, and the names in order."""
    names = sorted(set(labels) - {""})
    number = {name: i for i, name in enumerate(names)}
    return np.array([number.get(label, -1) for label in labels]), names


def list_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the columns of a table of texts, or the keys of its first JSON line."""
    file, delimiter = _open(path, None)
    if delimiter is None:
        return list(next(file.objects(), {}))
    return next(csv.reader(iter(file), delimiter=delimiter), [])


def is_table(name: str) -> bool:
    """Return whether the name of a file has the ending of a table of texts."""
    return Path(name.lower().removesuffix(".gz")).suffix in ENDINGS


def _open(path, max_bytes):
    """Return the file and the delimiter of its columns; None for JSON lines."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Check the path.")
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        raise ValueError(
            f"{path} ends in {ending!r}. The ending must be one of "
            f"{', '.join(ENDINGS)}, optionally followed by .gz."
        )
    return TextFile(path, Budget(max_bytes)), ENDINGS[ending]


def _get_label(file, row, key):
    """Return the label under a key; "" for a distractor."""
    if key in row and row[key] is None:
        return ""
    return file.get_name(row, key)


def _convert(rows):
    """Return rows of a table with values of the types of their columns."""
    for name in rows[0]:
        read = _find_type({row[name] for row in rows} - {""})
        for row in rows:
            row[name] = read(row[name]) if row[name] else None
    return rows


def _find_type(values):
    """Return the function that converts all values of a column."""
    for pattern, read in TYPES.items():
        if all(re.fullmatch(pattern, value) for value in values):
            return read
    return str


def _read_table(file, delimiter, columns):
    """Yield the rows of a table as dictionaries."""
    reader = csv.reader(iter(file), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        for name in columns:
            if header.count(name) != 1:
                found = ", ".join(map(repr, header[:10])) or "nothing"
                file.fail(f"must name the column {name!r} once; it has {found}", 1)
        names: set[str] = set()
        for name in filter(None, header):
            if name in names:
                file.fail(f"names the column {name!r} more than once", 1)
            names.add(name)
        for fields in reader:
            if len(fields) != len(header):
                file.fail(
                    f"the row that ends here has {len(fields)} fields, and the header "
                    f"{len(header)}"
                )
            yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        file.fail(f"{error}. Quote texts, or write JSON lines")
