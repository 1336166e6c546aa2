"""Repeat the experiments of a paper: ``python -m benchmarks.papers NAME``."""

import argparse
import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the helpers of the benchmarks

from _common import print_table

from benchmarks.papers._frame import run_experiment
from benchmarks.papers._page import write_page

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

    done = []
    for name in options.papers or PAPERS:
        paper = importlib.import_module(f"benchmarks.papers.{name}").PAPER
        print(f"\n== {paper.citation}\n   {paper.estimator}: {paper.settings}")
        for experiment in paper.experiments:
            print(f"\n{experiment.name}: {experiment.title}")
            print(QUICK if options.quick else experiment.data)
            missing = [] if options.quick else experiment.missing()
            if missing:
                print(
                    f"Not run: {', '.join(missing)} must be in the folder that "
                    "SIMLEARN_DATA names "
                    f"({os.environ.get('SIMLEARN_DATA', 'not set')})."
                )
                continue
            record = run_experiment(
                paper, experiment, folder, quick=options.quick, again=options.again
            )
            print_table(record["header"], record["rows"])
            for claim in record["claims"]:
                print(
                    f"{'holds' if claim['holds'] else 'FAILS'}: {claim['text']} "
                    f"({claim['evidence']})"
                )
            print(*record["notes"], sep="\n", end="\n" if record["notes"] else "")
            print(f"{record['verdict']}, {record['seconds']:.0f} s", flush=True)
            done.append((paper, experiment, record))
        print(f"\nNot here: {paper.absent}")
    if options.page:
        write_page(Path(options.page), done)


if __name__ == "__main__":
    main()
