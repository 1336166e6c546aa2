"""Advice on which similarity to use, from the measurements of a comparison."""

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sklearn_simlearn._core.statistics import (
    Mean,
    allow_for_several,
    mean_interval,
    paired_test,
    pool,
)
from sklearn_simlearn.comparison._comparison import (
    Comparison,
    Result,
    find_units,
    measure_row,
)
from sklearn_simlearn.comparison._task import Task

# Significance level.
LEVEL = 0.05

# Number of queries, of objects or of sets of queries below which results are uncertain.
FEW_UNITS = 30

# Smallest ratio of times at which a faster similarity is mentioned, and its largest
# loss in mean average precision. Times of fits are compared only if the fit of the
# advised similarity takes at least this many seconds.
MIN_RATIO, MAX_LOSS, LONG_FIT = 3.0, 0.01, 10.0

# Smallest difference in precision at rank 1 that is mentioned.
MIN_LEAD = 0.001

# The advice mentions that queries are slow if they take this number of times as long as
# those of the best baseline. Then it measures a form with fewer landmarks.
SLOW_QUERY = 5.0
N_COMPACT = 200


class Difference(NamedTuple):
    """Difference in average precision between two similarities.

    Attributes
    ----------
    unit : {"queries", "objects"}
        Unit of the test: queries, or objects if objects were held out, since the
        queries of a new object are not independent of each other.

    n_units : int
        Number of queries or objects.

    best, baseline : float
        Mean average precision, averaged over the units.

    gain : Mean
        Mean of the differences, with its confidence interval.

    wins, losses : int
        Number of units with a positive and with a negative difference.

    p : float
        p-value of a signed-rank test, corrected for the number of tests.

    n_tests : int
        Number of similarities that were tested against the baseline.
    """

    unit: str
    n_units: int
    best: float
    baseline: float
    gain: Mean
    wins: int
    losses: int
    p: float
    n_tests: int

    @property
    def is_gain(self) -> bool:
        # If a few units gain much, the signed-rank test may contradict the mean.
        return self.p < LEVEL and self.gain.low > 0 and self.wins > self.losses

    @property
    def is_loss(self) -> bool:
        return self.p < LEVEL and self.gain.high < 0 and self.wins < self.losses


class Faster(NamedTuple):
    """Similarity that is faster by a factor, with at most a small loss by chance."""

    name: str
    does: str
    ratio: float


@dataclass
class Advice:
    """Decision on the similarity to use, with the reasons.

    Attributes
    ----------
    chosen : Result
        The best similarity of this package if it is significantly better than the best
        baseline, else the baseline.

    split : {"samples", "objects", "queries"}
        Kind of data that was held out.

    best : Result or None
        The best similarity of this package for single queries.

    baseline : Result or None
        The best baseline.

    difference : Difference or None
        Difference between `best` and `baseline`; None if one of them is missing.

    better_at_1 : Result or None
        Similarity with a significantly larger precision at rank 1.

    faster : list of Faster
        Similarities that answer or are fitted much faster.

    in_sets : Result or None
        Similarity for sets of queries with a larger mean average precision; None if
        there are few sets.

    compact : Result or None
        The chosen similarity with fewer landmarks, if its queries are slow.
    """

    chosen: Result
    split: str
    best: Result | None = None
    baseline: Result | None = None
    difference: Difference | None = None
    better_at_1: Result | None = None
    faster: tuple[Faster, ...] = ()
    in_sets: Result | None = None
    compact: Result | None = None


def advise(comparison: Comparison, task: Task) -> Advice | None:
    """Return the similarity to use and the reasons; None without single queries."""
    baselines = [r for r in comparison.results if r.row.is_baseline]
    ours = [r for r in comparison.results if not (r.row.is_baseline or r.row.in_sets)]
    baseline = max(baselines, key=_score, default=None)
    best = max(ours, key=_score, default=None)
    if best is None or baseline is None:
        only = best or baseline
        return None if only is None else Advice(only, task.split)
    units = find_units(task, baseline)
    difference = _compare(best, baseline, ours, units)
    chosen = best if difference.is_gain else baseline
    together = comparison.best(lambda row: row.in_sets)
    if together is not None and (
        together.n_queries < FEW_UNITS or _score(together) <= _score(chosen)
    ):
        together = None
    return Advice(
        chosen,
        task.split,
        best,
        baseline,
        difference,
        _find_better_at_1(chosen, [*baselines, *ours]),
        _find_faster(chosen, [*baselines, *ours], units),
        together,
        _measure_compact(chosen, baseline, task),
    )


def compare_query_times(chosen: Result, baseline: Result | None) -> float | None:
    """Return the ratio of the times of a query, if the chosen similarity is slow."""
    if baseline is None or chosen is baseline:
        return None
    ours, theirs = chosen.measured.query_seconds, baseline.measured.query_seconds
    if ours is None or theirs is None or ours < SLOW_QUERY * theirs:
        return None
    return ours / theirs


def _measure_compact(chosen, baseline, task):
    """Return the chosen similarity with few landmarks; None if it has no use."""
    is_slow = compare_query_times(chosen, baseline) is not None
    n_landmarks = getattr(chosen.measured.estimator, "n_landmarks", 0)
    if not is_slow or n_landmarks <= N_COMPACT:
        return None

    def make(task):
        return chosen.row.make(task).set_params(n_landmarks=N_COMPACT)

    row = replace(chosen.row, name=f"n_landmarks={N_COMPACT}", make=make)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure_row(row, task, lambda *_: None)


def _compare(best, baseline, ours, units):
    """Return the difference, with a p-value corrected for the number of `ours`."""
    gains = {result.row.name: _gain(result, baseline, units) for result in ours}
    p_values = allow_for_several([paired_test(gain) for gain in gains.values()])
    gain = gains[best.row.name]
    scores = [
        float(pool(result.measured.report.average_precision, units).mean())
        for result in (best, baseline)
    ]
    return Difference(
        "queries" if units is None else "objects",
        len(gain),
        *scores,
        mean_interval(gain),
        int(np.count_nonzero(gain > 0)),
        int(np.count_nonzero(gain < 0)),
        float(p_values[list(gains).index(best.row.name)]),
        len(ours),
    )


def _score(result):
    return result.mean_average_precision


def _gain(result, baseline, units):
    """Return differences in average precision, one per query or object."""
    return pool(result.measured.gains_over(baseline.measured), units)


def _find_better_at_1(chosen, results):
    def at_1(result):
        return result.measured.report.precision_at_1

    first = max(results, key=lambda result: np.nanmean(at_1(result)))
    lead = mean_interval(at_1(first) - at_1(chosen))
    is_better = first is not chosen and lead.low > 0 and lead.value >= MIN_LEAD
    return first if is_better else None


def _find_faster(chosen, results, units):
    """Return the fastest of the similarities without a large or significant loss."""

    def is_close(result):
        gain = _gain(result, chosen, units)
        return gain.mean() >= -MAX_LOSS and paired_test(gain) >= LEVEL

    alike = [result for result in results if result is not chosen and is_close(result)]
    times = {"answers": (lambda result: result.measured.query_seconds)}
    if chosen.measured.fit_seconds >= LONG_FIT:
        times["is fitted"] = lambda result: result.measured.fit_seconds
    found = []
    for does, seconds in times.items():
        fastest = min([*alike, chosen], key=seconds)
        ratio = seconds(chosen) / seconds(fastest)
        if ratio >= MIN_RATIO:
            found.append(Faster(fastest.row.name, does, ratio))
    return tuple(found)
