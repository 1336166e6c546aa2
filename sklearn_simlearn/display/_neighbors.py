"""Display of queries with their best results, as images or text."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.relevance import check_relevance, stack_targets
from sklearn_simlearn._core.rows import check_row_numbers
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import ImagesLike, MatrixLike, TextsLike
from sklearn_simlearn.display._base import Display
from sklearn_simlearn.display._pictures import (
    as_sequence,
    check_length,
    find_texts,
    read_pictures,
    shorten,
)
from sklearn_simlearn.display._search import find_neighbors
from sklearn_simlearn.display._style import BLACK, GREY, RIGHT, WRONG, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Default number of queries.
N_QUERIES = 5

# Lengths in units of the side of an image.
GAP, QUERY_GAP, CAPTION = 0.14, 0.4, 0.26

# Colour and frame of a result by relevance, and the strokes of its mark in a square
# from (-1, -1) to (1, 1). The second coordinate increases downwards.
LOOKS = {
    1: (RIGHT, "-", [[(-0.6, 0.0), (-0.15, 0.45), (0.65, -0.5)]]),
    0: (WRONG, (0, (2, 1.5)), [[(-0.5, -0.5), (0.5, 0.5)], [(-0.5, 0.5), (0.5, -0.5)]]),
    -1: (GREY, ":", [[(-0.6, 0.0), (0.6, 0.0)]]),
}


class NeighborsDisplay(Display):
    """Queries with their best results, as images or text, with marks of relevance.

    Each query has a row. A relevant result has a solid frame and a tick. An irrelevant
    result has a dashed frame and a cross. Junk has a dotted frame and a bar. Texts
    without images are listed line by line.

    Create a display with :meth:`from_estimator`, or with :meth:`from_predictions` from
    the results of an index.

    Parameters
    ----------
    neighbors : ndarray of shape (n_queries, n_neighbors)
        Rows of the items that were found, the best first; -1 if there are no more.

    relevance : ndarray of shape (n_queries, n_neighbors), default=None
        Positive for relevant results, 0 for irrelevant ones, negative for junk.

    similarity : ndarray of shape (n_queries, n_neighbors), default=None
        Similarities, which are shown with the results.

    images, texts : sequence, default=None
        Image and text of each item. An image is an array of shape (height, width) or
        (height, width, 3), or a Pillow image.

    query_images, query_texts : sequence, default=None
        Image and text of each query.

    name : str, default=None
        Title.

    Attributes
    ----------
    frames_ : list of list of matplotlib Rectangle
        Frames of the results, one list per query; empty where texts are listed.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn.display import NeighborsDisplay
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> digits = load_digits()
    >>> cosine = CosineSimilarity(use_idf=False).fit(digits.data)
    >>> NeighborsDisplay.from_estimator(
    ...     cosine, digits.data, digits.target, images=digits.images, cmap="gray_r"
    ... )
    <...>
    """

    def __init__(
        self,
        neighbors: np.ndarray,
        *,
        relevance: np.ndarray | None = None,
        similarity: np.ndarray | None = None,
        images: ImagesLike | None = None,
        texts: TextsLike | None = None,
        query_images: ImagesLike | None = None,
        query_texts: TextsLike | None = None,
        name: str | None = None,
    ):
        self.neighbors = neighbors
        self.relevance = relevance
        self.similarity = similarity
        self.images = as_sequence(images)
        self.texts = as_sequence(texts)
        self.query_images = as_sequence(query_images)
        self.query_texts = as_sequence(query_texts)
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: TargetLike | None = None,
        *,
        queries: ArrayLike | None = None,
        n_neighbors: int = 8,
        images: ImagesLike | None = None,
        texts: TextsLike | None = None,
        X_database: MatrixLike | None = None,
        y_database: TargetLike | None = None,
        database_images: ImagesLike | None = None,
        database_texts: TextsLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **image_options: Any,
    ) -> Self:
        """Show the results of some samples among the other samples or in a database.

        Parameters
        ----------
        estimator : object
            A fitted learner, pipeline, search or transformer.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), \
                PairwiseRelevance or Judgements, default=None
            Labels, relevance matrix or relevance by pairs, which determine the marks of
            the results. With judgements, the samples are queries, and the documents are
            the database. If queries and documents are texts, they are shown.

        queries : array-like of int, default=None
            Row numbers of X that query. If None, a few rows spread over X.

        n_neighbors : int, default=8
            Number of results per query.

        images, texts : sequence of length n_samples, default=None
            Image and text of each sample. Without either, the row numbers of the
            results are shown.

        X_database, y_database : default=None
            Samples to search instead of X, with their targets.

        database_images, database_texts : sequence, default=None
            Image and text of each sample of the database, or of each document of
            judgements.

        name : str, default=None
            Title; the name of the class if None.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **image_options : dict
            Passed on to matplotlib's `imshow`, such as `cmap` for grey images.

        Returns
        -------
        display : NeighborsDisplay
        """
        n_samples = num_samples(X)
        check_length("images", images, n_samples, "X")
        check_length("texts", texts, n_samples, "X")
        if isinstance(y, Judgements) and X_database is not None:
            raise ValueError(
                "Judgements contain the documents to search: leave out X_database."
            )
        if (y is None) != (y_database is None) and X_database is not None:
            raise ValueError("Pass both y and y_database, or neither.")
        has_database = X_database is not None
        queries = _choose_queries(queries, y, n_samples, has_database)
        found = find_neighbors(
            estimator, X, y, queries, n_neighbors, X_database, y_database
        )
        if isinstance(y, Judgements):
            texts, database_texts = find_texts(X, y, texts, database_texts)
            check_length("database_images", database_images, y.shape[1], "y.documents")
            check_length("database_texts", database_texts, y.shape[1], "y.documents")
        elif X_database is None:
            database_images, database_texts = images, texts
        else:
            n_items = num_samples(X_database)
            check_length("database_images", database_images, n_items, "X_database")
            check_length("database_texts", database_texts, n_items, "X_database")
        return cls(
            found.items,
            relevance=found.relevance,
            similarity=found.similarity,
            images=database_images,
            texts=database_texts,
            query_images=_pick(images, queries),
            query_texts=_pick(texts, queries),
            name=type(estimator).__name__ if name is None else name,
        ).plot(ax=ax, **image_options)

    @classmethod
    def from_predictions(
        cls,
        neighbors: ArrayLike,
        y: TargetLike | None = None,
        y_queries: TargetLike | None = None,
        *,
        similarity: ArrayLike | None = None,
        images: ImagesLike | None = None,
        texts: TextsLike | None = None,
        query_images: ImagesLike | None = None,
        query_texts: TextsLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **image_options: Any,
    ) -> Self:
        """Show given results, such as those of an index.

        Parameters
        ----------
        neighbors : array-like of shape (n_queries, n_neighbors)
            Rows of the items that were found, the best first, as
            :meth:`SimilarityIndex.search
            <sklearn_simlearn.index.SimilarityIndex.search>` returns them; -1 if there
            are no more.

        y, y_queries : array-like of shape (n_items,) and (n_queries,), or \
                (n_items, n_columns) and (n_queries, n_columns), default=None
            Targets of the items and of the queries, which determine the marks of the
            results.

        similarity : array-like of shape (n_queries, n_neighbors), default=None
            Similarities, which are shown with the results.

        images, texts : sequence of length n_items, default=None
            Image and text of each item.

        query_images, query_texts : sequence of length n_queries, default=None
            Image and text of each query.

        name : str, default=None
            Title.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **image_options : dict
            Passed on to matplotlib's `imshow`, such as `cmap` for grey images.

        Returns
        -------
        display : NeighborsDisplay
        """
        neighbors = np.asarray(neighbors)
        if neighbors.ndim != 2 or neighbors.dtype.kind not in "iu":
            raise ValueError(
                "neighbors must be a matrix of row numbers of items, with one row per "
                f"query; got shape {neighbors.shape} and dtype {neighbors.dtype}. For "
                "an index with other ids, convert the ids to row numbers first."
            )
        if (y is None) != (y_queries is None):
            raise ValueError("Pass both y and y_queries, or neither.")
        n_queries = len(neighbors)
        check_length("query_images", query_images, n_queries, "neighbors")
        check_length("query_texts", query_texts, n_queries, "neighbors")
        last = neighbors.max(initial=-1)
        for what, values in (("y", y), ("images", images), ("texts", texts)):
            if values is not None and last >= num_samples(values):
                raise ValueError(
                    f"neighbors holds row {last}, but {what} has {num_samples(values)} "
                    "entries only."
                )
        relevance = None
        if y is not None:
            check_length("y_queries", y_queries, n_queries, "neighbors")
            pairs = check_relevance(stack_targets(y_queries, y), has_database=True)
            relevance = np.array(
                [
                    pairs.block(np.array([query]), n_queries + items)[0]
                    for query, items in enumerate(neighbors)
                ]
            )
        return cls(
            neighbors,
            relevance=relevance,
            similarity=None if similarity is None else np.asarray(similarity),
            images=images,
            texts=texts,
            query_images=query_images,
            query_texts=query_texts,
            name=name,
        ).plot(ax=ax, **image_options)

    def _draw(self, ax, options):
        self.frames_ = []
        if self.images is None:
            self._plot_texts(ax)
        else:
            self._plot_images(ax, options)
        self.ax_.set(title=self.name or "", xticks=[], yticks=[])
        self.ax_.spines[:].set_visible(False)

    # -- images: a grid, one row per query --

    def _plot_images(self, ax, image_options):
        n_queries, n_neighbors = self.neighbors.shape
        has_caption = self.similarity is not None or self.texts is not None
        step_x, step_y = 1 + GAP, 1 + GAP + CAPTION * has_caption
        left = 1 + QUERY_GAP  # of the first result
        width, height = left + n_neighbors * step_x - GAP, n_queries * step_y + CAPTION
        ax = new_axes(self, ax, figsize=(0.95 * width, 0.95 * height + 0.3))
        ax.set(xlim=(-GAP, width + GAP), ylim=(height - CAPTION, -CAPTION - GAP))
        ax.set_aspect("equal")
        ax.autoscale(False)
        rows = self.neighbors[self.neighbors >= 0]
        pictures = read_pictures(self.images, rows)
        queries = None
        if self.query_images is not None:
            queries = read_pictures(self.query_images, np.arange(n_queries))

        _write(ax, 0.5, -GAP, "query", va="bottom", weight="bold")
        for rank in range(n_neighbors):
            _write(ax, left + rank * step_x + 0.5, -GAP, str(rank + 1), va="bottom")
        for i in range(n_queries):
            top = i * step_y
            if queries is not None:
                _draw_image(ax, queries[i], 0, top, image_options)
            _draw_frame(ax, 0, top, BLACK, "-")
            if self.query_texts is not None:
                _write(ax, 0.5, top + 1 + GAP / 2, shorten(self.query_texts[i], 14))
            frames = []
            for rank, item in enumerate(self.neighbors[i]):
                if item < 0:
                    break
                x = left + rank * step_x
                _draw_image(ax, pictures[int(item)], x, top, image_options)
                color, dash, strokes = self._look(i, rank)
                frames.append(_draw_frame(ax, x, top, color, dash))
                if strokes:
                    _draw_mark(ax, x + 0.92, top + 0.08, 0.12, color, strokes)
                _write(ax, x + 0.5, top + 1 + GAP / 2, self._caption(i, rank))
            self.frames_.append(frames)

    def _caption(self, i, rank):
        if self.texts is not None:
            return shorten(self.texts[self.neighbors[i, rank]], 14)
        return "" if self.similarity is None else f"{self.similarity[i][rank]:#.3g}"

    def _look(self, i, rank):
        """Return colour, frame and mark of a result."""
        if self.relevance is None:
            return GREY, "-", []
        return LOOKS[int(np.sign(self.relevance[i][rank]))]

    # -- texts: a list under each query --

    def _plot_texts(self, ax):
        n_queries, n_neighbors = self.neighbors.shape
        n_lines = n_queries * (n_neighbors + 1.6)
        ax = new_axes(self, ax, figsize=(8.5, 0.22 * n_lines + 0.4))
        ax.set(xlim=(0, 1), ylim=(n_lines, 0))
        box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
        # A letter is about half as wide as high.
        n_characters = int(0.9 * box.width * 72 / (0.52 * 9))
        aspect = (box.width / 1) / (box.height / n_lines)  # of the units along the axes
        line = 0.7
        for i in range(n_queries):
            query = f"query {i}" if self.query_texts is None else self.query_texts[i]
            _write_line(ax, 0, line, shorten(query, n_characters), weight="bold")
            for rank, item in enumerate(self.neighbors[i]):
                if item < 0:
                    break
                line += 1
                color, _, strokes = self._look(i, rank)
                _draw_mark(ax, 0.012, line, 0.35 / aspect, color, strokes, height=0.35)
                text = f"row {item}" if self.texts is None else self.texts[item]
                if self.similarity is not None:
                    _write_line(ax, 0.03, line, f"{self.similarity[i][rank]:#.3g}")
                _write_line(ax, 0.1, line, shorten(text, n_characters))
            line += 1.6


def _draw_image(ax, picture, x, y, options):
    """Draw an image in the middle of a square of side 1."""
    height, width = np.array(picture.shape[:2]) / max(picture.shape[:2])
    x, y = x + (1 - width) / 2, y + (1 - height) / 2
    options = {"cmap": "gray", "vmin": 0, "vmax": 255} | options
    ax.imshow(picture, extent=(x, x + width, y + height, y), **options)


def _draw_frame(ax, x, y, color, dash):
    from matplotlib.patches import Rectangle

    margin = 0.03
    side = 1 + 2 * margin
    frame = Rectangle(
        (x - margin, y - margin), side, side, fill=False, ec=color, ls=dash, lw=2
    )
    return ax.add_patch(frame)


def _draw_mark(ax, x, y, width, color, strokes, height=None):
    """Draw a tick, a cross or a bar on a white disc, without a font."""
    from matplotlib.patches import Ellipse

    if not strokes:
        return
    height = width if height is None else height
    disc = Ellipse((x, y), 2.3 * width, 2.3 * height, fc="white", ec=color, zorder=3)
    ax.add_patch(disc)
    for stroke in strokes:
        points = np.array(stroke) * (width, height) + (x, y)
        ax.plot(*points.T, color=color, lw=2, zorder=4, solid_capstyle="round")


def _write(ax, x, y, text, va="top", **options):
    """Write text at a position; text from data is not read as a formula."""
    options = {"fontsize": 8, "parse_math": False} | options
    ax.text(x, y, text, ha="center", va=va, **options)


def _write_line(ax, x, y, text, **options):
    options = {"fontsize": 9, "parse_math": False, "clip_on": True} | options
    ax.text(x, y, text, va="center", **options)


def _choose_queries(queries, y, n_samples, has_database):
    if queries is None:
        can_query = np.arange(n_samples)
        if isinstance(y, Judgements):
            check_judgements(y, n_samples)
            can_query = np.flatnonzero(y.relevance.max(axis=1).toarray() > 0)
        elif y is not None:
            relevance = check_relevance(
                y, n_samples=n_samples, has_database=has_database
            )
            can_query = np.flatnonzero(relevance.can_query)
        places = np.linspace(0, len(can_query) - 1, min(N_QUERIES, len(can_query)))
        return can_query[places.astype(int)]
    queries = np.asarray(queries)
    if queries.ndim != 1 or queries.dtype.kind not in "iu" or len(queries) == 0:
        raise ValueError(
            "queries must hold at least one row of X as an integer; got "
            f"{queries.tolist()}."
        )
    check_row_numbers(queries, n_samples, "queries")
    return queries


def _pick(values, rows):
    values = as_sequence(values)
    return None if values is None else [values[int(row)] for row in rows]
