"""Weights of a union, chosen by held-out queries."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import GivenSimilarities
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.relevance import Relevance, check_relevance
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._folds import MAX_DOCUMENTS, MAX_ROWS, Fold
from sklearn_simlearn._holdout import Judge
from sklearn_simlearn.compose._parts import Part

# Number of steps of the weights from 0 to 1, and the largest number of candidates. With
# many parts, there are fewer steps.
N_STEPS = 20
MAX_CANDIDATES = 130

Weights = tuple[float, ...]


class Samples(NamedTuple):
    """Queries and items with their relevance.

    Rows are numbered as in `Relevance`: queries first, then documents.
    """

    X: Any
    y: TargetLike
    relevance: Relevance | None

    @classmethod
    def read(cls, X: Any, y: TargetLike) -> "Samples":
        """Return the samples with a checked target."""
        X = _make_indexable(X)
        if y is None:
            return cls(X, None, None)
        if isinstance(y, Judgements):
            y = y.with_documents(_make_indexable(y.documents))
            relevance: Relevance = JudgedRelevance.of(y.relevance)
        else:
            relevance = check_relevance(y, n_samples=num_samples(X))
        relevance.require_triplets()
        return cls(X, y, relevance)

    def require_relevance(self) -> Relevance:
        """Return the relevance; raise if there is no target."""
        if self.relevance is None:
            raise ValueError("y is required to learn the weights, but y is None.")
        return self.relevance

    @property
    def is_judged(self) -> bool:
        """Return True if queries search documents."""
        return isinstance(self.y, Judgements)

    @property
    def items(self) -> Any:
        """Return the documents, or the samples."""
        return self.y.documents if isinstance(self.y, Judgements) else self.X

    def take(self, rows: np.ndarray) -> tuple[Any, Any]:
        """Return X and y of some rows, as arguments of `fit`."""
        if not isinstance(self.y, Judgements):
            return safe_indexing(self.X, rows), safe_indexing(self.y, rows)
        n_queries, n_documents = self.y.shape
        queries, documents = rows[rows < n_queries], rows[rows >= n_queries] - n_queries
        y = self.y[queries]
        if len(documents) < n_documents:
            ids = y.document_ids
            y = Judgements(
                y.relevance[:, documents],
                safe_indexing(y.documents, documents),
                query_ids=y.query_ids,
                document_ids=None if ids is None else ids[documents],
            )
        return safe_indexing(self.X, queries), y

    def compare_with(self, part: Part, rows: np.ndarray) -> Callable[[Any], np.ndarray]:
        """Return a function from queries to their similarities with some items."""
        n_before = len(self.y) if isinstance(self.y, Judgements) else 0
        return part.compare_with(safe_indexing(self.items, rows - n_before))

    def find_similarities(
        self, parts: Sequence[Part], fold: Fold, known: dict
    ) -> list[np.ndarray]:
        """Return the similarities of the queries of a fold to its items.

        `known` holds the encoded items of the fold before, for parts that are equal.
        """
        queries = safe_indexing(self.X, fold.queries)
        for number, part in enumerate(parts):
            model, items, _ = known.get(number, (None, None, None))
            if model is not part.model or items is not fold.items:
                compare = self.compare_with(part, fold.items)
                known[number] = part.model, fold.items, compare
        found = [known[number][2](queries) for number in range(len(parts))]
        return [S.astype(np.float32, copy=False) for S in found]

    def sample(self, rng: np.random.Generator) -> Fold:
        """Return some queries and items, to measure a spread."""
        n_queries, n_items = num_samples(self.X), num_samples(self.items)
        n_before = n_queries if self.is_judged else 0
        queries = rng.permutation(n_queries)[:MAX_ROWS]
        items = rng.permutation(n_items)[:MAX_DOCUMENTS]
        return Fold(queries[:0], np.sort(queries), n_before + np.sort(items))


def _make_indexable(X):
    """Return samples whose rows can be indexed; some sparse formats do not allow it."""
    return canonical_csr(X) if sparse.issparse(X) else X


def measure_spread(S: np.ndarray, fold: Fold) -> float:
    """Return the mean difference between the highest and the mean similarity.

    (union-spread)  The mean is over queries. After division by this spread, different
    similarities are comparable at the top of the list, and equal weights are close to
    the best ones.
    """
    own = fold.queries[:, None] == fold.items
    best = np.where(own, -np.inf, S).max(axis=1)
    n_others = np.maximum(own.shape[1] - own.sum(axis=1), 1)
    mean = np.where(own, 0, S).sum(axis=1, dtype=np.float64) / n_others
    found = np.isfinite(best)
    spread = float((best[found] - mean[found]).mean()) if found.any() else 0.0
    return spread if spread > 0 else 1.0


def list_starts(n_parts: int) -> list[Weights]:
    """Return equal weights of all parts, then of each subset of the parts.

    If there are many parts, the only other subsets are single parts.
    """
    all_parts = range(n_parts)
    sizes = range(1, n_parts) if 2**n_parts <= MAX_CANDIDATES else [1]
    sets = [part for size in sizes for part in combinations(all_parts, size)]
    return [
        tuple(1 / len(chosen) if part in chosen else 0.0 for part in all_parts)
        for chosen in dict.fromkeys([tuple(all_parts), *sets])
    ]


def list_candidates(n_parts: int) -> list[Weights]:
    """Return the starts, then the other points of a grid of weights with sum 1."""
    n_steps = N_STEPS
    while n_steps > 1 and comb(n_steps + n_parts - 1, n_steps) > MAX_CANDIDATES:
        n_steps -= 1
    lattice = []
    for bars in combinations(range(n_steps + n_parts - 1), n_parts - 1):
        edges = np.array([-1, *bars, n_steps + n_parts - 1])
        lattice.append(tuple(((np.diff(edges) - 1) / n_steps).tolist()))
    return list(dict.fromkeys([*list_starts(n_parts), *lattice]))


class Learned(NamedTuple):
    """Weights and spreads of the parts, and the results of the hold-out."""

    weights: Weights
    spreads: list[float] | None
    attributes: dict


def learn_weights(
    fit_parts: Callable[[int], Sequence[Part]],
    samples: Samples,
    n_parts: int,
    folds: Sequence[Fold],
    *,
    by_class: bool,
) -> Learned:
    """Choose the weights by held-out queries.

    The start is the best subset of the parts with equal weights. As in the learners,
    other weights are chosen only if their gain over the start exceeds its error.

    Parameters
    ----------
    fit_parts : callable
        Function that takes the number of a fold and returns the parts, fitted on the
        rows that the fold does not hold out.

    samples : Samples
        All rows, with relevance.

    n_parts : int
        Number of parts.

    folds : sequence of Fold
        The folds.

    by_class : bool
        Whether all classes have equal weight.
    """
    relevance = samples.require_relevance()
    judge = Judge(np.arange(len(relevance)), relevance, by_class=by_class)
    candidates = list_candidates(n_parts)
    spreads: list[list[float]] = []
    known: dict = {}
    for number, fold in enumerate(folds):
        fold = fold._replace(others=fold.others[:0])  # rank 1 is not weighted here
        judge.open(fold)
        S = samples.find_similarities(fit_parts(number), fold, known)
        spreads.append([measure_spread(each, fold) for each in S])
        S = [each / spread for each, spread in zip(S, spreads[-1], strict=True)]
        for weights in candidates:
            terms = (w * each for w, each in zip(weights, S, strict=True) if w)
            total = reduce(np.add, terms)
            judge.record(weights, GivenSimilarities(total[judge.has_both]))
    starts = list_starts(n_parts)
    alone = [weights for weights in starts if max(weights) == 1]
    choice = judge.choose(starts, alone)
    means = np.mean(spreads, axis=0).tolist() if folds else None
    return Learned(choice.candidate, means, choice.attributes)
