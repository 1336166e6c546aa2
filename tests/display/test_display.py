"""Plots: the lines show the measures."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    QueryDocumentMap,
    SparseMahalanobisLearner,
    metrics,
)
from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.display import (
    AnglesDisplay,
    GramDisplay,
    HoldoutDisplay,
    MeanPrecisionRecallDisplay,
    NeighborsDisplay,
    PrecisionAtRankDisplay,
    SimilarityDistributionDisplay,
    WeightTableDisplay,
    _similarities,
)
from sklearn_simlearn.display._style import GREY
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

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
    """Return seven unordered curves, the last two of baselines."""
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
    # All curves differ without colour, and so do baselines and candidates.
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
    assert texts == [*["Candidates", "b", "d", "e", "a", "c"], "Baselines", *NAMES[-2:]]


def test_legend_in_the_figure_of_a_user(cosine):
    learner, X, y, _ = cosine
    figure, ax = plt.subplots()  # without a layout that makes room for a legend
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
    reports = {"idf": metrics.retrieval_report(learner, X, y, k=np.arange(1, 10))}
    assert_allclose(kind.from_reports(reports).precision[0], single.precision)
    with pytest.raises(ValueError, match=r"baselines contains \['x'\], which are not"):
        kind.from_estimators({"idf": learner}, X, y, baselines=["x"])
    with pytest.raises(ValueError, match="No query has a relevant item"):
        kind.from_estimator(learner, X, np.arange(len(y)))
    with pytest.raises(ValueError, match="No query has a relevant item"):
        kind.from_predictions(0 * pair[0], pair[1])


# -- neighbours --


@pytest.fixture
def shapes():
    """The neighbours of three queries on a circle are known."""
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
    assert everything.neighbors.shape == (5, 5)  # all but the distractor


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
        database_texts=[f"item $_{i}" for i in range(4)],  # not a formula
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
    assert (ids == -1).sum() == 4  # fewer items than places
    assert display.relevance[:, :2].tolist() == known.relevance.tolist()
    assert sum(text.get_text() == "t" for text in display.ax_.texts) == 8


def test_neighbors_in_a_database_with_a_column_per_query(shapes):
    X, _ = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    columns = np.array([[1, 0], [0, 0], [0, 1], [0, 0]])
    display = NeighborsDisplay.from_estimator(
        learner, X[:2], np.eye(2), X_database=X[2:], y_database=columns, n_neighbors=3
    )
    assert display.relevance.tolist() == [[1, 0, 0], [0, 0, 1]]


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
        ({"queries": [6]}, "from 0 to 5"),
        ({"queries": [0.5]}, "as an integer"),
        ({"X_database": np.eye(2)}, "both y and y_database"),
    ],
)
def test_bad_neighbors(arguments, message, shapes):
    X, y = shapes
    learner = CosineSimilarity(use_idf=False).fit(X)
    with pytest.raises(ValueError, match=message):
        NeighborsDisplay.from_estimator(learner, X, y, **arguments)


def test_ids_that_are_not_rows():
    with pytest.raises(ValueError, match="convert the ids"):
        NeighborsDisplay.from_predictions([["a", "b"]])
    with pytest.raises(ValueError, match="holds row 3, but texts has 2 entries only"):
        NeighborsDisplay.from_predictions([[1, 3]], texts=["a", "b"])
    with pytest.raises(ValueError, match="both y and y_queries"):
        NeighborsDisplay.from_predictions([[1, 0]], y=[0, 1])


# -- similarities of pairs --


def test_distributions_are_of_all_pairs(cosine):
    learner, X, y, (relevance, similarity) = cosine
    display = SimilarityDistributionDisplay.from_estimator(learner, X, y, trim=0)
    direct = SimilarityDistributionDisplay.from_predictions(relevance, similarity)
    assert_allclose(np.sort(display.matching), np.sort(similarity[relevance > 0]))
    assert_allclose(np.sort(display.non_matching), np.sort(similarity[relevance == 0]))
    assert_allclose(np.sort(direct.matching), np.sort(display.matching))
    for patch in display.ax_.patches:  # nothing is left out unless it is trimmed
        assert_allclose(patch.get_data().values.sum(), 1)
    assert 0 < display.overlap_ < 1


@pytest.mark.parametrize(
    ("similarity", "overlap"),
    [([3, 4, 1, 2], 0), ([1, 2, 1, 2], 1), ([1, 3, 1, 2], 0.5)],
)
def test_overlap_of_distributions(similarity, overlap):
    display = SimilarityDistributionDisplay.from_predictions(
        [[1, 1, 0, 0]], [similarity], trim=0
    )
    assert display.overlap_ == overlap


def test_extreme_similarities_are_trimmed():
    wide = SimilarityDistributionDisplay(
        np.r_[np.zeros(98), 1e9, -1e9], np.linspace(-1, 1, 100), trim=0.05
    ).plot()
    assert wide.ax_.get_xlim()[1] < 2


@pytest.mark.parametrize(
    ("similarity", "options", "message"),
    [
        ([[1, 2, 3]], {}, "the same shape"),
        ([[1, 2]], {"trim": 0.5}, "trim must be"),
        ([[1, np.nan]], {}, "NaN or infinite"),
        ([[-np.inf, 1]], {}, "NaN or infinite"),
    ],
)
def test_bad_distributions(similarity, options, message):
    with pytest.raises(ValueError, match=message):
        SimilarityDistributionDisplay.from_predictions([[1, 0]], similarity, **options)


def test_distributions_need_pairs_of_both_kinds():
    with pytest.raises(ValueError, match="matching and non-matching pairs"):
        SimilarityDistributionDisplay.from_predictions([[1, 1]], [[1, 2]])


def test_distributions_of_many_samples_are_of_some(cosine, monkeypatch):
    learner, X, y, _ = cosine
    monkeypatch.setattr(_similarities, "MAX_PAIRS", 10 * X.shape[0])
    display = SimilarityDistributionDisplay.from_estimator(learner, X, y)
    assert len(display.matching) == 10 * 4
    assert len(display.non_matching) == 10 * 61


# -- learned parameters --


@pytest.fixture(scope="module")
def oasis():
    """Return a learner that was fitted with a hold-out."""
    X, y = make_blobs(90, 5, centers=3, cluster_std=4.0, random_state=0)
    return OASIS(holdout="samples", random_state=0).fit(X, y)


@pytest.mark.parametrize("learns", [False, True])
def test_holdout(learns, oasis, monkeypatch):
    results = oasis.holdout_results_
    kept = results["best_index"] if learns else results["candidates"].index(None)
    monkeypatch.setitem(results, "best_index", kept)
    display = HoldoutDisplay.from_estimator(oasis)
    n_points = sum(len(line.get_xdata()) for line in display.lines_)
    assert n_points == len(results["candidates"]) - 1
    shown = np.concatenate([line.get_ydata() for line in display.lines_])
    assert set(shown) <= set(results["mean_average_precision"])
    best = results["mean_average_precision"][kept]
    assert display.kept_.get_ydata().tolist() == [best]
    assert ("the start" in display.kept_.get_label()) == (
        results["candidates"][kept] is None
    )


def test_holdout_names_the_best_curves():
    settings = [(C, share) for C in range(5) for share in (0.0, 0.5)]
    candidates = [None, *({"C": C, "share": share} for C, share in settings)]
    display = HoldoutDisplay(candidates, np.linspace(0.4, 0.5, 11), best_index=10)
    display.plot()
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert len(display.lines_) == 5
    assert labels[:4] == ["C=4", "C=3", "C=2", "2 others"]


@pytest.mark.parametrize("max_iter", [3, 30])
def test_early_stopping_is_one_curve(max_iter, rng):
    y = np.repeat(np.arange(5), 10)
    X = rng.poisson(rng.gamma(0.5, 1.0, size=(5, 40))[y] + 0.3)
    learner = SparseMahalanobisLearner.from_paper(
        holdout=2, max_iter=max_iter, tol=0, random_state=0
    ).fit(X, y)
    display = HoldoutDisplay.from_estimator(learner)
    results = learner.holdout_results_
    (line,) = display.lines_
    assert_array_equal(line.get_ydata(), results["mean_average_precision"][1:])
    assert len(display.ax_.get_xticks()) <= 10
    assert display.ax_.get_xlabel() == "n_iter"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (HoldoutDisplay, "has no hold-out to show"),
        (WeightTableDisplay, "has no `weights_`. Pass a fitted HistogramRankSVM"),
        (AnglesDisplay, "has no `angles_`. Pass a fitted AngularBilinearRanker"),
    ],
)
def test_learners_of_another_kind(kind, message, counts):
    with pytest.raises(ValueError, match=message):
        kind.from_estimator(CosineSimilarity().fit(counts[0]))


def test_weight_tables(counts):
    X, y = counts
    pattern = np.array([[0, 1, 1], [2, 3, 4], [2, 4, 4]])
    learner = HistogramRankSVM(
        holdout=None,
        loss="pairwise",
        truncation=2,
        n_word_groups=2,
        weight_pattern=pattern,
    ).fit(X, y)
    display = WeightTableDisplay.from_estimator(learner)
    for ax, table in zip(display.axes_, learner.weights_, strict=True):
        assert_allclose(ax.images[0].get_array(), table)
        assert len(ax.texts) == 9
        assert len(ax.lines) == 8  # between cells of different bins
    numbers = WeightTableDisplay(np.array([[[0.0, -0.0043], [0.19, 0.28]]])).plot()
    shown = [text.get_text() for text in numbers.axes_[0].texts]
    assert shown == ["0.00", "0.00", "0.19", "0.28"]  # as narrow as a cell
    alone = WeightTableDisplay(pattern=pattern).plot()
    assert [text.get_text() for text in alone.axes_[0].texts] == list("011234244")
    with pytest.raises(ValueError, match="weights and pattern are both None"):
        WeightTableDisplay().plot()


def test_angles(blobs):
    X, y = blobs
    displays, ax = [], None
    for sigma in (0.0, 0.95):
        ranker = AngularBilinearRanker(sigma=sigma, holdout=None, random_state=0)
        ranker.fit(X, y)
        displays.append(AnglesDisplay.from_estimator(ranker, name=f"{sigma}", ax=ax))
        ax = displays[0].ax_
        x, norm = displays[-1].line_.get_data()
        assert_allclose(np.radians(x), ranker.angles_)
        assert_allclose(norm, ranker.norms_)
    assert displays[0].line_.get_marker() != displays[1].line_.get_marker()
    assert len(ax.lines) == 2


def test_gram_matrix(blobs, rng):
    X, _ = blobs
    memory = MemoryVectorQuery(alpha=0).fit(X)
    display = GramDisplay.from_estimator(memory, X[:4], images=rng.random((4, 3, 3)))
    weights, (gram,) = memory.query_weights(X[:4], np.zeros(4), return_gram=True)
    assert_allclose(display.image_.get_array(), gram)
    assert_allclose([bar.get_width() for bar in display.bars_], weights)
    # The vector is equally similar to all.
    assert_allclose(gram @ weights, 1, atol=1e-6)
    many = GramDisplay.from_estimator(memory, X[:30], name="many")
    assert many.ax_.get_title() == "many"
    with pytest.raises(ValueError, match="each of the 4 rows"):
        GramDisplay.from_estimator(memory, X[:4], images=np.zeros((3, 2, 2)))
    with pytest.raises(TypeError, match="sets of a MemoryVectorQuery"):
        GramDisplay.from_estimator(CosineSimilarity(use_idf=False).fit(X), X[:4])


# -- queries and documents --


@pytest.fixture(scope="module")
def judged():
    """Return a fitted model, queries, judgements and the texts of both sides."""
    data = load_categories()
    y = data.target.with_documents(data.document_vectors)
    model = QueryDocumentMap(None, random_state=0)
    model.fit(data.query_vectors[:200], y[:200])
    return model, data.query_vectors[200:], y[200:], data.queries[200:], data.documents


def test_results_of_judged_queries(judged):
    model, Q, y, texts, documents = judged
    display = NeighborsDisplay.from_estimator(
        model, Q, y, texts=texts, database_texts=documents, n_neighbors=3
    )
    best = np.argsort(-model.similarity(Q, y.documents), axis=1, kind="stable")
    rows = np.linspace(0, len(Q) - 1, 5).astype(int)
    assert_array_equal(display.neighbors, best[rows, :3])
    relevance = y.relevance.toarray()
    expected = np.sign(np.take_along_axis(relevance[rows], best[rows, :3], axis=1))
    assert_array_equal(display.relevance, expected)
    shown = " ".join(text.get_text() for text in display.ax_.texts)
    assert texts[rows[0]] in shown
    assert documents[best[rows[0], 0]][:20] in shown
    # Texts that are the samples themselves need not be passed.
    words = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    words.fit(texts, y.with_documents(documents))
    display = NeighborsDisplay.from_estimator(
        words, texts, y.with_documents(documents), queries=[0]
    )
    assert display.query_texts == [texts[0]]
    assert display.texts is documents
    with pytest.raises(ValueError, match="contain the documents"):
        NeighborsDisplay.from_estimator(model, Q, y, X_database=Q, y_database=y)
    with pytest.raises(ValueError, match="database_texts must have one entry"):
        NeighborsDisplay.from_estimator(model, Q, y, database_texts=texts)


def test_similarities_of_judged_pairs(judged):
    model, Q, y, *_ = judged
    relevance = y.relevance.toarray()
    relevance[:, :3] = -1
    y = Judgements(relevance, y.documents)
    display = SimilarityDistributionDisplay.from_estimator(model, Q, y)
    similarity = model.similarity(Q, y.documents)
    for found, mask in (
        (display.matching, relevance > 0),
        (display.non_matching, relevance == 0),
    ):
        assert_allclose(np.sort(found), np.sort(similarity[mask]), rtol=1e-6)
    with pytest.raises(ValueError, match="same number of queries"):
        SimilarityDistributionDisplay.from_estimator(model, Q[:5], y)


def test_holdout_of_judged_queries(judged):
    model, *_ = judged
    results = model.holdout_results_
    display = HoldoutDisplay.from_estimator(model)
    assert display.ax_.get_ylabel() == "nDCG at 10"
    best = results["ndcg_at_10"][results["best_index"]]
    assert display.kept_.get_ydata().tolist() == [best]


def test_holdout_of_a_union(judged):
    _, Q, y, *_ = judged
    union = SimilarityUnion(
        [
            ("first", "passthrough", slice(0, 32)),
            ("second", "passthrough", slice(32, None)),
        ],
        random_state=0,
    ).fit(Q, y)
    display = HoldoutDisplay.from_estimator(union)
    results = union.holdout_results_
    (line,) = display.lines_
    assert display.ax_.get_xlabel() == "first"
    assert len(line.get_xdata()) == len(results["candidates"]) == 21
    points = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert max(points[0], points[1]) == results["ndcg_at_10"][display.start_index]
    assert display.kept_.get_xdata().tolist() == [union.weights_["first"]]


@pytest.mark.parametrize(
    "display", [MeanPrecisionRecallDisplay, PrecisionAtRankDisplay]
)
def test_curves_of_judged_queries(display, judged):
    model, Q, y, *_ = judged
    cosine = CosineSimilarity(use_idf=False).fit(y.documents)
    shown = display.from_estimators({"cosine": cosine, "shift": model}, Q, y)
    assert shown.n_queries == len(Q)
    alone = display.from_estimator(model, Q, y)
    assert_array_equal(shown.precision[1], alone.precision)
    assert np.abs(shown.precision[1] - shown.precision[0]).max() > 0.01
