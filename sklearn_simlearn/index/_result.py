"""Result of a search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn._core.typing import Frame
from sklearn_simlearn.index import _metadata


class _ScoresAndIds(NamedTuple):
    scores: np.ndarray
    ids: np.ndarray


class SearchResult(_ScoresAndIds):
    """Best items for each query: a pair of scores and ids, with metadata.

    ``scores, ids = index.search(X)`` unpacks the result. Read more in the :ref:`User
    Guide <search-result>`.

    Parameters
    ----------
    scores : ndarray of shape (n_queries, k)
        Scores of the items, the largest first; -inf if there are no more items.

    ids : ndarray of shape (n_queries, k)
        Ids of the items; -1 or "" if the score is -inf.

    take_metadata : callable, default=None
        Function without arguments that returns the metadata of the items found, one row
        per item, ordered by query. None if the index has no metadata.

    missing : sequence of str, default=()
        Names of the shards that did not answer.

    Attributes
    ----------
    missing : list of str
        Names of the shards of a :class:`~sklearn_simlearn.index.ShardedIndex` that did
        not answer.

    Examples
    --------
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> index = SimilarityIndex(CosineSimilarity(use_idf=False))
    >>> index = index.fit(X, metadata=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    >>> result = index.search([[1, 0, 0], [0, 1, 0]], k=2)
    >>> result.ids
    array([[0, 1],
           [2, 1]])
    >>> result.metadata
    [[{'name': 'a'}, {'name': 'b'}], [{'name': 'c'}, {'name': 'b'}]]
    >>> result.to_frame().round(2)
       query  rank  id  score name
    0      0     1   0   0.89    a
    1      0     2   1   0.71    b
    2      1     1   2   0.95    c
    3      1     2   1   0.71    b
    """

    missing: list[str]
    _take_metadata: Any
    _rows: Any

    def __new__(cls, scores, ids, take_metadata=None, missing=()):
        self = super().__new__(cls, scores, ids)
        self.missing = list(missing)
        self._take_metadata, self._rows = take_metadata, None
        return self

    @property
    def metadata(self) -> list[Any] | None:
        """Return the metadata of the items: a table per query, the best item first.

        The tables have the type of the metadata of the index. They have no rows for
        missing items. The metadata is read on first access, and is that of the time of
        the search. None if the index has no metadata.
        """
        rows = self._metadata_rows()
        if rows is None:
            return None
        ends = np.cumsum((self.scores != -np.inf).sum(axis=1))
        starts = np.concatenate([[0], ends[:-1]])
        return [
            _metadata.take(rows, np.arange(start, end))
            for start, end in zip(starts, ends, strict=True)
        ]

    def to_frame(self) -> Frame:
        """Return the result as a pandas DataFrame, with one row for each item found.

        Returns
        -------
        frame : DataFrame
            Columns are `query`, the number of the query; `rank`, from 1; `id`; `score`;
            and the columns of the metadata. If a column of the metadata has one of
            these names, its name is prefixed with ``metadata_``.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError(
                "`to_frame` requires pandas: pip install pandas."
            ) from None
        query, place = np.nonzero(self.scores != -np.inf)
        columns = {
            "query": query,
            "rank": place + 1,
            "id": self.ids[query, place],
            "score": self.scores[query, place],
        }
        rows = self._metadata_rows()
        if rows is not None:
            for name, values in columns_of(rows).items():
                columns[f"metadata_{name}" if name in columns else name] = values
        return pd.DataFrame(columns)

    def _metadata_rows(self):
        if self._rows is None and self._take_metadata is not None:
            self._rows = self._take_metadata()
        return self._rows

    def __reduce__(self):
        rows = self._metadata_rows()
        return _restore, (type(self), *self, rows, self.missing)


def _restore(cls, scores, ids, rows, missing):
    result = cls(scores, ids, missing=missing)
    result._rows = rows
    return result


def columns_of(table):
    """Return the columns of a table by name."""
    if isinstance(table, Sequence):
        names = dict.fromkeys(name for row in table for name in row)
        return {name: [row.get(name) for row in table] for name in names}
    if isinstance(table, np.ndarray):
        return {name: table[name] for name in table.dtype.names}
    columns = {name: table[name] for name in table.columns}
    # Keep columns of pandas as pandas arrays, which preserve their types.
    return {
        name: column.array if hasattr(column, "array") else column.to_numpy()
        for name, column in columns.items()
    }
