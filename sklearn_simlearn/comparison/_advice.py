"""What to take, from the measurements of a comparison."""

import textwrap
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.statistics import (
    allow_for_several,
    mean_interval,
    paired_test,
    say_p,
)
from sklearn_simlearn.comparison._comparison import (
    Chosen,
    Comparison,
    Dense,
    InnerProduct,
    Result,
    Task,
)

# What is more probable by chance is not sure.
LEVEL = 0.05

# With fewer queries, or objects, all is in doubt.
FEW = 30

# How many times cheaper a similarity must be to be worth a word, and how many seconds a
# fit must take.
CHEAPER, LONG_FIT = 3.0, 10.0


def choose(comparison: Comparison, task: Task) -> tuple[Result, list[str]] | None:
    """The similarity to take, and why, in a few paragraphs.

    It is the best of this package, if that is surely ahead of the best row without it;
    else the latter. None if no row with single queries was measured.
    """
    rivals = [r for r in comparison.results if r.row.is_rival]
    ours = [r for r in comparison.results if not (r.row.is_rival or r.row.in_sets)]
    reference = max(rivals, key=_score, default=None)
    best = max(ours, key=_score, default=None)
    if best is None or reference is None:
        only = best or reference
        if only is None:
            return None
        return only, [f"Take {only.row.name}: there is nothing to compare it with."]

    units = _find_units(task, reference)
    gains = {r.row.name: _gain(r, reference, units) for r in ours}
    p_values = allow_for_several([paired_test(gain) for gain in gains.values()])
    p = dict(zip(gains, p_values, strict=True))[best.row.name]
    gain, mean = gains[best.row.name], mean_interval(gains[best.row.name])
    wins, losses = np.count_nonzero(gain > 0), np.count_nonzero(gain < 0)
    # A test of ranks may point the other way than the mean, if few queries gain much.
    is_ahead = p < LEVEL and mean.low > 0 and wins > losses
    is_behind = p < LEVEL and mean.high < 0 and wins < losses
    chosen = best if is_ahead else reference

    unit, over = ("queries", "") if units is None else ("objects", ", over objects")
    scores = [
        _pool(result.measured.report.average_precision, units).mean()
        for result in (best, reference)
    ]
    test = (
        f"{_say_allowance(len(ours))}p {say_p(p)} by a signed-rank test over "
        f"{len(gain)} {unit}"
    )
    difference = (
        f"by {abs(mean.value):.3f} in mAP{over}, {scores[0]:.3f} against "
        f"{scores[1]:.3f} (95% interval of the difference {mean.low:+.3f} to "
        f"{mean.high:+.3f}; better for {wins} {unit}, worse for {losses})"
    )
    rival = f"{reference.row.name}, the best row without this package"
    if is_ahead:
        words = (
            f"Take {best.row.name}. It is ahead of {rival}, {difference}. This is "
            f"hardly chance: {test}."
        )
    elif is_behind:
        words = (
            f"Take {rival}. The best of this package, {best.row.name}, is behind it "
            f"{difference}. This is hardly chance: {test}."
        )
    else:
        direction = "ahead of" if mean.value > 0 else "behind"
        doubt = "may be chance" if p >= LEVEL else f"is due to few {unit}"
        words = (
            f"Take {rival}. The best of this package, {best.row.name}, is {direction} "
            f"it {difference}, which {doubt}: {test}."
        )
    remarks = [
        _remark_few(len(gain), unit),
        _remark_rank_1(chosen, [*rivals, *ours]),
        _remark_cheaper(chosen, [*rivals, *ours], units),
        _remark_sets(comparison, chosen),
        _remark_split(task),
    ]
    return chosen, [words, *filter(None, remarks)]


def write_lines(result: Result, task: Task, source: list[str]) -> list[str]:
    """Lines of Python that fit the similarity on all samples.

    Parameters
    ----------
    source : list of str
        Lines that make X and y, imports among them.
    """
    estimator = result.measured.estimator
    # Inside a pipeline, tf-idf makes sparse rows of any.
    is_sparse = sparse.issparse(task.X_train) or task.has_counts
    imports, expression = _write(estimator, is_sparse)
    if result.row.is_rival and task.labels is not None and task.labels.min() < 0:
        source = [*source, "X, y = X[y != -1], y[y != -1]  # distractors are no class"]
    imports.update(line for line in source if line.startswith("from "))
    lines = [
        *sorted(imports),
        "",
        *(line for line in source if line not in imports),
        *f"model = {expression}".splitlines(),
        "model.fit(X, y)",
    ]
    if not hasattr(estimator, "similarity"):
        is_product = isinstance(estimator[-1], InnerProduct)
        last = estimator[-2 if is_product else -1]
        what = "predict_proba" if _is_classifier(last) else "transform"
        how = "inner product of" if is_product else "cosine between"
        lines.append(f"# The similarity is the {how} rows of model.{what}(X).")
    return lines


def wrap(paragraphs: list[str]) -> str:
    """Paragraphs in lines for a terminal."""
    return "\n".join(
        textwrap.fill(
            paragraph, width=88, break_long_words=False, break_on_hyphens=False
        )
        for paragraph in paragraphs
    )


# -- what is compared --


def _score(result):
    return result.mean_average_precision


def _find_units(task, result):
    """Object of each query, if objects are what was held out; None for queries alone.

    Queries of one new object are not independent of each other.
    """
    if task.split != "objects":
        return None
    objects = check_relevance(task.y_test).objects()[result.measured.report.query]
    return np.unique(objects, return_inverse=True)[1]


def _gain(result, reference, units):
    """Differences in average precision, of queries or of objects' means."""
    gains = result.measured.gains_over(reference.measured)
    return _pool(gains, units)


def _pool(values, units):
    known = ~np.isnan(values)
    if units is None:
        return values[known]
    sums = np.bincount(units[known], values[known])
    counts = np.bincount(units[known])
    return sums[counts > 0] / counts[counts > 0]


# -- remarks --


def _say_allowance(n_tried):
    return "" if n_tried == 1 else f"with an allowance for {n_tried} tries, "


def _remark_few(n_units, unit):
    if n_units >= FEW:
        return None
    return f"With {n_units} {unit} all this is in doubt: measure with more."


def _remark_rank_1(chosen, results):
    """Another row may find the first item more surely."""

    def at_1(result):
        return result.measured.report.precision_at_1

    first = max(results, key=lambda result: np.nanmean(at_1(result)))
    lead = mean_interval(at_1(first) - at_1(chosen))
    if first is chosen or lead.low <= 0:
        return None
    return (
        f"If only the first result counts, look at {first.row.name}: its P@1 is "
        f"{np.nanmean(at_1(first)):.3f}, against {np.nanmean(at_1(chosen)):.3f}."
    )


def _remark_cheaper(chosen, results, units):
    """A row that is as good within chance may answer or learn much faster."""
    alike = [
        result
        for result in results
        if result is not chosen and paired_test(_gain(result, chosen, units)) >= LEVEL
    ]
    costs = {"answers": (lambda result: result.measured.query_seconds)}
    if chosen.measured.fit_seconds >= LONG_FIT:
        costs["is fitted"] = lambda result: result.measured.fit_seconds
    remarks = []
    for what, seconds in costs.items():
        fastest = min([*alike, chosen], key=seconds)
        ratio = seconds(chosen) / seconds(fastest)
        if ratio >= CHEAPER:
            remarks.append(f"{fastest.row.name} {what} {ratio:.0f} times faster")
    if not remarks:
        return None
    return f"As good within chance, {' and '.join(remarks)}."


def _remark_sets(comparison, chosen):
    together = comparison.best(lambda row: row.in_sets)
    if together is None or _score(together) <= _score(chosen):
        return None
    return (
        f"Where several samples of an object can query together, that helps more: "
        f"{together.row.name} reaches {_score(together):.3f}."
    )


def _remark_split(task):
    if task.split == "samples":
        return (
            "All this is for queries of classes that are in the training data; "
            "--split objects measures for new ones."
        )
    return (
        "All this is for objects that are not in the training data; --split samples "
        "measures for classes that are."
    )


# -- lines of Python --


def _write(estimator: Any, is_sparse: bool) -> tuple[set[str], str]:
    """Imports, and an expression that makes an estimator like this one."""
    if isinstance(estimator, Pipeline):
        parts = [_write(step, is_sparse) for _, step in estimator.steps]
        imports = set().union(*(names for names, _ in parts))
        steps = [expression for _, expression in parts if expression]
        if len(steps) == 1:
            return imports, steps[0]
        imports.add("from sklearn.pipeline import make_pipeline")
        lines = "".join(f"    {step},\n" for step in steps)
        return imports, f"make_pipeline(\n{lines})"
    if isinstance(estimator, Chosen):
        return _write(estimator.chosen_, is_sparse)
    if isinstance(estimator, InnerProduct):
        return set(), ""
    if isinstance(estimator, Dense):
        if not is_sparse:
            return set(), ""
        imports = {"from sklearn.preprocessing import FunctionTransformer"}
        return imports, "FunctionTransformer(lambda X: X.toarray(), accept_sparse=True)"
    kind = type(estimator)
    module = kind.__module__.split("._")[0]
    expression = " ".join(estimator.__repr__(N_CHAR_MAX=10_000).split())
    return {f"from {module} import {kind.__name__}"}, expression


def _is_classifier(step):
    return isinstance(step, Chosen) and not hasattr(step.chosen_, "transform")
