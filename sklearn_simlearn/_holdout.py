"""The hold-out: the judge and the choice.

A learner starts from a good similarity, such as the cosine. How far it should move away
depends on future queries, of the training classes or of new classes. The user states
this by `holdout`, and samples that are not used for learning decide. With labels, they
query each other. With judgements, held-out queries search the documents.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn._core.choice import START
from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.sklearn import StrOptions
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._folds import MAX_ROWS, MIN_CLASSES, Fold, make_folds
from sklearn_simlearn.metrics._measure import (
    MEASURES,
    measure_lists,
    rank_relevant_items,
)

# Values of `holdout` that learners accept, by the kind of y.
FOR_LABELS = ("objects", "samples")
FOR_JUDGEMENTS = ("queries", "documents")
HOLDOUT = [StrOptions({"auto", *FOR_LABELS, *FOR_JUDGEMENTS}), None]

# Number of candidates that a race judges in all folds.
N_FINALISTS = 4

# Factor of the loss at rank 1, which is subtracted from the gain in mean average
# precision. 2 to 4 give similar results; with 1, some learners lose 0.015 on known
# classes.
LOSS_AT_1 = 3.0

# With judgements, the standard error of a gain is multiplied by 1 + FEW / n for n
# held-out queries, since few queries underestimate the error of the best candidate.
FEW = 10

# A candidate is first measured on one of this number of queries. If it is worse than
# another one by this number of standard errors, it is left out.
ONE_OF, N_ERRORS = 4, 3

# Candidates whose mean average precision differs by less than this are equally good.
TIE = 0.003

# A candidate whose measures are all above 1 less this cannot be improved further.
PERFECT = 0.001

ndcg_at_10 = MEASURES["ndcg"].bind(k=10)
precision_at_1 = MEASURES["precision"].bind(k=1)


class Choice(NamedTuple):
    """The chosen candidate and its measurements.

    Attributes
    ----------
    candidate : tuple or None
        The settings chosen; `START` for the start itself.

    attributes : dict
        `holdout_gain_`, `holdout_error_` and `holdout_results_`, as learners publish
        them. With judgements, the gain on a fold is that of the candidate which the
        other folds choose.
    """

    candidate: Any
    attributes: dict


# The candidate that `choose` takes without folds, in a tuple.
_settled: ContextVar[tuple | None] = ContextVar("_settled", default=None)


class SharedFolds:
    """Folds that the learners in a union use, if their hold-out is that of the union.

    Parameters
    ----------
    holdout : str
        What is held out.

    relevance : Relevance
        Relevance of the training samples to each other.

    folds : list of Fold

    Attributes
    ----------
    candidates, encoders : list
        For each fold, the candidate that the other folds choose for the last learner
        that was fitted, and its encoder. They are empty if the learner did not use the
        folds, or did not keep the encoders.
    """

    def __init__(self, holdout: str, relevance: Relevance, folds: list[Fold]):
        self.holdout, self.n_samples, self.folds = holdout, len(relevance), folds
        self.candidates: list = []
        self.encoders: list[Encoder] = []

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Let learners that are fitted inside use the folds."""
        self.candidates, self.encoders = [], []
        token = _shared.set(self)
        try:
            yield
        finally:
            _shared.reset(token)

    def suit(self, holdout: str, relevance: Relevance) -> bool:
        """Return whether a learner with these samples can use the folds."""
        return self.holdout == holdout and self.n_samples == len(relevance)


# The folds that learners use.
_shared: ContextVar[SharedFolds | None] = ContextVar("_shared", default=None)


@contextmanager
def settle(candidate: Any) -> Iterator[None]:
    """Let learners that are fitted inside take a candidate, without a hold-out."""
    token = _settled.set((candidate,))
    try:
        yield
    finally:
        _settled.reset(token)


def read_holdout(holdout: str, relevance: Relevance) -> str:
    """Resolve `holdout`; raise if it does not suit the kind of `y`."""
    is_judged = isinstance(relevance, JudgedRelevance)
    allowed = FOR_JUDGEMENTS if is_judged else FOR_LABELS
    if holdout == "auto":
        return allowed[0]
    if holdout not in allowed:
        kind = "judgements or triplets"
        if not is_judged:
            kind = "labels or relevance of samples"
        raise ValueError(
            f"holdout={holdout!r} is not valid for {kind}: pass {allowed[0]!r}, "
            f"{allowed[1]!r}, None or 'auto'."
        )
    return holdout


def warn_of_no_holdout(learner, method: str) -> None:
    """Warn that a method learns without the hold-out that is set in the learner."""
    if learner.holdout is not None:
        warn_user(
            f"{method} learns without a hold-out, so the similarity may rank worse "
            "than the start. Set holdout=None if that is intended, or call `fit` or "
            "`fit_triplets` with all data."
        )


def forget_holdout(learner) -> None:
    """Remove the attributes that only a fit with a hold-out sets."""
    for name in ("holdout_gain_", "holdout_error_", "holdout_results_"):
        learner.__dict__.pop(name, None)


def choose(
    path: Callable[..., Iterator[tuple[Any, Encoder]]],
    X: Matrix,
    relevance: Relevance,
    holdout: str,
    rng: np.random.Generator,
    advance: Callable[..., bool],
    *,
    race: bool = False,
    keep: bool = False,
    max_rows: int = MAX_ROWS,
) -> Choice:
    """Let held-out samples choose among the candidates of a path.

    Parameters
    ----------
    path : callable
        ``path(train, rng)``, with the rows to learn from, yields candidates one by one,
        each as a named tuple of settings and the encoder that was learned with them.
        The first is `START`. A candidate that is missing in some fold is skipped. If
        there is only one fold, a candidate that ranks perfectly is the last, and
        candidates that rank much worse than another are left out. With `race`, it is
        called with a third argument, the set of candidates that it may leave out.

    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked training samples.

    relevance : Relevance
        Relevance of the training samples to each other.

    holdout : str
        What is held out; one of the values of `HOLDOUT` for the kind of `y`.

    rng : Generator
        Source of randomness for the folds; each fold gets its own stream.

    advance : callable
        Reports a step to the callbacks; returns whether one of them asks to stop.

    race : bool, default=False
        Whether each fold drops the worse half of the candidates, so that many can be
        tried. With judgements, nothing is dropped.

    keep : bool, default=False
        Whether to keep the encoders for a union. They must be those of a full fit.

    max_rows : int, default=MAX_ROWS
        Held-out samples of a fold that are searched.
    """
    holdout = read_holdout(holdout, relevance)
    settled = _settled.get()
    if settled is not None:
        return Choice(settled[0], {})
    shared = _shared.get()
    if shared is not None and shared.suit(holdout, relevance):
        folds = shared.folds
    else:
        shared, folds = None, make_folds(relevance, holdout, rng, max_rows)
    judge = Judge(X, relevance, by_class=holdout == "objects")
    # A judged fold that drops candidates would take part in the choice of the others.
    drops = race and not judge.is_judged
    # On more threads BLAS would sum in another order.
    with one_blas_thread():
        dropped: set[Any] = set()
        kept: list[dict[Any, Encoder]] = [{} for _ in folds]
        streams = rng.spawn(len(folds))
        for fold, stream, encoders in zip(folds, streams, kept, strict=True):
            if drops and judge.measures:
                dropped |= judge.find_losers()
            judge.open(fold)
            known = (dropped,) if race else ()
            for candidate, encoder in path(fold.train, stream, *known):
                if candidate in dropped:
                    continue
                if len(folds) == 1 and judge.is_hopeless(encoder):
                    continue
                judge.record(candidate, encoder)
                if keep and shared:
                    encoders[candidate] = encoder
                if advance("hold-out"):
                    return judge.choose()
                if len(folds) == 1 and judge.is_perfect(candidate):
                    break
    if shared is not None:
        shared.candidates = judge.choose_by_others()
        pairs = zip(kept, shared.candidates, strict=True)
        shared.encoders = [found[best] for found, best in pairs if found]
    return judge.choose()


class Measures(NamedTuple):
    """Measures of one candidate, per held-out query."""

    quality: np.ndarray  # average precision, or nDCG@10 with judgements
    p1: np.ndarray  # precision at 1 among the held-out samples
    p1_dense: np.ndarray  # extrapolated to a denser database
    p1_all: np.ndarray  # among the held-out samples and those to learn from


class Judge:
    """Measure how well the candidates rank the held-out samples; choose the best.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked training samples.

    relevance : Relevance
        Relevance of the training samples to each other.

    by_class : bool
        Whether all classes have equal weight, as for queries of new classes; otherwise
        all queries have equal weight.
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
        columns = np.concatenate([fold.items, fold.others])
        relevant = find(fold.queries, columns)
        relevant[fold.queries[:, None] == columns] = -1
        listed = relevant[:, : len(fold.items)]
        has_both = (listed > 0).any(axis=1) & (listed == 0).any(axis=1)
        queries = fold.queries[has_both]
        self.has_both = has_both
        self.relevant, self.n_items = relevant[has_both], len(fold.items)
        self.sides = Sides(self.X[queries], self.X[columns])
        self.part: Sides | None = None
        self.measures.append({})
        self.classes.append(self.objects[queries])

    def record(self, candidate, encoder: Encoder) -> None:
        """Measure how an encoder ranks the held-out items."""
        # In single precision, so that equal samples are tied despite rounding.
        S = self.sides.similarity(encoder).astype(np.float32, copy=False)
        if self.is_judged:  # no document is missing
            ranks = rank_relevant_items(self.relevant, S)
            p1 = precision_at_1(ranks)
            measures = Measures(ndcg_at_10(ranks), p1, p1, p1)
        else:
            quality, p1, p1_half, p1_all = measure_lists(self.relevant, S, self.n_items)
            p1_dense = 2 * p1 - p1_half  # (holdout-dense)
            if self.n_items == S.shape[1]:
                p1_all = p1_dense
            measures = Measures(quality, p1, p1_dense, p1_all)
        self.measures[-1][candidate] = measures

    def is_hopeless(self, encoder: Encoder) -> bool:
        """Return whether an encoder ranks much worse than a candidate of this fold.

        Its gain is certainly less than the value of that candidate, by more than `TIE`.
        """
        fold = self.measures[-1]
        if not fold or self.is_judged or self.by_class:
            return False
        results, worth = self._weigh([*fold])
        best = int(np.argmax(worth))
        some = np.s_[::ONE_OF], np.s_[: self.n_items]
        if self.part is None:
            self.part = self.sides.part(*some)
        S = self.part.similarity(encoder).astype(np.float32, copy=False)
        quality, *_ = measure_lists(np.ascontiguousarray(self.relevant[some]), S)
        lag = [*fold.values()][best].quality[::ONE_OF] - quality
        cost = results["gain"][best] - worth[best]
        return lag.mean() - N_ERRORS * self._error(lag) > cost + TIE

    def is_perfect(self, candidate) -> bool:
        """Return whether no candidate can rank the held-out items of this fold better.

        Learners yield cheap candidates first, so that easy problems cost less.
        """
        measures = self.measures[-1][candidate]
        return all(values.mean() > 1 - PERFECT for values in measures)

    def choose(
        self,
        starts: Sequence[Any] = (START,),
        baselines: Sequence[Any] = (),
        *,
        caution: float = 1.0,
        loss_at_1: float = LOSS_AT_1,
    ) -> Choice:
        """Return the candidate with the highest value; the start if none is above 0.

        The start is the best of `starts`. Gains are published over the best of
        `baselines`, if there are any.
        """
        candidates = self._candidates()
        if not candidates:
            return Choice(starts[0], {"holdout_gain_": 0.0, "holdout_error_": 0.0})
        options = {"caution": caution, "loss_at_1": loss_at_1}
        best = self._find_best(candidates, starts, **options)
        baseline = self._find_start(candidates, baselines or starts)
        results, _ = self._weigh(candidates, baseline, **options)
        gain, error = results["gain"][best], results["error"][best]
        if self.is_judged and candidates[best] != baseline and len(self.measures) > 1:
            # In folds whose others choose the start, the gain is 0. Then the error of
            # these gains is too small for the chosen candidate.
            gain, crossed = self._cross_choose(starts, baseline, options)
            error = max(error, crossed)
        attributes = {
            "holdout_gain_": float(gain),
            "holdout_error_": float(error),
            "holdout_results_": {
                "candidates": candidates,
                **results,
                "best_index": best,
            },
        }
        return Choice(candidates[best], attributes)

    def _find_start(self, candidates, starts):
        """Return the best of the starts, without regard to its error."""
        if len(starts) == 1:
            return starts[0]
        starts = [each for each in starts if each in candidates]
        quality, *_ = self._values(starts)
        return starts[int(np.argmax(quality.mean(axis=1)))]

    def _find_best(self, candidates, starts, **options):
        """Return the place of the candidate with the highest value, or of the start."""
        start = self._find_start(candidates, starts)
        _, worth = self._weigh(candidates, start, **options)
        best = int(np.argmax(worth))
        return best if worth[best] > 0 else candidates.index(start)

    def _cross_choose(self, starts, baseline, options):
        """Return the gain on each fold of the choice of the other folds, and its error.

        On the queries that chose it, the gain of the best candidate is too high.
        """
        chosen = self.choose_by_others(starts, **options)
        gains = np.concatenate(
            [
                fold[best].quality - fold[baseline].quality
                for fold, best in zip(self.measures, chosen, strict=True)
            ]
        )
        return gains.mean(), self._error(gains)

    def choose_by_others(self, starts: Sequence[Any] = (START,), **options) -> list:
        """Return, for each fold, the candidate that the other folds choose."""
        candidates, chosen = self._candidates(), []
        for i in range(len(self.measures)):
            others = copy(self)
            others.measures = self.measures[:i] + self.measures[i + 1 :]
            others.classes = self.classes[:i] + self.classes[i + 1 :]
            chosen.append(candidates[others._find_best(candidates, starts, **options)])
        return chosen

    def _error(self, gains):
        """Return the standard error of the mean over the last axis."""
        n = gains.shape[-1]
        error = gains.std(axis=-1, ddof=min(1, n - 1)) / np.sqrt(n)
        return error * (1 + FEW / n) if self.is_judged else error

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
        """Return the measures of candidates, and the value of each.

        (holdout-gain) is the mean difference in average precision (nDCG@10 with
        judgements) to the start, over classes or over queries, and its standard error.
        (holdout-worth) is the gain less `caution` times its error, and less `loss_at_1`
        times the loss at rank 1, by the worse of two estimates.
        """
        start = candidates.index(start)
        quality, p1, *p1_later = self._values(candidates)
        gains = quality - quality[start]
        gain, error = gains.mean(axis=1), self._error(gains)
        at_1 = np.minimum(1, np.mean(p1_later, axis=2))
        gains_at_1 = at_1 - at_1[:, [start]]
        if self.by_class:
            # With few classes, this estimate is noisy. A loss counts as far as it
            # exceeds its standard error.
            p1_all = p1_later[-1]
            gains_at_1[-1] += self._error(p1_all - p1_all[start])
        gain_at_1 = gains_at_1.min(axis=0)
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

    def _values(self, candidates):
        """Return an array: measures by candidates by queries, or by classes."""
        values = np.stack(
            [np.hstack([fold[c] for fold in self.measures]) for c in candidates], axis=1
        )
        classes = np.concatenate(self.classes)
        if not self.by_class or len(np.unique(classes)) < MIN_CLASSES:
            return values
        order = np.argsort(classes, kind="stable")
        _, first, size = np.unique(
            classes[order], return_index=True, return_counts=True
        )
        return np.add.reduceat(values[:, :, order], first, axis=2) / size
