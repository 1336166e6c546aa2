"""Arguments of the command line."""

import argparse
from collections.abc import Callable

import sklearn_simlearn


class Parser(argparse.ArgumentParser):
    """Parser that reports an invalid call in one line, without the usage."""

    def error(self, message):
        self.exit(2, f"sklearn_simlearn: {message} (see {self.prog} --help)\n")


def parse(
    arguments: list[str] | None, compare: Callable, search: Callable, serve: Callable
) -> argparse.Namespace:
    """Return the options; `run` is the function of the command."""
    parser = Parser(
        prog="python -m sklearn_simlearn",
        description=(
            "Compare the similarities of this package with baselines on held-out "
            "samples. The table shows mean average precision (mAP); precision at 1 and "
            "10; gain in mAP over the best baseline; for the similarities of this "
            "package, the p-value of the gain (signed-rank test over queries, or "
            "over objects with --split objects, corrected for the number of "
            "similarities); seconds to fit; microseconds per query for the best 10 "
            "items; size of the model. The output ends with the similarity to use, the "
            "reasons, and lines of Python that fit it. Without --data, --texts, "
            "--images and --beir, the data are handwritten digits of the package."
        ),
    )
    version = f"sklearn_simlearn {sklearn_simlearn.__version__}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(run=compare)
    _add_source(parser)
    _add_outputs(parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="other commands")
    _add_search(commands, search)
    _add_serve(commands, serve)
    return parser.parse_args(arguments)


def _add_source(parser):
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument(
        "--images",
        metavar="FOLDER",
        help="your own photographs: a sub-folder for each class, or a CSV file with "
        "the columns path and label; features are colours, Gist and visual words",
    )
    sources.add_argument(
        "--data",
        metavar="FILE.npz",
        help="your own data: X as a dense array, or as the CSR arrays data, indices, "
        "indptr and shape; y with labels or a relevance matrix; optionally query_mask",
    )
    sources.add_argument(
        "--texts",
        metavar="FILE",
        help="your own texts: a CSV file, or JSON lines (.jsonl); without labels, they "
        "are indexed by BM25 and not compared",
    )
    sources.add_argument(
        "--beir",
        metavar="FOLDER",
        help="your own queries, documents and judgements: a folder in the format of "
        "BEIR, with corpus.jsonl, queries.jsonl and qrels/test.tsv; similarities are "
        "fitted on the queries of qrels/train.tsv if it exists, otherwise on half of "
        "the queries",
    )
    _add_source_options(parser)


def _add_source_options(parser):
    parser.add_argument(
        "--text", metavar="COLUMN", help="column of texts in --texts (default: text)"
    )
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="column of labels in --texts (default: label, if it exists)",
    )
    parser.add_argument(
        "--id",
        metavar="COLUMN",
        help="column of ids in --texts (default: id, if it exists); other columns are "
        "metadata",
    )
    parser.add_argument(
        "--onnx",
        metavar="MODEL",
        help="network in the ONNX format, for another kind of features of --images",
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
        "classes, to measure on new classes; the learners use the same kind of "
        "hold-out",
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
        help="write a report: an HTML page with intervals and tests, curves, and the "
        "queries that gain and lose most",
    )
    parser.add_argument(
        "--save",
        metavar="FOLDER",
        help="save the advised model as an index of all samples, for `search` and "
        "`serve`",
    )


def _add_search(commands, run):
    search = commands.add_parser(
        "search",
        help="search a saved index (see search --help)",
        description=(
            "Search an index that --save has written. For each query, the best items "
            "are printed: rank, score, id, and the beginnings of text and metadata."
        ),
    )
    search.set_defaults(run=run)
    search.add_argument("folder", metavar="FOLDER", help="the index")
    search.add_argument(
        "queries",
        metavar="QUERY",
        nargs="+",
        help="for an index of texts, a text, or a CSV or .jsonl file with the column "
        "text; for an index of photographs, a photograph or a folder of them; for an "
        "index of texts with vectors, a .jsonl file with text, v0, v1 and so on; "
        "otherwise FILE.npz with X as a dense array, or as the CSR arrays data, "
        "indices, indptr and shape",
    )
    search.add_argument(
        "--filter",
        metavar="CONDITION",
        nargs="+",
        help="conditions on the metadata, all of which must hold, such as lang=de or "
        "'year>=2000'; operators are =, !=, <, <=, > and >=",
    )
    search.add_argument(
        "-k", type=_positive, default=10, help="items per query (default: 10)"
    )
    _add_trust(search)
    search.add_argument(
        "--output", metavar="FILE.csv", default=None, help="write the full results"
    )
    _add_max_bytes(search)


def _add_serve(commands, run):
    serve = commands.add_parser(
        "serve",
        help="serve saved indexes, with a search page (see serve --help)",
        description=(
            "Serve saved indexes on the web: a search page and a JSON API. Changes "
            "need a token, which is read from the environment variable SIMLEARN_TOKEN "
            "or from a file. Without a token, the service is read-only."
        ),
    )
    serve.set_defaults(run=run)
    serve.add_argument("folders", metavar="INDEX", nargs="+", help="the indexes")
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    serve.add_argument(
        "--port", type=_port, default=8000, help="port (default: 8000; 0: a free one)"
    )
    serve.add_argument(
        "--workers",
        type=_positive,
        default=1,
        help="number of processes, which share the memory of the indexes; with more "
        "than 1, the service is read-only (default: 1)",
    )
    serve.add_argument("--token-file", metavar="FILE", help="file with the token")
    serve.add_argument(
        "--allow-host",
        metavar="NAME",
        nargs="+",
        default=(),
        help="host names that requests may use, such as those that a proxy forwards",
    )
    _add_trust(serve)
    for name, default, what in (
        ("body", 2**24, "bytes of a request"),
        ("k", 1000, "results per query"),
        ("batch", 100, "queries, items or ids per request"),
        ("seconds", 30, "seconds per request"),
    ):
        serve.add_argument(
            f"--max-{name}",
            type=_positive,
            default=default,
            metavar="N",
            help=f"{what} (default: {default})",
        )


def _add_trust(parser):
    parser.add_argument(
        "--trust",
        metavar="NAME",
        nargs="+",
        default=(),
        help="types in the stored model to trust, in addition to those of this package "
        "and of scikit-learn",
    )


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


def _port(text):
    port = _integer_from(0, text)
    if port >= 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return port


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
