"""Texts of the comparison: advice in paragraphs, tables, lines of a terminal."""

import textwrap
from collections.abc import Sequence

import numpy as np

from sklearn_simlearn._core.choice import describe_choice
from sklearn_simlearn._core.statistics import say_p
from sklearn_simlearn.comparison._advice import (
    FEW_UNITS,
    LEVEL,
    Advice,
    compare_query_times,
)
from sklearn_simlearn.comparison._comparison import Comparison

# Columns of a terminal.
WIDTH = 80


def explain(advice: Advice) -> list[str]:
    """Return the advice and its reasons as paragraphs."""
    remarks = [
        _explain_few(advice),
        _explain_rank_1(advice),
        _explain_faster(advice),
        _explain_query(advice),
        _explain_sets(advice),
        _explain_split(advice),
    ]
    return [_explain_choice(advice), *filter(None, remarks)]


def _explain_choice(advice):
    name = advice.chosen.row.name
    if advice.difference is None:
        return f"Use {name}. There is no other similarity to compare it with."
    best, baseline = advice.best.row.name, advice.baseline.row.name
    d = advice.difference
    over = "" if d.unit == "queries" else " (averaged over objects)"
    if d.is_gain:
        words = f"Use {best}. Its mAP{over} is {d.best:.3f}, compared with "
        words += f"{d.baseline:.3f} for {baseline}, the best baseline."
    else:
        words = (
            f"Use {baseline}, the best baseline. Its mAP{over} is {d.baseline:.3f}, "
        )
        words += f"compared with {d.best:.3f} for {best}, the best similarity of this "
        words += "package."
    words += (
        f" The gain of {best} is {d.gain.value:+.3f} (95% interval {d.gain.low:+.3f} "
        f"to {d.gain.high:+.3f}): {d.wins} {d.unit} rank better, {d.losses} rank worse."
    )
    corrected = "" if d.n_tests == 1 else f", corrected for {d.n_tests} tests"
    test = f"p {say_p(d.p)}, signed-rank test over {d.n_units} {d.unit}{corrected}"
    if d.is_gain or d.is_loss:
        return f"{words} The difference is significant ({test})."
    if d.p >= LEVEL:
        return f"{words} The difference is not significant ({test})."
    return f"{words} The mean depends on few {d.unit} ({test})."


def _explain_few(advice):
    d = advice.difference
    if d is None or d.n_units >= FEW_UNITS:
        return None
    return f"With {d.n_units} {d.unit}, these results are uncertain: measure with more."


def _explain_rank_1(advice):
    if advice.better_at_1 is None:
        return None
    at_1 = [
        np.nanmean(result.measured.report.precision_at_1)
        for result in (advice.better_at_1, advice.chosen)
    ]
    return (
        f"If only the first result counts, consider {advice.better_at_1.row.name}: its "
        f"P@1 is {at_1[0]:.3f}, compared with {at_1[1]:.3f}."
    )


def _explain_faster(advice):
    if not advice.faster:
        return None
    parts = [f"{f.name} {f.does} {f.ratio:.0f} times faster" for f in advice.faster]
    return f"With no significant difference in mAP, {' and '.join(parts)}."


def _explain_query(advice):
    ratio = compare_query_times(advice.chosen, advice.baseline)
    if ratio is None:
        return None
    ours = advice.chosen.measured.query_seconds
    text = (
        f"A query of {advice.chosen.row.name} takes {1e6 * ours:.0f} us, {ratio:.0f} "
        f"times as long as with {advice.baseline.row.name}."
    )
    if advice.compact is not None:
        seconds = advice.compact.measured.query_seconds
        text += (
            f" With {advice.compact.row.name}, it takes {1e6 * seconds:.0f} us, and "
            f"the mAP is {advice.compact.mean_average_precision:.3f}."
        )
    return text


def _explain_sets(advice):
    if advice.in_sets is None:
        return None
    return (
        "If several samples of an object can query together, "
        f"{advice.in_sets.row.name} reaches a mAP of "
        f"{advice.in_sets.mean_average_precision:.3f} over {advice.in_sets.n_queries} "
        "sets."
    )


def _explain_split(advice):
    if advice.split == "queries":
        return "These results hold for new queries that search the same documents."
    if advice.split == "samples":
        return (
            "These results hold for queries of classes that are in the training data. "
            "To measure on new classes, use --split objects."
        )
    return (
        "These results hold for classes that are not in the training data. To measure "
        "on known classes, use --split samples."
    )


def list_left_out(comparison: Comparison) -> str:
    """Return the rows that are left out, with the reasons."""
    return ", ".join(
        f"{name} ({reason})" for name, reason in comparison.left_out.items()
    )


def list_start_kept(comparison: Comparison) -> str:
    """Return a phrase that lists the learners that kept their start."""
    names = ", ".join(comparison.start_kept)
    return f"kept the similarity that they start from: {names}"


def list_choices(comparison: Comparison) -> list[str]:
    """Return a line about the choice of each hold-out."""
    choices = {
        result.row.name: describe_choice(result.measured.estimator)
        for result in comparison.results
    }
    return [f"{name}: {choice}" for name, choice in choices.items() if choice]


def wrap(paragraphs: Sequence[str]) -> str:
    """Return paragraphs in lines for a terminal, broken between words.

    A paragraph that begins with a space is a command and is not broken.
    """
    wrapper = textwrap.TextWrapper(
        WIDTH, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(
        text if text.startswith(" ") else wrapper.fill(text) for text in paragraphs
    )


def align(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal: units below the names of the columns.

    Columns are separated by two spaces, or by one if the table would be too wide.
    """
    heads = [name.split(" ", maxsplit=1) for name in columns]
    table = [
        [head[0] for head in heads],
        [head[1] if len(head) > 1 else "" for head in heads],
        *lines,
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    return "\n".join(
        gap.join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )
