"""Claims of a paper, the test that decides each of them, verdicts, and records."""

import datetime
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.papers._data import find_missing

PAPERS = ("yan", "qin", "kuang", "chechik", "sicre")
RECORDS = Path(__file__).parent / "records"

# Significance level of the test, fewest values it accepts, and the share of the
# published gain that a claim needs to hold.
LEVEL = 0.05
MIN_VALUES = 5
SHARE = 0.5

TEST = (
    f"A claim has one value per run, split or query. Usually the value is the "
    f"difference of two methods. A claim **holds** if a one-sided t test shows that "
    f"the mean is above 0 (p < {LEVEL:g}, at least {MIN_VALUES} values), and if the "
    f"mean is at least half of the published gain, if there is one. It is **smaller** "
    f"if only the test passes, and **fails** otherwise. It is **untested** if data or "
    f"a compared method is not available, or if the data leaves no room for half of "
    f"the published gain."
)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper on one of its tables or figures.

    Attributes
    ----------
    key : str
        Name of the values in the record.

    text : str
        The statement in our words.

    section : str
        Section of the paper.

    quote : str
        A few words of the paper, as a citation.

    gain : float or None
        Published size of the effect; None if the paper gives no number.

    unit : str
        Unit of the values.

    missing : str
        Reason why the claim cannot be tested.

    protocol : str
        Protocol of the measurement, if there are several.
    """

    key: str
    text: str
    section: str
    quote: str
    gain: float | None = None
    unit: str = "mAP"
    missing: str = ""
    protocol: str = ""


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper.

    Attributes
    ----------
    name : str
        "Table II", "Figure 4".

    title : str
        Its subject.

    claims : sequence of Claim
        Statements of the paper on it. The first one is shown on the front page.

    needs : tuple of str
        Data files that the full form reads.

    missing : str
        Reason why it cannot be repeated without the authors' data.
    """

    name: str
    title: str
    claims: Sequence[Claim] = ()
    needs: tuple[str, ...] = ()
    missing: str = ""

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "_")


@dataclass(frozen=True)
class Paper:
    """A paper and its tables and figures with results.

    Attributes
    ----------
    name : str
        Name on the command line.

    citation, estimator, form : str
        Reference, our class, and the call that gives the form of the paper.

    protocol : tuple of str
        Differences between our data and protocol and those of the paper.

    data : tuple of str
        Data sets, keys of `DATA`.

    not_repeated : tuple of str
        Tables and figures without results, and other parts of the paper that are left
        out, with the reason.

    runs : str
        Module with one function per entry, named after it.
    """

    name: str
    citation: str
    estimator: str
    form: str
    protocol: tuple[str, ...]
    data: tuple[str, ...]
    not_repeated: tuple[str, ...]
    runs: str
    entries: Sequence[Entry]


@dataclass
class Panel:
    """Curves to draw next to those of other panels.

    `curves` has the points (x, y) of each curve by name; `faint` has curves to compare
    with, several under one name.
    """

    title: str
    x_label: str
    y_label: str
    curves: dict[str, list]
    faint: dict[str, list] = field(default_factory=dict)


@dataclass
class Result:
    """Measurements of an entry.

    Attributes
    ----------
    header, rows : list
        A table of text.

    effects : dict of str to dict
        Values of each claim, by its key: see `effect` and `compare`.

    notes : list of str
        Further figures that a reader should know.

    panels : list of Panel
        Curves to draw.
    """

    header: list[str]
    rows: list[list[str]]
    effects: dict[str, dict]
    notes: list[str] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)


def effect(values, over: str = "runs") -> dict:
    """Return the values of a claim, which is true if their mean is above 0."""
    return {"values": [_round(v) for v in values], "over": over}


def compare(ours, reference, over: str = "runs") -> dict:
    """Return the paired differences of two methods, with their means."""
    ours, reference = (np.asarray(v, dtype=float) for v in (ours, reference))
    means = {"ours": _round(ours.mean()), "reference": _round(reference.mean())}
    return {**effect(ours - reference, over), **means}


def _round(value) -> float:
    """Return a number, or the text of one, with six decimals."""
    return round(float(value), 6)


class Outcome(NamedTuple):
    """Test of a claim: its state, mean, standard error, p-value, number of values."""

    state: str
    mean: float = np.nan
    error: float = np.nan
    p: float = np.nan
    n: int = 0
    over: str = ""


def judge(claim: Claim, effects: dict) -> Outcome:
    """Test a claim on its recorded values."""
    found = effects.get(claim.key)
    if found is None:
        return Outcome("untested")
    values = np.asarray(found["values"], dtype=float)
    mean, n = values.mean(), len(values)
    if n < 2:
        return Outcome("untested", mean, np.nan, np.nan, n, found["over"])
    error = values.std(ddof=1) / np.sqrt(n)
    p = float(mean <= 0)
    if error > 0:
        p = stats.ttest_1samp(values, 0, alternative="greater").pvalue
    state = "fails"
    if n < MIN_VALUES or not has_room(claim, found):
        state = "untested"
    elif p < LEVEL:
        big = claim.gain is None or mean >= SHARE * claim.gain
        state = "holds" if big else "smaller"
    return Outcome(state, mean, error, p, n, found["over"])


def has_room(claim: Claim, found: dict) -> bool:
    """Return False if half of the published gain would exceed a precision of 1."""
    is_precision = claim.unit in ("mAP", "AP") or claim.unit.startswith("P@")
    if claim.gain is None or not is_precision or "reference" not in found:
        return True
    return found["reference"] + SHARE * claim.gain <= 1


def verdict(entry: Entry, record: dict | None) -> str:
    """Return the verdict of an entry.

    "reproduced" if all tested claims hold, "not" if none holds and none is smaller,
    "partly" in between, and "not run" with the reason if there is nothing to test.
    """
    if entry.missing:
        return f"not run: {entry.missing}"
    if record is None:
        reads = f"; it reads {', '.join(entry.needs)}" if entry.needs else ""
        return f"not run: there is no record{reads}"
    if record["quick"]:
        return "not run: quick form"
    states = tested_states(entry.claims, record)
    if not states:
        return f"not run: fewer than {MIN_VALUES} values"
    if set(states) == {"holds"}:
        return "reproduced"
    return "not" if set(states) == {"fails"} else "partly"


def tested_states(claims: Sequence[Claim], record: dict) -> list[str]:
    """Return the states of the claims that could be tested."""
    states = [judge(claim, record["effects"]).state for claim in claims]
    return [state for state in states if state != "untested"]


def load_papers(names: Sequence[str] = PAPERS) -> list[Paper]:
    """Return the papers with these names."""
    return [importlib.import_module(f"benchmarks.papers.{n}").PAPER for n in names]


# -- records --


def read_records(paper: str, folder: Path = RECORDS) -> dict[str, dict]:
    """Return the records of a paper by the name of the entry."""
    path = folder / f"{paper}.json"
    return json.loads(path.read_text())["entries"] if path.exists() else {}


def run_entry(paper: Paper, entry: Entry, *, quick: bool) -> dict:
    """Measure an entry and return its record."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = getattr(importlib.import_module(paper.runs), entry.slug)(quick)
    unknown = set(result.effects) - {claim.key for claim in entry.claims}
    if unknown:
        raise ValueError(f"{paper.name}, {entry.name}: no claim is named {unknown}.")
    return {
        **json.loads(json.dumps(asdict(result), default=float), parse_float=_round),
        "quick": quick,
        "command": shlex.join(["python", "-m", "benchmarks.papers", *sys.argv[1:]]),
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "versions": {n: version(n) for n in ("numpy", "scipy", "scikit-learn")},
    }


def write_record(paper: Paper, name: str, record: dict, folder: Path) -> None:
    """Add a record to the file of its paper; the file is replaced as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    records = {**read_records(paper.name, folder), name: record}
    order = [entry.name for entry in paper.entries if entry.name in records]
    path = folder / f"{paper.name}.json"
    aside = path.with_suffix(".part")
    text = json.dumps({"entries": {n: records[n] for n in order}}, indent=1)
    aside.write_text(_join_lists(text) + "\n")
    aside.replace(path)


def _join_lists(text):
    """Put the innermost lists on one line each."""
    return re.sub(r"\[\s[^\[\]{}\"]*\]", lambda m: " ".join(m.group().split()), text)


def needed_files(entry: Entry) -> list[str]:
    """Return the data files of an entry that are not in the folder."""
    return find_missing(entry.needs)


def _commit():
    """Return the last commit of the package, marked if the package differs from it."""
    try:
        commit = _git("log", "-1", "--format=%h", "--", ":/sklearn_simlearn")
        differs = _git("diff", "HEAD", "--", ":/sklearn_simlearn")
        return f"{commit}-dirty" if differs else commit
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*command):
    return subprocess.run(
        ["git", *command],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
