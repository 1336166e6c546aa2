"""Command ``search``: queries, filters, and results in a terminal and in a file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_simlearn.comparison import _files as files
from sklearn_simlearn.comparison._wording import WIDTH
from sklearn_simlearn.datasets import load_image_folder, load_npz, load_texts
from sklearn_simlearn.datasets._image_folder import ENDINGS
from sklearn_simlearn.datasets._lines import Budget, TextFile
from sklearn_simlearn.datasets._texts import is_table
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._conditions import SortedColumn, list_columns, read_column
from sklearn_simlearn.index._forms import find_form, find_texts, read_records
from sklearn_simlearn.index._result import SearchResult, columns_of

CONDITION = re.compile(r"(.+?)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)

# Columns of all results.
HEADS = ("query", "rank", "id", "score")


def run_search(options) -> None:
    """Search a saved index, write the results, then print them."""
    if options.output is not None:
        files.check_target(Path(options.output))
    index = SimilarityIndex.load(options.folder, trusted=options.trust)
    filter = read_filter(options.filter, index) if options.filter else None
    names, X = _load_queries(index, options)
    result = index.search(X, k=options.k, filter=filter)
    columns = list_columns_of(index, result)
    if options.output is not None:
        rows = zip(*columns.values(), strict=True)
        files.write_csv(options.output, [list(columns), *rows])
    print(show_results(names, columns))


# -- queries --


def _load_queries(index, options):
    """Return the names of the queries, and the queries."""
    queries, max_bytes = options.queries, options.max_bytes
    form = find_form(index)
    if form == "text":
        return _load_texts(queries, max_bytes)
    if form == "photograph":
        return _load_photographs(queries)
    if form == "record":
        return _load_records(queries, index._state.sample.first_part, max_bytes)
    if len(queries) > 1:
        raise ValueError("queries for this index must be in a single file FILE.npz")
    data = load_npz(queries[0], max_bytes=max_bytes, require_target=False).data
    return [""] * data.shape[0], data


def _load_texts(queries, max_bytes):
    texts: list = []
    for query in queries:
        if is_table(query):
            texts += load_texts(query, max_bytes=max_bytes).texts
        else:
            texts.append(query)
    return texts, texts


def _load_records(queries, like, max_bytes):
    """Return the texts of records, and the records as samples of an index."""
    records: list = []
    budget = Budget(max_bytes)
    for query in queries:
        if not query.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
            raise ValueError(
                f"{query} is not a .jsonl file. The items of this index are rows of a "
                "table, so a query is a line of JSON with a value for each column"
            )
        records += TextFile(Path(query), budget).objects()
    if not records:
        raise ValueError(f"{queries[0]} is empty")
    return [str(record.get("text", "")) for record in records], read_records(
        records, like
    )


def _load_photographs(queries):
    paths: list = []
    for query in queries:
        if Path(query).is_dir():
            paths += load_image_folder(query).data.tolist()
        elif query.lower().endswith(ENDINGS):
            paths.append(query)
        else:
            raise ValueError(
                f"{query} is neither a folder nor a photograph ({', '.join(ENDINGS)})"
            )
    return [Path(path).name for path in paths], paths


# -- filters --


def read_filter(conditions: Sequence[str], index: SimilarityIndex) -> dict[str, Any]:
    """Return conditions such as ``year>=2000`` as a filter of a search."""
    table = index.metadata_
    if table is None:
        raise ValueError(
            "--filter needs metadata, but the items of this index have none"
        )
    names = list(list_columns(table))
    filter: dict = {}
    for text in conditions:
        match = CONDITION.fullmatch(text)
        if match is None:
            raise ValueError(
                f"--filter {text!r} is not a condition such as lang=de or 'year>=2000'"
            )
        name, operator, value = match.groups()
        if name not in names:
            raise ValueError(
                f"--filter {text!r}: there is no column {name!r}. Columns: "
                f"{', '.join(map(str, names))}"
            )
        kind = SortedColumn(name, read_column(table, name)).kind
        part = _read_value(text, value, kind)
        known = filter.get(name)
        if known is not None and (operator == "=" or not isinstance(known, dict)):
            raise ValueError(
                f"--filter {text!r}: there is another condition on {name!r}, and = "
                "cannot be combined with other conditions"
            )
        filter[name] = part if operator == "=" else {**(known or {}), operator: part}
    return filter


def _read_value(condition, text, kind):
    """Return a value of the kind of a column; None for an empty text."""
    if text == "":
        return None
    if kind == "booleans":
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError(f"--filter {condition!r}: write true or false")
    if kind == "numbers":
        try:
            return float(text)
        except ValueError:
            raise ValueError(
                f"--filter {condition!r}: the column holds numbers; got {text!r}"
            ) from None
    return text


# -- results --


def list_columns_of(index: SimilarityIndex, result: SearchResult) -> dict[str, list]:
    """Return the columns of the results: query, rank, id, score, text and metadata."""
    query, place = np.nonzero(result.scores != -np.inf)
    ids = result.ids[query, place]
    columns = {
        "query": query.tolist(),
        "rank": (place + 1).tolist(),
        "id": ids.tolist(),
        "score": result.scores[query, place].tolist(),
    }
    state = index._state
    texts = None
    if state.raw is not None:
        texts = find_texts(state.raw.take(state.ids.find(ids)))
    if texts is not None:
        columns["text"] = list(texts)
    rows = result._metadata_rows()
    if rows is not None:
        for name, values in columns_of(rows).items():
            columns[f"metadata_{name}" if name in columns else str(name)] = list(values)
    return columns


def show_results(names: Sequence[str], columns: dict[str, list]) -> str:
    """Return the results as lines for a terminal, below a line for each query."""
    heads = [
        f"{rank:4}  {score:<10.4g}  {_one_line(id_)}"
        for rank, score, id_ in zip(
            *(columns[name] for name in ("rank", "score", "id")), strict=True
        )
    ]
    width = max(map(len, heads), default=0)
    found: list = [[] for _ in names]
    has_score = [False] * len(names)
    for row, query in enumerate(columns["query"]):
        has_score[query] |= columns["score"][row] != 0
        details = _show_details(columns, row, max(20, WIDTH - width - 2))
        line = f"{heads[row].ljust(width)}  {details}".rstrip()
        found[query].append(line)
    lines = []
    for number, name in enumerate(names):
        title = f"query {number}: {name}" if name else f"query {number}"
        lines.append(_one_line(title, WIDTH))
        if not found[number]:
            lines.append("   nothing found")
        elif not has_score[number]:
            lines.append("   all scores are 0: the items are not ordered by similarity")
        lines += found[number]
    return "\n".join(lines)


def _show_details(columns, row, width):
    """Return the metadata and the beginning of the text of a result."""
    parts = [
        f"{name}={values[row]}"
        for name, values in columns.items()
        if name not in (*HEADS, "text") and values[row] is not None
    ]
    if "text" in columns:
        parts.append(str(columns["text"][row]))
    return _one_line(" ".join(parts), width)


def _one_line(text, width=None):
    line = " ".join(str(text).split())
    if width is None or len(line) <= width:
        return line
    return line[: width - 3].rstrip() + "..."
