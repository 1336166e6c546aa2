"""Learned parameters: weights of counts, angles, weights of queries."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.typing import ImagesLike, MatrixLike
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.display._base import Display, LearnerDisplay, require
from sklearn_simlearn.display._pictures import check_length, read_pictures
from sklearn_simlearn.display._style import (
    BLACK,
    COLORS,
    MARKERS,
    legend_next_to,
    new_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Largest number of rows of a table with numbers in its cells.
MAX_NUMBERS = 9


class WeightTableDisplay(LearnerDisplay):
    """Weights of pairs of counts, one table per group of words.

    Thick lines separate the bins of the weight pattern. All pairs of counts in a bin
    share a weight. Create a display with :meth:`from_estimator`, from a fitted
    :class:`~sklearn_simlearn.HistogramRankSVM`, or from a pattern alone.

    Parameters
    ----------
    weights : ndarray of shape (n_word_groups, n + 1, n + 1), default=None
        Weights by group, count in the query and count in the item. If None, the numbers
        of the bins are shown.

    pattern : ndarray of shape (n + 1, n + 1), default=None
        Bin of each pair of counts.

    name : str, default=None
        Name in the title.

    Attributes
    ----------
    axes_ : list of matplotlib Axes
        One for each table.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn_simlearn import HistogramRankSVM
    >>> from sklearn_simlearn.datasets import make_visual_words
    >>> from sklearn_simlearn.display import WeightTableDisplay
    >>> X, y = make_visual_words(30, 4, return_X_y=True, random_state=0)
    >>> learner = HistogramRankSVM(holdout=None, truncation=3).fit(X, y)
    >>> WeightTableDisplay.from_estimator(learner)
    <...>
    """

    def __init__(
        self,
        weights: np.ndarray | None = None,
        *,
        pattern: np.ndarray | None = None,
        name: str | None = None,
    ):
        self.weights = weights
        self.pattern = pattern
        self.name = name

    @classmethod
    def _from_learner(cls, learner, name):
        require(learner, "weights_", "HistogramRankSVM")
        return cls(learner.weights_, pattern=learner.weight_pattern_, name=name)

    def _draw(self, ax, options):
        if self.weights is None and self.pattern is None:
            raise ValueError("weights and pattern are both None. Pass at least one.")
        is_pattern = self.weights is None
        tables = np.asarray(self.pattern)[None] if is_pattern else self.weights
        n_tables, side = len(tables), tables.shape[1]
        size = max(2.2, 0.45 * side)
        ax = new_axes(self, ax, figsize=(size * n_tables + 1.2, size + 1))
        ax.set_axis_off()
        ax.set_title(self.name or "Weights of pairs of counts", pad=24)
        limit = float(np.abs(tables).max()) or 1.0
        defaults = {"cmap": "RdBu", "vmin": -limit, "vmax": limit}
        if is_pattern:
            defaults = {"cmap": "Greys", "vmin": -limit, "vmax": 3 * limit}
        self.axes_ = []
        width = 1 / (1.12 * n_tables - 0.12)
        for group, table in enumerate(tables):
            inset = ax.inset_axes((1.12 * group * width, 0, width, 1))
            image = inset.imshow(table, **defaults | options)
            if side <= MAX_NUMBERS:
                _write_numbers(inset, table, limit, is_pattern)
            if self.pattern is not None:
                _draw_borders(inset, np.asarray(self.pattern))
            ticks = np.arange(side)
            labels = [*map(str, ticks[:-1]), f"{side - 1}+"]
            inset.set_xticks(ticks, labels)
            inset.set_yticks(ticks, labels if group == 0 else [])
            inset.set(title=_name_group(group, n_tables), xlabel="count in the item")
            self.axes_.append(inset)
        self.axes_[0].set_ylabel("count in the query")
        if not is_pattern:
            ax.figure.colorbar(image, ax=ax, label="weight", pad=0.02)


def _name_group(group, n_groups):
    if n_groups == 1:
        return ""
    ends = {0: "rarest words", n_groups - 1: "most common words"}
    return ends.get(group, f"group {group + 1}")


def _write_numbers(ax, table, limit, is_pattern):
    n_digits = max(0, 1 - int(np.floor(np.log10(limit))))
    for (i, j), value in np.ndenumerate(table):
        ax.text(
            j,
            i,
            f"{value:d}" if is_pattern else f"{value:z.{n_digits}f}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if abs(value) > 0.6 * limit and not is_pattern else "black",
        )


def _draw_borders(ax, pattern):
    """Draw thick lines between neighbouring cells of different bins."""
    style = {"color": BLACK, "linewidth": 2}
    for i, j in np.argwhere(pattern[:, 1:] != pattern[:, :-1]):
        ax.plot([j + 0.5, j + 0.5], [i - 0.5, i + 0.5], **style)
    for i, j in np.argwhere(pattern[1:] != pattern[:-1]):
        ax.plot([j - 0.5, j + 0.5], [i + 0.5, i + 0.5], **style)


class AnglesDisplay(LearnerDisplay):
    """Angle between each learned matrix and the identity, against its norm.

    At an angle of 0, the learned similarity is a multiple of the inner product. At a
    right angle, the learned matrix is orthogonal to the identity. Create a display with
    :meth:`from_estimator`, from a fitted
    :class:`~sklearn_simlearn.AngularBilinearRanker`. Several displays can share axes.

    Parameters
    ----------
    angles : ndarray of shape (n_references,)
        Angles in radians.

    norms : ndarray of shape (n_references,)
        Norms of the matrices.

    name : str, default=None
        Name in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The points.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn import AngularBilinearRanker
    >>> from sklearn_simlearn.display import AnglesDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> display = None
    >>> for sigma in (0.0, 0.95):
    ...     ranker = AngularBilinearRanker(sigma=sigma, holdout=None).fit(X, y)
    ...     ax = None if display is None else display.ax_
    ...     display = AnglesDisplay.from_estimator(
    ...         ranker, name=f"sigma = {sigma}", ax=ax
    ...     )
    """

    def __init__(
        self, angles: np.ndarray, norms: np.ndarray, *, name: str | None = None
    ):
        self.angles = angles
        self.norms = norms
        self.name = name

    @classmethod
    def _from_learner(cls, learner, name):
        require(learner, "angles_", "AngularBilinearRanker")
        return cls(learner.angles_, learner.norms_, name=name)

    def _draw(self, ax, options):
        ax = new_axes(self, ax, figsize=(7.4, 4))
        place = len(ax.lines)
        angles = np.degrees(self.angles)
        label = f"{self.name or 'matrices'} (median {np.median(angles):.0f}°)"
        style = {
            "linestyle": "none",
            "marker": MARKERS[place % len(MARKERS)],
            "markersize": 5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.4,
            "color": COLORS[place % len(COLORS)],
            "label": label,
        }
        (self.line_,) = ax.plot(angles, self.norms, **style | options)
        ax.set(
            title=f"Angles of {len(angles)} learned matrices",
            xlabel="Angle to the identity (degrees)",
            ylabel="Norm of the matrix",
            xlim=(-2, max(92, angles.max() + 2)),
            yscale="log",
        )
        ax.set_xticks(np.arange(0, ax.get_xlim()[1], 30))
        legend_next_to(ax, ax.get_legend_handles_labels()[0])


class GramDisplay(Display):
    """Queries of a set, their similarities to each other, and their weights.

    Create a display with :meth:`from_estimator`, from a fitted
    :class:`~sklearn_simlearn.MemoryVectorQuery`.

    Parameters
    ----------
    gram : ndarray of shape (n_queries, n_queries)
        Similarities of the queries to each other.

    weights : ndarray of shape (n_queries,)
        Weight of each query in the vector of its set.

    images : sequence of length n_queries, default=None
        Images of the queries.

    name : str, default=None
        Name in the title.

    Attributes
    ----------
    image_ : matplotlib AxesImage
        The Gram matrix.

    bars_ : matplotlib BarContainer
        The weights.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import MemoryVectorQuery
    >>> from sklearn_simlearn.display import GramDisplay
    >>> digits = load_digits()
    >>> memory = MemoryVectorQuery(alpha=0).fit(digits.data)
    >>> five = [5, 15, 25, 32, 33]
    >>> X, images = digits.data[five], digits.images[five]
    >>> GramDisplay.from_estimator(memory, X, images=images, cmap="gray_r")
    <...>
    """

    def __init__(
        self,
        gram: np.ndarray,
        weights: np.ndarray,
        *,
        images: ImagesLike | None = None,
        name: str | None = None,
    ):
        self.gram = gram
        self.weights = weights
        self.images = images
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        *,
        images: ImagesLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **image_options: Any,
    ) -> Self:
        """Plot a set of queries of a :class:`~sklearn_simlearn.MemoryVectorQuery`.

        Parameters
        ----------
        estimator : object
            The fitted estimator, or a pipeline or search that ends in one.

        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            The queries of one set.

        images : sequence of length n_queries, default=None
            Images of the queries.

        name : str, default=None
            Name in the title; the name of the class if None.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **image_options : dict
            Passed on to matplotlib's `imshow` for the images, such as `cmap`.

        Returns
        -------
        display : GramDisplay
            The display.
        """
        model = find_model(estimator)
        if not hasattr(model.learner, "query_weights"):
            raise TypeError(
                f"GramDisplay shows sets of a MemoryVectorQuery; got {model.learner!r}."
            )
        n_queries = num_samples(X)
        check_length("images", images, n_queries, "X")
        weights, (gram,) = model.learner.query_weights(
            model.prepare_queries(X), np.zeros(n_queries), return_gram=True
        )
        name = type(model.learner).__name__ if name is None else name
        display = cls(gram, weights, images=images, name=name)
        return display.plot(ax=ax, **image_options)

    def _draw(self, ax, options):
        gram, n_queries = np.asarray(self.gram), len(self.weights)
        ax = new_axes(self, ax, figsize=(7.4, 4.8))
        ax.set_axis_off()
        top = 0 if self.images is None else 0.22  # of the height
        square = ax.inset_axes((0.0, 0.0, 0.5, 0.98 - top))
        look = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "aspect": "auto"}
        self.image_ = square.imshow(gram, **look)
        if n_queries <= MAX_NUMBERS:
            _write_numbers(square, gram, 1.0, False)
        names = [f"query {i + 1}" for i in range(n_queries)]
        square.set_xticks([])
        square.set_yticks(np.arange(n_queries), names)
        square.set_xlabel("similarity to each other")
        bars = ax.inset_axes((0.56, 0.0, 0.44, 0.98 - top), sharey=square)
        self.bars_ = bars.barh(np.arange(n_queries), self.weights, color=COLORS[0])
        bars.bar_label(self.bars_, fmt="%.2f", padding=3)
        bars.axvline(0, color=BLACK, linewidth=1)
        bars.margins(x=0.18)
        bars.tick_params(labelleft=False)
        bars.set_xlabel("weight in the vector of the set")
        if self.images is not None:
            pictures = read_pictures(self.images, np.arange(n_queries))
            look = {"cmap": "gray", "vmin": 0, "vmax": 255} | options
            for i, picture in pictures.items():
                cell = ax.inset_axes(
                    (0.5 * i / n_queries, 1 - top, 0.5 / n_queries, top)
                )
                cell.imshow(picture, **look)
                cell.set(xticks=[], yticks=[])
        ax.set_title(self.name or "Queries of a set", pad=12)
