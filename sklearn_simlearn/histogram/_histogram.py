"""Count-pair similarity of word histograms, learned by a ranking SVM."""

from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklearn_simlearn._core.counts import CountsMixin
from sklearn_simlearn._core.encoders import Encoder, Rescaled, Sides, mix
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import Interval, StrOptions, validate_params
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._holdout import HOLDOUT, START, choose
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.histogram._histogram_fast import MAX_COUNT
from sklearn_simlearn.histogram._pattern import merge_bins
from sklearn_simlearn.histogram._solver import Solver, pose
from sklearn_simlearn.histogram._start import choose_hand_made, fit_hand_made
from sklearn_simlearn.histogram._table import (
    WeightTable,
    find_truncation,
    make_pattern,
)
from sklearn_simlearn.similarities._hand_made import HandMadeSimilarity

# Shares of the hand-made similarity that the hold-out tries.
SHARES = (0.0, 0.25, 0.5, 0.75)

# The hold-out compares rankings only, so a larger gap and fewer queries are enough.
FOLD_TOL = 1e-2
FOLD_QUERIES = 500

# Number of samples whose similarities determine the scale of the learned similarity.
N_COMPARED = 500


class Candidate(NamedTuple):
    """A candidate of the hold-out."""

    loss: str
    share: float


class HistogramRankSVM(CountsMixin, PaperFormMixin, SimilarityLearner):
    r"""Similarity of word histograms with one learned weight per pair of counts.

    The similarity [1]_ has a weight for each pair of counts, :math:`q_i` of word
    :math:`i` in the query and :math:`d_i` in the item,

    .. math::

        s(q, d) = \sum_i w_{g(i),\, \min(q_i, n),\, \min(d_i, n)},

    where :math:`g(i)` is the group of word :math:`i` by its frequency. The weights can
    express the rules of hand-made similarities, such as idf, burstiness, negative
    evidence and asymmetry. They minimise a hinge loss of irrelevant items that rank
    above relevant ones. The problem is convex; the solver reports an upper bound on the
    distance to its minimum.

    By default, held-out samples choose the share of the best hand-made similarity in
    the result, from 0 to 1. `from_paper` returns the form of the paper. The maths is in
    the :ref:`User Guide <histogram>`.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty. The loss is a mean over queries, so `alpha` does not
        depend on the number of samples.

    penalty : {"shared", "l2"}, default="shared"
        Penalty of the weights. "shared" scales the bins by their frequency and shrinks
        the weights of all groups towards a common table. "l2" is the penalty of [1]_,
        half the sum of the squared weights, which suppresses rare bins; with `n`
        queries, :math:`\lambda` of [1]_ is ``n * alpha``.

    loss : {"max", "pairwise", "auto"}, default="auto"
        Irrelevant items with which a relevant item is compared. "max" uses the
        highest-ranked one, which suits objects. "pairwise" uses each of them, as in the
        classical ranking SVM, which suits categories. "auto" lets held-out samples
        choose, and means "max" without a hold-out.

    truncation : int or "auto", default=4
        Largest count :math:`n`; larger counts become :math:`n`. "auto" is the rule
        of [1]_: the smallest :math:`n` that fewer than 10 % of the words exceed in some
        training sample.

    n_word_groups : int, default=5
        Number of groups of words. The groups have equal size, except for ties: words of
        equal document frequency share a group. With few training samples, the
        frequencies are noise, and one group is better than five.

    cross_fit : bool or "auto", default="auto"
        Whether to train on two halves of the data, each with the word frequencies of
        the other half. A word that occurs only in the samples of one object is rare
        *because* of this object. The words of new objects are not rare for this reason.
        Training in halves helps if most words are rare. Otherwise it only reduces the
        number of training pairs. "auto" trains in halves if there are at least 20
        objects and the mean number of samples per word is less than twice the mean
        number of samples per object.

    length_slope : float, default=0.3
        Slope of the length normalisation of items, from 0 to less than 1. The gains of
        an item's words are divided by
        ``1 - length_slope + length_slope * length / mean_length``: by 1 for an item of
        mean length, by ``1 + length_slope`` for an item of twice this length. The
        length is the sum of truncated counts. Without normalisation, long items rank
        too high, since they share words with any query. 0 is the model of [1]_.

    weight_pattern : array-like of shape (n + 1, n + 1) or "symmetric", default=None
        Bin of each pair of counts; rows are counts in the query, columns are counts in
        the item. Pairs in the same bin share a weight. "symmetric" uses one weight for
        the counts (j, l) and (l, j). None gives each pair its own weight.
        `search_weight_pattern` finds patterns.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of samples that are held out to choose among the hand-made similarity, the
        learned one and mixtures of both. Hold out whole classes ("objects") if future
        queries are of classes that are not in `y`, or "samples" if they are of the
        classes in `y`. None uses the learned similarity alone.

    tol : float, default=1e-3
        Duality gap, as a share of the objective, at which the solver stops.

    max_iter : int, default=200
        Largest number of passes over the training data.

    n_jobs : int, default=None
        Number of threads in `fit` and `similarity`. It does not change the result.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out.

    Attributes
    ----------
    share_ : float
        Share of the hand-made similarity: 1 if it is used alone, 0 if it is not used.

    hand_made_ : estimator or None
        The fitted hand-made similarity; None if `share_` is 0.

    loss_ : str or None
        The loss that the weights minimise; None if `share_` is 1.

    weights_ : ndarray of shape (n_word_groups, n + 1, n + 1)
        Weight by group (rarest words first), count in the query and count in the item.
        Only differences within a row change a ranking. The weight of the counts (0, 0)
        is 0. This attribute and those up to `dual_gap_` are set only if `share_` is
        below 1.

    scale_ : float
        Divisor of the learned similarity. It makes the spread over items equal to that
        of the hand-made similarity.

    word_groups_ : ndarray of shape (n_features,)
        Group of each word. Words that occur in no training sample are in the rarest
        group.

    weight_pattern_ : ndarray of shape (n + 1, n + 1)
        Bin of each pair of counts.

    truncation_ : int
        The largest count :math:`n`.

    mean_length_ : float
        Mean of the sum of truncated counts over training samples.

    objective_ : float
        Value of the objective. It is 1 if all similarities are 0.

    dual_gap_ : float
        Upper bound on the difference between the objective and its minimum.

    n_iter_ : int
        Number of passes over the training data; 1 if `share_` is 1.

    See Also
    --------
    sklearn_simlearn.similarities.AsymmetricSimilarity : Hand-made weights of the same
        kind, the strongest baseline.

    Notes
    -----
    A pass over the training data compares every query with every item, with one
    addition for every word that they share. `fit` stores up to three copies of the
    truncated counts, with five bytes per count, and six planes of
    ``n_word_groups * (n + 1) ** 2`` numbers per query.

    Encoded samples are sparse, even if `X` is dense. They consist of the columns of the
    hand-made similarity, if it is used, then `n` columns per word and two more columns.

    References
    ----------
    .. [1] D. Qin, Y. Chen, M. Guillaumin and L. Van Gool. "Learning to rank
       bag-of-word histograms for large-scale object retrieval". BMVC, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn import HistogramRankSVM
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(60), 4)
    >>> X = rng.poisson(rng.gamma(0.1, 1.0, size=(60, 200))[y] + 0.1)
    >>> model = HistogramRankSVM(n_word_groups=1, random_state=0)
    >>> model = model.fit(X[:120], y[:120])
    >>> round(model.score(X[120:], y[120:]), 2)
    0.83
    """

    _parameter_constraints: dict[str, Any] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "penalty": [StrOptions({"shared", "l2"})],
        "loss": [StrOptions({"max", "pairwise", "auto"})],
        "truncation": [
            Interval(Integral, 1, MAX_COUNT, closed="both"),
            StrOptions({"auto"}),
        ],
        "n_word_groups": [Interval(Integral, 1, None, closed="left")],
        "cross_fit": ["boolean", StrOptions({"auto"})],
        "length_slope": [Interval(Real, 0, 1, closed="left")],
        "weight_pattern": ["array-like", StrOptions({"symmetric"}), None],
        "holdout": HOLDOUT,
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    _paper_parameters = {
        "penalty": "l2",
        "loss": "max",
        "truncation": "auto",
        "n_word_groups": 5,
        "cross_fit": False,
        "length_slope": 0.0,
        "holdout": None,
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        penalty: str = "shared",
        loss: str = "auto",
        truncation: int | str = 4,
        n_word_groups: int = 5,
        cross_fit: bool | str = "auto",
        length_slope: float = 0.3,
        weight_pattern: ArrayLike | str | None = None,
        holdout: str | None = "auto",
        tol: float = 1e-3,
        max_iter: int = 200,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.alpha = alpha
        self.penalty = penalty
        self.loss = loss
        self.truncation = truncation
        self.n_word_groups = n_word_groups
        self.cross_fit = cross_fit
        self.length_slope = length_slope
        self.weight_pattern = weight_pattern
        self.holdout = holdout
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    @validate_params(
        {
            "n_bins": [Interval(Integral, 2, None, closed="left")],
            "cv": ["cv_object"],
        },
        prefer_skip_nested_validation=True,
    )
    def search_weight_pattern(
        self, X: MatrixLike, y: TargetLike, *, n_bins: int, cv: Any = None
    ) -> list[tuple[float, np.ndarray]]:
        """Merge pairs of counts greedily until `n_bins` bins are left.

        Each step merges two adjacent bins: those after whose merger the learned
        similarity has the highest mean average precision. The search needs an integer
        `truncation`, starts from `weight_pattern`, and learns without a hold-out. It
        does not change the estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels or a relevance matrix, as for `fit`.

        n_bins : int
            Number of bins at which to stop.

        cv : int, cross-validation generator or iterable, default=None
            Folds for the evaluation of a merger. An int is the number of folds of an
            :class:`~sklearn_simlearn.model_selection.ObjectKFold`. None evaluates on
            the training data.

        Returns
        -------
        history : list of tuple (float, ndarray of shape (n + 1, n + 1))
            Mean average precision and pattern after each merger. The first entry is the
            initial pattern. Each pattern is a valid `weight_pattern`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_simlearn import HistogramRankSVM
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(np.arange(20), 3)
        >>> X = rng.poisson(rng.gamma(0.1, 1.0, size=(20, 100))[y] + 0.1)
        >>> learner = HistogramRankSVM(truncation=1, n_word_groups=1)
        >>> history = learner.search_weight_pattern(X, y, n_bins=2)
        >>> history[-1][1]
        array([[0, 0],
               [0, 1]])
        """
        return merge_bins(self, X, y, n_bins, cv)

    def _learn(
        self, X: Matrix, relevance: Relevance, advance: Callable[..., bool]
    ) -> dict[str, Any]:
        is_auto = isinstance(self.truncation, str)  # the only valid string
        n = find_truncation(X) if is_auto else int(self.truncation)
        pattern = make_pattern(self.weight_pattern, n)

        # From here on, the inputs are valid. Kernels do not check them.
        if self.holdout is None:
            candidate = Candidate("max" if self.loss == "auto" else self.loss, 0.0)
            return self._learn_weights(X, relevance, pattern, candidate, None, advance)

        rng = make_generator(self.random_state)
        hand_made = choose_hand_made(X, relevance, n, rng)
        path = partial(self._path, X, relevance, pattern, hand_made)
        choice = choose(path, X, relevance, self.holdout, rng, advance)
        hand_made = fit_hand_made(hand_made, relevance.items_of(X))
        if choice.candidate is not START:
            learned = self._learn_weights(
                X, relevance, pattern, choice.candidate, hand_made, advance
            )
            if learned["weights_"].any():
                return learned | choice.attributes
        return {
            "encoder_": hand_made.encoder_,
            "hand_made_": hand_made,
            "share_": 1.0,
            "loss_": None,
            "n_iter_": 1,  # scikit-learn requires at least one
            **choice.attributes,
        }

    def _path(
        self,
        X: Matrix,
        relevance: Relevance,
        pattern: np.ndarray,
        hand_made: HandMadeSimilarity,
        train: np.ndarray,
        rng: np.random.Generator,
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows."""
        X, relevance = X[train], relevance.take(train)
        hand_made = fit_hand_made(hand_made, relevance.items_of(X))
        start = hand_made.encoder_
        yield START, start
        order = rng.permutation(np.flatnonzero(relevance.find_queries()))
        for loss in ("max", "pairwise") if self.loss == "auto" else (self.loss,):
            queries = order[:FOLD_QUERIES]
            solver = self._pose(X, relevance, queries, pattern, loss)
            solver.solve(FOLD_TOL, self.max_iter)
            # The objective is 1 for weights of 0. Differences below the tolerance may
            # be due to the gap.
            if solver.objective > 1 - FOLD_TOL:
                continue
            _, _, learned = self._encode(solver, start, X)
            for share in SHARES:
                yield Candidate(loss, share), mix(learned, start, share)

    def _learn_weights(
        self,
        X: Matrix,
        relevance: Relevance,
        pattern: np.ndarray,
        candidate: Candidate,
        hand_made: HandMadeSimilarity | None,
        advance: Callable[..., bool],
    ) -> dict[str, Any]:
        """Return the fitted attributes, with weights learned from all samples."""
        queries = np.flatnonzero(relevance.find_queries())
        solver = self._pose(X, relevance, queries, pattern, candidate.loss)

        def describe() -> dict[str, Any]:
            start = None if hand_made is None else hand_made.encoder_
            table, scale, encoder = self._encode(solver, start, X)
            if start is not None:
                encoder = mix(encoder, start, candidate.share)
            return {
                "encoder_": encoder,
                "share_": candidate.share,
                "hand_made_": hand_made if candidate.share > 0 else None,
                "scale_": scale,
                "loss_": candidate.loss,
                "weights_": table.weights,
                "word_groups_": table.word_groups,
                "weight_pattern_": pattern,
                "truncation_": len(pattern) - 1,
                "mean_length_": table.mean_length,
                "objective_": solver.objective,
                "dual_gap_": max(solver.objective - solver.bound, 0.0),
                "n_iter_": solver.n_iter,
            }

        tol, report = self.tol, partial(advance, "pass", describe)
        if not solver.solve(tol, self.max_iter, report):
            warn_user(
                f"The duality gap is {solver.gap:.2g} of the objective after "
                f"max_iter={self.max_iter} passes, above tol={tol}. Increase "
                "max_iter, tol or alpha.",
                ConvergenceWarning,
            )
        elif self.holdout is None and not solver.best.any() and solver.is_done(tol):
            warn_user(
                "No weights are better than 0, so every similarity is 0: with "
                f'loss="{candidate.loss}", no weights rank relevant items above '
                "irrelevant ones often enough. Set holdout to use a hand-made "
                "similarity in this case."
            )
        return describe()

    def _pose(
        self,
        X: Matrix,
        relevance: Relevance,
        queries: np.ndarray,
        pattern: np.ndarray,
        loss: str,
    ) -> Solver:
        return pose(
            X,
            relevance,
            queries,
            pattern,
            n_word_groups=self.n_word_groups,
            alpha=self.alpha,
            penalty=self.penalty,
            loss=loss,
            cross_fit=self.cross_fit,
            length_slope=self.length_slope,
            n_threads=count_threads(self.n_jobs),
        )

    def _encode(
        self, solver: Solver, start: Encoder | None, X: Matrix
    ) -> tuple[WeightTable, float, Encoder]:
        """Return the table, its scale, and its encoder with the spread of the start."""
        problem = solver.problem
        table = WeightTable(
            solver.weights(),
            problem.word_groups,
            problem.mean_length,
            self.length_slope,
        )
        if start is None:
            return table, 1.0, table
        scale = find_scale(table, start, X)
        return table, scale, Rescaled(table, 1 / scale)

    def _check_rows(self, X: MatrixLike, *, reset: bool = False) -> sparse.csr_array:
        return canonical_csr(super()._check_rows(X, reset=reset))


def find_scale(learned: Encoder, start: Encoder, X: Matrix) -> float:
    """Return the ratio of the spreads of the two similarities: (histogram-scale)."""
    X = X[np.linspace(0, X.shape[0] - 1, min(N_COMPARED, X.shape[0])).astype(int)]
    sides = Sides(X, X)
    spread = _find_spread(sides.similarity(learned))
    start_spread = _find_spread(sides.similarity(start))
    return spread / start_spread if spread > 0 and start_spread > 0 else 1.0


def _find_spread(S: np.ndarray) -> float:
    """Return the standard deviation over all items except the query."""
    others = S[~np.eye(len(S), dtype=bool)].reshape(len(S), -1)
    return float(np.sqrt(others.var(axis=1, dtype=np.float64).mean()))
