"""Plots: the lines are the measures."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_simlearn import metrics
from sklearn_simlearn.display import (
    MeanPrecisionRecallDisplay,
    NeighborsDisplay,
    PrecisionAtRankDisplay,
)
from sklearn_simlearn.display._style import GREY
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def cosine(counts):
    X, y = counts
    learner = CosineSimilarity().fit(X)
    relevance = ((y[:, None] == y) & (y >= 0)).astype(np.int8)
    np.fill_diagonal(relevance, -1)
    return learner, X, y, (relevance[y >= 0], learner.similarity(X)[y >= 0])


def test_precision_recall(cosine):
    learner, X, y, pair = cosine
    display = MeanPrecisionRecallDisplay.from_estimator(learner, X, y, name="idf")
    precision, recall = metrics.precision_recall_curve(*pair)
    assert_allclose(display.line_.get_xdata(), recall)
    assert_allclose(display.line_.get_ydata(), precision)
    score = metrics.mean_average_precision(*pair)
    assert display.line_.get_label() == f"idf (mAP = {score:.3f})"
    second = MeanPrecisionRecallDisplay.from_estimator(
        learner, X, y, ax=display.ax_, color="red"
    )
    assert second.ax_ is display.ax_
    assert len(display.ax_.lines) == 2
    assert second.line_.get_color() == "red"


def test_precision_at_rank(cosine):
    learner, X, y, pair = cosine
    display = PrecisionAtRankDisplay.from_estimator(learner, X, y, max_rank=7)
    expected = [metrics.precision_at_k(*pair, k, average=True) for k in range(1, 8)]
    assert_allclose(display.line_.get_ydata(), expected)
    assert display.line_.get_label() == "CosineSimilarity"
    mask = np.arange(66) < 10
    masked = PrecisionAtRankDisplay.from_estimator(
        learner, X, y, max_rank=7, query_mask=mask
    )
    assert not np.allclose(masked.precision, display.precision)


# -- several curves --

NAMES = ["a", "b", "c", "d", "e", "plain", "worse"]


@pytest.fixture
def crowd(rng):
    """Seven curves, the last two of baselines, in no order."""
    level = np.array([0.5, 0.9, 0.3, 0.8, 0.7, 0.6, 0.2])
    recall = np.linspace(0, 1, 101)
    return MeanPrecisionRecallDisplay(
        np.clip(level[:, None] * (1.2 - recall), 0, 1),
        recall,
        mean_average_precision=level,
        name=NAMES,
        is_baseline=[name in ("plain", "worse") for name in NAMES],
        n_queries=17,
    )


def test_the_best_few_are_in_colour(crowd):
    lines = dict(zip(NAMES, crowd.plot(n_colored=3).line_, strict=True))
    in_colour = {name for name, line in lines.items() if line.get_color() != GREY}
    assert in_colour == {"b", "d", "e", "plain"}  # three, and the best baseline
    colours = [lines[name].get_color() for name in in_colour]
    assert len(set(colours)) == 4
    # Each can be told from each without colour, and all baselines from all learners.
    assert len({line.get_marker() for line in lines.values()}) == len(NAMES)
    for name, line in lines.items():
        is_baseline = name in ("plain", "worse")
        assert (line.get_markerfacecolor() == "white") == is_baseline
        assert (line.get_linestyle() == "--") == is_baseline
    assert crowd.ax_.get_title() == "Precision against recall, 17 queries"


def test_the_legend_covers_nothing(crowd):
    crowd.plot()
    legend = crowd.ax_.get_legend()
    crowd.figure_.draw_without_rendering()
    assert legend.get_window_extent().x0 > crowd.ax_.get_window_extent().x1
    assert legend.get_window_extent().x1 <= crowd.figure_.bbox.x1
    texts = [text.get_text().split(" (")[0] for text in legend.get_texts()]
    assert texts == [*["Learners", "b", "d", "e", "a", "c"], "Baselines", *NAMES[-2:]]


def test_legend_in_the_figure_of_a_user(cosine):
    learner, X, y, _ = cosine
    figure, ax = plt.subplots()  # no layout that would make room
    ax.axhline(0.5, label="mine")
    ax.axhline(0.4)
    MeanPrecisionRecallDisplay.from_estimator(learner, X, y, ax=ax)
    figure.draw_without_rendering()
    legend = ax.get_legend()
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    texts = [text.get_text().split(" (")[0] for text in legend.get_texts()]
    assert texts == ["mine", "CosineSimilarity"]


@pytest.mark.parametrize("kind", [MeanPrecisionRecallDisplay, PrecisionAtRankDisplay])
def test_from_estimators_and_predictions(kind, cosine):
    learner, X, y, pair = cosine
    options = {} if kind is MeanPrecisionRecallDisplay else {"max_rank": 9}
    display = kind.from_estimators(
        {"idf": learner, "none": CosineSimilarity(use_idf=False).fit(X)},
        X,
        y,
        baselines=["none"],
        **options,
    )
    single = kind.from_estimator(learner, X, y, **options)
    direct = kind.from_predictions(*pair, name="direct", **options)
    for curve in (single.precision, direct.precision):
        assert_allclose(display.precision[0], curve)
    assert display.is_baseline == [False, True]
    assert display.n_queries == single.n_queries == direct.n_queries == 60
    with pytest.raises(ValueError, match=r"baselines names \['x'\], which are not"):
        kind.from_estimators({"idf": learner}, X, y, baselines=["x"])


# -- neighbours --


@pytest.fixture
def shapes():
    """Three queries' neighbours are known: vectors on a circle."""
    angle = np.radians([0, 1, 3, 90, 92, 95])
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    return X, np.array([0, 1, 0, 1, 1, -1])


def test_neighbors_are_the_nearest(shapes, rng):
    X, y = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    display = NeighborsDisplay.from_estimator(
        learner, X, y, queries=[0, 4], n_neighbors=3, images=rng.random((6, 4, 5))
    )
    assert display.neighbors.tolist() == [[1, 2, 3], [3, 5, 2]]
    assert display.relevance.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert_allclose(display.similarity[0], np.cos(np.radians([1, 3, 90])), atol=1e-12)
    assert display.ax_.get_title() == "CosineSimilarity"
    assert len(display.ax_.images) == 2 + 6
    # Right and wrong differ in more than colour.
    (wrong, right, _), _ = display.frames_
    assert wrong.get_edgecolor() != right.get_edgecolor()
    assert wrong.get_linestyle() != right.get_linestyle()
    n_strokes = len(display.ax_.lines)
    assert n_strokes == 2 * 1 + 4 * 2  # ticks and crosses

    everything = NeighborsDisplay.from_estimator(learner, X, y, images=X[:, None])
    assert everything.neighbors.shape == (5, 5)  # no distractor queries, none is alone


def test_neighbors_in_a_database(shapes):
    X, y = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    known = NeighborsDisplay.from_estimator(
        learner,
        X[:2],
        y[:2],
        texts=["first", "second"],
        X_database=X[2:],
        y_database=y[2:],
        database_texts=[f"item $_{i}" for i in range(4)],  # no formula
        n_neighbors=2,
        name="mine",
    )
    assert known.neighbors.tolist() == [[0, 1], [0, 1]]
    assert known.relevance.tolist() == [[1, 0], [0, 1]]
    shown = [text.get_text() for text in known.ax_.texts]
    assert [s for s in shown if s[0].isalpha()] == (
        ["first", "item $_0", "item $_1", "second", "item $_0", "item $_1"]
    )
    known.figure_.draw_without_rendering()
    index = SimilarityIndex(learner).fit(X[2:])
    similarity, ids = index.search(X[:2], k=6)
    display = NeighborsDisplay.from_predictions(
        ids, y[2:], y[:2], similarity=similarity, texts=["t"] * 4
    )
    assert (ids == -1).sum() == 4  # there are no more: not shown
    assert display.relevance[:, :2].tolist() == known.relevance.tolist()
    assert sum(text.get_text() == "t" for text in display.ax_.texts) == 8


def test_neighbors_with_images_and_texts(shapes):
    X, y = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    images = [np.full((3, 2 + i % 2, 3), 40 * i, dtype=np.uint8) for i in range(6)]
    junk = np.zeros((6, 2))
    junk[np.arange(5), y[:5]] = 1
    junk[5] = [0, -1]
    display = NeighborsDisplay.from_estimator(
        learner, X, junk, images=images, texts=list("abcdef"), queries=[3]
    )
    assert display.relevance.tolist() == [[1, -1, 0, 1, 0]]
    styles = [frame.get_linestyle() for frame in display.frames_[0]]
    assert len(set(map(str, styles))) == 3
    assert "d" in [text.get_text() for text in display.ax_.texts]
    plain = NeighborsDisplay.from_estimator(learner, X, queries=[3])
    assert plain.relevance is None
    assert "row 4" in [text.get_text() for text in plain.ax_.texts]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": np.zeros((2, 3, 3))}, "one entry for each of the 6 rows of X"),
        ({"images": np.zeros((6, 3))}, "image 0 has shape"),
        ({"images": np.full((6, 2, 2), np.inf)}, "NaN or infinite"),
        ({"images": np.full((6, 2, 2), "x")}, "must hold numbers"),
        ({"queries": [6]}, "between 0 and 5"),
        ({"queries": [0.5]}, "as an integer"),
        ({"X_database": np.eye(2)}, "y and y_database together"),
    ],
)
def test_bad_neighbors(arguments, message, shapes):
    X, y = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    with pytest.raises(ValueError, match=message):
        NeighborsDisplay.from_estimator(learner, X, y, **arguments)


def test_ids_that_are_no_rows():
    with pytest.raises(ValueError, match="look up their rows first"):
        NeighborsDisplay.from_predictions([["a", "b"]])
    with pytest.raises(ValueError, match="y and y_queries together"):
        NeighborsDisplay.from_predictions([[1, 0]], y=[0, 1])
