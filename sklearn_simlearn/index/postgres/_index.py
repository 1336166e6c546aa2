"""An index whose items are rows of a table in PostgreSQL."""

from numbers import Integral

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.rows import row_dots
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
    validate_parameter_constraints,
)
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import BaseIndex, check_k
from sklearn_simlearn.index._encoded_items import agree, encode_items
from sklearn_simlearn.index._ids import check_ids
from sklearn_simlearn.index.postgres._columns import check_name, read_columns
from sklearn_simlearn.index.postgres._pgvector import (
    as_stored,
    choose_type,
    scale_queries,
)

# Items whose encodings are compared when an estimator is replaced.
SAMPLE = 256


class PostgresIndex(BaseIndex):
    """The best items for a query, from a table in PostgreSQL.

    Items are stored as pgvector's types, with ids and metadata in columns of the same
    table, where others may read and write them. Queries are encoded here, and the
    server returns the largest inner products. Read more in the :ref:`User Guide
    <postgresql>`.

    Parameters
    ----------
    estimator : estimator
        A learner, a hand-made similarity, a transformer (compared by the cosine of its
        output), a pipeline that ends in one of them, or a search over such. A fitted
        one is used as it is; one that is not fitted is cloned and fitted by `fit`.

    connection : str or psycopg_pool.ConnectionPool
        Connection string, such as "postgresql://user@host/database": each call then
        opens a connection. A service that answers many short calls gives a pool, from
        which each call takes a connection. The string is shown when the index is
        printed, so keep a password in ``~/.pgpass`` or ``PGPASSWORD``.

    table : str or tuple of str
        Name of the table, taken as it is; (schema, name) for one in another schema than
        the first of the search path.

    stored : {"auto", "vector", "halfvec", "sparsevec"}, default="auto"
        Type of the items in a table that `fit` makes. "auto" takes "sparsevec" for
        sparse encodings and "vector" for others. "halfvec" takes half of the space, and
        rounds to 3 digits.

    method : {"exact", "hnsw"}, default="exact"
        Whether a search looks at all items, or walks through an HNSW graph, which is
        faster and may miss some.

    m : int, default=16
        Links per item of the graph that `fit` makes.

    ef_construction : int, default=64
        How many candidates the making of the graph considers; at least ``2 * m``.

    ef_search : int, default=40
        How many candidates a search of the graph considers, at least the `k` of the
        search and at most 1000. It can be changed at any time by `set_params`.

    id_column : str, default="id"
        Column of the ids.

    item_column : str, default="item"
        Column of the encoded items.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    stored_ : str
        Type of the items.

    n_items_ : int
        Number of items in the table now.

    n_features_in_ : int
        Width of the items that were given to `fit`, where they have one.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of these items, if they had any.

    See Also
    --------
    SimilarityIndex : Search in memory or in a folder.

    Notes
    -----
    The server computes in single precision (with items in half precision for
    "halfvec"), so scores are of float32, and items whose scores differ by rounding only
    may come in another order than in :class:`SimilarityIndex`. Of items with the same
    score, the one with the lower id comes first; strings are compared by code points.

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
        estimator,
        connection,
        table,
        *,
        stored="auto",
        method="exact",
        m=16,
        ef_construction=64,
        ef_search=40,
        id_column="id",
        item_column="item",
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
    def fit(self, X, y=None, ids=None, metadata=None):
        """Make the table with these items, and fit the estimator unless it is fitted.

        Table, items and graph appear together, when all of it is done. A table that
        exists is refused: see `attach`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items; whatever the first step of the estimator takes.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, for an estimator that is not fitted.

        ids : array-like of shape (n_items,), default=None
            What `search` calls the items: integers or strings, each once. Their numbers
            0, 1, ... if None.

        metadata : list of dict, frame or structured array, default=None
            More about the items, one row per item, which become columns: numbers,
            strings, booleans, dates and times. Missing values become NULL.

        Returns
        -------
        self : object
            The index itself.
        """
        n_items = num_samples(X)
        ids = np.arange(n_items) if ids is None else check_ids(ids, n_items)
        columns = self._read_columns(metadata, n_items)
        name, is_graph = self._name(), self.method == "hnsw"
        if is_graph and self.ef_construction < 2 * self.m:
            raise ValueError(
                f"ef_construction must be at least 2 * m = {2 * self.m}; got "
                f"{self.ef_construction}."
            )
        server = _server()
        with server.transaction(self.connection) as cursor:
            server.require_pgvector(cursor, create=True)
            if server.exists(cursor, name):
                raise ValueError(
                    f"The table {self.table!r} exists: open it by `attach`, or drop it "
                    "if nobody needs it."
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

    def attach(self, X=None, ids=None):
        """Open a table that is there.

        It may come from `fit`, or be anybody's: it takes a column of unique ids,
        integers or strings, and one of pgvector's types with encoded items. Nothing in
        it is changed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            A few items, as they are before the estimator encodes them, to see whether
            the table holds them as it does. `set_estimator` needs them.

        ids : array-like of shape (n_samples,), default=None
            Their ids.

        Returns
        -------
        self : object
            The index itself.
        """
        self._check_params()
        self._name()
        if (X is None) != (ids is None):
            raise ValueError("X and ids go together.")
        model = unwrap.find_model(self.estimator)
        server = _server()
        with server.transaction(self.connection, is_snapshot=True) as cursor:
            server.require_pgvector(cursor, create=False)
            table = self._look_at(cursor)
            if self.method == "hnsw" and not table.has_graph:
                raise ValueError(
                    f"The column {self.item_column!r} has no HNSW index by inner "
                    'product: use method="exact", or make one by CREATE INDEX ... '
                    f"USING hnsw (... {table.stored}_ip_ops)."
                )
            if X is not None:
                _compare(cursor, table, model, X, check_ids(ids, num_samples(X)))
        if X is not None:
            validate_data(self, X, skip_check_array=True)
        self._sample = None if X is None else _metadata.as_table(X)
        self.estimator_, self._model, self._table = self.estimator, model, table
        return self

    def search(self, X, k=10, *, groups=None, exclude=None, filter=None):
        """The best items for each query.

        All queries are answered from one state of the table.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        k : int, default=10
            Number of items per query.

        groups : array-like of shape (n_queries,), default=None
            Set of each query, for :class:`~sklearn_simlearn.MemoryVectorQuery`: the
            queries of a set search as one. Results are in the sorted order of the sets.

        exclude : array-like of length n_queries (or n_sets), default=None
            Ids that are left out of the results, one per query or a list per query.

        filter : dict or array-like, default=None
            Restricts the results to some items: a list of ids, or a dict of columns
            with what they must hold. That is a value, a list of values, None where
            there must be none, or a dict of comparisons by "<", "<=", ">", ">=" and
            "!=", as in ``{"label": ["cat", "dog"], "year": {">=": 2020}}``.

        Returns
        -------
        scores : ndarray of shape (n_queries, k)
            Similarities, the largest first; -inf where there are no more items.

        ids : ndarray of shape (n_queries, k)
            Ids of the items; -1 or "" where the score is -inf.
        """
        self._check_estimator()
        check_k(k)
        self._check_params()
        table = self._table
        sets = self._read_sets(groups, num_samples(X))
        n_results = len(sets.sizes)
        if exclude is not None:
            exclude = self._read_exclude(exclude, n_results)
        if filter is not None:
            table.conditions(filter)  # refuse it before any work is done
        scores = np.full((n_results, k), -np.inf, dtype=np.float32)
        found_ids = []
        ef_search = self.ef_search if self.method == "hnsw" else None
        row_bytes = 16 * ((table.width or 0) + k)
        with _server().transaction(self.connection, is_snapshot=True) as cursor:
            for batch, part, Q in self._encode_queries(X, sets, row_bytes):
                Q, exponents = scale_queries(Q)
                found = table.search(
                    cursor,
                    self._as_stored(Q, part),
                    int(k),
                    excluded=None if exclude is None else exclude[batch],
                    filter=filter,
                    ef_search=ef_search,
                )
                for row, best, exponent in zip(
                    scores[batch], found, exponents, strict=True
                ):
                    row[: len(best)] = np.ldexp([score for _, score in best], exponent)
                    found_ids.append([id_ for id_, _ in best])
        nothing = "" if table.id_dtype.kind == "U" else -1
        filled = [best + [nothing] * (k - len(best)) for best in found_ids]
        return scores, np.array(filled, dtype=table.id_dtype).reshape(n_results, k)

    def add(self, X, ids=None, metadata=None):
        """Add items, all of them or none.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            New items.

        ids : array-like of shape (n_items,), default=None
            Their ids, none of them in the table. If None, they are numbered on from the
            largest one, while other writers wait.

        metadata : list of dict, frame or structured array, default=None
            Values of some columns of the table. The others get their defaults.

        Returns
        -------
        self : object
            The index itself.
        """
        return self._insert(X, ids, metadata, replace=False)

    def upsert(self, X, ids, metadata=None):
        """Add items, or replace those that have the same ids; all of them or none.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        ids : array-like of shape (n_items,)
            Their ids, each once. The table must keep them unique.

        metadata : list of dict, frame or structured array, default=None
            Values of some columns of the table. The others stay as they are, or get
            their defaults in new rows.

        Returns
        -------
        self : object
            The index itself.
        """
        if ids is None:
            raise ValueError("upsert needs ids, which say what is replaced.")
        return self._insert(X, ids, metadata, replace=True)

    def remove(self, ids):
        """Remove items, all of them or none.

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
        ids = self._table.read_ids(ids)
        with _server().transaction(self.connection) as cursor:
            removed = self._table.delete(cursor, ids)
            unknown = [id_ for id_ in ids.tolist() if id_ not in removed][:3]
            if unknown:
                raise ValueError(f"The table has no items with the ids {unknown}.")
        return self

    def set_estimator(self, estimator):
        """Replace the estimator by one that encodes items as they are stored.

        No row changes. That the new estimator encodes as the old one did is checked on
        a sample of the items that `fit` or `attach` got. One that does not needs a
        table of its own.

        Parameters
        ----------
        estimator : estimator
            A fitted one, for the same kind of items.

        Returns
        -------
        self : object
            The index itself. Its parameter `estimator` stays as it was; `estimator_` is
            the new one.
        """
        check_is_fitted(self)
        if self._sample is None:
            raise ValueError(
                "To compare estimators takes some items: give X and ids to `attach`."
            )
        model = unwrap.find_model(estimator)
        if not agree(
            encode_items(model, self._sample), encode_items(self._model, self._sample)
        ):
            raise ValueError(
                "The new estimator encodes items in another way than they are stored: "
                "fit an index with another table, and drop this one when all clients "
                "have moved."
            )
        self.estimator_, self._model = estimator, model
        return self

    @property
    def n_items_(self):
        """Number of items in the table."""
        table = self._fitted_table()
        with _server().transaction(self.connection, is_snapshot=True) as cursor:
            return table.count(cursor)

    @property
    def stored_(self):
        """Type of the items."""
        return self._fitted_table().stored

    # -- inside --

    def _check_params(self):
        validate_parameter_constraints(
            self._parameter_constraints,
            self.get_params(deep=False),
            caller_name=type(self).__name__,
        )

    def _insert(self, X, ids, metadata, *, replace):
        self._check_estimator()
        table = self._table
        n_items = num_samples(X)
        if ids is not None:
            ids = table.read_ids(check_ids(ids, n_items))
        columns = self._read_columns(metadata, n_items)
        unknown = sorted(columns.keys() - set(table.columns))
        if unknown:
            raise ValueError(
                f"The table has no columns {unknown} for the metadata: add them by "
                "ALTER TABLE, and attach the index again."
            )
        rows = self._as_stored(
            encode_items(self._model, X), X, in_graph=table.has_graph
        )
        with _server().transaction(self.connection) as cursor:
            if ids is None:
                ids = table.next_ids(cursor, n_items)
            table.insert(cursor, ids, rows, columns, replace=replace)
        return self

    def _as_stored(self, encoded, X, *, in_graph=False):
        """Encodings of X in the form of the table."""
        has_width = hasattr(self, "n_features_in_")
        if has_width and not hasattr(self.estimator_, "n_features_in_"):
            # One that needs no fit does not compare X with the items.
            validate_data(self, X, reset=False, skip_check_array=True)
        _check_width(self._table, encoded)
        return as_stored(encoded, self._table.stored, in_graph=in_graph)

    def _name(self):
        """The quoted name of the table."""
        parts = (self.table,) if isinstance(self.table, str) else self.table
        if len(parts) not in (1, 2):
            raise ValueError(
                f"table must be a name or a (schema, name); got {self.table!r}."
            )
        for part in (*parts, self.id_column, self.item_column):
            check_name(part)
        if self.id_column == self.item_column:
            raise ValueError("id_column and item_column must differ.")
        return _server().sql.Identifier(*parts)

    def _look_at(self, cursor):
        return _server().open_table(
            cursor,
            self._name(),
            id_column=self.id_column,
            item_column=self.item_column,
        )

    def _read_columns(self, metadata, n_items):
        return read_columns(metadata, n_items, {self.id_column, self.item_column})

    def _read_exclude(self, exclude, n_results):
        """Lists of ids to leave out of each result."""
        if len(exclude) != n_results:
            raise ValueError(
                "exclude must have one id, or a list of ids, per query; got "
                f"{len(exclude)} for {n_results}."
            )
        return [self._table.read_ids(np.atleast_1d(part)).tolist() for part in exclude]

    def _fitted_table(self):
        """The table, missing as an attribute is before `fit`."""
        if not hasattr(self, "_table"):
            raise AttributeError("The index is not fitted yet.")
        return self._table

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_table")


def _server():
    """The module that talks to PostgreSQL, imported only when it is needed."""
    try:
        from sklearn_simlearn.index.postgres import _table
    except ImportError as error:
        raise ImportError(
            "PostgresIndex needs psycopg: "
            'pip install "sklearn-simlearn[pgvector]" brings it.'
        ) from error
    return _table


def _check_width(table, encoded):
    if table.width not in (None, encoded.shape[1]):
        raise ValueError(
            f"The estimator encodes with {encoded.shape[1]} features, the stored items "
            f"have {table.width}."
        )


def _compare(cursor, table, model, X, ids):
    """Refuse a table that holds items in another way than the estimator encodes."""
    encoded = encode_items(model, X)
    _check_width(table, encoded)
    rows = as_stored(encoded, table.stored)
    distances = table.distances(cursor, table.read_ids(ids), rows)
    if np.isnan(distances).any():
        missing = ids[np.isnan(distances)][:3].tolist()
        raise ValueError(f"The table has no items with the ids {missing}.")
    eps = np.finfo(rows.dtype).eps
    lengths = np.sqrt(row_dots(encoded, encoded))
    if (distances > 100 * eps * lengths).any():
        raise ValueError(
            "The estimator encodes items in another way than the table holds them: "
            "give the one that the table was made with, or fit another table."
        )
