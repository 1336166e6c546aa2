"""Progress on a terminal: a bar by rich, lines without it, silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(names: list[str]) -> Iterator[Callable[..., None]]:
    """Show on a terminal which of several rows is at work.

    Gives ``show(name, step="")``, to be called when a row begins and at its steps. The
    bar's clock moves in between too.
    """
    if not sys.stderr.isatty():
        yield lambda name, step="": None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed
    except ImportError:
        yield _print_line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
        TextColumn("{task.fields[step]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(names), step="")

        def show(name, step=""):
            bar.update(task, completed=names.index(name), description=name, step=step)

        yield show


def _print_line(name, step=""):
    if not step:
        print(name, file=sys.stderr, flush=True)
