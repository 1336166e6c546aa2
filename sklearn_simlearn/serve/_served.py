"""Index of the service: searches, changes, and reloading."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from msgspec import UNSET
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.storage import read_generation
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._explanation import explain_encoded, find_items
from sklearn_simlearn.index._filters import read_exclude, read_filter, search_items
from sklearn_simlearn.index._forms import find_texts
from sklearn_simlearn.index._journal import Journal, ReplacedError, lock_writer
from sklearn_simlearn.serve import _messages as messages
from sklearn_simlearn.serve._queries import Reader, as_metadata, join
from sklearn_simlearn.serve._schemas import Input, describe_ids
from sklearn_simlearn.serve._values import as_rows, describe_columns

logger = logging.getLogger("sklearn_simlearn.serve")

# Largest number of contributions per level of an explanation.
N_PARTS = 30


class UnknownIdError(ValueError):
    """Raised if there is no item with the id in a request."""


class ServedIndex:
    """Index and its journal. All methods may be called from several threads.

    Parameters
    ----------
    name : str
        Name in addresses.

    source : SimilarityIndex, str or path-like
        Index in memory, which is read-only, or folder of a saved index.

    trusted : sequence of str, default=()
        Types in the stored estimator to trust, as for `SimilarityIndex.load`.

    is_writable : bool, default=False
        Whether to accept changes, and write them to the journal of the folder.

    max_pixels : int
        Largest number of pixels of all photographs of a request.
    """

    def __init__(self, name, source, *, trusted=(), is_writable=False, max_pixels):
        self.name, self.is_writable = name, is_writable
        self._trusted, self._max_pixels = trusted, max_pixels
        self._folder = self._lock = None
        self._columns = None, []
        if isinstance(source, SimilarityIndex):
            if is_writable:
                raise ValueError(
                    f"The index {name!r} is in memory only. To accept changes, save it "
                    "and pass its folder."
                )
            self._use(source)
            return
        self._folder = Path(source)
        if is_writable:
            self._lock = lock_writer(self._folder)
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self):
        """Load the index that the folder holds now, with its journal."""
        while True:
            generation = read_generation(self._folder)
            journal = Journal(self._folder) if self.is_writable else None
            try:
                index = SimilarityIndex.load(self._folder, trusted=self._trusted)
                if read_generation(self._folder) == generation:
                    self._use(index, journal)
                    self._generation = generation
                    return
            except BaseException:
                if journal is not None:
                    journal.close()
                raise
            if journal is not None:
                journal.close()

    def _use(self, index, journal=None):
        index._check_estimator()
        reader = Reader(index, self._max_pixels)
        index._journal = journal
        # Requests read both at once.
        self._parts = index, reader

    @property
    def index(self):
        """Return the index that is served now."""
        return self._parts[0]

    def refresh(self, force=False):
        """Load the index again if another one was saved in the folder.

        Running requests complete with the previous index. If the new index cannot be
        loaded, the previous index stays in service.
        """
        if self._folder is None:
            return
        before = self.index
        try:
            # While this process saves, the folder changes under this lock.
            with before._changing():
                if not force and read_generation(self._folder) == self._generation:
                    return
                self._load()
                if before._journal is not None:
                    before._journal.close()
        except Exception as error:
            # Any error would end the task that watches the folders.
            logger.error("%s was not loaded again: %s", self.name, error)
        else:
            logger.info("%s was loaded again: %d items", self.name, len(self.index))

    def close(self):
        """Close the journal, so that another process can write to it."""
        if self._lock is not None:
            if hasattr(self, "_parts") and self.index._journal is not None:
                self.index._journal.close()
            self._lock.close()

    def count_changes(self):
        """Return the number of changes since the last save."""
        return self.index._journal.n_changes

    # -- reading --

    def describe(self):
        """Return the description of the index."""
        index, reader = self._parts
        state = index._state
        return messages.Description(
            self.name,
            state.n_items,
            reader.form,
            accepts_ids=state.raw is not None or is_symmetric(index),
            is_writable=self.is_writable,
            has_thumbnails=state.thumbnails is not None,
            n_features=state.features.n_features if reader.form == "vector" else None,
            columns=self._describe_columns(state),
        )

    def _describe_columns(self, state):
        """Return the columns of the metadata. They are found once per state."""
        known, columns = self._columns
        if state.metadata is None:
            return []
        if known is not state.metadata:
            columns = describe_columns(state.current_metadata())
            self._columns = state.metadata, columns
        return columns

    def describe_input(self):
        """Return the queries, items and filters that the index takes."""
        index, reader = self._parts
        state, has_metadata = index._state, index._state.metadata is not None
        return Input(
            reader.form,
            reader.describe(),
            describe_ids(state.ids),
            accepts_ids=state.raw is not None or is_symmetric(index),
            is_numbered=state.ids.is_numbered,
            columns=self._describe_columns(state) if has_metadata else None,
            has_all_columns=has_metadata
            and not isinstance(state.metadata.first_part, Sequence),
            has_thumbnails=state.thumbnails is not None,
        )

    def search(self, request):
        """Return the results of a search."""
        index, reader = self._parts
        index = index._snapshot()
        state = index._state
        if index.rerank or state.lost_steps:
            scores, rows = self._search_again(index, reader, request)
        else:
            Q = self._encode(index, reader, request.queries, request.combine)
            n_results, k = Q.shape[0], min(request.k, state.ids.n_rows)
            excluded = None
            if request.exclude:
                lists = [request.exclude] * n_results
                excluded = read_exclude(lists, state.ids, n_results)
            allowed = None
            if request.filter is not None:
                allowed = read_filter(
                    request.filter, state.ids, state.metadata, n_results
                )
            scores, rows = search_items(
                state.items, Q, k, allowed, excluded, index._n_threads
            )
        return messages.Results(self._list_results(state, scores, rows))

    def _search_again(self, index, reader, request):
        """Search with the re-ranking steps of the index."""
        X = self._read(index, reader, request.queries)
        n_results = 1 if request.combine else len(request.queries)
        scores, ids = index.search(
            X,
            min(request.k, max(1, len(index))),
            groups=np.zeros(len(request.queries)) if request.combine else None,
            exclude=[request.exclude] * n_results if request.exclude else None,
            filter=request.filter,
        )
        rows = np.full(ids.shape, -1)
        rows[scores > -np.inf] = index._state.ids.find(ids[scores > -np.inf])
        return scores, rows

    def explain(self, request):
        """Return the contributions to the scores of some items."""
        index, reader = self._parts
        index = index._snapshot()
        _find_rows(index, request.ids)
        n_queries, groups = len(request.queries), None
        if n_queries > 1 and index._model.takes_groups:
            groups = np.zeros(n_queries)
        lists = [request.ids] * (1 if groups is not None else n_queries)
        if _lacks_samples(index, request.queries):
            Q = self._encode(index, reader, request.queries, groups is not None)
            lists = [np.array(ids) for ids in lists]
            wanted, items = find_items(index, np.unique(request.ids))
            blocks = [(slice(0, n_queries), reader.make_sample(), Q)]
            found = explain_encoded(index, blocks, lists, wanted, items)
        else:
            X = self._read(index, reader, request.queries)
            found = index.explain(X, lists, groups=groups)
        return messages.Explanations(
            [_merge(parts) for parts in zip(*found, strict=True)]
        )

    def thumbnail(self, id_):
        """Return the thumbnail of an item as a JPEG file.

        Parameters
        ----------
        id_ : str
            Id in the address.
        """
        state = self.index._state
        jpeg = state.find_thumbnail(_read_id(id_, state.ids))
        if jpeg is None:
            raise UnknownIdError(f"There is no thumbnail of the id {id_!r:.80}.")
        return jpeg

    def _encode(self, index, reader, queries, combine):
        """Return encoded queries in the form of the backend, one row per result."""
        groups = None
        if combine and index._model.takes_groups:
            groups = np.zeros(len(queries))
        if _lacks_samples(index, queries):
            _check_symmetric(index, groups)
            Q = _stack(
                [
                    _encode_samples(index, reader.read([query]))
                    if query.id is UNSET
                    else as_kind(_find_item(index, query.id), index.backend_)
                    for query in queries
                ]
            )
        else:
            X = self._read(index, reader, queries)
            Q = _encode_samples(index, X, groups)
        if combine and Q.shape[0] > 1:
            # The score of a mean is the mean of the scores.
            mean = np.atleast_2d(np.asarray(Q.mean(axis=0)))
            Q = as_kind(mean, index.backend_, Q.dtype)
        return Q

    def _read(self, index, reader, queries):
        """Return queries as samples for the estimator."""
        if all(query.id is UNSET for query in queries):
            return reader.read(queries)
        raw = index._state.raw
        if raw is None:
            raise ValueError(
                "The index does not store its original items. Build it with "
                "store_items=True."
            )
        return join(
            [
                reader.read([query])
                if query.id is UNSET
                else raw.take(_find_rows(index, [query.id]))
                for query in queries
            ]
        )

    def _list_results(self, state, scores, rows):
        """Return the items found, with their metadata and texts."""
        found = rows >= 0
        if not np.isfinite(scores[found]).all():
            raise ValueError("The numbers of a query are too large: scores overflow.")
        flat = rows[found]
        columns = {
            "id": state.ids.take(flat).tolist(),
            "score": scores[found].tolist(),
        }
        if state.metadata is not None:
            columns["metadata"] = as_rows(state.metadata.take(flat))
        texts = None if state.raw is None else find_texts(state.raw.take(flat))
        if texts is not None:
            columns["text"] = texts
        if state.thumbnails is not None:
            address = f"indexes/{quote(self.name, safe='')}/thumbnail?id="
            columns["thumbnail"] = [
                address + quote(str(id_), safe="") for id_ in columns["id"]
            ]
        names = list(columns)
        results = iter(
            [
                messages.Result(**dict(zip(names, values, strict=True)))
                for values in zip(*columns.values(), strict=True)
            ]
        )
        return [[next(results) for _ in range(n)] for n in found.sum(axis=1)]

    # -- changes --

    def add(self, request):
        """Add items; return the ids of the new items."""
        return self._put(request, "add")

    def upsert(self, request):
        """Add items, or replace those with the same ids."""
        return self._put(request, "upsert")

    def _put(self, request, method):
        index, reader = self._parts
        X, n_items = reader.read(request.items), len(request.items)
        ids = [item.id for item in request.items if item.id is not UNSET]
        if len(ids) not in (0, n_items):
            raise ValueError("Either all items of a request must have ids, or none.")
        rows = [item.metadata for item in request.items if item.metadata is not UNSET]
        if len(rows) not in (0, n_items):
            raise ValueError(
                "Either all items of a request must have metadata, or none."
            )
        metadata = rows or None
        with index._changing():
            table = index._state.metadata
            if rows and table is not None:
                metadata = as_metadata(rows, table.first_part)
            getattr(index, method)(X, ids=ids or None, metadata=metadata)
            state = index._state
            new = state.ids.values[-n_items:].tolist()
        return messages.Changed(state.n_items, new)

    def remove(self, request):
        """Remove items."""
        index = self.index
        with index._changing():
            _find_rows(index, request.ids)
            index.remove(request.ids)
            return messages.Changed(index.n_items_)

    def save(self):
        """Save the index with its changes, and start an empty journal."""
        index = self.index
        with index._changing():
            if not index._journal.is_current:
                raise ReplacedError("Another index was saved in this folder.")
            index.save(self._folder)
            index._journal.close()
            index._journal = Journal(self._folder)
            self._generation = index._journal.generation
            return messages.Changed(index.n_items_)


def _lacks_samples(index, queries):
    """Return True if a query is an item whose original is not stored."""
    return index._state.raw is None and any(query.id is not UNSET for query in queries)


def _check_symmetric(index, groups):
    """Raise unless items are encoded in the same way as queries."""
    if groups is not None or not is_symmetric(index):
        raise ValueError(
            "This index cannot be searched by ids: it encodes queries and items "
            "differently, and does not store the original items. Build it with "
            "store_items=True."
        )


def is_symmetric(index):
    """Return True if queries and items are encoded in the same way."""
    model = index._model
    if model.has_two_sides:
        return False
    encoder = getattr(model.learner, "encoder_", None)
    return model.learner is None or (encoder is not None and encoder.is_symmetric)


def _encode_samples(index, X, groups=None):
    sets = index._read_sets(groups, num_samples(X))
    row_bytes = 16 * index._state.items.n_features
    return _stack(
        [
            index._convert(Q, part)
            for _, part, Q in index._encode_queries(X, sets, row_bytes)
        ]
    )


def _stack(parts):
    if len(parts) == 1:
        return parts[0]
    is_sparse = sparse.issparse(parts[0])
    return sparse.vstack(parts, format="csr") if is_sparse else np.vstack(parts)


def _read_id(text, ids):
    """Return an id from an address in the type of the ids of an index."""
    if ids.values.dtype.kind == "U":
        return text
    if not re.fullmatch("-?[0-9]{1,19}", text):
        raise UnknownIdError(f"The ids of this index are integers; got {text!r:.80}.")
    return int(text)


def _find_rows(index, ids):
    """Return the rows of items; raise if an id is unknown."""
    rows = index._state.ids.find(ids)
    for id_, row in zip(ids, rows, strict=True):
        if row < 0:
            raise UnknownIdError(f"The index has no item with the id {id_!r:.80}.")
    return rows


def _find_item(index, id_):
    _find_rows(index, [id_])
    return index._find_encoded([id_])[1]


def _merge(explanations):
    """Return the mean of the explanations of one item for several queries."""
    n_queries = len(explanations)
    return messages.Explanation(
        explanations[0].id,
        sum(one.score for one in explanations) / n_queries,
        _merge_parts([part for one in explanations for part in one.parts], n_queries),
    )


def _merge_parts(parts, n_queries):
    by_name = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    merged = [
        messages.Contribution(
            name,
            sum(part.value for part in same) / n_queries,
            _merge_parts([inner for part in same for inner in part.parts], n_queries),
        )
        for name, same in by_name.items()
    ]
    merged.sort(key=lambda part: -part.value)
    return merged[:N_PARTS]
