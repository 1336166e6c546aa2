"""Progress on a terminal and in notebooks; lines without rich, nothing in a pipe."""

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Steps of fits by the name of their callback task, as a user reads them.
STEP_NAMES = {
    "hold-out": "hold-out: candidate {}",
    "interval": "learning: block {} of triplets",
    "iteration": "learning: iteration {}",
    "neighbours": "finding neighbours",
    "pass": "learning: pass {} over the data",
    "references": "learning: block {} of reference queries",
}


@contextmanager
def progress(names: list[str]) -> Iterator[Callable[..., None]]:
    """Show which of several rows is being processed.

    Yields ``show(name, step="")``, to be called when a row begins and at its steps. The
    clock of the bar also runs between the calls.
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
    """Return whether a notebook runs, with the widgets that rich needs for a bar."""
    shell = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return False
    return importlib.util.find_spec("ipywidgets") is not None


def timed_fit(estimator, X, y, name: str, show: Callable[..., None]) -> float:
    """Fit an estimator, show its steps, and return the seconds of the fit.

    A callback reports the steps. It is removed after the fit. An estimator that has
    callbacks already keeps these, and its steps are not shown.
    """
    shows_steps = hasattr(estimator, "set_callbacks") and not hasattr(
        estimator, "_skl_callbacks"
    )
    if shows_steps:
        estimator.set_callbacks(_Steps(name, show))
    start = time.perf_counter()
    try:
        estimator.fit(X, y)
    finally:
        if shows_steps:
            estimator.set_callbacks()
    return time.perf_counter() - start


class _Steps:
    """Callback that counts the steps of a fit, each kind on its own."""

    def __init__(self, name, show):
        self.name, self.show = name, show
        self.n_steps = Counter()

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        task = context.task_name
        self.n_steps[task] += 1
        step = STEP_NAMES.get(task, f"{task} {{}}").format(self.n_steps[task])
        self.show(self.name, step)


def _print_line(name, step=""):
    if not step:
        print(name, file=sys.stderr, flush=True)
