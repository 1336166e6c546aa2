"""Charts as SVG, in the light or dark colours of the page."""

import numpy as np

from sklearn_simlearn.report._html import Html, join, tag

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 84, 26, 14, 54

# Largest number of bars in a chart of all queries.
MAX_BARS = 300


def draw_curves(recall, curves: dict[str, np.ndarray], kinds: dict[str, str]) -> Html:
    """Draw precision against recall, one numbered line per name.

    Parameters
    ----------
    recall : ndarray of shape (n_levels,)

    curves : dict
        Precision at each level, by name.

    kinds : dict
        CSS classes of the lines by name, the best first.
    """
    x = _scale(np.asarray(recall), 0, 1, LEFT, WIDTH - RIGHT)
    lines = []
    for place, name in reversed(list(enumerate(kinds))):
        y = _scale(curves[name], 0, 1, HEIGHT - BOTTOM, TOP)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        kind = f"curve {kinds[name]}"
        line = tag("polyline", tag("title", name), points=points, class_=kind)
        mark = (11 + 7 * place) % len(x)  # a different position on each curve
        number = tag(
            "text", place + 1, x=f"{x[mark]:.1f}", y=f"{y[mark]:.1f}", class_="number"
        )
        lines.append(tag("g", line, number, data_name=name))
    ticks = np.linspace(0, 1, 6)
    return _frame(
        "Precision against recall",
        ticks,
        [f"{tick:.1f}" for tick in ticks],
        ticks,
        [f"{tick:.1f}" for tick in ticks],
        "Recall",
        "Precision",
        *lines,
    )


def draw_gains(gains: np.ndarray, name: str, baseline: str) -> Html:
    """Draw the gains of all queries as bars, from the largest loss upwards."""
    gains = np.sort(gains[~np.isnan(gains)])
    n_bars = min(len(gains), MAX_BARS)
    heights = np.array([part.mean() for part in np.array_split(gains, n_bars)])
    limit = max(0.05, np.ceil(20 * np.abs(gains).max()) / 20)
    y = _scale(heights, -limit, limit, HEIGHT - BOTTOM, TOP)
    zero = float(_scale(0.0, -limit, limit, HEIGHT - BOTTOM, TOP))
    width = (WIDTH - LEFT - RIGHT) / n_bars
    bars = []
    for i, (height, top) in enumerate(zip(heights, y, strict=True)):
        bars.append(
            tag(
                "rect",
                x=f"{LEFT + i * width:.2f}",
                y=f"{min(top, zero):.1f}",
                width=f"{width:.2f}",
                height=f"{abs(top - zero):.1f}",
                class_="gain" if height >= 0 else "loss",
            )
        )
    ticks = np.linspace(-limit, limit, 5)
    shares = np.linspace(0, 1, 5)
    return _frame(
        f"Gains and losses of {name} over {baseline}, query by query",
        shares,
        [f"{share:.0%}" for share in shares],
        (ticks + limit) / (2 * limit),
        [f"{tick:+.2f}" for tick in ticks],
        "Queries, from the largest loss to the largest gain",
        "Gain in average precision",
        *bars,
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=zero, y2=zero, class_="axis"),
    )


def _frame(title, x_ticks, x_labels, y_ticks, y_labels, x_name, y_name, *content):
    """Draw axes around a chart. Ticks are shares of the width and the height."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for share, label in zip(x_ticks, x_labels, strict=True):
        x = f"{_scale(share, 0, 1, LEFT, right):.1f}"
        parts.append(tag("line", x1=x, x2=x, y1=TOP, y2=bottom, class_="grid"))
        parts.append(tag("text", label, x=x, y=bottom + 18, class_="tick middle"))
    for share, label in zip(y_ticks, y_labels, strict=True):
        y = float(_scale(share, 0, 1, bottom, TOP))
        parts.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", label, x=LEFT - 6, y=y + 4, class_="tick end"))
    middle = (LEFT + right) / 2
    parts.append(tag("text", x_name, x=middle, y=HEIGHT - 6, class_="name middle"))
    turned = f"translate(18 {(TOP + bottom) / 2}) rotate(-90)"
    parts.append(tag("text", y_name, transform=turned, class_="name middle"))
    return tag(
        "svg",
        join(tag("title", title), *parts, *content),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
    )


def _scale(values, low, high, start, stop):
    return start + (np.asarray(values) - low) / (high - low) * (stop - start)
