"""The page of the reproductions, from the records of the experiments."""

from itertools import groupby
from pathlib import Path

from benchmarks.papers._frame import N_ERRORS, slug
from benchmarks.papers._plot import draw_curves, read_curves

# The page says first what did not come out.
ORDER = ("not reproduced", "partly", "reproduced")

HEAD = f""".. _reproductions:

The papers, repeated
====================

``python -m benchmarks.papers NAME`` repeats the experiments of a paper on the data at
hand, which is not the papers' own in most cases: each section says how it differs. This
page is written by ``python -m benchmarks.papers --page doc/reproductions.rst``.

A *claim* is something that the paper says of its figures. A claim that one thing is
ahead of another holds if the mean difference over the same seeds or splits is more than
{N_ERRORS:g} standard errors above 0, or as its section says. A table or figure is
*reproduced* if all its claims hold, *partly* if some do, *not reproduced* if none does.
"""


def write_page(path: Path, done: list) -> None:
    """Write the page of what was run: tuples of paper, experiment and record."""
    lines = [HEAD, *_overview(done)]
    for paper, group in groupby(done, key=lambda entry: entry[0]):
        lines += ["", _titled(paper.citation, "-"), ""]
        lines += [f"{paper.estimator}, in the paper's own form: ``{paper.settings}``."]
        for _, experiment, record in group:
            lines += _section(experiment, record)
            if experiment.curves:
                kind, *labels = experiment.curves
                name = f"{paper.name}-{slug(experiment.name)}.svg"
                curves = read_curves(record["header"], record["rows"], kind)
                draw_curves(curves, *labels, path.with_suffix("") / name)
                lines += ["", f".. image:: {path.stem}/{name}"]
                lines += [f"   :alt: {experiment.title}"]
        lines += ["", f"*Not repeated*: {paper.absent}"]
    path.write_text("\n".join(lines) + "\n")


def _overview(done):
    rows = [
        [paper.name, experiment.name, experiment.title, record["verdict"]]
        for paper, experiment, record in done
    ]
    rows.sort(key=lambda row: ORDER.index(row[3]))
    lines = _table(["paper", "", "what", "verdict"], rows)
    failed = [
        f"- {paper.name}, {experiment.name}: {claim['text']} ({claim['evidence']})"
        for paper, experiment, record in done
        for claim in record["claims"]
        if not claim["holds"]
    ]
    if failed:
        lines += ["", "What did not come out:", "", *failed]
    return lines


def _section(experiment, record):
    lines = ["", _titled(f"{experiment.name}: {experiment.title}", "~"), ""]
    lines += [experiment.data, "", *_table(record["header"], record["rows"]), ""]
    for claim in record["claims"]:
        mark = "Holds" if claim["holds"] else "**Does not hold**"
        lines.append(f"- {mark}: {claim['text']} ({claim['evidence']})")
    for note in record["notes"]:
        lines += ["", note]
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    lines += [
        "",
        f"*{record['verdict']}; {record['seconds']:.0f} s on {record['date']}, commit "
        f"{record['commit']}, {versions}.*",
    ]
    return lines


def _table(header, rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        for place, cell in enumerate(row):
            start = "   * - " if place == 0 else "     - "
            lines.append(f"{start}{cell}".rstrip())
    return lines


def _titled(text, line):
    return f"{text}\n{line * len(text)}"
