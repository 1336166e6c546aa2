"""Display of the similarities of matching and of non-matching pairs."""

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike, RandomState
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.display._base import Display
from sklearn_simlearn.display._style import BLACK, COLORS, legend_next_to, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Maximum number of pairs. More pairs would not change the plot visibly.
MAX_PAIRS = 2_000_000

N_BINS = 60


class SimilarityDistributionDisplay(Display):
    """Distributions of the similarity of matching and of non-matching pairs.

    The less the distributions overlap, the better the similarity separates matching
    from non-matching pairs. Ranking measures compare only the items of one query, so a
    similarity can rank well even if the distributions overlap. Create a display with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    matching : ndarray of shape (n_matching,)
        Similarities of samples with items that are relevant to them.

    non_matching : ndarray of shape (n_non_matching,)
        Similarities of samples with other items.

    trim : float, default=0.01
        Share of the smallest and of the largest similarities of each kind that is left
        out of the picture.

    name : str, default=None
        Name in the title.

    Attributes
    ----------
    overlap_ : float
        Area that the two distributions share, from 0 to 1.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn.display import SimilarityDistributionDisplay
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_iris(return_X_y=True)
    >>> cosine = CosineSimilarity(use_idf=False).fit(X)
    >>> display = SimilarityDistributionDisplay.from_estimator(cosine, X, y)
    >>> round(display.overlap_, 1)
    0.2
    """

    def __init__(
        self,
        matching: np.ndarray,
        non_matching: np.ndarray,
        *,
        trim: float = 0.01,
        name: str | None = None,
    ):
        self.matching = matching
        self.non_matching = non_matching
        self.trim = trim
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: TargetLike,
        *,
        trim: float = 0.01,
        random_state: RandomState = 0,
        name: str | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Plot the similarities that a fitted estimator gives to pairs of samples.

        Parameters
        ----------
        estimator : object
            A fitted learner, pipeline, search or transformer.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples. If there are many, some are drawn and compared with all.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), \
                PairwiseRelevance or Judgements
            Labels, relevance matrix or relevance by pairs. Junk is left out. With
            judgements, the samples are queries, which are compared with the documents.

        trim : float, default=0.01
            Share of the smallest and of the largest similarities of each kind that is
            left out of the picture.

        random_state : int, RandomState instance or None, default=0
            Draws the samples, if there are too many for all pairs.

        name : str, default=None
            Name in the title; the name of the class if None.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        Returns
        -------
        display : SimilarityDistributionDisplay
        """
        rng = check_random_state(random_state)
        matching, non_matching = [], []
        for relevant, similarity in _compare_some(find_model(estimator), X, y, rng):
            matching.append(similarity[relevant > 0])
            non_matching.append(similarity[relevant == 0])
        return cls(
            np.concatenate(matching),
            np.concatenate(non_matching),
            trim=trim,
            name=type(estimator).__name__ if name is None else name,
        ).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        relevance: ArrayLike,
        similarity: ArrayLike,
        *,
        trim: float = 0.01,
        name: str | None = None,
        ax: "Axes | None" = None,
    ) -> Self:
        """Plot given similarities.

        Parameters
        ----------
        relevance : array-like of shape (n_queries, n_items)
            Positive for pairs that match, 0 for others, negative for pairs to ignore.

        similarity : array-like of shape (n_queries, n_items)
            Similarities.

        trim : float, default=0.01
            Share of the smallest and of the largest similarities of each kind that is
            left out of the picture.

        name : str, default=None
            Name in the title.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        Returns
        -------
        display : SimilarityDistributionDisplay
        """
        relevance, similarity = np.asarray(relevance), np.asarray(similarity)
        if relevance.shape != similarity.shape:
            raise ValueError(
                "relevance and similarity must have the same shape; got "
                f"{relevance.shape} and {similarity.shape}."
            )
        matching, non_matching = similarity[relevance > 0], similarity[relevance == 0]
        return cls(matching, non_matching, trim=trim, name=name).plot(ax=ax)

    def _draw(self, ax, options):
        if len(self.matching) == 0 or len(self.non_matching) == 0:
            raise ValueError(
                "Both matching and non-matching pairs are needed, but one kind is "
                "missing."
            )
        if not np.isfinite(np.concatenate([self.matching, self.non_matching])).all():
            raise ValueError("Some similarities are NaN or infinite. Leave them out.")
        if not 0 <= self.trim < 0.5:
            raise ValueError(
                f"trim must be at least 0 and less than 0.5; got {self.trim!r}."
            )
        ax = new_axes(self, ax, figsize=(7.4, 3.8))
        groups = {"matching": self.matching, "non-matching": self.non_matching}
        ends = [
            np.quantile(values, (self.trim, 1 - self.trim))
            for values in groups.values()
        ]
        low, high = np.min(ends), np.max(ends)
        edges = np.linspace(low, high if high > low else low + 1, N_BINS + 1)
        looks = {
            "matching": {"color": COLORS[0], "alpha": 0.45},
            "non-matching": {"color": "none", "hatch": "////", "edgecolor": COLORS[1]},
        }
        shares = []
        for place, (name, values) in enumerate(groups.items()):
            share = np.histogram(values, edges)[0] / len(values)
            label = f"{name} ({len(values):,} pairs)"
            ax.stairs(share, edges, fill=True, label=label, **looks[name] | options)
            ax.stairs(share, edges, color=COLORS[place], linewidth=1.5)
            median, dash = float(np.median(values)), ("-", "--")[place]
            ax.axvline(median, color=BLACK, linestyle=dash)
            below, above = np.mean(values < edges[0]), np.mean(values > edges[-1])
            shares.append([below, *share, above])
        self.overlap_ = float(np.minimum(*shares).sum())
        ax.set(
            title=f"{self.name or 'Similarities'}: overlap {self.overlap_:.2f}",
            xlabel="Similarity (vertical lines: medians)",
            ylabel="Share of the pairs",
        )
        legend_next_to(ax, ax.get_legend_handles_labels()[0])


def _compare_some(model, X, y, rng):
    """Yield the relevance and the similarity of all items to some queries."""
    if isinstance(y, Judgements):
        check_judgements(y, num_samples(X))
        model.refuse_steps_of_queries()
        X, items = model.prepare_queries(X), model.prepare_items(y.documents)
        relevance, first = JudgedRelevance.of(y.relevance), len(y)
    else:
        relevance, first = check_relevance(y, n_samples=num_samples(X)), 0
        X, items = model.prepare_samples(X)
    compare = model.compare_with(items)
    queries = np.flatnonzero(relevance.can_query)
    n_queries = min(len(queries), max(1, MAX_PAIRS // (len(relevance) - first)))
    queries = np.sort(rng.permutation(queries)[:n_queries])
    for _, rows, relevant in relevance.batches(queries):
        yield relevant[:, first:], compare(X, rows, None)
