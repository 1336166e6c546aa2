"""The command line: ``python -m sklearn_simlearn`` compares, ``search`` searches."""

import os
import re
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np

from sklearn_simlearn._core.progress import progress
from sklearn_simlearn.comparison import _files as files
from sklearn_simlearn.comparison._advice import advise
from sklearn_simlearn.comparison._arguments import parse
from sklearn_simlearn.comparison._beir import load_collection
from sklearn_simlearn.comparison._comparison import COLUMNS, compare, one_line
from sklearn_simlearn.comparison._recipe import write_lines
from sklearn_simlearn.comparison._rows import ROWS
from sklearn_simlearn.comparison._source import load_source
from sklearn_simlearn.comparison._task import make_task
from sklearn_simlearn.comparison._wording import align, explain, list_left_out, wrap
from sklearn_simlearn.datasets import load_image_folder, load_npz
from sklearn_simlearn.datasets._image_folder import ENDINGS
from sklearn_simlearn.index import SimilarityIndex

# Names of parameters in messages, and the options that set them.
OPTION_NAMES = {"max_bytes": "--max-bytes", "`trusted`": "--trust"}

FAILURES = (ImportError, MemoryError, OSError, TypeError, ValueError)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = parse(arguments, run_comparison, run_search)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader such as `head` has closed the pipe
        _abandon_output()
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except FAILURES as error:
        _complain(_explain_error(error))
        _abandon_output()
        return 2
    return 0


# -- python -m sklearn_simlearn --


def run_comparison(options) -> None:
    """Compare, write the files, then print the table and the advice."""
    _check_outputs(options)
    source, task, rows = _load(options)
    with progress([row.name for row in rows]) as show:
        comparison = compare(task, rows, show)
    if not comparison.results:
        raise ValueError(f"nothing could be compared: {list_left_out(comparison)}")
    advice = advise(comparison, task)
    words, code = [], ""
    if advice is not None:
        words = explain(advice)
        if options.save is None:
            words.append("To save it as an index to search in, add --save FOLDER.")
        code = "\n".join(write_lines(advice.chosen, task, source.code))

    # Files come first: the reader of the table may close the pipe before its end.
    table, written, failure = comparison.tabulate(), [], None
    try:
        written.append(files.write_results(options.output, table, comparison))
        if options.report is not None:
            path = options.report
            line = files.write_report(path, comparison, task, source, words, code)
            written.append(line)
        if options.save is not None:
            written.append(_save(options.save, advice, source))
    except FAILURES as error:
        failure = error
    _print_comparison(source, task, comparison, table, written)
    if words:
        print(f"\n{wrap(words)}\n\nTo fit it:\n")
        print(textwrap.indent(code, "    "))
    sys.stdout.flush()
    for message, names in comparison.warnings.items():
        print(f"warning of {', '.join(names)}: {message}", file=sys.stderr)
    if failure is not None:
        raise failure


def _load(options):
    """Return the data, what is held out, and the rows to compare."""
    if options.vectors is not None and options.beir is None:
        raise ValueError("--vectors goes with --beir")
    if options.beir is not None:
        source = load_collection(
            options.beir, options.vectors, max_bytes=options.max_bytes
        )
        return source, source.make_task(options.seed), source.list_rows()
    source = load_source(
        options.data, options.images, seed=options.seed, max_bytes=options.max_bytes
    )
    if source.photographs is not None and source.photographs.failures:
        print(f"warning: {source.photographs.failures}", file=sys.stderr)
    task = make_task(source.X, source.y, source.query_mask, options.split, options.seed)
    return source, task, ROWS


def _check_outputs(options):
    """Raise before any work if something cannot be written."""
    files.check_stem(options.output)
    if options.report is not None:
        files.check_target(Path(options.report))
    if options.save is not None:
        files.check_folder(Path(options.save))


def _save(folder, advice, source):
    """Save the advised similarity as an index; return a line on the index."""
    if advice is None:
        raise ValueError("no row with single queries could be measured to be saved")
    chosen = advice.chosen
    source.make_index(chosen.measured.estimator).save(folder)
    return (
        f"saved {chosen.row.name}, fitted on {source.describe_index()} as an index in "
        f"{folder}"
    )


def _print_comparison(source, task, comparison, table, written):
    print(wrap([source.describe(task)]))
    print(align(COLUMNS, table))
    if comparison.left_out:
        print(wrap([f"left out: {list_left_out(comparison)}"]))
    print("\n".join(written))


# -- python -m sklearn_simlearn search --


def run_search(options) -> None:
    """Search a saved index, write the results, then print them."""
    if options.output is not None:
        files.check_target(Path(options.output))
    index = SimilarityIndex.load(options.folder, trusted=options.trust)
    scores, ids = index.search(_load_queries(options), k=options.k)
    found = np.isfinite(scores)
    if options.output is not None:
        rows = [("query", "rank", "id", "score")]
        for query, rank in np.argwhere(found):
            score = float(scores[query, rank])
            rows.append((query, rank + 1, ids[query, rank], score))
        files.write_csv(options.output, rows)
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


# -- streams --


def _complain(text):
    with suppress(OSError):
        print(f"sklearn_simlearn: {text}", file=sys.stderr)


def _explain_error(error):
    text = one_line(error)
    if isinstance(error, OSError) and error.strerror is not None:
        place = f"{error.filename}: " if error.filename is not None else ""
        text = f"{place}{error.strerror}"
    for name, option in OPTION_NAMES.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", option, text)
    return text


def _abandon_output():
    """Redirect the output to nowhere if Python could not flush it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def prepare_streams() -> None:
    """Open closed streams to nowhere; escape characters that a terminal lacks."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # This takes the number of the stream, which a file would get otherwise.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")
