"""Progress bars on a terminal and in notebooks; lines without the package rich."""

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Text for each step of a fit, by the name of its callback task.
STEP_NAMES = {
    "hold-out": "hold-out: candidate {}",
    "interval": "learning: block {} of triplets",
    "iteration": "learning: iteration {}",
    "neighbours": "finding neighbours",
    "pass": "learning: pass {} over the data",
    "references": "learning: block {} of reference queries",
}

# Other steps, such as those of a pipeline of scikit-learn.
OTHER_STEP = "fitting: step {}"


# Number of seconds between lines about steps, where there is no bar.
SECONDS_PER_LINE = 1.0


class _Running:
    """Progress that is shown now: its rows, the current row, and how it is drawn."""

    def __init__(self, names, draw):
        self.names, self.draw = names, draw
        self.name = names[0] if names else ""

    def show(self, name, step=""):
        """Show a row, or a step of the current row if the name is not a row."""
        if name in self.names:
            self.name = name
        else:
            step = f"{name}: {step}" if step else name
        self.draw(self.name, step)


_running: _Running | None = None


def show_step(name: str, step: str) -> None:
    """Show a step of work that may be a part of a longer one.

    Nothing is shown unless :func:`progress` is running.
    """
    if _running is not None:
        _running.show(name, step)


@contextmanager
def progress(names: list[str]) -> Iterator[Callable[..., None]]:
    """Show which of several rows is being processed.

    Yields ``show(name, step="")``, to be called when a row begins and at its steps. The
    clock of the bar continues between the calls. Inside of another progress, rows are
    shown as steps of its current row.
    """
    global _running
    if _running is not None:
        yield _running.show
        return
    with _drawing(names) as draw:
        _running = _Running(names, draw)
        try:
            yield _running.show
        finally:
            _running = None


@contextmanager
def _drawing(names):
    """Yield ``draw(name, step)`` for a terminal, a notebook, or nothing."""
    if not (sys.stderr.isatty() or _is_notebook()):
        yield lambda name, step: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed
    except ImportError:
        yield _Lines().draw
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
        yield lambda name, step: bar.update(
            task, completed=names.index(name), description=name, step=step
        )


class _Lines:
    """A line for each row, and lines about its steps at intervals."""

    def __init__(self):
        self._name, self._time = None, 0.0

    def draw(self, name, step):
        now = time.monotonic()
        if name != self._name:
            print(name, file=sys.stderr, flush=True)
        elif step and now - self._time >= SECONDS_PER_LINE:
            print(f"{name}: {step}", file=sys.stderr, flush=True)
        else:
            return
        self._name, self._time = name, now


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


class FitCallback:
    """Base of callbacks that use only some of the hooks of scikit-learn."""

    def setup(self, estimator, context):
        """Do nothing before a fit."""

    def teardown(self, estimator, context):
        """Do nothing after a fit."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing before a task."""


class _Steps(FitCallback):
    """Callback that counts the steps of a fit by kind."""

    def __init__(self, name, show):
        self.name, self.show = name, show
        self.n_steps = Counter()

    def on_fit_task_end(self, estimator, context):
        task = context.task_name
        self.n_steps[task] += 1
        step = STEP_NAMES.get(task, OTHER_STEP).format(self.n_steps[task])
        self.show(self.name, step)
