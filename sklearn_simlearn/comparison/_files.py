"""Files that the command line writes."""

import csv
import io
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sklearn_simlearn._core.files import replace_file
from sklearn_simlearn._core.optional import install_command
from sklearn_simlearn._core.storage import HEADER
from sklearn_simlearn.comparison._beir import Collection, JudgedTask
from sklearn_simlearn.comparison._comparison import COLUMNS, Comparison, find_units
from sklearn_simlearn.comparison._source import Source
from sklearn_simlearn.comparison._task import Task

# -- checks before any work --


def check_stem(stem: str) -> None:
    """Raise unless STEM.csv and STEM.png can be written."""
    if stem.endswith(("/", "\\")) or Path(stem).name in ("", ".."):
        raise ValueError(
            f"--output {stem!r} is a folder: add the beginning of a file name, such "
            f"as {str(Path(stem, 'comparison'))!r}"
        )
    check_target(Path(f"{stem}.csv"))
    check_target(Path(f"{stem}.png"))


def check_target(path: Path) -> None:
    """Raise unless a file can be written."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: choose another file name")
    _check_writable(path.parent)
    _check_name(path)


def check_folder(folder: Path) -> None:
    """Raise unless an index can be saved in a folder."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / HEADER).is_file():
            raise ValueError(
                f"{folder} is not empty and does not hold an index: choose another "
                "folder"
            )
    elif folder.exists():
        raise ValueError(f"{folder} is not a folder: choose another one")
    _check_writable(folder if folder.is_dir() else folder.parent)
    _check_name(folder)


def _check_writable(folder):
    if not folder.exists():
        raise ValueError(
            f"{folder} does not exist: create it, or choose another folder"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


def _check_name(path):
    """Raise if a name is too long, which `Path.exists` does not report from 3.14 on."""
    with suppress(FileNotFoundError):
        path.stat()


# -- results --


def write_csv(path: str, rows: Iterable[Sequence]) -> None:
    """Write rows to a CSV file."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    # File names that are not UTF-8 are escaped, as on the terminal.
    replace_file(path, text.getvalue().encode(errors="backslashreplace"))


def write_results(
    stem: str, table: Iterable[Sequence[str]], comparison: Comparison
) -> str:
    """Write the table and the curves; return a line about the files."""
    write_csv(f"{stem}.csv", [COLUMNS, *table])
    picture = _draw_curves(comparison)
    if picture is None:
        return f"wrote {stem}.csv; for curves: {install_command('display')}"
    replace_file(f"{stem}.png", picture)
    return f"wrote {stem}.csv and {stem}.png"


def _draw_curves(comparison):
    """Return a PNG file of the precision-recall curves; None without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    from sklearn_simlearn.display import MeanPrecisionRecallDisplay

    # Do not draw sets of queries, because their task is different.
    results = [result for result in comparison.results if not result.row.in_sets]
    if not results:
        return None
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    MeanPrecisionRecallDisplay.from_reports(
        {result.row.name: result.measured.report for result in results},
        baselines={result.row.name for result in results if result.row.is_baseline},
        ax=figure.subplots(),
    )
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format="png")
    return picture.getvalue()


def write_report(
    path: str,
    comparison: Comparison,
    task: Task | JudgedTask,
    source: Source | Collection,
    words: Sequence[str],
    code: str,
) -> str:
    """Write the report; return a line about the file."""
    from sklearn_simlearn.report import RetrievalReport
    from sklearn_simlearn.report._findings import Findings

    results = [result for result in comparison.results if not result.row.in_sets]
    if not results:
        raise ValueError("no report: no row with single queries could be measured")
    images: Any = source.load_images()
    if images is not None and isinstance(task, Task):
        images = images[task.test_rows]
    findings = Findings(
        {result.row.name: result.measured for result in results},
        task.X_test,
        task.y_test,
        images=images,
        texts=task.texts,
        document_texts=task.document_texts,
        names=task.names,
        labels=task.label_names,
        samples={r.row.name: r.row.find_task(task).X_test for r in results},
        baselines=[r.row.name for r in results if r.row.is_baseline] or None,
        title=f"Comparison on {source.name}",
        units=find_units(task, results[0]),
        advice=words,
        code=code,
    )
    RetrievalReport._from_findings(findings).save(path)
    return f"wrote {path}"
