"""The command line: ``python -m sklearn_simlearn`` compares, ``search`` searches."""

import argparse
import csv
import importlib.util
import io
import os
import re
import secrets
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np

from sklearn_simlearn._core.progress import progress
from sklearn_simlearn._core.storage import HEADER
from sklearn_simlearn.comparison import _advice
from sklearn_simlearn.comparison._comparison import (
    COLUMNS,
    ROWS,
    SET_SIZE,
    compare,
    make_task,
    one_line,
)
from sklearn_simlearn.comparison._photographs import read_photographs
from sklearn_simlearn.datasets import load_digit_words, load_image_folder, load_npz
from sklearn_simlearn.datasets._image_folder import ENDINGS
from sklearn_simlearn.index import SimilarityIndex

# Messages of the package name its parameters; here they are options.
OPTION_NAMES = {"max_bytes": "--max-bytes", "`trusted`": "--trust"}

FAILURES = (ImportError, MemoryError, OSError, TypeError, ValueError)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; its exit code."""
    options = _parse(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader like `head` has seen enough
        _abandon_output()
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except FAILURES as error:
        _complain(_explain(error))
        _abandon_output()
        return 2
    return 0


# -- python -m sklearn_simlearn --


def _run_comparison(options):
    _check_target(Path(f"{options.output}.csv"))
    _check_target(Path(f"{options.output}.png"))
    if options.report is not None:
        _check_target(Path(options.report))
    if options.save is not None:
        _check_folder(Path(options.save))
    X, y, query_mask, photographs = _load_data(options)
    task = make_task(X, y, query_mask, options.split, options.seed)
    with progress([row.name for row in ROWS]) as show:
        comparison = compare(task, ROWS, show)
    if not comparison.results:
        raise ValueError(f"nothing could be compared: {_list_left_out(comparison)}")

    # Files first: a reader of the table may be gone before its end.
    lines, failure = [], None
    table = comparison.tabulate()
    words, code = _advise(options, comparison, task, photographs)
    try:
        lines.append(_write_files(options.output, table, comparison))
        if options.report is not None:
            images = _load_images(options, photographs)
            lines.append(_write_report(options, comparison, task, images, words, code))
        if options.save is not None:
            lines.append(_save_best(options.save, comparison, X, photographs))
    except FAILURES as error:
        failure = error
    print(
        f"{_name_source(options)}: {X.shape[0]} samples of {X.shape[1]} features, "
        f"{task.X_train.shape[0]} to fit, {task.X_test.shape[0]} held out by "
        f"{task.split}; each of these queries the others"
    )
    print(_align([COLUMNS, *table]))
    if comparison.left_out:
        print(f"left out: {_list_left_out(comparison)}")
    for line in lines:
        print(line)
    if words:
        print(f"\n{_advice.wrap(words)}\n\nTo fit it:\n")
        print(textwrap.indent(code, "    "))
    sys.stdout.flush()
    for message, names in comparison.warnings.items():
        print(f"warning of {', '.join(names)}: {message}", file=sys.stderr)
    if failure is not None:
        raise failure


def _name_source(options):
    return options.data or options.images or "handwritten digits as visual words"


def _load_data(options):
    """Samples, labels, which of them query, and the photographs they come from."""
    if options.images is not None:
        photographs = read_photographs(options.images, options.seed)
        if photographs.failures:
            print(f"warning: {photographs.failures}", file=sys.stderr)
        return photographs.X, photographs.y, None, photographs
    if options.data is None:
        return *load_digit_words(return_X_y=True), None, None
    data = load_npz(options.data, max_bytes=options.max_bytes)
    return data.data, data.target, data.query_mask, None


def _load_images(options, photographs):
    """Images of all samples, where there are any and Pillow can make them small."""
    if photographs is not None:
        return photographs.images
    if options.data is None and importlib.util.find_spec("PIL") is not None:
        return 16 - load_digit_words().images  # ink is dark
    return None


def _advise(options, comparison, task, photographs):
    """What to take and why, in paragraphs, and the lines that fit it."""
    choice = _advice.choose(comparison, task)
    if choice is None:
        return [], ""
    chosen, words = choice
    if photographs is not None:
        source = photographs.write_lines()
    elif options.data is None:
        source = [
            "from sklearn_simlearn.datasets import load_digit_words",
            "X, y = load_digit_words(return_X_y=True)",
        ]
    else:
        source = [
            "from sklearn_simlearn.datasets import load_npz",
            f"data = load_npz({options.data!r})",
            "X, y = data.data, data.target",
        ]
    if chosen is comparison.best(lambda row: not row.in_sets):
        words.append("The option --save FOLDER keeps it as an index to search in.")
    return words, "\n".join(_advice.write_lines(chosen, task, source))


def _list_left_out(comparison):
    return ", ".join(
        f"{name} ({reason})" for name, reason in comparison.left_out.items()
    )


def _align(table):
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _write_files(stem, table, comparison):
    """Write the table and the curves; says so in a line."""
    _write_csv(f"{stem}.csv", [COLUMNS, *table])
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f'wrote {stem}.csv; for curves: pip install "sklearn-simlearn[display]"'
    from sklearn_simlearn.display import MeanPrecisionRecallDisplay

    # Several samples that query together answer another question.
    panels = [
        [result for result in comparison.results if result.row.in_sets == in_sets]
        for in_sets in (False, True)
    ]
    panels = [panel for panel in panels if panel]
    figure = Figure(figsize=(8, 4.6 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), squeeze=False).ravel()
    for ax, panel in zip(axes, panels, strict=True):
        MeanPrecisionRecallDisplay.from_reports(
            {result.row.name: result.measured.report for result in panel},
            baselines={result.row.name for result in panel if result.row.is_rival},
            ax=ax,
        )
        if panel[0].row.in_sets:
            n_sets = len(panel[0].measured.report.query)
            ax.set_title(f"{SET_SIZE} samples query together, {n_sets} sets")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    _write_aside(f"{stem}.png", picture.getvalue())
    return f"wrote {stem}.csv and {stem}.png"


def _write_report(options, comparison, task, images, words, code):
    """Write the report; says so in a line."""
    from sklearn_simlearn.report import RetrievalReport
    from sklearn_simlearn.report._findings import Findings

    results = [result for result in comparison.results if not result.row.in_sets]
    if not results:
        raise ValueError("no row with single queries could be measured for a report")
    findings = Findings(
        {result.row.name: result.measured for result in results},
        task.X_test,
        task.y_test,
        images=None if images is None else images[task.test_rows],
        baselines=[r.row.name for r in results if r.row.is_rival] or None,
        title=f"Comparison on {_name_source(options)}",
        advice=words,
        code=code,
    )
    RetrievalReport._from_findings(findings).save(options.report)
    return f"wrote {options.report}"


def _save_best(folder, comparison, X, photographs):
    """Save the best model for single queries as an index of all samples."""
    best = comparison.best(lambda row: not row.in_sets)
    if best is None:
        raise ValueError("no row with single queries could be measured to be saved")
    if photographs is None:
        SimilarityIndex(best.measured.estimator).fit(X).save(folder)
    else:
        index = SimilarityIndex(photographs.extend(best.measured.estimator))
        index.fit(photographs.paths, ids=photographs.paths).save(folder)
    return (
        f"saved {best.row.name}, fitted as above, with all {X.shape[0]} samples as an "
        f"index in {folder}"
    )


# -- python -m sklearn_simlearn search --


def _run_search(options):
    if options.output is not None:
        _check_target(Path(options.output))
    index = SimilarityIndex.load(options.folder, trusted=options.trust)
    scores, ids = index.search(_load_queries(options), k=options.k)
    found = np.isfinite(scores)
    if options.output is not None:
        rows = [("query", "rank", "id", "score")]
        for query, rank in np.argwhere(found):
            score = float(scores[query, rank])
            rows.append((query, rank + 1, ids[query, rank], score))
        _write_csv(options.output, rows)
    for query in range(len(ids)):
        results = "\t".join(
            f"{' '.join(str(name).split())} {score:.6g}"
            for name, score in zip(
                ids[query, found[query]], scores[query, found[query]], strict=True
            )
        )
        print(f"{query}\t{results}")


def _load_queries(options):
    if Path(options.queries).is_dir():
        return load_image_folder(options.queries).data
    if options.queries.lower().endswith(ENDINGS):
        return [options.queries]
    return load_npz(
        options.queries, max_bytes=options.max_bytes, require_target=False
    ).data


# -- arguments --


class _Parser(argparse.ArgumentParser):
    """One line for a bad call, without the usage around it."""

    def error(self, message):
        self.exit(2, f"sklearn_simlearn: {message} (see --help)\n")


def _parse(arguments):
    parser = _Parser(
        prog="python -m sklearn_simlearn",
        description=(
            "Compare the similarities of this package with what one would try without "
            "it, on held-out samples: mean average precision; precision at 1 and 10; "
            "gain in mAP over the best row without us, and the p-value of the "
            "difference (signed-rank test over queries); seconds to fit; microseconds "
            "per query for the best 10 items; size of the model. It ends with which to "
            "take, how sure that is, and lines that fit it. Without --data, on "
            "handwritten digits that come with the package."
        ),
    )
    parser.set_defaults(run=_run_comparison)
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
    parser.add_argument(
        "--split",
        choices=("samples", "objects"),
        default="samples",
        help="hold out half of the samples of each class (default), or half of the "
        "classes, to see how a similarity fares on objects it has never met; the "
        "learners' own hold-out follows it",
    )
    parser.add_argument(
        "--seed",
        type=_non_negative,
        default=0,
        help="decides the split and what learners draw at random (default: 0)",
    )
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
        help="save the best model as an index of all samples, for the command search",
    )
    _add_max_bytes(parser)
    commands = parser.add_subparsers(metavar="search", title="another command")
    search = commands.add_parser(
        "search",
        help="search a saved index (see search --help)",
        description=(
            "Search an index that --save left: one line per query, its number and then "
            "the ids of the best items with their scores, tab-separated."
        ),
    )
    search.set_defaults(run=_run_search)
    search.add_argument("folder", metavar="FOLDER", help="the index")
    search.add_argument(
        "queries",
        metavar="QUERIES.npz",
        help="queries: X dense, or CSR as data, indices, indptr and shape; of an index "
        "of photographs, a photograph or a folder of them",
    )
    search.add_argument(
        "-k", type=_positive, default=10, help="items per query (default: 10)"
    )
    search.add_argument(
        "--trust",
        metavar="NAME",
        nargs="+",
        default=(),
        help="types in the stored model to trust, besides those of this package and "
        "of scikit-learn",
    )
    search.add_argument(
        "--output", metavar="FILE.csv", default=None, help="write the results too"
    )
    _add_max_bytes(search)
    return parser.parse_args(arguments)


def _add_max_bytes(parser):
    parser.add_argument(
        "--max-bytes",
        type=_positive,
        default=2**33,
        metavar="N",
        help="most bytes that the arrays of the file may take (default: 8 GiB)",
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
            f"{text!r} is no integer of {smallest} or more"
        )
    return number


# -- files --


def _check_target(path):
    """Find out before any work whether a file can be written."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name another file")
    _check_writable(path.parent)


def _check_folder(folder):
    """Find out before any work whether an index can be saved."""
    if importlib.util.find_spec("skops") is None:
        raise ImportError(
            'an index is saved by skops: pip install "sklearn-simlearn[serve]"'
        )
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / HEADER).is_file():
            raise ValueError(
                f"{folder} is not an index folder, and not empty: name another one"
            )
    elif folder.exists():
        raise ValueError(f"{folder} is not a folder: name another one")
    _check_writable(folder if folder.is_dir() else folder.parent)


def _check_writable(folder):
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


def _write_csv(path, rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    _write_aside(path, text.getvalue().encode())


def _write_aside(path, content):
    """Write a file under another name, then rename it: it is whole or not there."""
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(8)}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


# -- streams --


def _complain(text):
    with suppress(OSError):
        print(f"sklearn_simlearn: {text}", file=sys.stderr)


def _explain(error):
    text = one_line(error)
    if isinstance(error, OSError) and error.strerror is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        text = f"{place}{error.strerror}"
    for name, option in OPTION_NAMES.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", option, text)
    return text


def _abandon_output():
    """Keep Python from failing once more when it flushes the output at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def prepare_streams():
    """Streams that are closed lead nowhere; what a terminal cannot show is escaped."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # This takes the number of the stream, which a file would get otherwise.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")
