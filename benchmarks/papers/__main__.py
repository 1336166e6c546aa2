"""Repeat the experiments of a paper: ``python -m benchmarks.papers NAME``."""

import argparse
import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the helpers of the benchmarks

from _common import print_table

from benchmarks.papers._data import FILES
from benchmarks.papers._frame import run_experiment
from benchmarks.papers._page import summarize, write_page

QUICK = "Small data of the package or made up: it shows that all runs, no more."
PAPERS = ("yan", "qin", "kuang", "chechik", "sicre")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description="Repeats the experiments of the papers and compares the figures. "
        "The data is read from the folder that SIMLEARN_DATA names; what is missing is "
        "said, and nothing is downloaded.",
    )
    parser.add_argument(
        "papers",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(PAPERS)}; all of them if there is none",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="seconds instead of minutes, on data that is part of the package",
    )
    parser.add_argument(
        "--again", action="store_true", help="measure what was measured before"
    )
    parser.add_argument(
        "--results",
        default="papers_results",
        metavar="FOLDER",
        help="where results are kept, so that an interrupted run goes on",
    )
    parser.add_argument(
        "--page", metavar="FILE", help="write the page, such as doc/reproductions.rst"
    )
    options = parser.parse_args()
    unknown = set(options.papers) - set(PAPERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {PAPERS}")
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)

    done, missing = [], []
    for name in options.papers or PAPERS:
        paper = importlib.import_module(f"benchmarks.papers.{name}").PAPER
        print(f"\n== {paper.citation}\n   {paper.estimator}: {paper.settings}")
        for experiment in paper.experiments:
            if options.quick and not experiment.has_quick:
                continue
            print(f"\n{experiment.name}: {experiment.title}")
            print(QUICK if options.quick else experiment.data)
            if not options.quick and experiment.missing():
                print_missing(experiment)
                missing.append((paper, experiment))
                continue
            record = run_experiment(
                paper, experiment, folder, quick=options.quick, again=options.again
            )
            print_record(record)
            done.append((paper, experiment, record))
        print(f"\nNot here: {paper.absent}")
    if done:
        print(f"\n{summarize(done)}")
    if options.page:
        write_page(Path(options.page), done, missing)


def print_missing(experiment):
    """What must be there for an experiment to run, and where it comes from."""
    folder = os.environ.get("SIMLEARN_DATA", "not set")
    print(f"Not run: it needs, in the folder that SIMLEARN_DATA names ({folder}),")
    for name in experiment.missing():
        print(f"- {name}: {FILES[name]}")


def print_record(record):
    print_table(record["header"], record["rows"])
    for claim in record["claims"]:
        mark = "holds" if claim["holds"] else "FAILS"
        print(f"{mark}: {claim['text']} ({claim['evidence']})")
    for tried in record["tried"]:
        print(f"tried: {tried}")
    for note in record["notes"]:
        print(note)
    seconds = f"{record['seconds']:.0f} s, {record['cpu_seconds']:.0f} s of processors"
    print(f"{record['verdict']}; {seconds}", flush=True)


if __name__ == "__main__":
    main()
