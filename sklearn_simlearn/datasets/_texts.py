"""Texts of the user, with labels or without, from one table."""

import csv
import os
from numbers import Integral
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn.datasets._lines import Budget, Numbering, TextFile

# Delimiters of tables by the ending of the file; None is JSON lines.
ENDINGS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}


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
        The file, in UTF-8. ``.csv`` and ``.tsv`` are tables with a header line, the
        columns separated by commas and tabs; ``.jsonl`` and ``.ndjson`` hold a JSON
        object per line. Any of them may be compressed by gzip and end in ``.gz``.

    text : str, default="text"
        Column, or key, of the texts.

    label : str, default=None
        Column of the labels. Texts are read without labels if None.

    id : str, default=None
        Column of the ids, which must be different. Texts have no ids if None.

    max_bytes : int or None, default=2**33
        Most bytes that texts, labels and ids may take in memory, about; 8 GiB unless
        told otherwise. None is no bound.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        texts : list of str, of length n_texts
            The texts, for :class:`~sklearn.feature_extraction.text.CountVectorizer`
            and the like.
        target : ndarray of shape (n_texts,), dtype int, or None
            Number of the class; -1, a distractor, where the label is empty or null.
            None if `label` is None.
        target_names : ndarray of shape (n_classes,), dtype str, or None
            Labels of the classes, sorted.
        ids : ndarray of shape (n_texts,), dtype str, or None
            The ids. None if `id` is None.
        n_empty_texts : int
            Number of texts without a character besides spaces. They are kept.

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
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path.")
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        raise ValueError(
            f"{path} ends in {ending!r}; it must be one of {', '.join(ENDINGS)}, or "
            "one of these and .gz."
        )
    file = TextFile(path, Budget(max_bytes))
    if ENDINGS[ending] is None:
        rows = file.objects()
    else:
        columns = [name for name in (text, label, id) if name is not None]
        rows = _read_table(file, ENDINGS[ending], columns)
    texts, labels, ids = [], [], Numbering()
    for row in rows:
        texts.append(file.get_text(row, text))
        if label is not None:
            labels.append(_get_label(file, row, label))
        if id is not None:
            ids.add(file, file.get_name(row, id))
    if not texts:
        raise ValueError(f"{path} holds no texts.")
    data = Bunch(texts=texts, target=None, target_names=None, ids=None)
    if label is not None:
        names = sorted(set(labels) - {""})
        number = {name: i for i, name in enumerate(names)}
        data.target = np.array([number.get(name, -1) for name in labels])
        data.target_names = file.as_array(names)
    if id is not None:
        data.ids = file.as_array(list(ids.lines))
    data.n_empty_texts = sum(not one.strip() for one in texts)
    return data


def _get_label(file, row, key):
    """Label under a key; empty for a distractor, whose label is empty or null."""
    if key in row and row[key] is None:
        return ""
    return file.get_name(row, key)


def _read_table(file, delimiter, columns):
    """Rows of a table, as dictionaries."""
    reader = csv.reader(iter(file), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        for name in columns:
            if header.count(name) != 1:
                found = ", ".join(map(repr, header[:10])) or "nothing"
                file.fail(f"must name the column {name!r} once; it has {found}", 1)
        for fields in reader:
            if len(fields) != len(header):
                file.fail(
                    f"the row that ends here has {len(fields)} fields, and the header "
                    f"{len(header)}"
                )
            yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        file.fail(f"{error}; quote texts, or write JSON lines")
