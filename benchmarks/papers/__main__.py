"""Repeat the experiments of the papers: ``python -m benchmarks.papers NAME``."""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the helpers of the benchmarks

from _common import print_table

from benchmarks.papers._data import FILES
from benchmarks.papers._frame import (
    PAPERS,
    RECORDS,
    judge,
    load_papers,
    needed_files,
    read_records,
    run_entry,
    verdict,
    write_record,
)
from benchmarks.papers._page import describe, summarize, write_pages


def make_parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description="Repeat the tables and figures of the papers and test what the "
        "papers claim. Data is read from the folder that SIMLEARN_DATA names. Missing "
        "files are listed. Nothing is downloaded.",
    )
    parser.add_argument(
        "papers",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(PAPERS)} (default: all)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use small synthetic data (two minutes, without verdicts); store records "
        "only with --records",
    )
    parser.add_argument(
        "--entry",
        action="append",
        default=[],
        metavar="ENTRY",
        help='only this table or figure, such as "Table II"; may be repeated',
    )
    parser.add_argument(
        "--again", action="store_true", help="repeat measurements that have a record"
    )
    parser.add_argument(
        "--records", type=Path, metavar="FOLDER", help=f"(default: {RECORDS.name})"
    )
    parser.add_argument(
        "--pages",
        type=Path,
        metavar="FOLDER",
        help="write pages and figures from the records to this folder",
    )
    return parser


def main():
    parser = make_parser()
    options = parser.parse_args()
    unknown = set(options.papers) - set(PAPERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {PAPERS}")
    folder = options.records or (None if options.quick else RECORDS)
    papers = load_papers(options.papers or PAPERS)
    for paper in papers:
        print(f"\n== {paper.citation}\n   {paper.form}")
        records = {} if folder is None else read_records(paper.name, folder)
        for entry in paper.entries:
            if options.entry and entry.name not in options.entry:
                continue
            record = run_or_read(paper, entry, records.get(entry.name), options)
            if record is not None and folder is not None:
                write_record(paper, entry.name, record, folder)
    if folder is not None:
        print(f"\n{summarize(papers, folder)}")
    if options.pages:
        write_pages(options.pages, load_papers(), folder or RECORDS)


def run_or_read(paper, entry, record, options):
    """Return the record of an entry, measured if needed; None if this is impossible."""
    print(f"\n{entry.name}: {entry.title}")
    if entry.missing:
        print(verdict(entry, None))
        return None
    if record is None or options.again:
        if not options.quick and needed_files(entry):
            print_missing(entry)
            return None
        record = run_entry(paper, entry, quick=options.quick)
    print_record(entry, record)
    return record


def print_missing(entry):
    """Print the files that an entry needs, and their sources."""
    folder = os.environ.get("SIMLEARN_DATA", "not set")
    print(f"Not run. These files are not in the folder SIMLEARN_DATA ({folder}):")
    for name in needed_files(entry):
        print(f"- {name}: {FILES[name]}")


def print_record(entry, record):
    print_table(record["header"], record["rows"])
    for claim in entry.claims:
        outcome = judge(claim, record["effects"])
        text = f"{claim.protocol}: {claim.text}" if claim.protocol else claim.text
        print(f"{outcome.state}: {text} ({describe(claim, record['effects'])})")
    for note in record["notes"]:
        print(note)
    found = "quick form, no verdict" if record["quick"] else verdict(entry, record)
    print(f"{found}; {record['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
