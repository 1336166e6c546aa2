"""Command line: ``python -m sklearn_simlearn``, and its ``search`` and ``serve``."""

import os
import re
import shlex
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

from sklearn_simlearn._core.progress import progress
from sklearn_simlearn.comparison import _files as files
from sklearn_simlearn.comparison._advice import advise
from sklearn_simlearn.comparison._arguments import parse
from sklearn_simlearn.comparison._beir import Collection, load_collection
from sklearn_simlearn.comparison._comparison import COLUMNS, compare, one_line
from sklearn_simlearn.comparison._photographs import read_photographs
from sklearn_simlearn.comparison._recipe import write_lines
from sklearn_simlearn.comparison._rows import ROWS
from sklearn_simlearn.comparison._search import run_search
from sklearn_simlearn.comparison._source import load_source
from sklearn_simlearn.comparison._task import make_task
from sklearn_simlearn.comparison._texts import read_texts
from sklearn_simlearn.comparison._wording import (
    align,
    explain,
    list_choices,
    list_left_out,
    list_start_kept,
    wrap,
)

# Names of parameters in messages, and the options that set them.
OPTION_NAMES = {"max_bytes": "--max-bytes", "`trusted`": "--trust"}

# Steps of the progress after the rows of the table.
OUTPUTS = ("curves", "report", "index")

FAILURES = (ImportError, MemoryError, OSError, TypeError, ValueError)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = parse(arguments, run_comparison, run_search, run_serve)
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
    source = _load(options)
    if not isinstance(source, Collection) and source.y is None:
        _save_unlabelled(source, options)
        return
    task, rows = _make_task(source, options)
    with progress([*(row.name for row in rows), *OUTPUTS]) as show:
        comparison = compare(task, rows, show)
        if not comparison.results:
            raise ValueError(f"nothing could be compared: {list_left_out(comparison)}")
        advice = advise(comparison, task)
        words, code = [], ""
        if advice is not None:
            words = explain(advice)
            if comparison.start_kept:  # the report shows it too
                words.append(f"These learners {list_start_kept(comparison)}.")
            if options.save is None:
                words.append("To save it as an index for searches, add --save FOLDER.")
            code = "\n".join(write_lines(advice.chosen, task, source.code))
        # Write files first: the reader of the table may close the pipe early.
        table, written, failure = comparison.tabulate(task), [], None
        try:
            show("curves")
            written.append(files.write_results(options.output, table, comparison))
            if options.report is not None:
                show("report")
                path = options.report
                line = files.write_report(path, comparison, task, source, words, code)
                written.append(line)
            if options.save is not None:
                show("index")
                written += _save(options.save, advice, source)
        except FAILURES as error:
            failure = error
    _print_comparison(source, task, comparison, table, written)
    if words:
        print(f"\n{wrap(words)}\n\nTo fit it:\n")
        print(textwrap.indent(code, "    "))
    sys.stdout.flush()
    for message, names in comparison.warnings.items():
        text = f"warning of {', '.join(names)}: {message}"
        print(wrap([text]), file=sys.stderr)
    if failure is not None:
        raise failure


def _load(options):
    """Return the data."""
    if options.vectors is not None and options.beir is None:
        raise ValueError("--vectors requires --beir")
    if options.onnx is not None and options.images is None:
        raise ValueError("--onnx requires --images")
    if options.texts is None and any((options.text, options.label, options.id)):
        raise ValueError("--text, --label and --id require --texts")
    max_bytes = options.max_bytes
    if options.beir is not None:
        return load_collection(options.beir, options.vectors, max_bytes=max_bytes)
    if options.texts is not None:
        return read_texts(
            options.texts,
            options.text or "text",
            options.label,
            options.id,
            max_bytes=max_bytes,
        )
    if options.images is not None:
        source = read_photographs(options.images, options.onnx, seed=options.seed)
        if source.failures:
            print(f"warning: {source.failures}", file=sys.stderr)
        return source
    return load_source(options.data, max_bytes=max_bytes)


def _make_task(source, options):
    """Return the held-out data, and the rows to compare."""
    if isinstance(source, Collection):
        return source.make_task(options.seed), source.list_rows()
    task = make_task(source.X, source.y, source.query_mask, options.split, options.seed)
    task.texts = source.take_texts(task)
    return task, source.list_rows(task, ROWS)


def _save_unlabelled(source, options):
    """Save an index of samples without labels, which cannot be compared."""
    name, n_items = source.default.name, source.X.shape[0]
    if options.save is None or options.report is not None:
        raise ValueError(
            f"{source.name} has no labels, so similarities cannot be compared: add "
            f"labels, or add --save FOLDER to save an index with {name}"
        )
    estimator = source.default.make(None).fit(source.X)
    source.make_index(estimator, source.default).save(options.save)
    print(
        wrap(
            [
                f"{source.name}: {n_items} items without labels; similarities were not "
                "compared",
                f"saved {name} with all {n_items} items as an index in {options.save}",
                *_explain_serve(options.save),
            ]
        )
    )


def _explain_serve(folder):
    command = shlex.join(["python", "-m", "sklearn_simlearn", "serve", str(folder)])
    return ["to search it in a browser:", f"    {command}"]


def _check_outputs(options):
    """Raise before any work is done if an output cannot be written."""
    files.check_stem(options.output)
    if options.report is not None:
        files.check_target(Path(options.report))
    if options.save is not None:
        files.check_folder(Path(options.save))


def _save(folder, advice, source):
    """Save the advised similarity as an index; return lines on the index."""
    if advice is None:
        raise ValueError("cannot save: no row with single queries could be measured")
    chosen = advice.chosen
    source.make_index(chosen.measured.estimator, chosen.row).save(folder)
    return [
        f"saved {chosen.row.name}, fitted on {source.describe_index()} as an index in "
        f"{folder}",
        *_explain_serve(folder),
    ]


def _print_comparison(source, task, comparison, table, written):
    print(wrap([source.describe(task)]))
    print(align(COLUMNS, table))
    if comparison.left_out:
        print(wrap([f"left out: {list_left_out(comparison)}"]))
    choices = list_choices(comparison)
    if choices:
        print(wrap(["Choices of the hold-outs:", *choices]))
    print(wrap(written))


# -- python -m sklearn_simlearn serve --


def run_serve(options) -> None:
    """Serve indexes until the process is stopped."""
    # Imported here because the extra serve may not be installed.
    from sklearn_simlearn.serve import Limits, _command

    _command.run(
        options.folders,
        host=options.host,
        port=options.port,
        workers=options.workers,
        token=_command.read_token(options.token_file),
        trusted=options.trust,
        limits=Limits(
            body=options.max_body,
            k=options.max_k,
            batch=options.max_batch,
            seconds=options.max_seconds,
        ),
        allowed_hosts=options.allow_host,
    )


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
    """Discard the output if Python could not flush it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def prepare_streams() -> None:
    """Redirect closed streams to the null device; escape unsupported characters."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Occupy the number of the stream, so that no other file gets it.
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    output: Any = sys.stdout
    output.reconfigure(errors="backslashreplace")
