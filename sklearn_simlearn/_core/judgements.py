"""Judgements of queries against documents, and tables that hold them."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array

from sklearn_simlearn._core.rows import canonical_csr, starts_run
from sklearn_simlearn._core.sklearn import StrOptions, num_samples, validate_params
from sklearn_simlearn._core.targets import (
    SlicedTarget,
    find_ids,
    number_ids,
    read_column,
    read_ids,
    refuse_repeated,
    string_array,
)
from sklearn_simlearn._core.typing import MatrixLike


class Judgements(SlicedTarget):
    """Relevance of documents to queries, with the documents.

    Pass it as `y` to :class:`RetrievalScorer`, `map_scorer` and
    :func:`retrieval_report`: the rows of `X` are the queries, and all documents are
    ranked for each of them. Cross-validation splits the queries; every part keeps all
    documents.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_documents)
        Positive if a document (column) is relevant to a query (row), and the value is
        its gain; negative if it is junk, which is removed from the list of the query. A
        stored zero of a sparse matrix was judged as not relevant, an entry that is not
        stored was not judged. Measures count both as not relevant.

    documents : {array-like, sparse matrix, list} of length n_documents
        Documents in the form in which the estimator takes samples, such as vectors,
        texts or a frame. They are kept by reference.

    query_ids : array-like of shape (n_queries,), default=None
        Names of the queries, all different: strings, or integers, which become strings.

    document_ids : array-like of shape (n_documents,), default=None
        Names of the documents, all different.

    Attributes
    ----------
    relevance : csr_array of shape (n_queries, n_documents), float64
        The judgements; stored zeros are kept.

    documents : object
        The documents.

    query_ids : ndarray of shape (n_queries,), dtype str, or None
        Names of the queries.

    document_ids : ndarray of shape (n_documents,), dtype str, or None
        Names of the documents.

    See Also
    --------
    judgements_from_table : Judgements from a table of pairs, clicks or qrels.
    judgements_from_triplets : Judgements from a table of triplets.
    PairwiseRelevance : Relevance of samples to each other.

    Examples
    --------
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn_simlearn.metrics import Judgements, RetrievalScorer
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> documents = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
    >>> queries = [[0.9, 0.1], [0.1, 0.9]]
    >>> y = Judgements([[2, 1, 0], [0, 1, 2]], documents)
    >>> y
    Judgements(n_queries=2, n_documents=3, n_judged=4)
    >>> y[:1].relevance.toarray()
    array([[2., 1., 0.]])
    >>> model = CosineSimilarity().fit(documents)
    >>> RetrievalScorer("ndcg", k=10)(model, queries, y)
    1.0
    """

    _array_attribute = "relevance"

    def __init__(
        self,
        relevance: MatrixLike,
        documents: Any,
        *,
        query_ids: ArrayLike | None = None,
        document_ids: ArrayLike | None = None,
    ) -> None:
        relevance = check_array(
            relevance, accept_sparse="csr", dtype=np.float64, input_name="relevance"
        )
        n_queries, n_documents = relevance.shape
        if num_samples(documents) != n_documents:
            raise ValueError(
                "relevance needs one column per document; it has shape "
                f"{relevance.shape} for {num_samples(documents)} documents."
            )
        self.query_ids = _read_names(query_ids, n_queries, "query_ids")
        self.document_ids = _read_names(document_ids, n_documents, "document_ids")
        self.relevance = canonical_csr(relevance, keep_zeros=True)
        self.documents = documents

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and number of documents."""
        return self.relevance.shape

    def __len__(self) -> int:
        return self.relevance.shape[0]

    def __getitem__(self, rows: Any) -> Self:
        rows = self._find_rows(rows)
        part = copy(self)
        part.relevance = self.relevance[rows]
        if self.query_ids is not None:
            part.query_ids = self.query_ids[rows]
        return part

    def with_documents(self, documents: Any) -> Self:
        """Return the same judgements with the documents in another form.

        Parameters
        ----------
        documents : {array-like, sparse matrix, list} of length n_documents
            The documents in the same order, such as vectors instead of texts.

        Returns
        -------
        judgements : Judgements
            Judgements of these documents.

        Examples
        --------
        >>> from sklearn_simlearn.metrics import Judgements
        >>> y = Judgements([[1, 0]], documents=["About cats.", "About dogs."])
        >>> y.with_documents([[0.9, 0.1], [0.2, 0.8]]).documents
        [[0.9, 0.1], [0.2, 0.8]]
        """
        if num_samples(documents) != self.shape[1]:
            raise ValueError(
                f"The judgements are of {self.shape[1]} documents; got "
                f"{num_samples(documents)}."
            )
        changed = copy(self)
        changed.documents = documents
        return changed

    def __repr__(self) -> str:
        n_queries, n_documents = self.shape
        return (
            f"Judgements(n_queries={n_queries}, n_documents={n_documents}, "
            f"n_judged={self.relevance.nnz})"
        )


def check_judgements(y: Judgements, n_queries: int) -> None:
    """Raise unless there is one row of judgements per query."""
    if len(y) != n_queries:
        raise ValueError(
            f"X and y must have the same number of queries; got {n_queries} and "
            f"{len(y)}. The documents come with y."
        )


@contextmanager
def naming_documents() -> Iterator[None]:
    """Let an error in the check of the documents name the documents."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"The documents of y are not valid. {error}") from error


def _read_names(ids: Any, n: int, name: str) -> np.ndarray | None:
    if ids is None:
        return None
    ids = read_ids(ids, name)
    if len(ids) != n:
        raise ValueError(f"{name} must hold {n} ids; got {len(ids)}.")
    refuse_repeated(ids, name)
    return string_array(ids, name)


# -- tables --


@validate_params(
    {
        "query": [str],
        "document": [str],
        "relevance": [str, None],
        "query_ids": ["array-like", None],
        "document_ids": ["array-like", None],
        "aggregate": [StrOptions({"sum", "max", "mean", "error"})],
    },
    prefer_skip_nested_validation=True,
)
def judgements_from_table(
    table: Any,
    documents: Any,
    *,
    query: str,
    document: str,
    relevance: str | None = None,
    query_ids: ArrayLike | None = None,
    document_ids: ArrayLike | None = None,
    aggregate: Literal["sum", "max", "mean", "error"] = "sum",
) -> Judgements:
    """Make judgements from a table with a query and a document in each row.

    Parameters
    ----------
    table : pandas or polars DataFrame, or dict of columns
        One row per pair, judgement or click, such as the result of
        :func:`read_qrels`.

    documents : {array-like, sparse matrix, list} of length n_documents
        The documents, as for :class:`Judgements`.

    query, document : str
        Columns with the ids of queries and documents.

    relevance : str, default=None
        Column with the relevance. If None, each row counts 1.

    query_ids : array-like of shape (n_queries,), default=None
        Ids of the queries in the order of the rows of `X`. A query without a row in the
        table has no judgements. If None, the order of the table is used.

    document_ids : array-like of shape (n_documents,), default=None
        Ids of the documents. If None, the column `document` holds row numbers.

    aggregate : {"sum", "max", "mean", "error"}, default="sum"
        Relevance of a pair that occurs in several rows. "sum" adds clicks; "error"
        raises.

    Returns
    -------
    judgements : Judgements
        Judgements with one row per query.

    See Also
    --------
    judgements_from_triplets : Judgements from comparisons of two documents.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import judgements_from_table
    >>> clicks = {"query": ["cat", "cat", "dog"], "page": ["p2", "p2", "p1"]}
    >>> y = judgements_from_table(
    ...     clicks,
    ...     ["About dogs.", "About cats."],
    ...     query="query",
    ...     document="page",
    ...     document_ids=["p1", "p2"],
    ... )
    >>> y.query_ids, y.relevance.toarray()
    (array(['cat', 'dog'], dtype='<U3'), array([[0., 2.],
           [1., 0.]]))
    """
    column, document_ids = _read_documents(table, document, documents, document_ids)
    row, query_ids = _read_queries(table, query, query_ids)
    value = np.ones(len(row))
    if relevance is not None:
        value = _read_numbers(read_column(table, relevance), relevance)
    _check_lengths(row, column, value)
    first, value = aggregate_pairs(row, column, value, aggregate)
    if len(first) < len(row) and aggregate == "error":
        raise ValueError(
            f"{len(row) - len(first)} rows of the table repeat a pair of query and "
            'document. Pass aggregate="sum", "max" or "mean" to combine them.'
        )
    shape = len(query_ids), num_samples(documents)
    matrix = sparse.csr_array((value, (row[first], column[first])), shape=shape)
    return Judgements(matrix, documents, query_ids=query_ids, document_ids=document_ids)


@validate_params(
    {
        "query": [str],
        "relevant": [str],
        "irrelevant": [str],
        "query_ids": ["array-like", None],
        "document_ids": ["array-like", None],
    },
    prefer_skip_nested_validation=True,
)
def judgements_from_triplets(
    table: Any,
    documents: Any,
    *,
    query: str,
    relevant: str,
    irrelevant: str,
    query_ids: ArrayLike | None = None,
    document_ids: ArrayLike | None = None,
) -> Judgements:
    """Make judgements from a table with a query and two documents in each row.

    A row states that one document is more relevant to the query than the other. The
    relevance of a document to a query is the share of its comparisons that the document
    wins: 1 if it wins all of them, 0 (judged as not relevant) if it wins none.

    Parameters
    ----------
    table : pandas or polars DataFrame, or dict of columns
        One row per triplet.

    documents : {array-like, sparse matrix, list} of length n_documents
        The documents, as for :class:`Judgements`.

    query, relevant, irrelevant : str
        Columns with the ids of the queries, of the documents that are more relevant,
        and of those that are less so.

    query_ids : array-like of shape (n_queries,), default=None
        Ids of the queries in the order of the rows of `X`. A query without a row in the
        table has no judgements. If None, the order of the table is used.

    document_ids : array-like of shape (n_documents,), default=None
        Ids of the documents. If None, the columns hold row numbers of the documents.

    Returns
    -------
    judgements : Judgements
        Judgements with one row per query.

    See Also
    --------
    judgements_from_table : Judgements from pairs of a query and a document.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import judgements_from_triplets
    >>> triplets = {
    ...     "query": ["cat", "cat", "dog"],
    ...     "better": ["p2", "p3", "p1"],
    ...     "worse": ["p3", "p1", "p2"],
    ... }
    >>> y = judgements_from_triplets(
    ...     triplets,
    ...     ["About dogs.", "About cats.", "About pets."],
    ...     query="query",
    ...     relevant="better",
    ...     irrelevant="worse",
    ...     document_ids=["p1", "p2", "p3"],
    ... )
    >>> y.relevance.toarray()
    array([[0. , 1. , 0.5],
           [1. , 0. , 0. ]])
    """
    winner, ids = _read_documents(table, relevant, documents, document_ids)
    loser, _ = _read_documents(table, irrelevant, documents, document_ids)
    of_query, query_ids = _read_queries(table, query, query_ids)
    _check_lengths(of_query, winner, loser)
    same = np.flatnonzero(winner == loser)
    if len(same):
        raise ValueError(
            f"Row {same[0]} of the table has one document as {relevant!r} and as "
            f"{irrelevant!r}."
        )
    row, column, share = shares_of_wins(of_query, winner, loser)
    shape = len(query_ids), num_samples(documents)
    matrix = sparse.csr_array((share, (row, column)), shape=shape)
    return Judgements(matrix, documents, query_ids=query_ids, document_ids=ids)


def shares_of_wins(
    query: np.ndarray, winner: np.ndarray, loser: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of a query and a document, and the share of wins of each pair.

    Parameters
    ----------
    query, winner, loser : ndarray of int
        Triplets: one entry of each per comparison.

    Returns
    -------
    row, column : ndarray of int
        The pairs, in sorted order.

    share : ndarray of float
        Number of wins of the document, divided by the number of its comparisons.
    """
    row, column = np.tile(query, 2), np.concatenate([winner, loser])
    won = np.repeat([1.0, 0.0], len(query))
    first, share = aggregate_pairs(row, column, won, "mean")
    return row[first], column[first], share


def aggregate_pairs(
    row: np.ndarray, column: np.ndarray, value: np.ndarray, rule: str
) -> tuple[np.ndarray, np.ndarray]:
    """Combine the values of equal pairs.

    Returns
    -------
    first : ndarray of int
        First place of each pair in the input, the pairs in sorted order.

    value : ndarray
        Sum, maximum or mean of the values of each pair.
    """
    order = np.lexsort((column, row))
    start = np.flatnonzero(starts_run(row[order], column[order]))
    if len(start) < len(order):
        pool = np.maximum if rule == "max" else np.add
        value = pool.reduceat(value[order], start)
        if rule == "mean":
            value = value / np.diff(np.append(start, len(order)))
    else:
        value = value[order]
    return order[start], value


# -- columns --


def _read_queries(
    table: Any, name: str, query_ids: ArrayLike | None
) -> tuple[np.ndarray, list[str]]:
    """Return the number of the query in each row, and the ids of the queries."""
    of_query = read_ids(read_column(table, name), f"The column {name!r}")
    if query_ids is None:
        if not of_query:
            raise ValueError(
                "The table has no rows. Pass query_ids if the queries have no "
                "judgements."
            )
        numbers: dict[str, int] = {}
        return number_ids(of_query, numbers), list(numbers)
    query_ids = read_ids(query_ids, "query_ids")
    known = {id_: i for i, id_ in enumerate(query_ids)}
    return find_ids(of_query, known, "query_ids", name), query_ids


def _read_documents(
    table: Any, name: str, documents: Any, document_ids: ArrayLike | None
) -> tuple[np.ndarray, list[str] | None]:
    """Return the number of the document in each row, and the ids of the documents."""
    column = read_column(table, name)
    if document_ids is None:
        return _read_row_numbers(column, name, num_samples(documents)), None
    document_ids = read_ids(document_ids, "document_ids")
    known = {id_: i for i, id_ in enumerate(document_ids)}
    of_document = read_ids(column, f"The column {name!r}")
    return find_ids(of_document, known, "document_ids", name), document_ids


def _check_lengths(*columns: np.ndarray) -> None:
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        *first, last = map(str, lengths)
        raise ValueError(
            f"The columns of the table differ in length: {', '.join(first)} and {last} "
            "rows."
        )


def _read_row_numbers(values: Any, name: str, n_documents: int) -> np.ndarray:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        raise ValueError(
            f"The column {name!r} must hold row numbers of the documents, integers, "
            "unless document_ids is given."
        )
    wrong = (numbers < 0) | (numbers >= n_documents)
    if wrong.any():
        raise ValueError(
            f"The column {name!r} holds {numbers[wrong][0]}, but there are "
            f"{n_documents} documents, numbered from 0."
        )
    return numbers.astype(np.int64)


def _read_numbers(values: Any, name: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"The column {name!r} must hold numbers; got dtype {values.dtype}."
        )
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"The column {name!r} contains NaN or infinity.")
    return values
