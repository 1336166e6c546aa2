"""What the reproductions share: experiments, claims, verdicts, and results on disk."""

import datetime
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.papers._data import find_missing
from sklearn_simlearn.metrics import (
    average_precision,
    precision_at_k,
    retrieval_report,
)

# A difference over seeds or splits is real if it is this many standard errors from 0.
N_ERRORS = 2.0


@dataclass
class Claim:
    """Something that a paper says of its figures, and whether ours say it too.

    Attributes
    ----------
    text : str
        What the paper finds, in one sentence of our own.

    holds : bool
        Whether our figures agree.

    evidence : str
        The figures that decide.
    """

    text: str
    holds: bool
    evidence: str

    def __post_init__(self):
        self.holds = bool(self.holds)  # of NumPy's kind, it could not be written


@dataclass
class Panel:
    """Curves to draw side by side with those of other panels.

    Attributes
    ----------
    title, x_label, y_label : str
        What is written around them.

    curves : dict of str to list of pairs
        Points (x, y) of each curve, by name.

    faint : dict of str to list of curves
        Curves to compare with, several under one name.
    """

    title: str
    x_label: str
    y_label: str
    curves: dict[str, list[tuple[float, float]]]
    faint: dict[str, list[list[tuple[float, float]]]] = field(default_factory=dict)

    def __post_init__(self):
        self.curves = {name: _as_floats(c) for name, c in self.curves.items()}
        self.faint = {
            name: [_as_floats(c) for c in cs] for name, cs in self.faint.items()
        }


def _as_floats(points):
    return [(float(x), float(y)) for x, y in points]  # NumPy's cannot be written


@dataclass
class Result:
    """What an experiment gave.

    Attributes
    ----------
    header, rows : list
        A table: names of the columns, and cells as text.

    claims : list of Claim
        They make the verdict.

    notes : list of str
        What else a reader should know.

    tried : list of str
        What was tried where a claim fails, with the figures it gave.

    panels : list of Panel
        Curves to draw.
    """

    header: list[str]
    rows: list[list[str]]
    claims: list[Claim]
    notes: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)


@dataclass
class Experiment:
    """A table or figure of a paper.

    Attributes
    ----------
    name : str
        As the paper has it: "Table 2", "Figure 4".

    title : str
        What it shows.

    data : str
        The data used here, and how it differs from that of the paper.

    run : callable
        ``run(quick)`` returns a Result. With `quick` it takes seconds, on data that is
        part of the package or made up.

    needs : tuple of str
        Data files that the full form reads; `FILES` has where they come from.

    curves : tuple of str
        For a figure that is drawn from its table: "rows" or "columns", as `read_curves`
        has it, and the labels of both axes.

    has_quick : bool
        Whether there is a quick form. One experiment on several data sets needs only
        one.
    """

    name: str
    title: str
    data: str
    run: Callable[[bool], Result]
    needs: tuple[str, ...] = ()
    curves: tuple[str, str, str] | None = None
    has_quick: bool = True

    def missing(self) -> list[str]:
        """Files that are not there."""
        return find_missing(self.needs)


@dataclass
class Paper:
    """A paper: who, where, and what is repeated of it.

    Attributes
    ----------
    name : str
        Name on the command line.

    citation : str
        Authors, title, venue.

    settings : str
        The plain settings of our estimator that are the paper's own, in one line.

    absent : str
        What of the paper cannot be repeated by anyone, and why.
    """

    name: str
    citation: str
    estimator: str
    settings: str
    absent: str
    experiments: Sequence[Experiment]


def on_the_papers_own(table, title, kind, run, files) -> list[Experiment]:
    """A table once more, on collections of the paper that are not at hand.

    Parameters
    ----------
    kind : str
        What a user has to make of the images.

    run : callable
        ``run(quick, file)`` returns a Result.

    files : dict of str to str
        Data file of each collection.
    """
    return [
        Experiment(
            f"{table}, {name}",
            title,
            f"{name}, as in the paper, with {kind} of your own.",
            partial(run, file=file),
            (file,),
            has_quick=False,
        )
        for name, file in files.items()
    ]


def verdict(claims: Sequence[Claim]) -> str:
    """All claims hold: reproduced. Some: partly. None: not reproduced."""
    n_held = sum(claim.holds for claim in claims)
    if n_held == len(claims):
        return "reproduced"
    return "partly" if n_held else "not reproduced"


def claim_gain(text: str, ours, reference, unit="mAP", over="runs") -> Claim:
    """A claim that one thing is ahead of another, over the same runs or queries.

    It holds if the mean difference is above `N_ERRORS` standard errors. A single run
    has no error: there the difference itself decides.
    """
    mean, error = mean_gain(ours, reference)
    evidence = (
        f"{unit} {np.mean(ours):.3f} against {np.mean(reference):.3f}, difference "
        f"{mean:+.3f} ± {error:.3f} over {len(ours)} "
        f"{over if len(ours) > 1 else 'run'}"
    )
    return Claim(text, mean > N_ERRORS * error, evidence)


def mean_gain(ours, reference) -> tuple[float, float]:
    """Mean difference of paired values and its standard error, 0 for a single pair."""
    difference = np.asarray(ours, dtype=float) - np.asarray(reference, dtype=float)
    error = 0.0
    if len(difference) > 1:
        error = difference.std(ddof=1) / np.sqrt(len(difference))
    return difference.mean(), error


def spread(values, digits: int = 3) -> str:
    """Mean and standard deviation, as text."""
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


RANKS = (1, 10, 50)
MEASURES = ("mAP", *(f"P@{k}" for k in RANKS))


def measure(estimator, X, y, *, k=RANKS, **options) -> dict[str, float]:
    """Mean average precision, and precision at 1, 10 and 50, of a fitted estimator."""
    report = retrieval_report(estimator, X, y, k=k, **options)
    values = {"mAP": np.nanmean(report["average_precision"])}
    values |= {f"P@{n}": np.nanmean(report[f"precision_at_{n}"]) for n in k}
    return {name: float(value) for name, value in values.items()}


def measure_scores(relevance, scores, **options) -> dict[str, float]:
    """The same of a matrix of scores."""
    ap = average_precision(relevance, scores, **options)
    values = {"mAP": float(np.nanmean(ap))}
    for k in RANKS:
        hits = precision_at_k(relevance, scores, k, **options)
        values[f"P@{k}"] = float(np.nanmean(hits))
    return values


def column(values: list[dict], name: str = "mAP") -> list[float]:
    """One measure over the runs."""
    return [v[name] for v in values]


def cells_of(values: list[dict], names=MEASURES) -> list[str]:
    """Cells of a table: these measures over the runs."""
    return [spread(column(values, name)) for name in names]


def note_first_page(name: str, ours: list[dict], reference: list[dict]) -> list[str]:
    """A note where a gain in mean average precision costs the first page."""
    notes = []
    for k in ("P@1", "P@10"):
        lost = np.mean([r[k] for r in reference]) - np.mean([o[k] for o in ours])
        gained = np.mean([o["mAP"] for o in ours]) - np.mean(
            [r["mAP"] for r in reference]
        )
        if gained > 0 and lost > 0.005:
            notes.append(
                f"{name} gains {gained:.3f} mAP but loses {lost:.3f} {k}: the gain is "
                "not on the first page."
            )
    return notes


# -- results on disk --


def run_experiment(
    paper: Paper, experiment: Experiment, folder: Path, *, quick: bool, again: bool
) -> dict:
    """The record of an experiment: read if it is there, measured otherwise."""
    kind = "quick" if quick else "full"
    path = folder / f"{paper.name}-{slug(experiment.name)}-{kind}.json"
    if path.exists() and not again:
        return json.loads(path.read_text())
    start, cpu_start = time.perf_counter(), time.process_time()
    result = experiment.run(quick)
    record = {
        **asdict(result),
        "verdict": verdict(result.claims),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu_start,
        "quick": quick,
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "versions": {
            name: version(name) for name in ("numpy", "scipy", "scikit-learn")
        },
    }
    # Written aside first: an interrupted run leaves no half-made record.
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(record, indent=1))
    aside.replace(path)
    return record


def slug(name: str) -> str:
    return name.lower().replace(" ", "-").replace(",", "")


def _commit():
    command = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    try:
        return subprocess.run(
            command, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
