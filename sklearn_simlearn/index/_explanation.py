"""Explanation of a score: the contributions of words or columns."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.typing import Frame, MatrixLike
from sklearn_simlearn.compose._parts import WeightedSum
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._encoded_items import as_rows
from sklearn_simlearn.index._filters import check_lists
from sklearn_simlearn.index._ids import read_ids

# Largest number of contributions that are printed per level.
N_PRINTED = 10


class Contribution(NamedTuple):
    """Part of a score.

    Attributes
    ----------
    name : str
        Word or column, or part of a :class:`~sklearn_simlearn.compose.SimilarityUnion`.

    value : float
        Amount that it adds to the score.

    parts : tuple of Contribution
        Contributions whose sum is `value`, the largest first; empty for a word or a
        column.
    """

    name: str
    value: float
    parts: tuple = ()


class Explanation(NamedTuple):
    """Contributions to the similarity of a query and an item.

    Read more in the :ref:`User Guide <explain>`.

    Parameters
    ----------
    query : int
        Number of the query.

    id : int or str
        Id of the item.

    score : float
        Similarity of the query and the item: the sum of the values of `parts`.

    parts : tuple of Contribution
        Contributions, each with `name`, `value` and `parts`, the largest first. For a
        part of a :class:`~sklearn_simlearn.compose.SimilarityUnion`, `value` is the sum
        of its `parts`. For a word or a column, `parts` is empty.

    Examples
    --------
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X)
    >>> [[explanation]] = index.explain([[1, 0, 1]], [0])
    >>> explanation
    item 0 for query 0: 0.949
      x0  0.632
      x2  0.316
    >>> explanation.parts[0].name
    'x0'
    """

    query: int
    id: Any
    score: float
    parts: tuple

    def to_frame(self) -> Frame:
        """Return the contributions as a pandas DataFrame, the largest first.

        Returns
        -------
        frame : DataFrame
            One row per word or column, with the columns `name` and `value`. For a
            union, a column `part` comes first.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError(
                "`to_frame` requires pandas: pip install pandas."
            ) from None
        leaves = sorted(_list_leaves(self.parts), key=lambda leaf: -leaf[2])
        frame = pd.DataFrame(leaves, columns=["part", "name", "value"])
        if not any(part.parts for part in self.parts):
            del frame["part"]
        return frame

    def __repr__(self):
        head = f"item {self.id} for query {self.query}: {self.score:.3f}"
        lines = _list_lines(self.parts, "  ")
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join([head, *(f"{name:{width}}  {value}" for name, value in lines)])


def _list_leaves(parts, path=()):
    for name, value, inner in parts:
        if inner:
            yield from _list_leaves(inner, (*path, name))
        else:
            yield "/".join(path), name, value


def _list_lines(parts, indent):
    lines = []
    for name, value, inner in parts[:N_PRINTED]:
        lines.append((f"{indent}{name}", f"{value:.3f}"))
        lines += _list_lines(inner, indent + "  ")
    rest = parts[N_PRINTED:]
    if rest:
        total = math.fsum(part.value for part in rest)
        lines.append((f"{indent}({len(rest)} more)", f"{total:.3f}"))
    return lines


class ExplainMixin:
    """Method `explain` of an index.

    An index implements `_find_encoded(ids)`, which returns the mask of the ids that it
    knows, and the encodings of their items in the same order.
    """

    _snapshot: Any  # method of the index

    def explain(
        self, X: MatrixLike, ids: ArrayLike, *, groups: ArrayLike | None = None
    ) -> list[list[Explanation]]:
        """Return the contributions of words or columns to the scores of items.

        The sum of the contributions is the similarity, up to rounding. Re-ranking steps
        are not applied.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        ids : array-like of length n_queries (or n_sets)
            Ids of the items to compare with each query: one id or a list of ids per
            query, such as the ids of a search result. Ids of missing items in a result
            are skipped.

        groups : array-like of shape (n_queries,), default=None
            Set of each query, as for `search`.

        Returns
        -------
        explanations : list of list of Explanation
            A list per query, with an :class:`~sklearn_simlearn.index.Explanation` per
            item.
        """
        index = self._snapshot()
        index._check_estimator()
        sets = index._read_sets(groups, num_samples(X))
        check_lists("ids", ids, sets.n_sets)
        given: Any = ids
        lists = [read_ids(np.atleast_1d(part)) for part in given]
        wanted, items = find_items(index, np.unique(np.concatenate(lists)))
        # Encodings of no items may have no columns.
        blocks = index._encode_queries(X, sets, 16 * max(1, items.shape[1]))
        return explain_encoded(index, blocks, lists, wanted, items)


def explain_encoded(index, blocks, lists, wanted, items):
    """Return the explanations of encoded queries.

    Parameters
    ----------
    index : ExplainMixin

    blocks : iterable of (slice, samples, matrix)
        Numbers of the queries, the queries, and the encoded queries, as yielded by
        `_encode_queries`.

    lists : list of ndarray
        Ids of the items to compare each query with.

    wanted, items : ndarray and matrix
        Sorted ids, and the encodings of their items.
    """
    sections, explanations = None, []
    for batch, part, Q in blocks:
        if sections is None:
            sections = _list_sections(
                index._model, part, getattr(index, "feature_names_in_", None)
            )
        Q, D = _as_one_kind(Q, items)
        for i, of_query in enumerate(lists[batch]):
            of_query = of_query[np.isin(of_query, wanted)]
            rows = np.searchsorted(wanted, of_query)
            parts = [_find_parts(Q, i, D, row, sections) for row in rows]
            explanations.append(
                [
                    Explanation(batch.start + i, id_, _sum(found), found)
                    for id_, found in zip(of_query.tolist(), parts, strict=True)
                ]
            )
    return explanations


def find_items(index, ids):
    """Return the ids that are not missing, and the encodings of their items."""
    known, items = index._find_encoded(ids)
    # The ids -1 and "" mark missing items in a search result.
    unknown = ids[~known & (ids != ("" if ids.dtype.kind == "U" else -1))]
    if len(unknown):
        raise ValueError(f"The index has no items with the ids {unknown[:3].tolist()}.")
    return ids[known], as_rows(items)


class Section(NamedTuple):
    """Consecutive columns of the encodings.

    Attributes
    ----------
    path : tuple of str
        Names of the union parts that the columns belong to, outermost first.

    width : int
        Number of columns.

    names : sequence of str
        Names of the first columns.

    prefix : str
        Prefix of the names of the other columns; a number follows.
    """

    path: tuple
    width: int
    names: Any
    prefix: str

    def name(self, column):
        if column < len(self.names):
            return str(self.names[column])
        return f"{self.prefix}{column}"


def _list_sections(model, X, features, path=()):
    """Return the sections of the encodings of a model.

    Parameters
    ----------
    model : Model

    X : samples
        Some queries.

    features : ndarray of str or None
        Names of the columns of X.

    path : tuple of str, default=()
        Names of the union parts that the model belongs to.
    """
    encoder = getattr(model.learner, "encoder_", None)
    X = _metadata.take(X, np.arange(1))
    names = model.name_features(features)
    if isinstance(encoder, WeightedSum):
        prepared = model.prepare_queries(X)
        return [
            section
            for part in encoder.parts
            for section in _list_sections(
                part.model,
                part.columns.take(prepared),
                _take_names(names, part.columns),
                (*path, part.name),
            )
        ]
    width = model.encode_queries(model.prepare_queries(X)).shape[1]
    prefix = "x"
    if encoder is not None:
        names = () if names is None else encoder.name_columns(names)
        prefix = type(model.learner).__name__.lower()
    elif names is None or len(names) != width:
        names = ()
    return [Section(path, width, names, prefix)]


def _take_names(names, columns):
    if columns.names is not None:
        return np.atleast_1d(np.array(columns.names, dtype=object))
    return None if names is None else names[columns.chosen]


def _as_one_kind(Q, D):
    """Return both encodings as CSR if one of them is sparse."""
    Q, D = as_rows(Q), as_rows(D)
    if sparse.issparse(Q) != sparse.issparse(D):
        return canonical_csr(Q), canonical_csr(D)
    return Q, D


def _find_parts(Q, query, D, row, sections):
    """Return the contributions to the product of a row of Q and a row of D."""
    (columns, q), (other, d) = _read_row(Q, query), _read_row(D, row)
    common, in_q, in_d = np.intersect1d(
        columns, other, assume_unique=True, return_indices=True
    )
    products = q[in_q] * d[in_d]
    ends = np.cumsum([section.width for section in sections])
    which = np.searchsorted(ends, common, side="right")
    tree: dict = {}
    for column, section_number, product in zip(
        common.tolist(), which.tolist(), products.tolist(), strict=True
    ):
        section = sections[section_number]
        branch = tree
        for name in section.path:
            branch = branch.setdefault(name, {})
        name = section.name(column - int(ends[section_number]) + section.width)
        branch.setdefault(name, []).append(product)
    return _as_parts(tree)


def _read_row(X, row):
    """Return the columns of the non-zeros of a row, and their values as doubles."""
    if sparse.issparse(X):
        place = slice(X.indptr[row], X.indptr[row + 1])
        return X.indices[place], X.data[place].astype(np.float64)
    columns = np.flatnonzero(X[row])
    return columns, X[row, columns].astype(np.float64)


def _as_parts(tree):
    parts = []
    for name, values in tree.items():
        inner = _as_parts(values) if isinstance(values, dict) else ()
        value = _sum(inner) if inner else math.fsum(values)
        parts.append(Contribution(name, value, inner))
    return tuple(sorted(parts, key=lambda part: -part.value))


def _sum(parts):
    return math.fsum(part.value for part in parts)
