"""Ranking measures: kernels against brute force, functions against references."""

import ast
import inspect
import itertools
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import average_precision_score, ndcg_score

from sklearn_simlearn import metrics
from sklearn_simlearn.metrics._measure import rank_relevant_items
from sklearn_simlearn.metrics._ranking_fast import rank_relevant

RANKED = ["average", "optimistic", "pessimistic", "index"]
MEASURES = [
    metrics.average_precision,
    metrics.precision_at_k,
    metrics.recall_at_k,
    metrics.r_precision,
    metrics.reciprocal_rank,
    metrics.ndcg_at_k,
    metrics.top4_score,
]
each_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda m: m.__name__)


def measures_of_order(relevance, *, k, trapezoid=False):
    """Return every measure of one list, best item first, by its definition."""
    hits, n_relevant = 0, np.count_nonzero(relevance)
    ap = ap_at_k = 0.0
    for rank, relevant in enumerate(relevance, start=1):
        if relevant:
            precision = (hits + 1) / rank
            if trapezoid:
                before = hits / (rank - 1) if rank > 1 else 1.0
                precision = (precision + before) / 2
            ap += precision
            ap_at_k += precision if rank <= k else 0.0
            hits += 1
    discount = 1 / np.log2(np.arange(2, len(relevance) + 2))
    best = np.sort(relevance)[::-1]
    first = int(np.argmax(np.asarray(relevance) > 0)) + 1
    return np.array(
        [
            ap / n_relevant,
            ap_at_k / min(k, n_relevant),
            np.count_nonzero(relevance[:k]) / k,
            np.count_nonzero(relevance[:k]) / n_relevant,
            np.count_nonzero(relevance[:n_relevant]) / n_relevant,
            1 / first,
            1 / first if first <= k else 0.0,
            (relevance[:k] * discount[:k]).sum() / (best[:k] * discount[:k]).sum(),
            np.count_nonzero(relevance[:4]),
        ]
    )


def our_measures(relevance, similarity, *, k, trapezoid=False, **options):
    interpolation = "trapezoid" if trapezoid else "step"
    pair = ([relevance], [similarity])
    return np.concatenate(
        [
            metrics.average_precision(*pair, interpolation=interpolation, **options),
            metrics.average_precision(
                *pair, interpolation=interpolation, k=k, **options
            ),
            metrics.precision_at_k(*pair, k, **options),
            metrics.recall_at_k(*pair, k, **options),
            metrics.r_precision(*pair, **options),
            metrics.reciprocal_rank(*pair, **options),
            metrics.reciprocal_rank(*pair, k=k, **options),
            metrics.ndcg_at_k(*pair, k, **options),
            metrics.top4_score(*pair, **options),
        ]
    )


# Short lists with graded relevance: the test tries all orders of tied items.
tied_lists = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, n, elements=st.integers(0, 3)).filter(lambda r: r.any()),
        arrays(np.float64, n, elements=st.integers(0, 2).map(float)),
    )
)


def all_orders(similarity):
    """Yield every order of the items that is sorted by similarity."""
    for order in itertools.permutations(range(len(similarity))):
        if (np.diff(similarity[list(order)]) <= 0).all():
            yield list(order)


# -- signatures --

SHARED = ["empty", "junk", "average", "sample_weight", "n_jobs"]
OWN = {
    "average_precision": ["ties", "interpolation", "k", "denominator"],
    "mean_average_precision": ["ties", "interpolation", "k", "denominator"],
    "precision_at_k": ["k", "ties"],
    "recall_at_k": ["k", "ties"],
    "r_precision": ["ties"],
    "reciprocal_rank": ["k", "ties"],
    "ndcg_at_k": ["k", "gain", "ties"],
    "top4_score": ["ties"],
    "precision_recall_curve": ["recall_levels", "ties"],
}


@pytest.mark.parametrize("name", OWN)
def test_signatures_are_those_of_plain_functions(name):
    function = getattr(metrics, name)
    shared = [p for p in SHARED if p != "average" or name != "mean_average_precision"]
    names = ["relevance", "similarity", *OWN[name], *shared]
    assert list(inspect.signature(function).parameters) == names
    documented = re.findall(r"^(\w+) : ", inspect.getdoc(function), flags=re.M)
    assert documented[: len(names)] == names
    assert pickle.loads(pickle.dumps(function)) is function
    # Editors and type checkers read the source.
    (source,) = ast.parse(inspect.getsource(function)).body
    arguments = source.args
    assert [a.arg for a in arguments.args + arguments.kwonlyargs] == names
    assert arguments.vararg is None
    assert arguments.kwarg is None
    assert all(a.annotation for a in arguments.args + arguments.kwonlyargs)
    assert source.returns is not None
    assert ast.get_docstring(source) == inspect.getdoc(function)


def test_a_type_checker_sees_the_parameters(tmp_path):
    api = pytest.importorskip("mypy.api")
    calls = tmp_path / "calls.py"
    calls.write_text(
        "from sklearn_simlearn.metrics import ndcg_at_k, precision_at_k\n"
        "precision_at_k([[1, 0]], [[2, 1]], 1, ties='index', average=True)\n"
        "precision_at_k([[1, 0]], [[2, 1]], cut=1)\n"
        "ndcg_at_k([[1, 0]], [[2, 1]], gain='quadratic')\n"
    )
    # Only these modules are read: the types of NumPy would take ten seconds.
    package = Path(metrics.__file__).parents[1]
    read = ["metrics/__init__.py", "metrics/_ranking.py", "_core/sklearn.py"]
    output, _, status = api.run(
        [
            str(calls),
            *(str(package / name) for name in read),
            "--config-file=",
            "--follow-imports=skip",
            "--ignore-missing-imports",
            f"--cache-dir={tmp_path}",
        ]
    )
    assert status == 1
    lines = [line.split(":")[1] for line in output.splitlines() if ": error:" in line]
    assert lines == ["3", "4"], output


# -- ties --


@given(tied_lists, st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_average_ties_are_the_mean_over_all_orders(pair, k, trapezoid):
    relevance, similarity = pair
    options = {"k": k, "trapezoid": trapezoid}
    every = [measures_of_order(relevance[o], **options) for o in all_orders(similarity)]
    assert_allclose(our_measures(relevance, similarity, **options), np.mean(every, 0))


@given(tied_lists, st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_optimistic_and_pessimistic_ties_bound_all_orders(pair, k, trapezoid):
    relevance, similarity = pair
    options = {"k": k, "trapezoid": trapezoid}
    every = [measures_of_order(relevance[o], **options) for o in all_orders(similarity)]
    best = our_measures(relevance, similarity, ties="optimistic", **options)
    worst = our_measures(relevance, similarity, ties="pessimistic", **options)
    assert_allclose(best, np.max(every, axis=0))
    assert_allclose(worst, np.min(every, axis=0))


@given(tied_lists, st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_index_ties_are_the_stable_order(pair, k, trapezoid):
    relevance, similarity = pair
    options = {"k": k, "trapezoid": trapezoid}
    order = np.argsort(-similarity, kind="stable")
    assert_allclose(
        our_measures(relevance, similarity, ties="index", **options),
        measures_of_order(relevance[order], **options),
    )


@pytest.mark.parametrize("n_relevant", [9, 16, 17, 40, 100])
def test_index_ties_are_stable_in_long_lists(n_relevant, rng, dtype):
    """Use more than 8 tied items with different gains, since runs of 8 are merged."""
    n_items = n_relevant + 50
    relevance = np.zeros(n_items)
    relevance[rng.permutation(n_items)[:n_relevant]] = rng.integers(
        1, 100, size=n_relevant
    )
    for n_levels in (1, 3):
        similarity = rng.integers(n_levels, size=n_items).astype(dtype)
        order = np.argsort(-similarity, kind="stable")
        assert_allclose(
            our_measures(relevance, similarity, ties="index", k=n_items // 2),
            measures_of_order(relevance[order], k=n_items // 2),
        )


@pytest.mark.parametrize("n_levels", [2, 10, 10**6])
def test_threshold_ties_are_those_of_scikit_learn(n_levels, rng, dtype):
    relevance = rng.random((50, 200)) < 0.1
    relevance[:, 0] = True
    similarity = rng.integers(n_levels, size=(50, 200)).astype(dtype)
    expected = [
        average_precision_score(r, s)
        for r, s in zip(relevance, similarity, strict=True)
    ]
    ours = metrics.average_precision(relevance, similarity, ties="threshold")
    assert_allclose(ours, expected)


def test_threshold_trapezoid_is_the_area_under_the_curve_of_thresholds():
    # Groups of (relevant, all) items: (1, 2), then (1, 1), then (2, 4).
    relevance = [[1, 0, 1, 1, 0, 1, 0]]
    similarity = [[3, 3, 2, 1, 1, 1, 1]]
    expected = (
        1 * (1 + 1 / 2) / 2 + 1 * (1 / 2 + 2 / 3) / 2 + 2 * (2 / 3 + 4 / 7) / 2
    ) / 4
    ours = metrics.average_precision(
        relevance, similarity, ties="threshold", interpolation="trapezoid"
    )
    assert_allclose(ours, [expected])


@given(tied_lists)
@settings(max_examples=60, deadline=None)
def test_ndcg_is_that_of_scikit_learn(pair):
    relevance, similarity = pair
    for k in (None, 2):
        assert_allclose(
            metrics.ndcg_at_k([relevance], [similarity], k),
            [ndcg_score([relevance], [similarity], k=k)],
        )


# -- references --


@pytest.fixture
def untied(rng):
    # With twenty relevant items, trec_eval need not round levels of recall.
    relevance = rng.permuted(np.tile(np.arange(120) < 20, (40, 1)), axis=1)
    similarity = rng.permuted(np.tile(np.arange(120.0), (40, 1)), axis=1)
    return relevance, similarity


def test_measures_agree_with_trec_eval(untied):
    relevance, similarity = untied
    truth = {
        f"{q}": {f"{d}": int(r) for d, r in enumerate(row)}
        for q, row in enumerate(relevance)
    }
    run = {
        f"{q}": {f"{d}": float(s) for d, s in enumerate(row)}
        for q, row in enumerate(similarity)
    }
    evaluator = pytrec_eval.RelevanceEvaluator(
        truth,
        {
            "map",
            "map_cut.10",
            "P.10",
            "recall.10",
            "Rprec",
            "recip_rank",
            "ndcg_cut.10",
            "iprec_at_recall",
        },
    )
    result = evaluator.evaluate(run)
    levels = np.linspace(0, 1, 11)
    curves, _ = metrics.precision_recall_curve(
        relevance, similarity, recall_levels=levels, average=False
    )
    ours = {
        "map": metrics.average_precision(relevance, similarity),
        "map_cut_10": metrics.average_precision(
            relevance, similarity, k=10, denominator="relevant"
        ),
        "P_10": metrics.precision_at_k(relevance, similarity, 10),
        "recall_10": metrics.recall_at_k(relevance, similarity, 10),
        "Rprec": metrics.r_precision(relevance, similarity),
        "recip_rank": metrics.reciprocal_rank(relevance, similarity),
        "ndcg_cut_10": metrics.ndcg_at_k(relevance, similarity, 10),
    } | {f"iprec_at_recall_{level:.2f}": curves[:, i] for i, level in enumerate(levels)}
    for name, value in ours.items():
        assert_allclose(value, [result[f"{q}"][name] for q in range(40)], err_msg=name)


def test_oxford_trapezoid_with_junk_by_hand():
    # List: junk, relevant, irrelevant, junk, relevant, relevant. Without the junk the
    # relevant items are on ranks 1, 3 and 4, and the trapezoids are
    # (1 + 1) / 2, (1/2 + 2/3) / 2 and (2/3 + 3/4) / 2, each a third of recall wide.
    relevance = [[0, 1, 0, 0, 1, 1]]
    junk = [[True, False, False, True, False, False]]
    similarity = [[6, 5, 4, 3, 2, 1]]
    expected = (1 + (1 / 2 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2) / 3
    for as_junk in (junk, junk[0], sparse.csr_array(junk)):
        ours = metrics.average_precision(
            relevance, similarity, junk=as_junk, interpolation="trapezoid"
        )
        assert_allclose(ours, [expected])
    negative = np.where(junk, -1, relevance)
    ours = metrics.average_precision(negative, similarity, interpolation="trapezoid")
    assert_allclose(ours, [expected])


def test_first_relevant_item_low_in_the_list_by_hand():
    # Oxford: one relevant item on rank 2 is (0 + 1/2) / 2.
    pair = ([[0, 1, 0]], [[3, 2, 1]])
    assert_allclose(metrics.average_precision(*pair, interpolation="trapezoid"), [0.25])
    assert_allclose(metrics.average_precision(*pair), [0.5])


def test_precision_recall_curve_mixes_ties_evenly():
    # Two relevant among four tied: one on rank 2, one on rank 4.
    curve, recall = metrics.precision_recall_curve(
        [[1, 0, 1, 0]], [[1, 1, 1, 1]], recall_levels=[0, 0.5, 0.51, 1]
    )
    assert_allclose(curve, [0.5, 0.5, 0.5, 0.5])
    assert_array_equal(recall, [0, 0.5, 0.51, 1])


# -- properties --


@st.composite
def problems(draw):
    shape = draw(st.integers(1, 4)), draw(st.integers(2, 30))
    relevance = draw(arrays(np.int8, shape, elements=st.integers(-1, 1)))
    relevance[:, 0] = 1
    similarity = draw(arrays(np.float64, shape, elements=st.integers(-5, 5).map(float)))
    return relevance, similarity


@each_measure
@given(problem=problems())
@settings(max_examples=25, deadline=None)
def test_bounds(measure, problem):
    for ties in RANKED:
        value = measure(*problem, ties=ties)
        most = 4 if measure is metrics.top4_score else 1
        assert ((value >= 0) & (value <= most + 1e-12)).all()


@each_measure
@given(problem=problems())
@settings(max_examples=25, deadline=None)
def test_monotone_transform_of_the_scores_changes_nothing(measure, problem):
    relevance, similarity = problem
    for ties in RANKED:
        assert_array_equal(
            measure(relevance, similarity, ties=ties),
            measure(relevance, np.exp(similarity) * 3 - 7, ties=ties),
        )


@each_measure
@given(problem=problems(), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_order_of_the_items_does_not_matter(measure, problem, seed):
    relevance, similarity = problem
    order = np.random.default_rng(seed).permutation(relevance.shape[1])
    for ties in set(RANKED) - {"index"}:
        assert_allclose(
            measure(relevance, similarity, ties=ties),
            measure(relevance[:, order], similarity[:, order], ties=ties),
        )


@given(problem=problems())
@settings(max_examples=25, deadline=None)
def test_junk_has_no_effect(problem):
    relevance, similarity = problem
    for ties in RANKED:
        ours = metrics.average_precision(relevance, similarity, ties=ties)
        for row, kept in enumerate(relevance >= 0):
            alone = metrics.average_precision(
                relevance[[row]][:, kept], similarity[[row]][:, kept], ties=ties
            )
            assert_allclose(ours[row], alone[0])


# -- forms of input --


@each_measure
def test_sparse_and_boolean_relevance(measure, untied):
    relevance, similarity = untied
    expected = measure(relevance.astype(np.int64), similarity)
    assert_array_equal(measure(relevance, similarity), expected)
    for container in (sparse.csr_array, sparse.csr_matrix, sparse.coo_array):
        assert_array_equal(measure(container(relevance), similarity), expected)
    assert_array_equal(measure(relevance.tolist(), similarity.tolist()), expected)


@each_measure
def test_threads_and_blocks_change_nothing(measure, untied):
    relevance, similarity = untied
    expected = measure(relevance, similarity)
    assert_array_equal(measure(relevance, similarity, n_jobs=2), expected)
    with sklearn.config_context(working_memory=0.02):  # 20 kB: a few rows a block
        assert_array_equal(measure(relevance, similarity), expected)


# Few values, so that infinities are tied with each other and with the padding.
extreme_lists = st.integers(2, 5).flatmap(
    lambda n: st.tuples(
        arrays(np.int8, n, elements=st.integers(-1, 1)).filter(lambda r: (r > 0).any()),
        arrays(np.float64, n, elements=st.sampled_from([-np.inf, -1.0, 2.0, np.inf])),
    )
)


@given(extreme_lists)
@settings(max_examples=60, deadline=None)
def test_infinite_scores_against_all_orders(pair):
    relevance, similarity = pair
    kept = relevance >= 0
    # The same order among finite numbers.
    finite = np.clip(similarity, -9, 9)[kept]
    orders = list(all_orders(finite))
    every = [measures_of_order(relevance[kept][o], k=3) for o in orders]
    stable = np.argsort(-finite, kind="stable")
    for dtype in (np.float32, np.float64):
        scores = similarity.astype(dtype)
        for ties, expected in {
            "average": np.mean(every, axis=0),
            "optimistic": np.max(every, axis=0),
            "pessimistic": np.min(every, axis=0),
            "index": measures_of_order(relevance[kept][stable], k=3),
        }.items():
            assert_allclose(
                our_measures(relevance, scores, k=3, ties=ties), expected, err_msg=ties
            )
        assert_allclose(
            metrics.average_precision([relevance], [scores], ties="threshold"),
            [average_precision_score(relevance[kept] > 0, finite)],
        )


def test_optimistic_ties_with_an_infinite_score_by_hand(dtype):
    # Relevant on ranks 3 and 4: (1 / 3 + 2 / 4) / 2.
    similarity = np.array([[1, 2, 2, -np.inf, 1]], dtype=dtype)
    ours = metrics.average_precision([[1, 0, 0, 0, 1]], similarity, ties="optimistic")
    assert_allclose(ours, [5 / 12])


@pytest.mark.parametrize("ties", RANKED)
def test_long_lists_of_infinite_scores(ties, rng, dtype):
    # More items than one chunk of the search, and more relevant ones than its padding.
    similarity = rng.choice([-np.inf, 0, 1, np.inf], size=(4, 1500)).astype(dtype)
    relevance = rng.random((4, 1500)) < [[0.002], [0.01], [0.05], [0.5]]
    relevance[:, 7] = True
    for measure in MEASURES:
        assert_allclose(
            measure(relevance, similarity, ties=ties),
            measure(relevance, np.clip(similarity, -9, 9), ties=ties),
        )


def test_infinite_scores_are_ranked_last_and_first():
    similarity = [[-np.inf, 0.0, np.inf, -np.inf]]
    assert_allclose(metrics.average_precision([[0, 1, 0, 0]], similarity), [0.5])
    assert_allclose(
        metrics.average_precision([[1, 0, 0, 0]], similarity), [(1 / 3 + 1 / 4) / 2]
    )


@each_measure
def test_mean_and_weights(measure, untied, rng):
    relevance, similarity = untied
    relevance[3] = False
    value = measure(relevance, similarity)
    assert np.isnan(value[3])
    assert np.isnan(value).sum() == 1
    kept, weight = np.arange(40) != 3, rng.random(40)
    mean = measure(relevance, similarity, average=True, sample_weight=weight)
    assert_allclose(mean, np.average(value[kept], weights=weight[kept]))


@each_measure
def test_empty_queries(measure):
    pair = ([[1, 0], [0, 0]], [[2, 1], [2, 1]])
    assert np.isnan(measure(*pair)[1])
    assert measure(*pair, empty="zero")[1] == 0
    assert_allclose(
        measure(*pair, empty="zero", average=True), measure(*pair, average=True) / 2
    )
    with pytest.raises(ValueError, match="1 of 2 queries have no relevant item"):
        measure(*pair, empty="error")


def test_mean_average_precision_is_the_mean(untied):
    assert metrics.mean_average_precision(*untied) == pytest.approx(
        metrics.average_precision(*untied).mean()
    )


@each_measure
@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8, bool, np.float32])
def test_junk_is_taken_off_whatever_the_type_of_relevance(measure, kind):
    relevance = np.array([[1, 0, 0], [1, 1, 0]], dtype=kind)
    similarity = np.array([[1.0, 2, 3], [3, 1, 2]])
    expected = measure([[1, 0, -1], [1, 1, -1]], similarity)
    for container in (np.asarray, sparse.csr_array):
        given = container(relevance)
        assert_array_equal(measure(given, similarity, junk=[0, 0, 1]), expected)
        assert_array_equal(
            measure(given, similarity, junk=[[0, 0, 1], [0, 0, 1]]), expected
        )


def test_large_and_tiny_gains_are_those_of_ratios():
    # 2 ** r overflows, but only ratios matter: those of r = 1 and 2 up to a factor.
    similarity = [[3.0, 2, 1], [1, 2, 3]]
    large = [[1100, 1101, 0], [5000, 5001, 0]]
    discount = 1 / np.log2([2, 3, 4])
    best = 1 + 0.5 * discount[1]
    expected = [(0.5 + discount[1]) / best, (discount[1] + 0.5 * discount[2]) / best]
    assert_allclose(metrics.ndcg_at_k(large, similarity, gain="exponential"), expected)
    # Where r is tiny, 2 ** r - 1 is r log 2.
    linear = metrics.ndcg_at_k([[1, 2, 0], [1, 2, 0]], similarity)
    tiny = np.array([[1, 2, 0], [1, 2, 0]]) * 1e-300
    for gain in ("linear", "exponential"):
        assert_allclose(metrics.ndcg_at_k(tiny, similarity, gain=gain), linear)
    huge = np.array([[1, 2, 0], [1, 2, 0]]) * 5e307
    assert_allclose(metrics.ndcg_at_k(huge, similarity), linear)
    moderate = metrics.ndcg_at_k([[1, 2, 0]], [[3.0, 2, 1]], gain="exponential")
    assert_allclose(moderate, [(1 + 3 * discount[1]) / (3 + discount[1])])


def test_a_weight_counts_and_all_zero_weights_are_refused(untied):
    with pytest.raises(ValueError, match="at least one non-zero"):
        metrics.mean_average_precision(*untied, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match="Negative values"):
        metrics.mean_average_precision(*untied, sample_weight=np.full(40, -1))
    weight = np.arange(2.0)
    with pytest.raises(ValueError, match="has a sample_weight of 0"):
        metrics.mean_average_precision(
            [[1, 0], [0, 0]], [[1, 2], [1, 2]], sample_weight=weight
        )


@pytest.mark.parametrize("name", ["average_precision", "precision_recall_curve"])
def test_weights_are_checked_before_the_lists_are_ranked(name, untied):
    relevance, similarity = untied
    similarity = np.full_like(similarity, np.nan)  # found when the lists are ranked
    with pytest.raises(ValueError, match=r"sample_weight\.shape"):
        getattr(metrics, name)(
            relevance, similarity, average=False, sample_weight=np.ones(3)
        )


# -- kernel --


def test_kernel_accepts_read_only_input_and_no_relevant_item(dtype):
    similarity = np.array([[3, 1, 2]], dtype=dtype)
    relevance = np.zeros((1, 3), dtype=np.int8)
    offsets = np.zeros(2, dtype=np.int64)
    for array in (similarity, relevance, offsets):
        array.flags.writeable = False
    nothing = np.empty(0, dtype=np.int32)
    rank_relevant(similarity, relevance, offsets, 0, 1, nothing, nothing, nothing)


@pytest.mark.parametrize("n_relevant", [1, 7, 8, 9, 63, 64, 500])
def test_ranks_of_long_lists(n_relevant, rng, dtype):
    # More items than one chunk of the search, around the sizes where its padding jumps.
    similarity = rng.permuted(np.tile(np.arange(1500), (3, 1)), axis=1).astype(dtype)
    relevance = np.zeros((3, 1500), dtype=np.int8)
    for row in relevance:
        row[rng.choice(1500, n_relevant, replace=False)] = 1
    ranks = rank_relevant_items(relevance, similarity)
    expected = [
        np.sort(1499 - s[r > 0]) for s, r in zip(similarity, relevance, strict=True)
    ]
    assert_array_equal(ranks.n_above, np.concatenate(expected))
    assert_array_equal(ranks.n_tied, 1)
    assert_array_equal(1499 - similarity[ranks.query, ranks.item], ranks.n_above)


# -- bad input --


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0]], [[1.0, np.nan]]), "similarity contains NaN"),
        (([[1, np.nan]], [[1.0, 2.0]]), "relevance contains NaN"),
        (([[1, 0, 0]], [[1.0, 2.0]]), "relevance and similarity must have the same"),
        (([["a", "b"]], [[1.0, 2.0]]), "relevance must hold booleans or numbers"),
        (([1, 0], [1.0, 2.0]), "Expected 2D array"),
    ],
)
@each_measure
def test_bad_input(measure, arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(*arguments)


def test_bad_options():
    pair = ([[1, 0]], [[2.0, 1.0]])
    with pytest.raises(ValueError, match="junk has 3 entries for 2 items"):
        metrics.average_precision(*pair, junk=[True, False, False])
    with pytest.raises(ValueError, match='"threshold" does not support a cut-off'):
        metrics.average_precision(*pair, ties="threshold", k=1)
    with pytest.raises(ValueError, match="'ties' parameter"):
        metrics.precision_at_k(*pair, ties="threshold")
    with pytest.raises(ValueError, match="'k' parameter"):
        metrics.precision_at_k(*pair, k=0)
    with pytest.raises(ValueError, match="recall_levels"):
        metrics.precision_recall_curve(*pair, recall_levels=[2.0])
    with pytest.raises(ValueError, match="No query has a relevant item"):
        metrics.mean_average_precision([[0, 0]], [[2.0, 1.0]])


@pytest.mark.parametrize("value", [-1.0, 0.5, 1.0])
def test_any_value_but_zero_marks_junk(value):
    relevance = np.array([[1, 0, 1, 0]], dtype=np.int8)
    similarity = np.array([[0.1, 0.9, 0.5, 0.7]])
    ranks = rank_relevant_items(
        relevance, similarity, junk=np.array([[0.0, value, 0.0, value]])
    )
    assert_array_equal(np.sort(ranks.n_above), [0, 1])
