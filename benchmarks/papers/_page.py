"""Pages and figures of the reproductions, built from the records."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.papers._data import DATA
from benchmarks.papers._frame import (
    RECORDS,
    TEST,
    Claim,
    Entry,
    Outcome,
    Paper,
    has_room,
    judge,
    read_records,
    tested_states,
    verdict,
)
from benchmarks.papers._plot import draw_panels

# Verdicts on the page of a paper.
HEADLINES = {"partly": "partly reproduced", "not": "not reproduced"}


def kind(text: str) -> str:
    """Return a verdict without its reason."""
    return text.partition(":")[0]


def count_verdicts(papers: list[Paper], folder: Path = RECORDS) -> Counter:
    """Return the number of entries by verdict."""
    return Counter(
        kind(verdict(entry, records.get(entry.name)))
        for paper in papers
        for records in [read_records(paper.name, folder)]
        for entry in paper.entries
    )


def summarize(papers: list[Paper], folder: Path = RECORDS) -> str:
    """Return the number of entries by verdict and the time they took, as a sentence."""
    count = count_verdicts(papers, folder)
    records = [r for p in papers for r in read_records(p.name, folder).values()]
    return (
        f"Of {count.total()} tables and figures with results, {count['reproduced']} "
        f"are reproduced, {count['partly']} partly, {count['not']} not, and "
        f"{count['not run']} are not run. The runs took {processor_time(records)}."
    )


def processor_time(records: Iterable[dict]) -> str:
    """Return the processor time of these records as text."""
    minutes = round(sum(record["cpu_seconds"] for record in records) / 60)
    return f"{minutes} minute{'s' * (minutes != 1)} of processor time"


# -- text --


def escape(text: str) -> str:
    """Return plain text as reStructuredText without markup or links."""
    return re.sub(r"([\\*`_|@])", r"\\\1", text)


def number(value: float, sign: str = "+") -> str:
    """Return a number with three decimals, fewer if it is large, more if small."""
    return f"{value:{sign}.{decimals(value)}f}"


def decimals(value: float) -> int:
    if abs(value) >= 10:
        return 1
    return 4 if 0 < abs(value) < 0.01 else 3


def mean_and_error(outcome: Outcome) -> str:
    """Return mean and standard error of a claim with the same decimals."""
    digits = decimals(max(abs(outcome.mean), outcome.error))
    return f"{outcome.mean:+.{digits}f} ± {outcome.error:.{digits}f}"


def describe(claim: Claim, effects: dict) -> str:
    """Return the evidence for a claim as text."""
    if claim.missing:
        return f"not tested: {claim.missing}"
    outcome = judge(claim, effects)
    if not outcome.n:
        return "not tested"
    found = effects[claim.key]
    text = f"{mean_and_error(outcome)} {claim.unit}"
    if "ours" in found:
        text += f", {number(found['ours'], '')} against "
        text += number(found["reference"], "")
    if not has_room(claim, found):
        text += "; there is no room for half of the published gain"
    return f"{text}; {outcome.n} {outcome.over}, p = {outcome.p:.2g}"


def published(claim: Claim) -> str:
    """Return the published size of a claim as text."""
    size = "> 0" if claim.gain is None else f"{claim.gain:+g}"
    return f"{size} {claim.unit}"


def titled(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}"


def table(header: list[str], rows: list[list[str]], **options: str) -> list[str]:
    """Return the lines of a list-table of cells that are reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1"]
    lines += [f"   :{name}: {value}" for name, value in options.items()] + [""]
    for row in [header, *rows]:
        for place, cell in enumerate(row):
            start = "   * - " if place == 0 else "     - "
            lines.append(f"{start}{cell}".rstrip())
    return [*lines, ""]


def authors(paper: Paper) -> str:
    """Return the first author, and the second one if there are two."""
    names = re.split(", | and ", paper.citation.partition(":")[0])
    return " and ".join(names) if len(names) == 2 else f"{names[0]} et al."


def label(paper: Paper, entry: Entry) -> str:
    return f"reproductions-{paper.name}-{entry.slug.replace('_', '-')}"


# -- pages --


def write_pages(
    folder: Path, papers: list[Paper], records: Path = RECORDS
) -> list[Path]:
    """Write the front page, one page per paper, the page of the data, and figures."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index": front_page(papers, records), "data": data_page(papers)}
    for paper in papers:
        pages[paper.name] = paper_page(paper, read_records(paper.name, records), folder)
    paths = []
    for name, lines in pages.items():
        paths.append(folder / f"{name}.rst")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def front_page(papers: list[Paper], records: Path) -> list[str]:
    """Return the front page: every entry with its main claim and its verdict."""
    lines = [
        ":html_theme.sidebar_secondary.remove:",
        "",
        ".. _reproductions:",
        "",
        titled("Reproduction of the papers", "="),
        "",
        summarize(papers, records),
        "The columns show the first claim of each table or figure.",
        ":ref:`How a verdict is computed <reproductions-test>`;",
        ":ref:`the data <reproductions-data>`, mostly smaller than that of the papers.",
        "",
        ".. toctree::",
        "   :hidden:",
        "",
        *[f"   {authors(paper)} <{paper.name}>" for paper in papers],
        "   Data and test <data>",
        "",
        ".. grid:: 1 1 3 3",
        "   :gutter: 2",
        "   :class-container: reproductions",
        "",
    ]
    # Three columns of about the same length.
    columns: list[list[Paper]] = [[], [], []]
    for paper in sorted(papers, key=lambda paper: -len(paper.entries)):
        min(columns, key=lambda c: sum(len(p.entries) for p in c)).append(paper)
    for column in columns:
        lines += ["   .. grid-item::", ""]
        for paper in column:
            rows = front_table(paper, read_records(paper.name, records))
            lines += [f"      {row}".rstrip() for row in rows]
    return lines


def front_table(paper: Paper, records: dict) -> list[str]:
    """Return the table of a paper on the front page."""
    rows = []
    for entry in paper.entries:
        record = records.get(entry.name)
        first = entry.claims[0] if entry.claims else None
        ours = ""
        if record and first:
            ours = mean_and_error(judge(first, record["effects"]))
        found = kind(verdict(entry, record))
        rows.append(
            [
                f":ref:`{entry.name} <{label(paper, entry)}>`",
                escape(published(first)) if first else "",
                escape(ours),
                found,
            ]
        )
    name = f":doc:`{authors(paper)} <{paper.name}>`"
    header = [name, "published", "ours", "verdict"]
    return table(header, rows, **{"class": "compact"})


def paper_page(paper: Paper, records: dict, folder: Path) -> list[str]:
    """Return the page of a paper, and draw its figures."""
    lines = [f".. _reproductions-{paper.name}:", "", titled(authors(paper), "="), ""]
    lines += [f"{paper.citation}. The learner is"]
    lines += [f":class:`~sklearn_simlearn.{paper.estimator}`;"]
    lines += [f"the form of the paper is ``{paper.form}``."]
    lines += [f"``python -m benchmarks.papers {paper.name}`` measures this page"]
    lines += [f"in {processor_time(records.values())}.", ""]
    lines += ["Data and protocol compared with the paper:", ""]
    lines += [f"- {difference}" for difference in paper.protocol]
    named = ", ".join(DATA[key].title for key in paper.data)
    lines += [f"- Data: {named} (:ref:`reproductions-data`).", ""]
    for entry in paper.entries:
        record = records.get(entry.name)
        lines += [f".. _{label(paper, entry)}:", ""]
        lines += [titled(f"{entry.name}: {entry.title}", "-"), ""]
        lines += [f"**{escape(headline(entry, record))}.**", ""]
        if record is None:
            continue
        lines += [*count_by_protocol(entry, record), ""]
        lines += claims_table(entry, record)
        if record["panels"]:
            name = f"{paper.name}-{entry.slug}.svg"
            draw_panels(record["panels"], folder / name)
            lines += [f".. image:: {name}", f"   :alt: {entry.title}", ""]
        lines += [*(f"- {escape(note)}" for note in record["notes"]), ""]
        lines += measurements(record)
    lines += [titled("Not repeated", "-"), ""]
    return [*lines, *(f"- {reason}" for reason in paper.not_repeated)]


def headline(entry: Entry, record: dict | None) -> str:
    """Return the verdict of an entry as a sentence without its full stop."""
    found = verdict(entry, record)
    found = HEADLINES.get(found, found)
    return found[0].upper() + found[1:]


def count_by_protocol(entry: Entry, record: dict) -> list[str]:
    """Return the number of claims that hold in each protocol, as a list."""
    lines = []
    for protocol in protocols_of(entry):
        claims = [claim for claim in entry.claims if claim.protocol == protocol]
        states = tested_states(claims, record)
        n_held = states.count("holds")
        lines.append(f"- {protocol}: {n_held} of {len(states)} claims hold.")
    return lines


def protocols_of(entry: Entry) -> list[str]:
    """Return the protocols of an entry; none if there is only one."""
    return list(dict.fromkeys(c.protocol for c in entry.claims if c.protocol))


def measurements(record: dict) -> list[str]:
    """Return the table of a record and its provenance, folded."""
    rows = [[escape(cell) for cell in row] for row in record["rows"]]
    header = [escape(cell) for cell in record["header"]]
    lines = [*table(header, rows, **{"class": "compact"}), provenance(record)]
    lines = [f"   {line}".rstrip() for line in lines]
    return [".. dropdown:: Measurements", "", *lines, ""]


def claims_table(entry: Entry, record: dict) -> list[str]:
    """Return the claims of an entry with their evidence, failures included.

    Claims with the same quotation follow each other, so it is printed once. If there
    are several protocols, each has a column.
    """
    protocols = protocols_of(entry)
    rows: dict[tuple, dict[str, list[str]]] = {}
    for claim in entry.claims:
        quotation = f'{claim.section}: "{escape(claim.quote)}"'
        key = (escape(claim.text), quotation, escape(published(claim)))
        state = judge(claim, record["effects"]).state
        state = f"**{state}**" if state in ("fails", "smaller") else state
        evidence = escape(describe(claim, record["effects"]))
        cells = [f"{state}: {evidence}"] if protocols else [evidence, state]
        rows.setdefault(key, {})[claim.protocol] = cells
    options = {"widths": "32 22 11 27 8", "class": "compact stacked claims"}
    header = ["claim", "section of the paper", "published", "ours", "test"]
    if protocols:
        header[3:] = protocols
        widths = [str(60 // len(protocols))] * len(protocols)
        options = {"widths": " ".join(["18", "14", "8", *widths]), "class": "compact"}
    lines, previous = [], None
    for (text, quotation, size), cells in rows.items():
        shown = "" if quotation == previous else quotation
        found = [cell for p in protocols or [""] for cell in cells.get(p, [""])]
        lines.append([text, shown, size, *found])
        previous = quotation
    return table(header, lines, **options)


def provenance(record: dict) -> str:
    """Return time, commit and versions of a record as text."""
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    return (
        f"*{record['seconds']:.0f} s, {record['cpu_seconds']:.0f} s of processors; "
        f"commit {record['commit']}, {record['date']}, {versions}.*"
    )


def data_page(papers: list[Paper]) -> list[str]:
    """Return the page that describes the data and the test."""
    rows = []
    for key, data in DATA.items():
        users = [authors(paper) for paper in papers if key in paper.data]
        files = ", ".join(f"``{name}``" for name in data.files)
        text = data.text.replace("`", "``") + f" Source: {data.source}."
        rows.append([data.title, text, files, "; ".join(users)])
    options = {"widths": "15 45 27 13", "class": "compact stacked"}
    return [
        titled("Data and test of the reproductions", "="),
        "",
        ".. _reproductions-test:",
        "",
        titled("How a verdict is computed", "-"),
        "",
        TEST,
        "",
        "A table or figure is **reproduced** if all tested claims hold, **not** if all "
        "fail, and **partly** otherwise. The claims are statements of the paper about "
        "the table or figure, cited by section. ``python -m benchmarks.papers`` "
        "measures them and writes the values to ``benchmarks/papers/records``. These "
        "pages are built from the values.",
        "",
        ".. _reproductions-data:",
        "",
        titled("Data", "-"),
        "",
        "Files are read from the folder that the environment variable "
        "``SIMLEARN_DATA`` names. ``python -m benchmarks.papers`` lists missing files "
        "with their arrays and sources.",
        "",
        *table(["name", "contents", "files", "used by"], rows, **options),
    ]
