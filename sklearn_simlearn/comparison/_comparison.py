"""Comparison: fit every row and measure it on held-out samples."""

import pickle
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_simlearn._core.progress import timed_fit
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.statistics import (
    allow_for_several,
    paired_test,
    pool,
    say_p,
)
from sklearn_simlearn._core.warn import StartKeptWarning
from sklearn_simlearn.comparison._rows import Row
from sklearn_simlearn.comparison._task import Task
from sklearn_simlearn.display._curves import count_queries
from sklearn_simlearn.report._measurement import Measured, measure_estimator

COLUMNS = (
    "similarity",
    "mAP",
    "P@1",
    "P@10",
    "gain",
    "p",
    "fit s",
    "query us",
    "model kB",
)

# Maximum number of characters of a note on an error or a warning.
MAX_NOTE = 300

# Part of the warning of a hold-out that measured candidates and chose the start. It is
# not printed, because the choices of the hold-outs show the best candidate.
NOT_BETTER = "no candidate ranks held-out samples better"


@dataclass
class Result:
    """Row with its measurements."""

    row: Row
    measured: Measured

    @property
    def mean_average_precision(self) -> float:
        return self.measured.mean_average_precision

    @property
    def n_queries(self) -> int:
        return count_queries(self.measured.report.average_precision)


@dataclass
class Comparison:
    """Results of all rows.

    Attributes
    ----------
    left_out : dict
        Reason by the name of the row.

    start_kept : list of str
        Names of the rows whose learner kept its start.

    warnings : dict
        Names of the rows by the text of the warning.
    """

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    start_kept: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def best(self, among: Callable[[Row], bool]) -> Result | None:
        """Return the result with the largest mean average precision."""
        candidates = [result for result in self.results if among(result.row)]
        return max(
            candidates, key=lambda result: result.mean_average_precision, default=None
        )

    def tabulate(self, task: Task) -> list[tuple[str, ...]]:
        """Return the lines of the table, below `COLUMNS`.

        Gains are differences in mean average precision to the best baseline. Rows with
        sets of queries have no gain, because their task is different. Baselines are not
        tested. The other p-values are corrected for their number, as in the report and
        in the advice.
        """
        baseline = self.best(lambda row: row.is_baseline)
        tests = {}
        if baseline is not None:
            units = find_units(task, baseline)
            tests = {
                r.row.name: paired_test(
                    pool(r.measured.gains_over(baseline.measured), units)
                )
                for r in self.results
                if not (r.row.is_baseline or r.row.in_sets)
            }
        p = dict(zip(tests, allow_for_several([*tests.values()]), strict=True))
        return [_tabulate(r, baseline, p.get(r.row.name)) for r in self.results]


def compare(task: Task, rows: Iterable[Row], show: Callable[..., None]) -> Comparison:
    """Fit every row that suits the data, and measure it on the held-out samples.

    ``show(name, step)`` is called for each row and each step of its fit. If a row
    fails, it is left out, and the reason is stored.
    """
    comparison = Comparison()
    for row in rows:
        show(row.name)
        missing = row.missing(task)
        if missing == "new classes":  # a baseline for the other split
            continue
        if missing is not None:
            comparison.left_out[row.name] = f"needs {missing}"
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                comparison.results.append(measure_row(row, task, show))
            except Exception as error:  # a row that fails does not end the comparison
                comparison.left_out[row.name] = f"failed: {describe_error(error)}"
        for warning in caught:
            # A baseline that stops near the optimum, or for which a class has a single
            # sample in a fold, is good enough.
            if row.is_baseline and (
                issubclass(warning.category, ConvergenceWarning)
                or str(warning.message).startswith("Only one sample available")
            ):
                continue
            if issubclass(warning.category, StartKeptWarning):
                comparison.start_kept.append(row.name)
                if NOT_BETTER in str(warning.message):
                    continue
            note = _shorten(str(warning.message))
            names = comparison.warnings.setdefault(note, [])
            if row.name not in names:
                names.append(row.name)
    return comparison


def find_units(task: Any, result: Result) -> np.ndarray | None:
    """Return the object of each query if objects were held out, else None.

    The queries of a new object are not independent of each other.
    """
    if task.split != "objects":
        return None
    objects = check_relevance(task.y_test).objects()[result.measured.report.query]
    return np.unique(objects, return_inverse=True)[1]


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error in one line.

    If a message quotes a traceback, the type and the message at its end are returned.
    """
    text = str(error)
    kind = type(error).__name__
    if _TRACEBACK in text:
        return _shorten(text)
    return f"{kind}: {_shorten(text)}" if text.strip() else kind


def one_line(error: BaseException | str) -> str:
    """Return a message without line breaks; the type if there is no message."""
    return " ".join(str(error).split()) or type(error).__name__


_TRACEBACK = "Traceback (most recent call last)"


def _shorten(text):
    """Return a message as one line of limited length, without a traceback."""
    if _TRACEBACK in text:
        quoted = text[text.rindex(_TRACEBACK) :]
        ends = re.findall(r"^(\w[\w.]*(?:: .*)?)$", quoted, re.M)
        text = ends[-1] if ends else text[: text.index(_TRACEBACK)]
    return textwrap.shorten(text, MAX_NOTE, placeholder=" ...")


def measure_row(row: Row, task: Task, show: Callable[..., None]) -> Result:
    """Fit a row and measure it on the held-out samples."""
    task = row.find_task(task)
    estimator = row.make(task)
    X, y = task.X_train, task.y_train
    if row.is_baseline and task.labels is not None:
        known = np.flatnonzero(task.labels >= 0)  # distractors are not a class
        X, y = X[known], task.labels[known]
    seconds = timed_fit(estimator, X, y, row.name, show)
    show(row.name, "measuring on the held-out samples")
    measured = measure_estimator(
        estimator,
        task.X_test,
        task.y_test,
        query_mask=task.query_mask,
        groups=task.sets if row.in_sets else None,
        fit_seconds=seconds,
    )
    return Result(row, measured)


def _tabulate(result, baseline, p):
    measured, score = result.measured, result.mean_average_precision
    report, query_seconds = measured.report, measured.query_seconds
    n_bytes = len(pickle.dumps(measured.estimator))
    gain = ""
    if baseline is not None and not result.row.in_sets:
        gain = f"{score - baseline.mean_average_precision:+.3f}"
    return (
        result.row.name,
        f"{score:.3f}",
        f"{np.nanmean(report.precision_at_1):.3f}",
        f"{np.nanmean(report.precision_at_10):.3f}",
        gain,
        "" if p is None else say_p(p).removeprefix("= ").replace(" ", ""),
        f"{measured.fit_seconds:.2f}",
        "" if query_seconds is None else f"{1e6 * query_seconds:.0f}",
        f"{n_bytes / 1000:.1f}",
    )
