"""Pictures of the experiments that are curves in the papers."""

import re
from pathlib import Path

MEASURES = ("mAP", "N-S", "P@")
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")

# Curves of more points than this have no markers.
N_MARKED = 20


def read_curves(header: list[str], rows: list[list[str]], kind: str) -> dict:
    """Series of points, by name.

    Parameters
    ----------
    header, rows : list
        The table of an experiment.

    kind : {"rows", "columns"}
        Whether a row is a series over the numbers in the header, or each column of a
        measure is one over the numbers at the start of the rows. Cells without a number
        are left out.
    """
    if kind == "columns":
        header, *rows = zip(header, *rows, strict=True)
        rows = [row for row in rows if row[0].startswith(MEASURES)]
    curves = {}
    for name, *cells in rows:
        points = [
            (_read(at), _read(cell))
            for at, cell in zip(header[1:], cells, strict=True)
            if NUMBER.search(at) and NUMBER.match(cell)
        ]
        if points:
            curves[name] = points
    return curves


def draw_panels(panels: list, path: Path) -> None:
    """Write a picture of several panels, which share the legend."""
    import matplotlib.pyplot as plt

    # The same file for the same figures.
    with plt.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        n_columns = min(3, len(panels))
        n_rows = -(-len(panels) // n_columns)
        width = 3 * n_columns + (1.5 if n_columns > 1 else 3.5)
        figure, grid = plt.subplots(
            n_rows,
            n_columns,
            figsize=(width, 3 * n_rows),
            layout="constrained",
            squeeze=False,
        )
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        handles = {}
        for panel, axes in zip(panels, grid.flat, strict=False):
            for name, several in panel.faint.items():
                for points in several:
                    (line,) = axes.plot(*zip(*points, strict=True), color="0.75")
                handles.setdefault(name, line)
            for number, (name, points) in enumerate(panel.curves.items()):
                marker = "osD^vP*X<>"[number % 10] if len(points) < N_MARKED else None
                (line,) = axes.plot(*zip(*points, strict=True), marker=marker)
                handles.setdefault(name, line)
            axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        if len(handles) > 1:
            names = {"handles": handles.values(), "labels": handles.keys()}
            figure.legend(**names, loc="outside right upper", frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _read(text):
    return float(NUMBER.search(text).group().replace(",", ""))
