"""Weights of a union, chosen by held-out queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.relevance import JudgedRelevance, Relevance, check_relevance
from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn._holdout import (
    MAX_DOCUMENTS,
    MAX_ROWS,
    Fold,
    Judge,
    make_folds,
    read_holdout,
)
from sklearn_simlearn.compose._parts import Part

# Steps of the weights from 0 to 1, and most candidates, which make the steps larger for
# more parts.
N_STEPS = 20
MAX_CANDIDATES = 130

Weights = tuple[float, ...]


class Samples(NamedTuple):
    """Queries and items with what is known of their relevance.

    Rows are numbered as in `Relevance`: documents follow the queries.
    """

    X: Any
    y: Any
    relevance: Relevance | None

    @classmethod
    def read(cls, X: Any, y: Any) -> "Samples":
        """Check the target."""
        if y is None:
            return cls(X, None, None)
        if isinstance(y, Judgements):
            relevance: Relevance = JudgedRelevance.of(y.relevance)
        else:
            relevance = check_relevance(y, n_samples=num_samples(X))
        relevance.require_triplets()
        return cls(X, y, relevance)

    @property
    def is_judged(self) -> bool:
        """Return whether queries search documents."""
        return isinstance(self.y, Judgements)

    @property
    def items(self) -> Any:
        """The documents, or the samples."""
        return self.y.documents if self.is_judged else self.X

    def take(self, rows: np.ndarray) -> tuple[Any, Any]:
        """Return X and y of some rows, as `fit` takes them."""
        if not self.is_judged:
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

    def find_similarities(self, part: Part, fold: Fold) -> np.ndarray:
        """Return the similarities of the queries of a fold to its items."""
        n_before = len(self.y) if self.is_judged else 0
        items = safe_indexing(self.items, fold.items - n_before)
        S = part.compare_with(items)(safe_indexing(self.X, fold.queries))
        return S.astype(np.float32, copy=False)

    def sample(self, rng: np.random.Generator) -> Fold:
        """Return some queries and items, to measure a spread."""
        n_queries, n_items = num_samples(self.X), num_samples(self.items)
        n_before = n_queries if self.is_judged else 0
        queries = rng.permutation(n_queries)[:MAX_ROWS]
        items = rng.permutation(n_items)[:MAX_DOCUMENTS]
        return Fold(queries[:0], np.sort(queries), n_before + np.sort(items))


def measure_spread(S: np.ndarray, fold: Fold) -> float:
    """Return how far the best item is above the mean item, on average over queries.

    (union-spread) Divided by it, similarities of different kinds are comparable at the
    top of the list, where equal weights are then near the best.
    """
    own = fold.queries[:, None] == fold.items
    best = np.where(own, -np.inf, S).max(axis=1)
    n_others = np.maximum(own.shape[1] - own.sum(axis=1), 1)
    mean = np.where(own, 0, S).sum(axis=1, dtype=np.float64) / n_others
    found = np.isfinite(best)
    spread = float((best[found] - mean[found]).mean()) if found.any() else 0.0
    return spread if spread > 0 else 1.0


def list_candidates(n_parts: int) -> list[Weights]:
    """Return equal weights first, then a lattice of weights with the sum 1.

    Each part alone is a point of the lattice.
    """
    n_steps = N_STEPS
    while n_steps > 1 and _count(n_parts, n_steps) > MAX_CANDIDATES:
        n_steps -= 1
    lattice = []
    for bars in combinations(range(n_steps + n_parts - 1), n_parts - 1):
        edges = np.array([-1, *bars, n_steps + n_parts - 1])
        lattice.append(tuple(((np.diff(edges) - 1) / n_steps).tolist()))
    equal = (1 / n_parts,) * n_parts
    return list(dict.fromkeys([equal, *lattice]))


def _count(n_parts, n_steps):
    """Return the number of points of the lattice."""
    count = 1
    for i in range(1, n_parts):
        count = count * (n_steps + i) // i
    return count


@dataclass(frozen=True, eq=False)
class _Known(Encoder):
    """An encoder whose similarities are known."""

    S: np.ndarray

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the known similarities."""
        return self.S


class Learned(NamedTuple):
    """Weights and spreads of the parts, and what the hold-out found."""

    weights: Weights
    spreads: list[float] | None
    attributes: dict


def learn_weights(
    fit_parts: Callable[[np.ndarray], Sequence[Part]],
    samples: Samples,
    n_parts: int,
    holdout: str,
    rng: np.random.Generator,
) -> Learned:
    """Choose the weights that rank best for held-out queries.

    Parameters
    ----------
    fit_parts : callable
        From rows to learn from to the fitted parts.

    samples : Samples
        All rows, with relevance.

    n_parts : int
        Number of parts.

    holdout : str
        What is held out.

    rng : Generator
        Decides on the folds.
    """
    holdout = read_holdout(holdout, samples.relevance)
    folds = make_folds(samples.relevance, holdout, rng)
    rows = np.arange(len(samples.relevance))
    judge = Judge(rows, samples.relevance, by_class=holdout == "objects")
    candidates = list_candidates(n_parts)
    spreads = []
    for fold in folds:
        judge.open(fold)
        S = [samples.find_similarities(part, fold) for part in fit_parts(fold.train)]
        spreads.append([measure_spread(each, fold) for each in S])
        S = [each / spread for each, spread in zip(S, spreads[-1], strict=True)]
        for weights in candidates:
            total = sum(w * each for w, each in zip(weights, S, strict=True) if w)
            judge.record(weights, _Known(total))
    choice = judge.choose(candidates[0], caution=0, loss_at_1=0)
    if not folds:
        return Learned(choice.candidate, None, choice.attributes)
    name = "ndcg_at_10" if judge.is_judged else "mean_average_precision"
    results = choice.attributes["holdout_results_"]
    alone = [i for i, each in enumerate(results["candidates"]) if max(each) == 1]
    best_part = max(alone, key=lambda i: results[name][i])
    choice = judge.choose(results["candidates"][best_part], caution=0, loss_at_1=0)
    return Learned(
        choice.candidate, np.mean(spreads, axis=0).tolist(), choice.attributes
    )
