"""Index whose items are rows of a table in PostgreSQL."""

from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import FilterLike, MatrixLike, MetadataLike
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import check_k
from sklearn_simlearn.index._encoded_items import agree, encode_items
from sklearn_simlearn.index._filters import PerQuery, split_filter
from sklearn_simlearn.index._ids import check_ids
from sklearn_simlearn.index._result import SearchResult
from sklearn_simlearn.index.postgres._pgvector import (
    as_stored,
    choose_type,
    scale_queries,
)
from sklearn_simlearn.index.postgres._table_index import (
    TableIndex,
    compare,
    group_queries,
    open_server,
)

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

# Number of items whose encodings are compared when an estimator is replaced.
SAMPLE = 256


class PostgresIndex(TableIndex):
    """Index of items in a table of PostgreSQL.

    Items are stored in the types of pgvector, with ids and metadata in columns of the
    same table. Other clients may read and write the table. Queries are encoded in this
    process, and the server returns the items with the largest inner products. Read more
    in the :ref:`User Guide <postgresql>`.

    Parameters
    ----------
    estimator : estimator
        Estimator that encodes queries and items, as for :class:`SimilarityIndex`. A
        fitted estimator is used without a copy. If it is not fitted, `fit` fits a
        clone.

    connection : str or psycopg_pool.ConnectionPool
        Connection string, such as "postgresql://user@host/database", or a pool. With a
        string, each call opens a connection. With a pool, each call takes a connection
        from the pool, which is faster for many short calls. The string is shown when
        the index is printed, so keep a password in ``~/.pgpass`` or ``PGPASSWORD``.

    table : str or tuple of str
        Name of the table, case-sensitive. Pass (schema, name) if the table is not in
        the first schema of the search path.

    stored : {"auto", "vector", "halfvec", "sparsevec"}, default="auto"
        Type of the items in a table that `fit` creates. "auto" selects "sparsevec" for
        sparse encodings and "vector" for others. "halfvec" needs half of the space and
        rounds to 3 digits.

    method : {"exact", "hnsw"}, default="exact"
        Method of the search. "exact" compares all items. "hnsw" searches an HNSW graph,
        which is faster and may miss some items.

    m : int, default=16
        Number of links per item of the graph that `fit` creates.

    ef_construction : int, default=64
        Number of candidates when the graph is built; at least ``2 * m``.

    ef_search : int, default=40
        Number of candidates of a search in the graph: at least the `k` of the search
        and at most 1000. `set_params` can change it at any time.

    id_column : str, default="id"
        Name of the column of ids.

    item_column : str, default="item"
        Name of the column of encoded items.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    stored_ : str
        Type of the items.

    n_items_ : int
        Current number of items in the table.

    n_features_in_ : int
        Number of features of the items that were passed to `fit`, if they have a fixed
        number.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of these items, if they have names.

    See Also
    --------
    SimilarityIndex : Search in memory or in a folder.

    Notes
    -----
    The server computes in single precision (with items in half precision for
    "halfvec"), so scores are float32. Items whose scores differ only by rounding may
    have another order than in :class:`SimilarityIndex`. Items with the same score are
    ordered by id; strings are compared by code points.

    Examples
    --------
    >>> from sklearn_simlearn.index import PostgresIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "colours")
    >>> index = index.fit(X, ids=["red", "green", "blue"])
    >>> scores, ids = index.search([[1, 0, 0]], k=2)
    >>> ids
    array([['red', 'green']], dtype='<U5')
    >>> scores.round(3)
    array([[0.894, 0.707]], dtype=float32)
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit"])],
        "connection": [str, HasMethods(["connection"])],
        "table": [str, tuple],
        "stored": [StrOptions({"auto", "vector", "halfvec", "sparsevec"})],
        "method": [StrOptions({"exact", "hnsw"})],
        "m": [Interval(Integral, 2, 100, closed="both")],
        "ef_construction": [Interval(Integral, 4, 1000, closed="both")],
        "ef_search": [Interval(Integral, 1, 1000, closed="both")],
        "id_column": [str],
        "item_column": [str],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        connection: "str | ConnectionPool",
        table: str | tuple[str, str],
        *,
        stored: Literal["auto", "vector", "halfvec", "sparsevec"] = "auto",
        method: Literal["exact", "hnsw"] = "exact",
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 40,
        id_column: str = "id",
        item_column: str = "item",
    ):
        self.estimator = estimator
        self.connection = connection
        self.table = table
        self.stored = stored
        self.method = method
        self.m = m
        self.ef_construction = ef_construction
        self.ef_search = ef_search
        self.id_column = id_column
        self.item_column = item_column

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: MatrixLike,
        y: TargetLike | None = None,
        ids: ArrayLike | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Create the table with items. Fit the estimator if it is not fitted.

        Table, items and graph are created in one transaction. If the table exists, an
        error is raised; use `attach` instead.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items, in any form that the first step of the estimator accepts.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, used if the estimator is not fitted.

        ids : array-like of shape (n_items,) or "index", default=None
            Unique ids, integers or strings, that `search` returns. "index" uses the
            index of the pandas frame `X` or `metadata`. None numbers the items from 0.

        metadata : list of dict, frame or structured array, default=None
            Metadata with one row per item, stored in columns of the table: numbers,
            strings, booleans, dates and times. Missing values become NULL.

        Returns
        -------
        self : object
            The index itself.
        """
        n_items = num_samples(X)
        ids = (
            np.arange(n_items) if ids is None else check_ids(ids, n_items, X, metadata)
        )
        columns = self._read_columns(metadata, n_items)
        name, is_graph = self._name(), self.method == "hnsw"
        if is_graph and self.ef_construction < 2 * self.m:
            raise ValueError(
                f"ef_construction must be at least 2 * m = {2 * self.m}; got "
                f"{self.ef_construction}."
            )
        server = open_server()
        with server.transaction(self.connection) as cursor:
            server.require_pgvector(cursor, create=True)
            if server.exists(cursor, name):
                raise ValueError(
                    f"The table {self.table!r} exists. Open it with `attach`, or drop "
                    "it if it is not needed."
                )
        estimator, model = self._take_estimator(X, y)
        encoded = encode_items(model, X)
        stored = choose_type(encoded) if self.stored == "auto" else self.stored
        rows = as_stored(encoded, stored, in_graph=is_graph)
        with server.transaction(self.connection) as cursor:
            server.create_table(
                cursor,
                name,
                id_column=self.id_column,
                item_column=self.item_column,
                stored=stored,
                width=rows.shape[1],
                ids=ids,
                columns=columns,
            )
            table = self._look_at(cursor)
            table.copy(cursor, ids, rows, columns)
            if is_graph:
                table.build_graph(
                    cursor, m=self.m, ef_construction=self.ef_construction
                )
            table.analyze(cursor)
        validate_data(self, X, skip_check_array=True)
        chosen = np.unique(np.linspace(0, n_items - 1, SAMPLE).astype(np.int64))
        self._sample = _metadata.take(_metadata.as_table(X), chosen)
        self.estimator_, self._model, self._table = estimator, model, table
        return self

    def attach(self, X: MatrixLike | None = None, ids: ArrayLike | None = None) -> Self:
        """Open an existing table.

        The table may come from `fit` or from another program. It must have a column of
        unique ids, integers or strings, and a column of encoded items in a type of
        pgvector. The table is not changed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            A few original items. They are encoded to check that the table holds the
            same encodings. `set_estimator` requires them.

        ids : array-like of shape (n_samples,), default=None
            Ids of these items.

        Returns
        -------
        self : object
            The index itself.
        """
        self._check_params()
        self._name()
        if (X is None) != (ids is None):
            raise ValueError("Pass both X and ids, or neither.")
        model = unwrap.find_model(self.estimator)
        server = open_server()
        with server.transaction(self.connection, is_snapshot=True) as cursor:
            server.require_pgvector(cursor, create=False)
            table = self._look_at(cursor)
            if self.method == "hnsw" and not table.has_graph:
                raise ValueError(
                    f"The column {self.item_column!r} has no HNSW index by inner "
                    'product. Use method="exact", or create one with CREATE INDEX ... '
                    f"USING hnsw (... {table.stored}_ip_ops)."
                )
            if X is not None:
                compare(cursor, table, model, X, check_ids(ids, num_samples(X), X))
        if X is not None:
            validate_data(self, X, skip_check_array=True)
        self._sample = None if X is None else _metadata.as_table(X)
        self.estimator_, self._model, self._table = self.estimator, model, table
        return self

    def search(
        self,
        X: MatrixLike,
        k: int = 10,
        *,
        groups: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
        filter: FilterLike | None = None,
    ) -> SearchResult:
        """Return the most similar items to each query.

        All queries of a call are answered from the same state of the table.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        k : int, default=10
            Number of items per query.

        groups : array-like of shape (n_queries,), default=None
            Set of each query, for :class:`~sklearn_simlearn.MemoryVectorQuery`, which
            combines the queries of a set into one query. There is one result per set,
            in sorted order.

        exclude : array-like of length n_queries (or n_sets), default=None
            Ids to exclude from the results: one id or a list of ids per query.

        filter : dict or array-like, default=None
            Restriction of the results: a list of ids, or a dict of conditions on
            columns, such as ``{"label": ["cat", "dog"], "year": (">=", 2020)}``; see
            :ref:`search-filter`. To use a separate filter for each query, pass a list
            with one of these, or None, per query.

        Returns
        -------
        result : SearchResult
            Pair ``scores, ids``; the metadata is a list of dicts with the other columns
            of the items. See :class:`~sklearn_simlearn.index.SearchResult`. Metadata is
            fetched on first access, so it may be newer than the scores. An item that
            was removed after the search has an empty dict.
        """
        self._check_estimator()
        k = check_k(k)
        self._check_params()
        table = self._table
        sets = self._read_sets(groups, num_samples(X))
        n_results = sets.n_sets
        excluded = None
        if exclude is not None:
            excluded = self._read_exclude(exclude, n_results)
        filter = split_filter(filter, n_results)
        for part in filter if isinstance(filter, PerQuery) else [filter]:
            if part is not None:
                table.conditions(part)  # raise before any work is done
        scores = np.full((n_results, k), -np.inf, dtype=np.float32)
        found_ids = []
        ef_search = self.ef_search if self.method == "hnsw" else None
        row_bytes = 16 * ((table.width or 0) + k)
        with open_server().transaction(self.connection, is_snapshot=True) as cursor:
            for batch, part, Q in self._encode_queries(X, sets, row_bytes):
                Q, exponents = scale_queries(Q)
                rows = self._as_stored(Q, part)
                found = []
                for some, of_some in group_queries(batch, filter):
                    found += table.search(
                        cursor,
                        rows[some.start - batch.start : some.stop - batch.start],
                        k,
                        excluded=None if excluded is None else excluded[some],
                        filter=of_some,
                        ef_search=ef_search,
                    )
                for row, best, exponent in zip(
                    scores[batch], found, exponents, strict=True
                ):
                    row[: len(best)] = np.ldexp([score for _, score in best], exponent)
                    found_ids.append([id_ for id_, _ in best])
        nothing = "" if table.id_dtype.kind == "U" else -1
        filled = [best + [nothing] * (k - len(best)) for best in found_ids]
        ids = np.array(filled, dtype=table.id_dtype).reshape(n_results, k)
        found = ids[scores != -np.inf]
        take = partial(self._fetch_metadata, found) if table.metadata_columns else None
        return SearchResult(scores, ids, take)

    def add(
        self,
        X: MatrixLike,
        ids: ArrayLike | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Add items in one transaction.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            New items.

        ids : array-like of shape (n_items,), default=None
            Ids of the new items. They must not be in the table already. If None,
            numbering continues after the largest id, and the table is locked for other
            writers.

        metadata : list of dict, frame or structured array, default=None
            Values of some columns of the table. The other columns get their defaults.

        Returns
        -------
        self : object
            The index itself.
        """
        return self._insert(X, ids, metadata, replace=False)

    def upsert(
        self, X: MatrixLike, ids: ArrayLike, metadata: MetadataLike | None = None
    ) -> Self:
        """Add items and replace those with the same ids, in one transaction.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        ids : array-like of shape (n_items,)
            Unique ids of the items. The table must have a unique constraint on its ids.

        metadata : list of dict, frame or structured array, default=None
            Values of some columns of the table. The other columns are unchanged in
            replaced rows and get their defaults in new rows.

        Returns
        -------
        self : object
            The index itself.
        """
        if ids is None:
            raise ValueError("upsert requires the ids of the items.")
        return self._insert(X, ids, metadata, replace=True)

    def remove(self, ids: ArrayLike) -> Self:
        """Remove items in one transaction.

        Parameters
        ----------
        ids : array-like
            Ids of items in the table.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        known = self._table.read_ids(ids)
        with open_server().transaction(self.connection) as cursor:
            removed = self._table.delete(cursor, known)
            unknown = [id_ for id_ in known.tolist() if id_ not in removed][:3]
            if unknown:
                raise ValueError(f"The table has no items with the ids {unknown}.")
        return self

    def set_estimator(self, estimator: BaseEstimator) -> Self:
        """Replace the estimator by one that encodes items in the same way.

        The table is not changed. A sample of the items that were passed to `fit` or
        `attach` is encoded with the new estimator. If the encodings differ from those
        in the table, an error is raised; such an estimator needs a new table.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator for the same type of items.

        Returns
        -------
        self : object
            The index itself. Its parameter `estimator` is unchanged; `estimator_` is
            the new estimator.
        """
        check_is_fitted(self)
        if self._sample is None:
            raise ValueError(
                "Some items are required to compare the estimators. Pass X and ids to "
                "`attach`."
            )
        model = unwrap.find_model(estimator)
        if not agree(
            encode_items(model, self._sample), encode_items(self._model, self._sample)
        ):
            raise ValueError(
                "The new estimator does not encode items as they are stored. Fit an "
                "index with another table, and drop this one when all clients have "
                "moved."
            )
        self.estimator_, self._model = estimator, model
        return self
