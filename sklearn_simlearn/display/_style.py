"""Style of the plots: axes, colours, markers, legends next to the axes."""

from sklearn_simlearn._core.sklearn import check_matplotlib_support

# Colours of Okabe and Ito, which can be distinguished with all kinds of colour vision.
# Yellow is omitted, because it is too light for lines on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLACK, GREY = "#222222", "#9a9a9a"
RIGHT, WRONG = "#009E73", "#D55E00"

# Markers, one per curve, so that curves of the same colour can be distinguished.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")


def new_axes(display, ax, **figure_options):
    """Return the given axes, or new ones, and set them on the display."""
    check_matplotlib_support(f"{type(display).__name__}.plot")
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(layout="constrained", **figure_options)
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def legend_next_to(ax, handles):
    """Add a legend to the right of the axes, where it does not cover the plot."""
    figure = ax.figure.figure  # the figure of a subfigure
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")  # prevents that the legend is cut off
    return ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        frameon=False,
    )
