"""Arguments of the command line."""

import argparse
from collections.abc import Callable

import sklearn_simlearn


class Parser(argparse.ArgumentParser):
    """Parser that reports a bad call in one line, without the usage."""

    def error(self, message):
        self.exit(2, f"sklearn_simlearn: {message} (see --help)\n")


def parse(
    arguments: list[str] | None, compare: Callable, search: Callable
) -> argparse.Namespace:
    """Return the options; `run` is the function of the command."""
    parser = Parser(
        prog="python -m sklearn_simlearn",
        description=(
            "Compare the similarities of this package with baselines, on held-out "
            "samples: mean average precision (mAP); precision at 1 and 10; gain in mAP "
            "over the best baseline, and the p-value of the difference (signed-rank "
            "test over queries, corrected for the number of rows); seconds to fit; "
            "microseconds per query for the best 10 items; size of the model. The "
            "output ends with the similarity to use, the reasons, and lines of Python "
            "that fit it. Without --data, --images and --beir, the data are "
            "handwritten digits of the package."
        ),
    )
    version = f"sklearn_simlearn {sklearn_simlearn.__version__}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(run=compare)
    _add_source(parser)
    _add_outputs(parser)
    commands = parser.add_subparsers(metavar="search", title="another command")
    _add_search(commands, search)
    return parser.parse_args(arguments)


def _add_source(parser):
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument(
        "--images",
        metavar="FOLDER",
        help="your own photographs, as visual words: a sub-folder for each class, or a "
        "CSV file with the columns path and label",
    )
    sources.add_argument(
        "--data",
        metavar="FILE.npz",
        help="your own data: X dense, or CSR as data, indices, indptr and shape; y, "
        "labels or a relevance matrix; optionally query_mask",
    )
    sources.add_argument(
        "--beir",
        metavar="FOLDER",
        help="your own queries, documents and judgements: a folder in the format of "
        "BEIR, with corpus.jsonl, queries.jsonl and qrels/test.tsv; with "
        "qrels/train.tsv, similarities are fitted on the queries of that file, "
        "otherwise on half of the queries",
    )
    parser.add_argument(
        "--vectors",
        metavar="FILE.npz",
        help="vectors for --beir: query_ids, query_vectors, document_ids and "
        "document_vectors",
    )
    parser.add_argument(
        "--split",
        choices=("samples", "objects"),
        default="samples",
        help="hold out half of the samples of each class (default), or half of the "
        "classes, to measure on new classes; the learners hold out the same",
    )
    parser.add_argument(
        "--seed",
        type=_non_negative,
        default=0,
        help="seed of the split and of the learners (default: 0)",
    )
    _add_max_bytes(parser)


def _add_outputs(parser):
    parser.add_argument(
        "--output",
        metavar="STEM",
        default="simlearn_comparison",
        help="write STEM.csv and the precision-recall curves STEM.png "
        "(default: simlearn_comparison)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a report: a page with intervals and tests, curves, and the queries "
        "that gain and lose most",
    )
    parser.add_argument(
        "--save",
        metavar="FOLDER",
        help="save the advised model as an index of all samples, for `search`",
    )


def _add_search(commands, run):
    search = commands.add_parser(
        "search",
        help="search a saved index (see search --help)",
        description=(
            "Search an index that --save has written: one line per query, with its "
            "number and the ids of the best items with their scores, tab-separated."
        ),
    )
    search.set_defaults(run=run)
    search.add_argument("folder", metavar="FOLDER", help="the index")
    search.add_argument(
        "queries",
        metavar="QUERIES.npz",
        help="queries: X dense, or CSR as data, indices, indptr and shape; for an "
        "index of photographs, a photograph or a folder of them",
    )
    search.add_argument(
        "-k", type=_positive, default=10, help="items per query (default: 10)"
    )
    search.add_argument(
        "--trust",
        metavar="NAME",
        nargs="+",
        default=(),
        help="types in the stored model to trust, in addition to those of this package "
        "and of scikit-learn",
    )
    search.add_argument(
        "--output", metavar="FILE.csv", default=None, help="write the results too"
    )
    _add_max_bytes(search)


def _add_max_bytes(parser):
    parser.add_argument(
        "--max-bytes",
        type=_positive,
        default=2**33,
        metavar="N",
        help="maximum size of the arrays in the file (default: 8 GiB)",
    )


def _positive(text):
    return _integer_from(1, text)


def _non_negative(text):
    return _integer_from(0, text)


def _integer_from(smallest, text):
    try:
        number = int(text)
    except ValueError:
        number = smallest - 1
    if not smallest <= number < 2**63:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an integer of at least {smallest}"
        )
    return number
