"""What the plots share: axes, colours, markers, legends that cover nothing."""

from sklearn_simlearn._core.sklearn import check_matplotlib_support

# The colours of Okabe and Ito, which people of any colour vision tell apart, without
# yellow, which is too light for lines on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLACK, GREY = "#222222", "#9a9a9a"
RIGHT, WRONG = "#009E73", "#D55E00"

# Each curve has its own, so that those of one colour can be told apart too.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")


def new_axes(display, ax, **figure_options):
    """The axes to plot on: those given, or new ones."""
    check_matplotlib_support(f"{type(display).__name__}.plot")
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(layout="constrained", **figure_options)
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def legend_beside(ax, handles):
    """A legend to the right of the axes, where it covers nothing."""
    figure = ax.figure.figure  # of a subfigure too
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")  # else it would be cut off
    return ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        frameon=False,
    )
