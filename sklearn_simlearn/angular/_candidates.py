"""Choice of the references of the angular ranker, and of their candidates."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.sklearn import get_chunk_n_rows, get_threadpool_controller
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.triplets import take_triplets
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.angular._dual import Block, blocks_of_pairs, blocks_of_triplets
from sklearn_simlearn.angular._encoder import largest, like


class GivenTriplets(NamedTuple):
    """Triplets that the user passed, as row numbers of the training data."""

    rows: np.ndarray


def choose_triplets(learner, X, start, relevance, given, rows, rng, limit=None):
    """Return references, the samples that represent them, and blocks of triplets.

    `X` holds some `rows` of the training data, encoded by the start. `given` holds
    triplets, whose queries become the references; or references, as an array or as a
    name. A name chooses at most `limit` references.
    """
    if isinstance(given, GivenTriplets):
        query, relevant, irrelevant = take_triplets(given.rows, rows).T
        indices, query = np.unique(query, return_inverse=True)
        return X[indices], indices, blocks_of_triplets(query, relevant, irrelevant)
    n_references = min(learner.n_references, limit or learner.n_references)
    # Separate random streams: the draw of candidates does not depend on `references`.
    reference_rng, candidate_rng = rng.spawn(2)
    if isinstance(given, str):
        references, indices = choose_references(
            given, n_references, X, relevance.can_query, learner.n_jobs, reference_rng
        )
    else:
        references, indices = place_references(
            given, X, start, relevance.can_query, rows
        )
    blocks = choose_candidates(
        learner.candidates,
        learner.n_candidates,
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
        if references.min() < 0 or references.max() >= X.shape[0]:
            raise ValueError(
                f"references must be row numbers of X, from 0 to {X.shape[0] - 1}; got "
                f"{references.min()} to {references.max()}."
            )
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
    by_distance = how in ("nearest", "hard")
    n_relevant = n_candidates // 2
    blocks = []
    # 1 for relevant, 0 for irrelevant, -1 for junk and the reference itself
    for batch, _, kinds in relevance.batches(indices):
        if by_distance:
            cosines = inner_products(references[batch], X)
        for i, kind in enumerate(kinds):
            if how in ("nearest", "random"):
                pools = [(kind >= 0, n_candidates)]
            else:
                pools = [
                    (kind == 1, n_relevant),
                    (kind == 0, n_candidates - n_relevant),
                ]
            chosen = []
            for pool, n in pools:
                rows = np.flatnonzero(pool)
                if len(rows) > n and by_distance:
                    rows = rows[largest(cosines[i : i + 1, rows], n)[0]]
                elif len(rows) > n:
                    rows = np.sort(rng.choice(rows, n, replace=False))
                chosen.append(rows)
            rows = np.concatenate(chosen)
            relevant = kind[rows] == 1
            blocks += blocks_of_pairs(batch.start + i, rows[relevant], rows[~relevant])
    return blocks


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
