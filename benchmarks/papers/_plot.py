"""Pictures of the experiments that are curves in the papers, from their tables."""

import re
from pathlib import Path

MEASURES = ("mAP", "N-S", "P@")
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


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


def draw_curves(curves: dict, x_label: str, y_label: str, path: Path) -> None:
    """Write a picture of the series."""
    import matplotlib.pyplot as plt

    # The same file for the same figures.
    with plt.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(6.5, 3), layout="constrained")
        for marker, (name, points) in zip("osD^vP*", curves.items(), strict=False):
            axes.plot(*zip(*points, strict=True), marker=marker, label=name)
        axes.set(xlabel=x_label, ylabel=y_label)
        if len(curves) > 1:
            figure.legend(loc="outside right upper", frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _read(text):
    return float(NUMBER.search(text).group().replace(",", ""))
