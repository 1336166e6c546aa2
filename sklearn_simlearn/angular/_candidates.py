"""Choice of the references of the angular ranker, and of their candidates."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import check_row_numbers, unit_rows
from sklearn_simlearn._core.sklearn import get_chunk_n_rows, get_threadpool_controller
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.triplets import take_triplets
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.angular._dual import Block, blocks_of_pairs, blocks_of_triplets
from sklearn_simlearn.angular._encoder import largest, like
from sklearn_simlearn.angular._grams_fast import count_kinds, take_ranked


class GivenTriplets(NamedTuple):
    """Triplets that the user passed, as row numbers of the training data."""

    rows: np.ndarray


class Limit(NamedTuple):
    """Largest number of references, and of candidates of each."""

    references: int
    candidates: int


def choose_triplets(learner, X, start, relevance, given, rows, rng, limit=None):
    """Return references, the samples that represent them, and blocks of triplets.

    `X` holds some `rows` of the training data, encoded by the start. `given` holds
    triplets, whose queries become the references; or references, as an array or as a
    name. The `limit` does not apply to triplets, and its number of references does not
    apply to an array.
    """
    if isinstance(given, GivenTriplets):
        query, relevant, irrelevant = take_triplets(given.rows, rows).T
        indices, query = np.unique(query, return_inverse=True)
        return X[indices], indices, blocks_of_triplets(query, relevant, irrelevant)
    allowed = Limit(learner.n_references, learner.n_candidates)
    if limit is not None:
        allowed = Limit(*np.minimum(allowed, limit))
    # Separate random streams: the draw of candidates does not depend on `references`.
    reference_rng, candidate_rng = rng.spawn(2)
    if isinstance(given, str):
        references, indices = choose_references(
            given,
            allowed.references,
            X,
            relevance.can_query,
            learner.n_jobs,
            reference_rng,
        )
    else:
        references, indices = place_references(
            given, X, start, relevance.can_query, rows
        )
    blocks = choose_candidates(
        learner.candidates,
        allowed.candidates,
        X,
        relevance,
        references,
        indices,
        candidate_rng,
    )
    return references, indices, blocks


def check_references(references, X: Matrix):
    """Raise unless the array holds rows of X or queries with the features of X."""
    if isinstance(references, str):
        return references
    references = check_array(
        references,
        accept_sparse="csr",
        dtype=None,
        ensure_2d=False,
        input_name="references",
    )
    if references.ndim == 1:
        if references.dtype.kind not in "iu":
            raise ValueError(
                "A one-dimensional array of references must hold row numbers of X; got "
                f"{references.dtype}."
            )
        check_row_numbers(references, X.shape[0], "references")
    elif references.ndim != 2 or references.shape[1] != X.shape[1]:
        raise ValueError(
            f"references must have the {X.shape[1]} features of X; got shape "
            f"{references.shape}."
        )
    return references


def place_references(
    references: Matrix,
    X: Matrix,
    start: Start,
    can_query: np.ndarray,
    rows: np.ndarray,
) -> tuple[Matrix, np.ndarray]:
    """Return references that are given as an array; X holds some `rows` of the data.

    Returns
    -------
    queries : ndarray or csr_array of shape (n_references, n_features)
        The references, of unit length.

    indices : ndarray of shape (n_references,)
        Row numbers of X of the references, or of the samples nearest to them.
    """
    if references.ndim == 1:
        place = np.searchsorted(rows, references)
        place[place == len(rows)] = 0
        indices = place[rows[place] == references]
        return X[indices], indices
    queries = start.items(like(references.astype(X.dtype), X))
    return queries, _nearest_rows(queries, X, np.flatnonzero(can_query))


def choose_references(
    kind: str, n_references: int, X: Matrix, can_query: np.ndarray, n_jobs, rng
) -> tuple[Matrix, np.ndarray]:
    """Choose samples or centres as references; return what `place_references` does."""
    eligible = np.flatnonzero(can_query)
    if n_references >= len(eligible):
        return X[eligible], eligible
    if kind == "random":
        indices = np.sort(rng.choice(eligible, n_references, replace=False))
        return X[indices], indices

    check_memory(
        X,
        n_references,
        "k-means, which has dense centres",
        'reduce n_references or use references="random"',
    )
    kmeans = MiniBatchKMeans(
        n_references,
        batch_size=max(1024, 4 * n_references),
        n_init=1,
        random_state=int(rng.integers(2**31)),
    )
    n_threads = count_threads(n_jobs)
    with get_threadpool_controller().limit(limits=n_threads, user_api="openmp"):
        centers = unit_rows(kmeans.fit(X[eligible]).cluster_centers_)
    nearest = _nearest_rows(centers, X, eligible)
    if kind == "medoids":
        indices = np.unique(nearest)
        return X[indices], indices
    return like(centers, X), nearest


def _nearest_rows(queries, X, eligible):
    """Return the nearest eligible row of X for each query."""
    among = X[eligible]
    n_rows = get_chunk_n_rows(24 * len(eligible), max_n_rows=queries.shape[0])
    nearest = [
        largest(inner_products(queries[batch], among), 1)[:, 0]
        for batch in gen_batches(queries.shape[0], n_rows)
    ]
    return eligible[np.concatenate(nearest)]


def choose_candidates(
    how: str,
    n_candidates: int,
    X: Matrix,
    relevance: Relevance,
    references: Matrix,
    indices: np.ndarray,
    rng,
) -> list[Block]:
    """Return blocks of triplets of each relevant with each irrelevant candidate."""
    is_balanced = how in ("balanced", "hard")
    # Numbers of candidates by kind: 1 for relevant, 0 for irrelevant or for either.
    sizes = {0: n_candidates}
    if is_balanced:
        sizes = {1: n_candidates // 2, 0: n_candidates - n_candidates // 2}

    def batches():
        """Yield kinds, with -1 for junk and the reference itself."""
        for batch, _, kinds in relevance.batches(indices):
            yield batch, kinds, kinds if is_balanced else np.minimum(kinds, 0)

    if how in ("balanced", "random"):
        # For all references at once: `working_memory` decides the size of a batch.
        counts = {kind: np.zeros(len(indices), dtype=np.int64) for kind in sizes}
        for batch, _, listed in batches():
            for kind, count in counts.items():
                count_kinds(listed, kind, count[batch])
        ranks = {
            kind: _draw_ranks(count, sizes[kind], rng) for kind, count in counts.items()
        }
    blocks = []
    for batch, kinds, listed in batches():
        if how in ("nearest", "hard"):
            cosines = inner_products(references[batch], X)
            sides = [
                _take_nearest(cosines, listed, kind, sizes[kind]) for kind in sizes
            ]
        else:
            sides = [
                _take_drawn(listed, kind, ranks[kind][batch], counts[kind][batch])
                for kind in sizes
            ]
        pairs: Iterable[tuple[np.ndarray, ...]] = zip(*sides, strict=True)
        if not is_balanced:
            pairs = (
                (rows[kind[rows] == 1], rows[kind[rows] == 0])
                for kind, (rows,) in zip(kinds, pairs, strict=True)
            )
        for i, (relevant, irrelevant) in enumerate(pairs, batch.start):
            blocks += blocks_of_pairs(i, relevant, irrelevant)
    return blocks


def _take_nearest(cosines, kinds, kind, n):
    """Return up to n columns of a kind for each row, with the largest cosines."""
    for row, of_row in zip(kinds, cosines, strict=True):
        columns = np.flatnonzero(row == kind)
        if len(columns) > n:
            columns = columns[largest(of_row[None, columns], n)[0]]
        yield columns


def _take_drawn(kinds, kind, ranks, counts):
    """Return the columns of a kind with the given ranks, for each row."""
    columns = np.empty(ranks.shape, dtype=np.int64)
    take_ranked(kinds, kind, ranks, columns)
    return [row[:count] for row, count in zip(columns, counts, strict=True)]


def _draw_ranks(size, n, rng):
    """Return n different ranks below each size, ascending; all if there are fewer."""
    ranks = np.sort(rng.integers(np.maximum(size, 1)[:, None], size=(len(size), n)))
    # If ranks are scarce, draws would be repeated often.
    scarce = np.flatnonzero(size < 2 * n)
    keys = rng.random((len(scarce), 2 * n))
    keys[np.arange(2 * n) >= size[scarce, None]] = 2
    ranks[scarce] = np.sort(np.argsort(keys)[:, :n])
    while True:
        row, place = np.nonzero(ranks[:, 1:] == ranks[:, :-1])
        if not len(row):
            return ranks
        ranks[row, place] = rng.integers(size[row])
        ranks[row] = np.sort(ranks[row])


def check_memory(X: Matrix, n_rows: int, what: str, remedy: str) -> None:
    """Raise if dense rows of sparse data would exceed the working memory."""
    limit = get_config()["working_memory"]
    needed = n_rows * X.shape[1] * 8 / 2**20
    if sparse.issparse(X) and needed > limit:
        raise ValueError(
            f"{needed:.0f} MiB would be needed for {what} of {X.shape[1]} features, "
            f"but the working_memory is {limit} MiB: {remedy}, or raise the limit by "
            "sklearn.set_config(working_memory=...)."
        )
