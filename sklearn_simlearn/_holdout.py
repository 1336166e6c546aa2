"""The hold-out: folds, the judge, the choice.

A learner moves away from a start that is good already, such as the cosine. Whether it
should, and how far, depends on the queries to come: of the classes it learns from, or
of others. The user chooses by `holdout`, and samples that take no part in learning
decide. With labels, held-out samples query each other. With judgements, held-out
queries search the documents.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.relevance import JudgedRelevance, Relevance
from sklearn_simlearn._core.sklearn import StrOptions
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.warn import StartKeptWarning, warn_user
from sklearn_simlearn.metrics._measure import MEASURES, Ranks, rank_relevant_items

# What every learner takes as `holdout`, by the kind of y.
FOR_LABELS = ("objects", "samples")
FOR_JUDGEMENTS = ("queries", "documents")
HOLDOUT = [StrOptions({"auto", *FOR_LABELS, *FOR_JUDGEMENTS}), None]

# Parameters that do not change what is learned.
NOT_LEARNED = {"estimator", "holdout", "init", "n_jobs", "random_state"}

# The candidate that is always there: what the learner starts from.
START = None

# Fewer classes say nothing about new ones.
MIN_CLASSES = 10

# Share of the samples that `"samples"` holds out in a fold.
SHARE = 0.2

# Fewer queries with relevant documents say nothing about new ones.
MIN_QUERIES = 10

# Share of the documents that `"documents"` holds out in a fold.
SHARE_OF_DOCUMENTS = 0.5

# Documents that the held-out queries of a fold search: those judged for them, and a
# sample of the others.
MAX_DOCUMENTS = 20_000

# Held-out samples of a fold that are scored. `"samples"` takes as many folds as it
# takes to have that many in all, so that few samples are not judged by a handful.
MAX_ROWS = 1000

# The same in a race, where many candidates are judged, and how many candidates are
# judged in all folds.
RACE_ROWS = 250
N_FINALISTS = 4

# How many times what is lost at rank 1 is taken off a gain in mean average precision:
# 2 to 4 are alike, and with 1 some learners lose 0.015 on known classes.
LOSS_AT_1 = 3.0

average_precision = MEASURES["map"].bind()
ndcg_at_10 = MEASURES["ndcg"].bind(k=10)


class Fold(NamedTuple):
    """Rows to learn from, and held-out rows that query and that are searched.

    With labels the last two are the same samples, which query each other.
    """

    train: np.ndarray
    queries: np.ndarray
    items: np.ndarray


class Choice(NamedTuple):
    """The candidate to take, and why.

    Attributes
    ----------
    candidate : tuple or None
        The settings chosen; `START` for the start itself.

    attributes : dict
        `holdout_gain_`, `holdout_error_` and `holdout_results_`, as learners publish
        them.
    """

    candidate: Any
    attributes: dict


def read_holdout(holdout: str, relevance: Relevance) -> str:
    """Return what is held out; raise if it does not go with the kind of `y`."""
    is_judged = isinstance(relevance, JudgedRelevance)
    allowed = FOR_JUDGEMENTS if is_judged else FOR_LABELS
    if holdout == "auto":
        return allowed[0]
    if holdout not in allowed:
        kind = "judgements" if is_judged else "labels or relevance of samples"
        raise ValueError(
            f"holdout={holdout!r} does not go with y, which holds {kind}: pass "
            f"{allowed[0]!r}, {allowed[1]!r}, None or 'auto'."
        )
    return holdout


def warn_of_no_holdout(learner, method: str) -> None:
    """Warn that a method learns without the hold-out that the learner asks for."""
    if learner.holdout is not None:
        warn_user(
            f"{method} learns without a hold-out, so the similarity may rank worse "
            "than the start. Set holdout=None if that is intended, or pass labels or "
            "judgements to `fit`."
        )


def warn_if_start_is_kept(learner, attributes: dict) -> None:
    """Warn if the hold-out measured candidates and chose the start."""
    results = attributes.get("holdout_results_")
    if results is None or results["candidates"][results["best_index"]] is not START:
        return
    gain, error = results["gain"], results["error"]
    others = [i for i, c in enumerate(results["candidates"]) if c is not START]
    measured = ""
    if others:
        best = max(others, key=lambda i: gain[i] - error[i])
        name = "nDCG@10" if "ndcg_at_10" in results else "mean average precision"
        measured = (
            f" The best candidate gained {gain[best]:.4f} +- {error[best]:.4f} in "
            f"{name} and {results['gain_at_1'][best]:.4f} at rank 1."
        )
    unused = sorted(set(learner.get_params(deep=False)) - NOT_LEARNED)
    remedy = ""
    if getattr(learner, "holdout", None) in ("auto", "objects"):
        remedy = ' Pass holdout="samples" if future queries are of the classes in y.'
    warn_user(
        f"{type(learner).__name__} keeps its start: nothing that it learned ranks "
        f"held-out samples better.{measured} So {', '.join(unused)} have no effect."
        f"{remedy if 'ndcg_at_10' not in results else ''}",
        StartKeptWarning,
    )


def choose(
    path: Callable[..., Iterator[tuple[Any, Encoder]]],
    X: Matrix,
    relevance: Relevance,
    holdout: str,
    rng: np.random.Generator,
    advance: Callable[..., bool],
    race: bool = False,
) -> Choice:
    """Let held-out samples choose among the candidates of a path.

    Parameters
    ----------
    path : callable
        ``path(train, rng)``, with the rows to learn from, yields candidates one by one,
        each as a named tuple of settings and the encoder that was learned with them.
        The first is `START`. A candidate that is missing in some fold is skipped.

    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked training samples.

    relevance : Relevance
        Of the training samples to each other.

    holdout : str
        What is held out; one of `HOLDOUT` that goes with the kind of `y`.

    rng : Generator
        Decides on the folds; each of them gets a stream of its own.

    advance : callable
        Reports a step to the callbacks; returns whether one of them asks to stop.

    race : bool, default=False
        Whether each fold drops the worse half of the candidates, so that many can be
        tried. Then fewer samples are scored, too.
    """
    holdout = read_holdout(holdout, relevance)
    folds = make_folds(relevance, holdout, rng, RACE_ROWS if race else MAX_ROWS)
    judge = Judge(X, relevance, by_class=holdout == "objects")
    # On more threads BLAS would sum in another order.
    with one_blas_thread():
        dropped: set[Any] = set()
        for fold, stream in zip(folds, rng.spawn(len(folds)), strict=True):
            judge.open(fold)
            for candidate, encoder in path(fold.train, stream):
                if candidate in dropped:
                    continue
                judge.record(candidate, encoder)
                if advance("hold-out"):
                    return judge.choose()
            if race:
                dropped |= judge.find_losers()
    return judge.choose()


def make_folds(
    relevance: Relevance, holdout: str, rng, max_rows: int = MAX_ROWS
) -> list[Fold]:
    """Return the folds; none, with a warning, if classes or samples are too few."""
    if isinstance(relevance, JudgedRelevance):
        return _hold_out_queries(relevance, rng, with_documents=holdout == "documents")
    objects = relevance.objects()
    if holdout == "samples":
        folds = []
        for test in _hold_out_samples(objects, rng):
            rest = np.setdiff1d(np.arange(len(objects)), test)
            if all(relevance.take(rows).find_queries().any() for rows in (test, rest)):
                test = _limit(test, objects, rng, max_rows)
                folds.append(Fold(rest, test, test))
        if folds:
            return folds
        warn_user(
            "The start is kept, since the samples are too few to hold some out as "
            'holdout="samples" does. Set holdout=None to learn without a hold-out.',
            StartKeptWarning,
        )
        return []

    sizes = np.bincount(objects[objects >= 0])
    classes = rng.permutation(np.flatnonzero(sizes > 1))
    if len(classes) < MIN_CLASSES:
        warn_user(
            f"The start is kept, since the {len(classes)} classes in y are fewer than "
            f"the {MIN_CLASSES} that show what helps with new classes. Pass "
            'holdout="samples" if future queries are of the classes in y.',
            StartKeptWarning,
        )
        return []
    n_folds = 3 if np.median(sizes[classes]) < 6 else min(5, len(classes) // 2)
    folds = []
    for held_out in np.array_split(classes, n_folds):
        is_test = np.isin(objects, held_out)
        test = _limit(np.flatnonzero(is_test), objects, rng, max_rows)
        folds.append(Fold(np.flatnonzero(~is_test), test, test))
    return folds


def _hold_out_queries(relevance, rng, *, with_documents):
    """Disjoint parts of the queries, each against all or against held-out documents."""
    queries = rng.permutation(np.flatnonzero(relevance.find_queries()))
    if len(queries) < MIN_QUERIES:
        warn_user(
            f"The start is kept, since {len(queries)} queries with relevant documents "
            f"are fewer than the {MIN_QUERIES} that show what helps with new ones. Set "
            "holdout=None to learn without a hold-out.",
            StartKeptWarning,
        )
        return []
    documents = np.flatnonzero(relevance.is_item)
    n_folds = 5 if len(queries) < MAX_ROWS else 3
    folds = []
    for held_out in np.array_split(queries, n_folds):
        others = np.setdiff1d(np.arange(len(relevance)), held_out)
        items = documents
        if with_documents:
            n_items = round(SHARE_OF_DOCUMENTS * len(documents))
            items = np.sort(rng.choice(documents, n_items, replace=False))
            others = np.setdiff1d(others, items)
        if not relevance.take(others).find_queries().any():
            continue
        held_out = np.sort(held_out[: MAX_ROWS // n_folds])
        folds.append(Fold(others, held_out, _sample(items, held_out, relevance, rng)))
    return folds


def _sample(documents, queries, relevance, rng):
    """Return at most `MAX_DOCUMENTS`, those judged for the queries among them."""
    n_more = MAX_DOCUMENTS - len(documents)
    if n_more >= 0:
        return documents
    judged = np.intersect1d(documents, relevance.pairs[queries].indices)
    others = np.setdiff1d(documents, judged)
    n_others = max(0, MAX_DOCUMENTS - len(judged))
    return np.union1d(judged, rng.choice(others, n_others, replace=False))


def _hold_out_samples(objects, rng):
    """Disjoint parts of the samples: of each class a share, two of them at least.

    Of a class below four, which cannot spare two, all or none are in a part.
    """
    known = np.flatnonzero(objects >= 0)
    row, place, size = shuffle_within(objects[known], rng)
    row = known[row]
    n_taken = np.maximum(2, np.rint(SHARE * size).astype(np.int64))
    part = np.where((place // n_taken + 1) * n_taken <= size, place // n_taken, -1)
    is_small = size < 4
    small = rng.permutation(np.unique(objects[row[is_small]]))
    n_small = max(1, int(np.rint(SHARE * len(small))))
    part_of_object = np.full(objects.max(initial=-1) + 1, -1)
    part_of_object[small] = np.arange(len(small)) // n_small
    part[is_small] = part_of_object[objects[row[is_small]]]

    parts, n_held_out = [], 0
    for i in range(round(1 / SHARE)):
        parts.append(np.sort(row[part == i]))
        n_held_out += len(parts[-1])
        if n_held_out >= MAX_ROWS:
            break
    return parts


def _limit(rows, objects, rng, max_rows):
    """At most `max_rows` of the rows, an even number of each class first."""
    order, place, _ = shuffle_within(objects[rows], rng)
    first = np.lexsort((objects[rows][order], place // 2))[:max_rows]
    return np.sort(rows[order[first]])


def shuffle_within(
    objects: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples by class, in random order within it: row, place in it, and its size."""
    row = rng.permutation(len(objects))
    row = row[np.argsort(objects[row], kind="stable")]
    _, first, size = np.unique(objects[row], return_index=True, return_counts=True)
    return row, np.arange(len(row)) - np.repeat(first, size), np.repeat(size, size)


class Measures(NamedTuple):
    """Measures of one candidate, per held-out query."""

    quality: np.ndarray  # average precision, or nDCG@10 with judgements
    p1: np.ndarray  # precision at 1 among the held-out samples
    p1_dense: np.ndarray  # what it would be in a denser database


class Judge:
    """How well the candidates rank the held-out samples, and which is the best.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked training samples.

    relevance : Relevance
        Of the training samples to each other.

    by_class : bool
        Whether classes have equal weight, as they do if others are to come; otherwise
        queries have.
    """

    def __init__(self, X: Matrix, relevance: Relevance, *, by_class: bool):
        self.X, self.relevance, self.by_class = X, relevance, by_class
        self.is_judged = isinstance(relevance, JudgedRelevance)
        self.objects = relevance.objects()
        self.measures: list[dict[Any, Measures]] = []  # per fold, by candidate
        self.classes: list[np.ndarray] = []  # of the queries, per fold

    def open(self, fold: Fold) -> None:
        """Begin a fold."""
        find = self.relevance.graded_block if self.is_judged else self.relevance.block
        relevant = find(fold.queries, fold.items)
        relevant[fold.queries[:, None] == fold.items] = -1
        has_both = (relevant > 0).any(axis=1) & (relevant == 0).any(axis=1)
        self.has_both, self.relevant = has_both, relevant[has_both]
        X_queries = self.X[fold.queries]
        same = fold.queries is fold.items
        self.sides = Sides(X_queries, X_queries if same else self.X[fold.items])
        self.measures.append({})
        self.classes.append(self.objects[fold.queries[has_both]])

    def record(self, candidate, encoder: Encoder) -> None:
        """Measure how an encoder ranks the held-out items."""
        # In single precision, so that equal samples tie however their sums are rounded.
        S = self.sides.similarity(encoder)[self.has_both].astype(np.float32, copy=False)
        ranks = rank_relevant_items(self.relevant, S)
        p1, p1_dense = _precision_at_1(ranks)
        if self.is_judged:  # the documents are all there
            measures = Measures(ndcg_at_10(ranks), p1, p1)
        else:
            measures = Measures(average_precision(ranks), p1, p1_dense)
        self.measures[-1][candidate] = measures

    def choose(
        self, start: Any = START, *, caution: float = 1.0, loss_at_1: float = LOSS_AT_1
    ) -> Choice:
        """Return the candidate of the highest worth; the start if none is above 0."""
        candidates = self._candidates()
        if not candidates:
            return Choice(start, {"holdout_gain_": 0.0, "holdout_error_": 0.0})
        results, worth = self._weigh(candidates, start, caution, loss_at_1)
        best = int(np.argmax(worth))
        if worth[best] <= 0:
            best = candidates.index(start)
        attributes = {
            "holdout_gain_": float(results["gain"][best]),
            "holdout_error_": float(results["error"][best]),
            "holdout_results_": {
                "candidates": candidates,
                **results,
                "best_index": best,
            },
        }
        return Choice(candidates[best], attributes)

    def find_losers(self) -> set[Any]:
        """Return the worse half of the candidates, without the start."""
        candidates = [c for c in self._candidates() if c is not START]
        _, worth = self._weigh([START, *candidates])
        n_kept = max(N_FINALISTS, (len(candidates) + 1) // 2)
        order = np.argsort(-worth[1:], kind="stable")
        return {candidates[i] for i in order[n_kept:]}

    def _candidates(self):
        """Return the candidates that were judged in all folds so far."""
        return [
            candidate
            for candidate in (self.measures[0] if self.measures else ())
            if all(candidate in fold for fold in self.measures)
        ]

    def _weigh(self, candidates, start=START, caution=1.0, loss_at_1=LOSS_AT_1):
        """Return the measures of candidates, and the worth of each.

        (holdout-gain) is the mean difference in average precision (nDCG@10 with
        judgements) to the start, over classes or over queries, and its standard error.
        (holdout-worth) is the gain less `caution` times its error and less `loss_at_1`
        times what is lost at rank 1.
        """
        start = candidates.index(start)
        quality, p1, p1_dense = (
            self._values(candidates, name) for name in Measures._fields
        )
        gains = quality - quality[start]
        gain, n = gains.mean(axis=1), gains.shape[1]
        error = gains.std(axis=1, ddof=min(1, n - 1)) / np.sqrt(n)
        at_1 = np.minimum(1, p1_dense.mean(axis=1))
        gain_at_1 = at_1 - at_1[start]
        worth = gain - caution * error - loss_at_1 * np.maximum(0, -gain_at_1)
        name = "ndcg_at_10" if self.is_judged else "mean_average_precision"
        results = {
            name: quality.mean(axis=1),
            "precision_at_1": p1.mean(axis=1),
            "gain": gain,
            "error": error,
            "gain_at_1": gain_at_1,
        }
        return results, worth

    def _values(self, candidates, name):
        """Return a measure as an array: candidates by queries, or by classes."""
        values = np.array(
            [
                np.concatenate([getattr(fold[c], name) for fold in self.measures])
                for c in candidates
            ]
        )
        classes = np.concatenate(self.classes)
        if not self.by_class or len(np.unique(classes)) < MIN_CLASSES:
            return values
        order = np.argsort(classes, kind="stable")
        _, first, size = np.unique(
            classes[order], return_index=True, return_counts=True
        )
        return np.add.reduceat(values[:, order], first, axis=1) / size


def _precision_at_1(ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """Precision at 1 per query: among held-out samples, and in a dense database.

    A later database is denser, and holds near duplicates that the start finds: there a
    gain at rank 1 is smaller. With p among the held-out samples and p_half the mean of
    p if each of them is missing with probability 1/2, Richardson's extrapolation is

        (holdout-dense)  p + (p - p_half).

    An item comes first if it is there and all above it are missing; of several tied
    ones each is as likely to come first.
    """
    n_above, n_tied = ranks.n_above, ranks.n_tied
    is_first = (n_above == 0) / n_tied
    is_first_of_half = np.exp2(-n_above) * (1 - np.exp2(-n_tied)) / n_tied
    p, p_half = (
        np.bincount(ranks.query, chance, minlength=len(ranks.n_relevant))
        for chance in (is_first, is_first_of_half)
    )
    return p, 2 * p - p_half
