"""The page of the reproductions, from the records of the experiments."""

from collections import Counter
from itertools import groupby
from pathlib import Path

from benchmarks.papers._data import FILES
from benchmarks.papers._frame import N_ERRORS, Panel, slug
from benchmarks.papers._plot import draw_panels, read_curves

# The page says first what did not come out.
ORDER = ("not reproduced", "partly", "reproduced")

HEAD = f""".. _reproductions:

The papers, repeated
====================

``python -m benchmarks.papers NAME`` repeats the experiments of a paper on the data at
hand, which is not the papers' own in most cases: each section says how it differs. This
page is written by ``python -m benchmarks.papers --page doc/reproductions.rst``.

A *claim* is something that the paper says of its figures. A claim that one thing is
ahead of another holds if the mean difference over the same seeds, splits or queries is
more than {N_ERRORS:g} standard errors above 0, or as its section says. A table or
figure is *reproduced* if all its claims hold, *partly* if some do, *not reproduced* if
none does. A gain in mean average precision (mAP) that costs precision at 1 or 10 is
said to be one.
"""


def summarize(done: list) -> str:
    """How many came out, and how long all of them took."""
    records = [record for _, _, record in done]
    count = Counter(record["verdict"] for record in records)
    minutes, of_processors = (
        sum(record[what] for record in records) / 60
        for what in ("seconds", "cpu_seconds")
    )
    return (
        f"Of {len(done)} tables and figures, {count['reproduced']} are reproduced, "
        f"{count['partly']} partly and {count['not reproduced']} not. Together they "
        f"took {minutes:.0f} minutes, and {of_processors:.0f} minutes of processor "
        "time."
    )


def write_page(path: Path, done: list, missing: list = ()) -> None:
    """Write the page.

    Parameters
    ----------
    path : Path
        Pictures go into the folder of the same name.

    done : list of tuples
        Paper, experiment and record of what was run.

    missing : list of tuples
        Paper and experiment of what was not, for want of data.
    """
    lines = [HEAD, summarize(done), "", *_overview(done)]
    for paper, group in groupby(done, key=lambda entry: entry[0]):
        lines += ["", _titled(paper.citation, "-"), ""]
        lines += [f"{paper.estimator}, in the paper's own form: ``{paper.settings}``."]
        for _, experiment, record in group:
            lines += _section(experiment, record)
            panels = find_panels(experiment, record)
            if panels:
                name = f"{paper.name}-{slug(experiment.name)}.svg"
                draw_panels(panels, path.with_suffix("") / name)
                lines += ["", f".. image:: {path.stem}/{name}"]
                lines += [f"   :alt: {experiment.title}"]
        lines += ["", _titled("Not repeated", "~"), "", paper.absent]
        lines += _not_run([e for of, e in missing if of is paper])
    path.write_text("\n".join(lines) + "\n")


def find_panels(experiment, record) -> list[Panel]:
    """What there is to draw of an experiment."""
    if experiment.curves:
        kind, *labels = experiment.curves
        curves = read_curves(record["header"], record["rows"], kind)
        return [Panel("", *labels, curves)]
    return [Panel(**panel) for panel in record["panels"]]


def _overview(done):
    rows = [
        [paper.name, experiment.name, experiment.title, record["verdict"]]
        for paper, experiment, record in done
    ]
    rows.sort(key=lambda row: ORDER.index(row[3]))
    lines = []
    for paper, experiment, record in done:
        failed = [claim for claim in record["claims"] if not claim["holds"]]
        lines += [
            f"- {paper.name}, {experiment.name}: {claim['text']} ({claim['evidence']})."
            for claim in failed
        ]
        if failed and record["tried"]:
            lines[-1] += f" Tried: {'; '.join(record['tried'])}."
    if lines:
        lines = ["What did not come out, and what was tried:", "", *lines, ""]
    return lines + _table(["paper", "", "what", "verdict"], rows)


def _section(experiment, record):
    lines = ["", _titled(f"{experiment.name}: {experiment.title}", "~"), ""]
    lines += [experiment.data, "", *_table(record["header"], record["rows"]), ""]
    for claim in record["claims"]:
        mark = "Holds" if claim["holds"] else "**Does not hold**"
        lines.append(f"- {mark}: {claim['text']} ({claim['evidence']})")
    for note in record["notes"]:
        lines += ["", note]
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    seconds = f"{record['seconds']:.0f} s, {record['cpu_seconds']:.0f} s of processors"
    lines += [
        "",
        f"*{record['verdict']}; {seconds}; {record['date']}, commit "
        f"{record['commit']}, {versions}.*",
    ]
    return lines


def _not_run(experiments):
    """What would be run on data that is not here, file by file."""
    lines = []
    for experiment in experiments:
        for name in experiment.missing():
            lines += [
                f"- {experiment.name} would run with {name} in the folder that "
                f"`SIMLEARN_DATA` names: {FILES[name]}."
            ]
    return ["", *lines] if lines else []


def _table(header, rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        for place, cell in enumerate(row):
            start = "   * - " if place == 0 else "     - "
            lines.append(f"{start}{cell}".rstrip())
    return lines


def _titled(text, line):
    return f"{text}\n{line * len(text)}"
