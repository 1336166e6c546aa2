"""Progress on a terminal and in notebooks; lines without rich, silence in a pipe."""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(names: list[str]) -> Iterator[Callable[..., None]]:
    """Show which of several rows is at work.

    Gives ``show(name, step="")``, to be called when a row begins and at its steps. The
    bar's clock moves in between too.
    """
    if not (sys.stderr.isatty() or _is_notebook()):
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


def _is_notebook():
    """Whether there is a notebook, and what rich needs to draw a bar in it."""
    shell = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return False
    return importlib.util.find_spec("ipywidgets") is not None


def timed_fit(estimator, X, y, name: str, show: Callable[..., None]) -> float:
    """Fit an estimator and show its steps; the seconds it took.

    Steps are heard through a callback, which is no part of the fitted estimator. One
    that has callbacks of its own keeps them.
    """
    hears_steps = hasattr(estimator, "set_callbacks") and not hasattr(
        estimator, "_skl_callbacks"
    )
    if hears_steps:
        estimator.set_callbacks(_Steps(name, show))
    start = time.perf_counter()
    try:
        estimator.fit(X, y)
    finally:
        if hears_steps:
            estimator.set_callbacks()
    return time.perf_counter() - start


class _Steps:
    """A callback that counts the steps of a fit."""

    def __init__(self, name, show):
        self.name, self.show = name, show
        self.n_steps = 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.n_steps += 1
        self.show(self.name, f"{context.task_name} {self.n_steps}")


def _print_line(name, step=""):
    if not step:
        print(name, file=sys.stderr, flush=True)
