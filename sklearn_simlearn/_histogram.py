"""Count-pair similarity of word histograms, learned by a ranking SVM."""

import warnings
from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from sklearn_simlearn._counts import check_counts
from sklearn_simlearn._histogram_fast import (
    MAX_COUNT,
    ascend,
    count_words,
    fill_postings,
    find_cuts,
    score_queries,
)
from sklearn_simlearn._relevance import DISTRACTOR, check_relevance
from sklearn_simlearn.base import SimilarityMixin, all_or_nothing, open_context
from sklearn_simlearn.metrics import average_precision
from sklearn_simlearn.metrics._scorer import check_query_mask
from sklearn_simlearn.model_selection import ObjectKFold

TOP, PAIRS = 0, 1

# (histogram-prior)  How far the own weight of a bin may stray, and the shared part.
RARE_BIN = 0.1
SHARED_SCALE = 3.0


class HistogramRankSVM(SimilarityMixin, CallbackSupportMixin, BaseEstimator):
    r"""Similarity of word histograms with one learned weight a pair of counts.

    For a word that the query shows :math:`q_i` times and the item :math:`d_i` times
    the similarity [1]_ has a weight of its own,

    .. math::

        s(q, d) = \sum_i w_{g(i),\, \min(q_i, n),\, \min(d_i, n)},

    where :math:`g(i)` is the group of word :math:`i` by its frequency. So it can learn
    what hand-made similarities prescribe: idf, burstiness, negative evidence,
    asymmetry. The words of long items can be made to count for less. The weights
    minimise how far irrelevant items reach above relevant ones; the problem is convex
    and solved up to a certified gap. Scores come from an inverted file. The maths is in
    the :ref:`User Guide <histogram>`.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation. Losses are means and bins are scaled, so the same value serves
        small and large data.

    loss : {"max", "topk", "pairwise"}, default="max"
        What a relevant item is held against: the highest-ranked irrelevant item; the
        mean of the `top_k` highest; or every irrelevant item on its own, which is the
        classical ranking SVM. Where some irrelevant item always ranks high, as among
        categories rather than objects, "max" can only give up, which a warning reports:
        take "pairwise", or "topk" with a large `top_k`.

    top_k : int, default=10
        Number of irrelevant items for ``loss="topk"``.

    truncation : int or "auto", default=4
        Largest count :math:`n`; larger ones are taken as :math:`n`. "auto" takes the
        smallest for which fewer than 10 % of the non-zero counts are larger.

    n_word_groups : int, default=5
        Number of groups of words. They are of even size but for ties: words of equal
        document frequency share a group. With few training samples the frequencies are
        noise, and one group is better than five.

    cross_fit : bool or "auto", default="auto"
        Whether to train in two halves, each with the frequencies of the other. A word
        that only the samples of one object have is rare *because* they have it; among
        new objects rarity does not come with a match. That matters where words are rare
        and costs pairs to train on where they are not. "auto" does it if there are at
        least 20 objects and a word is in fewer than twice as many samples as an object
        has, on average.

    length_slope : float, default=0.0
        Slope of the length normalisation of items, below 1. What the words of an item
        add to the similarity is divided by 1 for an item of mean length and by this
        much more for one twice as long; the length is the sum of truncated counts. Long
        items share words with any query: where lengths vary a lot, 0.3 is better than
        none, which is 0.

    n_weight_bins : int, default=None
        Number of weights a group has. Adjacent pairs of counts are merged greedily into
        that many bins, the same for all groups, by the mean average precision they
        give. None leaves a weight to each pair of counts.

    symmetric : bool, default=False
        Use one weight for the counts (j, l) and (l, j).

    weight_pattern : array-like of shape (n + 1, n + 1), default=None
        Bin of each pair of counts, the query's along the rows. Equal entries share a
        weight. It takes the place of the search.

    pattern_cv : int or cross-validation splitter, default=None
        Judge a merger by cross-validation rather than on the training data. An int is
        the number of folds of a :class:`~sklearn_simlearn.model_selection.ObjectKFold`.

    tol : float, default=1e-3
        Largest duality gap, as a share of the objective, at which the solver stops.

    max_iter : int, default=200
        Largest number of passes over the training data.

    n_jobs : int, default=None
        Threads over the queries, in `fit` and in `similarity`. The result does not
        depend on it.

    Attributes
    ----------
    weights_ : ndarray of shape (n_word_groups, n + 1, n + 1)
        Weights by group, rarest words first, by count in the query and by count in the
        item. Only differences within a row matter to a ranking; those of (0, 0) are 0.

    word_groups_ : ndarray of shape (n_features,)
        Group of each word. Words that no training sample has are with the rarest.

    weight_pattern_ : ndarray of shape (n + 1, n + 1)
        Bin of each pair of counts.

    truncation_ : int
        The largest count :math:`n`.

    mean_length_ : float
        Mean sum of truncated counts of a training sample.

    objective_ : float
        Value of the objective. It is 1 for a similarity that is 0 throughout.

    dual_gap_ : float
        Bound on how much lower the objective could be.

    n_iter_ : int
        Passes over the training data.

    pattern_history_ : list of tuple (float, ndarray of shape (n + 1, n + 1))
        Mean average precision and pattern after each merger, the pattern it began with
        first. Only if the pattern was searched for.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn_simlearn.similarities.AsymmetricSimilarity : Hand-made weights of the same
        kind, the closest competitor.
    sklearn_simlearn.similarities.BurstinessSimilarity : Hand-made, with idf.

    Notes
    -----
    A pass over the training data costs as much as scoring every query by the inverted
    file: one addition for every word that a query and an item have in common. Memory is
    up to three copies of the truncated counts, at five bytes each, and six planes of
    ``n_word_groups * (n + 1) ** 2`` numbers a query.

    The encodings have `n` columns a word and two more; they are sparse for dense `X`
    too. `similarity` does without them. Their product equals it to the last bit, or up
    to rounding with a `length_slope`.

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
    >>> model = HistogramRankSVM(n_word_groups=1).fit(X[:120], y[:120])
    >>> round(model.score(X[120:], y[120:]), 2)
    0.85
    """

    _parameter_constraints: dict = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "loss": [StrOptions({"max", "topk", "pairwise"})],
        "top_k": [Interval(Integral, 1, None, closed="left")],
        "truncation": [
            Interval(Integral, 1, MAX_COUNT, closed="both"),
            StrOptions({"auto"}),
        ],
        "n_word_groups": [Interval(Integral, 1, None, closed="left")],
        "cross_fit": ["boolean", StrOptions({"auto"})],
        "length_slope": [Interval(Real, 0, 1, closed="left")],
        "n_weight_bins": [Interval(Integral, 2, None, closed="left"), None],
        "symmetric": ["boolean"],
        "weight_pattern": ["array-like", None],
        "pattern_cv": ["cv_object"],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        alpha=1.0,
        *,
        loss="max",
        top_k=10,
        truncation=4,
        n_word_groups=5,
        cross_fit="auto",
        length_slope=0.0,
        n_weight_bins=None,
        symmetric=False,
        weight_pattern=None,
        pattern_cv=None,
        tol=1e-3,
        max_iter=200,
        n_jobs=None,
    ):
        self.alpha = alpha
        self.loss = loss
        self.top_k = top_k
        self.truncation = truncation
        self.n_word_groups = n_word_groups
        self.cross_fit = cross_fit
        self.length_slope = length_slope
        self.n_weight_bins = n_weight_bins
        self.symmetric = symmetric
        self.weight_pattern = weight_pattern
        self.pattern_cv = pattern_cv
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X, y, *, query_mask=None):
        """Learn the weights.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Counts: non-negative integers, of any numeric type.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive where a sample is relevant (its weight), negative where it is junk.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query the others; all that are relevant to something if None.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
        )
        check_counts(X, type(self).__name__)
        relevance = check_relevance(y, n_samples=X.shape[0])
        if query_mask is not None:
            query_mask = check_query_mask(query_mask, X.shape[0])
        is_query = relevance.find_queries(query_mask)
        if not is_query.any():
            raise ValueError(
                "y must give some sample a relevant one and an irrelevant one to rank; "
                "none that may query has both."
            )
        truncation, pattern = self._check_pattern(X)

        # From here on the inputs are sound: kernels check nothing.
        rows = _truncate(X, truncation)
        problem = self._pose(rows, relevance, is_query, truncation + 1)
        context, advance = open_context(self, X, y)
        attributes = {
            "truncation_": truncation,
            "mean_length_": _mean_length(rows),
            "word_groups_": self._group(rows[1]),
            "_n_features_out": X.shape[1] * truncation + 2,
        }
        if pattern is None:
            folds = [(problem, problem)]
            if self.pattern_cv is not None:
                folds = self._pose_folds(
                    X, y, rows, relevance, is_query, truncation + 1
                )
            finest = _finest_pattern(truncation, self.symmetric)
            history = self._search_pattern(folds, finest, advance)
            pattern, attributes["pattern_history_"] = history[-1][1], history
        solver = _Solver(problem, pattern, self.alpha)

        def describe():
            return attributes | {
                "weights_": solver.weights(),
                "weight_pattern_": pattern,
                "objective_": solver.objective,
                "dual_gap_": max(solver.objective - solver.bound, 0.0),
                "n_iter_": solver.n_iter,
            }

        stop = False
        while not (stop or solver.done(self.tol)) and solver.n_iter < self.max_iter:
            stop = advance("pass", lambda: solver.iterate(self.tol), describe)
        if not (stop or solver.done(self.tol)):
            warnings.warn(
                f"The duality gap is {solver.gap:.2g} of the objective after "
                f"max_iter={self.max_iter} passes, above tol={self.tol}. Raise either, "
                "or alpha.",
                ConvergenceWarning,
                stacklevel=5,
            )
        elif not (stop or solver.best.any()):
            remedy = {
                "max": 'loss="pairwise", or loss="topk" with a large top_k',
                "topk": 'loss="pairwise" or a larger top_k',
                "pairwise": "other labels or other features",
            }[self.loss]
            warnings.warn(
                "No weights are better than 0 throughout: the irrelevant items that "
                f'loss="{self.loss}" holds against the relevant ones cannot be told '
                f"from them. Every similarity is 0. Try {remedy}.",
                stacklevel=5,
            )
        vars(self).pop("pattern_history_", None)
        for name, value in describe().items():
            setattr(self, name, value)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=describe
        )
        return self

    def _compare(self, X, Y):
        """By the inverted file of the items."""
        queries, items = (_truncate(rows, self.truncation_) for rows in (X, Y))
        S = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype)
        score_queries(
            *queries,
            *_invert(items, X.shape[1]),
            self.word_groups_,
            _gains(self.weights_).astype(X.dtype, order="C", copy=False),
            self._alone(items, self.weights_[:, 0, :], X.dtype),
            self._alone(queries, self.weights_[:, :, 0], X.dtype),
            self._scale(items, self.mean_length_).astype(X.dtype),
            min(effective_n_jobs(self.n_jobs), X.shape[0]),
            S,
        )
        return S

    def _encode_queries(self, X):
        # Per word of the query, its gain with each count 1 to n of an item.
        n = self.truncation_
        indptr, words, counts = _truncate(X, n)
        gain = _gains(self.weights_)[self.word_groups_[words], counts, 1:]
        alone = self._alone((indptr, words, counts), self.weights_[:, :, 0], X.dtype)
        columns = words[:, None] * np.int64(n) + np.arange(n)
        return self._assemble(
            gain.ravel(), columns.ravel(), indptr * n, np.ones_like(alone), alone
        )

    def _encode_items(self, X):
        n = self.truncation_
        indptr, words, counts = _truncate(X, n)
        alone = self._alone((indptr, words, counts), self.weights_[:, 0, :], X.dtype)
        columns = words * np.int64(n) + counts - 1
        scale = self._scale((indptr, words, counts), self.mean_length_)
        scale = scale.astype(X.dtype)
        data = np.repeat(scale, np.diff(indptr))
        return self._assemble(data, columns, indptr, scale * alone, np.ones_like(alone))

    def _assemble(self, data, columns, indptr, *more):
        """CSR rows with some more columns, of the dtype of those."""
        dtype = more[0].dtype
        shape = (len(indptr) - 1, self.n_features_in_ * self.truncation_)
        rows = sparse.csr_array((data.astype(dtype), columns, indptr), shape=shape)
        more = sparse.csr_array(np.column_stack(more))
        return sparse.hstack([rows, more], format="csr")

    def _alone(self, rows, weights, dtype):
        """s(q, 0) or s(0, d): each row against one without any word."""
        indptr, words, counts = rows
        weights = weights[self.word_groups_[words], counts].astype(dtype)
        shape = (len(indptr) - 1, self.n_features_in_)
        rows = sparse.csr_array((weights, words, indptr), shape=shape)
        return np.asarray(rows.sum(axis=1), dtype=dtype)

    def _scale(self, rows, mean_length):
        """(histogram-length)  Factor of each item."""
        length = _lengths(rows) / (mean_length or 1.0)
        return 1 / (1 - self.length_slope + self.length_slope * length)

    def _validate_rows(self, X):
        X = super()._validate_rows(X)
        check_counts(X, type(self).__name__)
        return X

    def _check_pattern(self, X):
        """The largest count, and the bins of the pairs if they are known beforehand."""
        n = self.truncation
        if n == "auto":
            n = _find_truncation(X.data if sparse.issparse(X) else X)
        if self.weight_pattern is None:
            n_bins = (n + 1) * (n + 2) // 2 if self.symmetric else (n + 1) ** 2
            search = self.n_weight_bins is not None and self.n_weight_bins < n_bins
            return n, None if search else _finest_pattern(n, self.symmetric)
        pattern = np.asarray(self.weight_pattern)
        if pattern.shape != (n + 1, n + 1):
            raise ValueError(
                f"weight_pattern must have shape ({n + 1}, {n + 1}) for truncation "
                f"{n}; got {pattern.shape}."
            )
        if self.symmetric and not np.array_equal(pattern, pattern.T):
            raise ValueError("symmetric=True needs a symmetric weight_pattern.")
        bins, pattern = np.unique(pattern, return_inverse=True)
        if len(bins) < 2:
            raise ValueError("weight_pattern has a single bin: nothing to learn.")
        return n, pattern.reshape(n + 1, n + 1)

    def _group(self, words):
        """Groups of words by how many rows have them."""
        frequency = np.bincount(words, minlength=self.n_features_in_)
        return _group_words(frequency, self.n_word_groups)

    def _pose(self, rows, relevance, is_query, n_counts, group=None, mean_length=None):
        """The problem of these rows.

        The groups of the words and the mean length are those of the rows unless given.
        """
        everyone = np.arange(len(relevance))
        scale = self._scale(rows, mean_length or _mean_length(rows))
        if group is not None:
            parts = [(everyone, group)]
        elif self._does_cross_fit(rows[1], relevance):
            half = _halve(relevance)
            parts = [
                (everyone[own], self._group(_take_rows(rows, everyone[~own])[1]))
                for own in (half, ~half)
            ]
        else:
            parts = [(everyone, self._group(rows[1]))]
        searches = []
        for some, group_of_part in parts:
            part = relevance.take(some)
            queries = np.flatnonzero(part.find_queries(is_query[some]))
            if len(queries):
                searches.append(
                    _Search(
                        rows if len(parts) == 1 else _take_rows(rows, some),
                        group_of_part,
                        part,
                        queries,
                        scale[some],
                        (self.n_word_groups, n_counts, n_counts),
                        effective_n_jobs(self.n_jobs),
                    )
                )
        if not searches:
            raise ValueError(
                "y has too few objects for two halves with relevant and irrelevant "
                "items in each. Set cross_fit=False."
            )
        loss = PAIRS if self.loss == "pairwise" else TOP
        return _Problem(searches, loss, self.top_k if self.loss == "topk" else 1)

    def _does_cross_fit(self, words, relevance):
        if self.cross_fit != "auto":
            return self.cross_fit
        objects = relevance.objects()
        n_objects = objects.max() + 1
        if self.n_word_groups == 1 or n_objects < 20:
            return False
        mean_frequency = len(words) / len(np.unique(words))
        return mean_frequency < 2 * np.count_nonzero(objects >= 0) / n_objects

    def _pose_folds(self, X, y, rows, relevance, is_query, n_counts):
        """A problem to solve and one to judge the solution by, for each fold."""
        cv = self.pattern_cv
        cv = ObjectKFold(cv) if isinstance(cv, Integral) else check_cv(cv)
        folds = []
        for train, test in cv.split(X, y):
            parts = []
            for some in (train, test):
                part = relevance.take(some)
                queries = part.find_queries(is_query[some])
                if not queries.any():
                    raise ValueError(
                        "y leaves a fold of pattern_cv without a query that has "
                        "relevant and irrelevant items. Use fewer folds."
                    )
                parts.append((_take_rows(rows, some), part, queries, n_counts))
            rows_of_fold = parts[0][0]
            of_fold = self._group(rows_of_fold[1]), _mean_length(rows_of_fold)
            folds.append((self._pose(*parts[0]), self._pose(*parts[1], *of_fold)))
        return folds

    def _search_pattern(self, folds, pattern, advance):
        """Merge bins one by one, each time the two that leave the best ranking."""

        def judge(pattern):
            values = [
                test.average_precision(self._solve(train, pattern).gain())
                for train, test in folds
            ]
            return float(np.mean(values))

        history = [(judge(pattern), pattern)]

        def merge():
            candidates = list(_mergers(history[-1][1]))
            values = [judge(candidate) for candidate in candidates]
            best = int(np.argmax(values))
            history.append((values[best], candidates[best]))

        stop = False
        while not stop and history[-1][1].max() >= self.n_weight_bins:
            stop = advance("merger", merge)
        return history

    def _solve(self, problem, pattern):
        solver = _Solver(problem, pattern, self.alpha)
        while not solver.done(self.tol) and solver.n_iter < self.max_iter:
            solver.iterate(self.tol)
        return solver

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # integers, in scikit-learn's vocabulary
        return tags


class _Search:
    """Queries, the items they search and which of those are relevant.

    Parameters
    ----------
    rows : tuple of ndarray
        The items: indptr, words, truncated counts.

    group : ndarray of shape (n_words,)
        Group of each word.

    relevance : Relevance
        Of the items to each other.

    queries : ndarray
        Items that query the others.

    scale : ndarray of shape (n_items,)
        What the words of each item are multiplied by.

    shape : tuple (n_groups, n_counts, n_counts)
        Shape of the gains.
    """

    def __init__(self, rows, group, relevance, queries, scale, shape, n_threads):
        self.rows = rows
        self.file = _invert(rows, len(group))
        self.group = group
        self.relevance = relevance
        self.queries = queries
        self.scale = scale
        self.shape = shape
        self.n_threads = n_threads
        self.totals = np.zeros((len(relevance), *shape[:2]), dtype=np.int32)
        count_words(*rows, group, self.totals)

    def count_pairs(self):
        """Pairs of a relevant item, by its weight, and an irrelevant one."""
        n_pairs = np.empty(len(self.queries))
        for batch, _, relevant in self.relevance.search(self.queries):
            weight = np.maximum(relevant, 0).sum(axis=1, dtype=np.float64)
            n_pairs[batch] = weight * np.count_nonzero(relevant == 0, axis=1)
        return n_pairs

    def cut(self, gain, loss, top_k):
        """Loss of each query at these gains, and the plane that supports it there."""
        n_queries = len(self.queries)
        value, offset = np.empty((2, n_queries))
        cuts = np.zeros((n_queries, *self.shape))
        of_item = self._score_alone(gain)
        for batch, rows, relevant in self.relevance.search(self.queries):
            find_cuts(
                rows,
                relevant,
                *self.rows,
                *self.file,
                self.group,
                self.totals,
                gain,
                of_item,
                self.scale,
                loss,
                top_k,
                min(self.n_threads, len(rows)),
                value[batch],
                offset[batch],
                cuts[batch],
            )
        return value, offset, cuts

    def average_precision(self, gain):
        """Average precision of each query."""
        of_item = self._score_alone(gain)
        values = []
        for _, rows, relevant in self.relevance.search(self.queries):
            S = np.empty(relevant.shape)
            score_queries(
                *_take_rows(self.rows, rows),
                *self.file,
                self.group,
                gain,
                of_item,
                np.zeros(len(rows)),
                self.scale,
                min(self.n_threads, len(rows)),
                S,
            )
            values.append(average_precision(relevant, S, n_jobs=self.n_threads))
        return np.concatenate(values)

    def _score_alone(self, gain):
        """s(0, d)"""
        return np.einsum("igl,gl->i", self.totals, gain[:, 0])


class _Problem:
    """What the losses of all queries are, whatever the regularisation.

    Attributes
    ----------
    capacity : ndarray of shape (n_queries,)
        Weight of each query: an even share, but with the pairwise loss by its pairs.

    mean_difference : ndarray of shape (n_queries, n_groups, n_counts, n_counts)
        How irrelevant and relevant items differ on average, which sets the scale of the
        bins. It is the slope of the pairwise loss at weights of 0.
    """

    def __init__(self, searches, loss, top_k):
        self.searches = searches
        self.loss = loss
        self.top_k = top_k
        self.n_queries = sum(len(search.queries) for search in searches)
        self.capacity = np.full(self.n_queries, 1 / self.n_queries)
        if loss == PAIRS:
            n_pairs = np.concatenate([search.count_pairs() for search in searches])
            self.capacity = n_pairs / n_pairs.sum()
        zero = np.zeros(searches[0].shape)
        slopes = [search.cut(zero, PAIRS, 1)[2] for search in searches]
        self.mean_difference = np.concatenate(slopes)

    def cut(self, gain):
        """Losses at these gains, and offsets and slopes of the planes there."""
        parts = [search.cut(gain, self.loss, self.top_k) for search in self.searches]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def average_precision(self, gain):
        """Mean over the queries."""
        values = [search.average_precision(gain) for search in self.searches]
        return np.concatenate(values).mean()


class _Solver:
    r"""Bundle method, one bundle of planes a query, on

    .. math:: \min_\theta \tfrac{\alpha}{2} \lVert \theta \rVert^2
              + \sum_q c_q\, \ell_q(T \theta) .

    The planes of a query never exceed its loss, so the minimum of the problem with
    planes instead of losses is a lower bound: `bound`.
    """

    n_slots = 6

    def __init__(self, problem, pattern, alpha):
        self.problem = problem
        self.pattern = pattern
        self.alpha = alpha
        self.to_bins, self.to_gain = _parametrise(problem.mean_difference, pattern)
        n_queries, n_parameters = problem.n_queries, self.to_gain.shape[1]
        self.planes = np.zeros((n_queries, self.n_slots, n_parameters))
        self.offsets = np.full((n_queries, self.n_slots), -np.inf)
        self.mass = np.zeros((n_queries, self.n_slots))
        self.theta = self.best = np.zeros(n_parameters)
        self.objective, self.bound = np.inf, 0.0
        self.n_iter = 0

    @property
    def gap(self):
        """Share of the objective that is not certified."""
        if self.objective == np.inf:
            return np.inf
        return (self.objective - self.bound) / self.objective

    def done(self, tol):
        """Whether the gap is small; weights of 0 need a better reason than others."""
        return self.gap <= (tol if self.best.any() else 1e-2 * tol)

    def gain(self):
        """Gains of the best weights so far."""
        return self._gain(self.best)

    def _gain(self, theta):
        n_counts = len(self.pattern)
        return (self.to_gain @ theta).reshape(-1, n_counts, n_counts)

    def weights(self):
        """The best weights so far, those of the counts (0, 0) being 0."""
        n_bins = self.pattern.max() + 1
        of_bin = (self.to_bins @ self.best).reshape(-1, n_bins)
        return np.ascontiguousarray(of_bin[:, self.pattern])

    def iterate(self, tol):
        """Cut at the current point, then go towards the minimum of the planes."""
        value, offset, cuts = self.problem.cut(self._gain(self.theta))
        objective = self._penalty(self.theta) + self.problem.capacity @ value
        if objective < self.objective:
            self.objective, self.best = objective, self.theta
        self.n_iter += 1
        if self.done(tol):
            return
        self._add(cuts.reshape(len(cuts), -1) @ self.to_gain, offset)
        # An inexact minimum will do while the gap is wide.
        minimum = np.empty_like(self.theta)
        for _ in range(1000):
            dual, primal = ascend(
                self.planes,
                self.offsets,
                self.mass,
                self.problem.capacity,
                self.alpha,
                minimum,
                20,
            )
            self.bound = max(self.bound, dual)
            if self.done(tol) or primal - dual <= 0.1 * (self.objective - dual):
                break
        # The minimum of the planes overshoots where they are few: go half the way.
        self.theta = (self.best + minimum) / 2

    def _add(self, planes, offset):
        """Put a plane a query into an empty slot, or that of the least mass.

        Mass that sits there is kept, by merging that plane and the next into one: their
        mean, by mass, lies below the loss as they do and leaves the dual as it was.
        """
        query = np.arange(len(planes))
        vacant = np.where(np.isneginf(self.offsets), -1.0, self.mass)
        slot, other = np.argsort(vacant, axis=1, kind="stable")[:, :2].T
        full = np.flatnonzero(vacant[query, slot] > 0)
        a, b = (full, slot[full]), (full, other[full])
        total = self.mass[a] + self.mass[b]
        part = self.mass[a] / total
        self.planes[b] += part[:, None] * (self.planes[a] - self.planes[b])
        self.offsets[b] += part * (self.offsets[a] - self.offsets[b])
        self.mass[b] = total
        self.planes[query, slot] = planes
        self.offsets[query, slot] = offset
        self.mass[query, slot] = 0

    def _penalty(self, theta):
        return self.alpha / 2 * theta @ theta


def _parametrise(mean_difference, pattern):
    """Linear maps from the parameters to the weights of the bins and to the gains.

    (histogram-prior)  A weight is the sum of one of its own and of a part that all
    groups share, a combination of min(j, l) and j + l. The weight of the bin of (0, 0)
    is 0. A bin is scaled by how far relevant and irrelevant items differ in it; one
    that is rare against the words which both have once is not blown up.
    """
    n_queries, n_groups = mean_difference.shape[:2]
    n_bins = pattern.max() + 1
    is_bin = (pattern == np.arange(n_bins)[:, None, None]).astype(np.float64)
    to_gain = _gains(is_bin).reshape(n_bins, -1).T
    difference = mean_difference.reshape(n_queries, n_groups, -1) @ to_gain
    scale = np.sqrt(np.mean(difference**2, axis=0))
    reference = scale[:, pattern[1, 1]].max() or scale.max() or 1.0
    scale = np.maximum(scale, RARE_BIN * reference)

    query, item = np.indices(pattern.shape)
    shared = np.stack([np.minimum(query, item), query + item])
    shared = np.tensordot(shared, is_bin, axes=([1, 2], [1, 2]))
    shared /= is_bin.sum(axis=(1, 2))
    shared -= shared[:, pattern[0, 0], None]
    shared *= SHARED_SCALE / scale.max()

    free = np.tile(np.arange(n_bins) != pattern[0, 0], n_groups)
    own = np.diag(1 / scale.ravel())[:, free]
    to_bins = np.hstack([own, np.tile(shared, n_groups).T])
    return to_bins, np.kron(np.eye(n_groups), to_gain) @ to_bins


def _gains(weights):
    """(histogram-gain)  What a pair of counts adds to what each adds alone."""
    gain = weights - weights[:, :1, :] - weights[:, :, :1] + weights[:, :1, :1]
    gain[:, 0] = weights[:, 0] - weights[:, 0, :1]
    return gain


def _truncate(X, n):
    """Rows of positive counts up to n: indptr, words, counts."""
    X = sparse.csr_array(X)
    if not X.has_canonical_format or (X.data == 0).any():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return (
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        np.minimum(X.data, n).astype(np.uint8),
    )


def _lengths(rows):
    """Sum of truncated counts of each row."""
    indptr, _, counts = rows
    lengths = np.zeros(len(indptr) - 1, dtype=np.int64)
    occupied = np.flatnonzero(np.diff(indptr))
    lengths[occupied] = np.add.reduceat(counts, indptr[occupied], dtype=np.int64)
    return lengths


def _mean_length(rows):
    return float(_lengths(rows).mean())


def _invert(rows, n_words):
    """Inverted file: where the postings of each word begin, and the postings."""
    indptr, words, counts = rows
    start = np.zeros(n_words + 1, dtype=np.int64)
    frequency = np.bincount(words, minlength=n_words)
    start[1:] = np.cumsum(frequency) - frequency
    postings = np.empty(len(words), dtype=np.uint32)
    fill_postings(indptr, words, counts, start, postings)
    return start, postings


def _group_words(frequency, n_groups):
    """Groups of words with similar document frequencies, the rarest first."""
    seen = np.sort(frequency[frequency > 0])
    # With no word at all, every one is in the first group.
    edges = seen[len(seen) * np.arange(1, n_groups) // n_groups] if len(seen) else []
    return np.searchsorted(edges, frequency).astype(np.int32)


def _find_truncation(counts):
    """Smallest n that fewer than 10 % of the non-zero counts exceed."""
    counts = counts[counts > 0]
    for n in range(1, MAX_COUNT):
        if np.count_nonzero(counts > n) < 0.1 * len(counts):
            return n
    return MAX_COUNT if len(counts) else 1


def _finest_pattern(n, symmetric):
    """A bin for each pair of counts, or for both orders of a pair."""
    query, item = np.indices((n + 1, n + 1))
    if symmetric:
        query, item = np.minimum(query, item), np.maximum(query, item)
    _, pattern = np.unique(query * (n + 1) + item, return_inverse=True)
    return pattern.reshape(n + 1, n + 1)


def _mergers(pattern):
    """Every pattern with two adjacent bins of this one made one."""
    pairs = np.concatenate(
        [
            np.column_stack([pattern[:-1].ravel(), pattern[1:].ravel()]),
            np.column_stack([pattern[:, :-1].ravel(), pattern[:, 1:].ravel()]),
        ]
    )
    for low, high in np.unique(np.sort(pairs, axis=1), axis=0):
        if low < high:
            merged = np.where(pattern == high, low, pattern)
            yield merged - (merged > high)


def _halve(relevance):
    """Mask of every other object and every other distractor."""
    objects = relevance.objects()
    half = objects % 2 == 0
    distractors = np.flatnonzero(objects == DISTRACTOR)
    half[distractors] = np.arange(len(distractors)) % 2 == 0
    return half


def _take_rows(rows, some):
    """Some rows of truncated counts."""
    indptr, words, counts = rows
    first, size = indptr[some], indptr[some + 1] - indptr[some]
    taken = np.concatenate([[0], np.cumsum(size)])
    place = np.arange(taken[-1]) + np.repeat(first - taken[:-1], size)
    return taken, words[place], counts[place]
