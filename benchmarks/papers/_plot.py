"""Pictures of the entries that are curves in the papers."""

from pathlib import Path

# Curves of more points than this have no markers.
N_MARKED = 20


def draw_panels(panels: list[dict], path: Path) -> None:
    """Write a picture of several panels with one legend."""
    import matplotlib.pyplot as plt

    # The same file for the same figures.
    with plt.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        n_columns = 2 if len(panels) == 4 else min(3, len(panels))
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
            draw_panel(panel, axes, handles)
        if len(handles) > 1:
            names = {"handles": handles.values(), "labels": handles.keys()}
            figure.legend(**names, loc="outside right upper", frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def draw_panel(panel: dict, axes, handles: dict) -> None:
    """Draw the curves of a panel and add their names to the legend."""
    for name, several in panel["faint"].items():
        for points in several:
            (line,) = axes.plot(*zip(*points, strict=True), color="0.75")
        handles.setdefault(name, line)
    for number, (name, points) in enumerate(panel["curves"].items()):
        marker = "osD^vP*X<>"[number % 10] if len(points) < N_MARKED else None
        (line,) = axes.plot(*zip(*points, strict=True), marker=marker)
        handles.setdefault(name, line)
    axes.set(title=panel["title"], xlabel=panel["x_label"], ylabel=panel["y_label"])
