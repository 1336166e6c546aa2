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
from sklearn.utils import gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._counts import check_counts
from sklearn_simlearn._histogram_fast import (
    MAX_COUNT,
    ascend,
    count_words,
    fill_postings,
    find_cuts,
    score_queries,
)
from sklearn_simlearn._relevance import Relevance, check_relevance
from sklearn_simlearn.base import SimilarityMixin, all_or_nothing
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
    asymmetry. The weights minimise how far irrelevant items reach above relevant ones;
    the problem is convex and solved up to a certified gap. Scores come from an inverted
    file. The maths is in the :ref:`User Guide <histogram>`.

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
    the truncated counts twice, at five and four bytes each, and six planes of
    ``n_word_groups * (n + 1) ** 2`` numbers a query.

    The encodings have `n` columns a word and two more; they are sparse for dense `X`
    too. `similarity` does without them.

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
        queries = _find_queries(relevance, query_mask)
        truncation, pattern = self._check_pattern(X)

        # From here on the inputs are sound: kernels check nothing.
        problem = self._pose(X, relevance, queries, truncation)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def advance(name, step, describe):
            """One step as a task of its own; whether a callback asks to stop."""
            task = context.subcontext(task_name=name)
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            step()
            return task.call_on_fit_task_end(
                estimator=self, X=X, y=y, reconstruction_attributes=describe
            )

        attributes = {
            "truncation_": truncation,
            "word_groups_": problem.group,
            "_n_features_out": X.shape[1] * truncation + 2,
        }
        if pattern is None:
            folds = [(problem, problem)]
            if self.pattern_cv is not None:
                folds = self._pose_folds(X, y, relevance, queries, truncation)
            history = self._search_pattern(folds, advance)
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
        for name, value in describe().items():
            setattr(self, name, value)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=describe
        )
        return self

    def similarity(self, X, Y=None):
        """Similarity of every row of `X` to every row of `Y`, by an inverted file.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Counts of the queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_features), default=None
            Counts of the items; `X` itself if None.

        Returns
        -------
        S : ndarray of shape (n_queries, n_items)
            Larger is more similar.
        """
        check_is_fitted(self)
        X = self._validate_rows(X)
        Y = X if Y is None else self._validate_rows(Y)
        queries, items = (_truncate(rows, self.truncation_) for rows in (X, Y))
        S = np.empty((X.shape[0], Y.shape[0]), dtype=X.dtype)
        score_queries(
            *queries,
            *_invert(items, X.shape[1]),
            self.word_groups_,
            _gains(self.weights_).astype(X.dtype, order="C", copy=False),
            self._alone(items, self.weights_[:, 0, :], X.dtype),
            self._alone(queries, self.weights_[:, :, 0], X.dtype),
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
        ones = np.ones(len(columns))
        return self._assemble(ones, columns, indptr, alone, np.ones_like(alone))

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

    def _pose(self, X, relevance, queries, truncation, group=None):
        rows = _truncate(X, truncation)
        start, postings = _invert(rows, X.shape[1])
        if group is None:
            group = _group_words(np.diff(start), self.n_word_groups)
        return _Problem(
            rows,
            (start, postings),
            group,
            self.n_word_groups,
            truncation,
            relevance,
            queries,
            PAIRS if self.loss == "pairwise" else TOP,
            self.top_k if self.loss == "topk" else 1,
            effective_n_jobs(self.n_jobs),
        )

    def _pose_folds(self, X, y, relevance, queries, truncation):
        """A problem to solve and one to judge the solution by, for each fold."""
        cv = self.pattern_cv
        cv = ObjectKFold(cv) if isinstance(cv, Integral) else check_cv(cv)
        is_query = np.isin(np.arange(X.shape[0]), queries)
        folds = []
        for train, test in cv.split(X, y):
            problems, group = [], None
            for rows in (train, test):
                part = _take(relevance, rows)
                some = _find_queries(part, is_query[rows])
                problems.append(self._pose(X[rows], part, some, truncation, group))
                group = problems[0].group
            folds.append(problems)
        return folds

    def _search_pattern(self, folds, advance):
        """Merge bins one by one, each time the two that leave the best ranking."""

        def judge(pattern):
            values = [
                test.average_precision(self._solve(train, pattern).gain())
                for train, test in folds
            ]
            return float(np.mean(values))

        pattern = _finest_pattern(folds[0][0].truncation, self.symmetric)
        history = [(judge(pattern), pattern)]

        def merge():
            candidates = list(_mergers(history[-1][1]))
            values = [judge(candidate) for candidate in candidates]
            best = int(np.argmax(values))
            history.append((values[best], candidates[best]))

        stop = False
        while not stop and history[-1][1].max() >= self.n_weight_bins:
            stop = advance("merger", merge, None)
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


class _Problem:
    """Queries, the items they search and which of those are relevant.

    Everything about the data; nothing about weights or regularisation.
    """

    def __init__(
        self,
        rows,
        file,
        group,
        n_groups,
        truncation,
        relevance,
        queries,
        loss,
        top_k,
        n_threads,
    ):
        self.rows = rows
        self.file = file
        self.group = group
        self.truncation = truncation
        self.relevance = relevance
        self.queries = queries
        self.loss = loss
        self.top_k = top_k
        self.n_threads = n_threads
        n_items, n_counts = len(rows[0]) - 1, truncation + 1
        self.totals = np.zeros((n_items, n_groups, n_counts), dtype=np.int32)
        count_words(*rows, group, self.totals)

        # Weight of each query: an even share, but as many as it has pairs in Eq. 9.
        self.capacity = np.ones(len(queries))
        if loss == PAIRS:
            for batch, _, relevant in self.blocks():
                total = np.maximum(relevant, 0).sum(axis=1, dtype=np.float64)
                self.capacity[batch] = total * np.count_nonzero(relevant == 0, axis=1)
        self.capacity /= self.capacity.sum()

        # How relevant and irrelevant items differ on average: the cuts of the pairwise
        # loss at weights of 0. They set the scale of the bins.
        _, _, cuts = self.cut(np.zeros((n_groups, n_counts, n_counts)), PAIRS)
        self.mean_difference = cuts

    def blocks(self):
        """Queries a block at a time, with the relevance of all items."""
        n_items = len(self.rows[0]) - 1
        find = self.relevance.graded_block
        if self.relevance.labels is not None:
            find = self.relevance.block
        for batch in gen_batches(len(self.queries), max(1, 2**24 // n_items)):
            rows = self.queries[batch]
            relevant = find(rows, slice(0, n_items))
            relevant[np.arange(len(rows)), rows] = -1
            yield batch, rows, relevant

    def cut(self, gain, loss=None):
        """Loss of each query at these gains, and the plane that supports it there."""
        n_queries = len(self.queries)
        value, offset = np.empty((2, n_queries))
        cuts = np.zeros((n_queries, *gain.shape))
        of_item = np.einsum("igl,gl->i", self.totals, gain[:, 0])
        for batch, rows, relevant in self.blocks():
            find_cuts(
                rows,
                relevant,
                *self.rows,
                *self.file,
                self.group,
                self.totals,
                gain,
                of_item,
                self.loss if loss is None else loss,
                self.top_k,
                min(self.n_threads, len(rows)),
                value[batch],
                offset[batch],
                cuts[batch],
            )
        return value, offset, cuts

    def average_precision(self, gain):
        """Mean over the queries."""
        indptr, words, counts = self.rows
        of_item = np.einsum("igl,gl->i", self.totals, gain[:, 0])
        values = []
        for _, rows, relevant in self.blocks():
            S = np.empty(relevant.shape)
            first, last = indptr[rows], indptr[rows + 1]
            place = np.concatenate([[0], np.cumsum(last - first)])
            take = np.arange(place[-1]) + np.repeat(first - place[:-1], last - first)
            score_queries(
                place,
                words[take],
                counts[take],
                *self.file,
                self.group,
                gain,
                of_item,
                np.zeros(len(rows)),
                min(self.n_threads, len(rows)),
                S,
            )
            values.append(average_precision(relevant, S, n_jobs=self.n_threads))
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
        n_queries, n_parameters = len(problem.queries), self.to_gain.shape[1]
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


def _find_queries(relevance, query_mask):
    """Samples that have a relevant item among the others and an irrelevant one."""
    can_query = relevance.can_query
    if query_mask is not None:
        can_query = can_query & query_mask
    queries = np.flatnonzero(can_query)
    useful = []
    for batch in gen_batches(max(len(queries), 1), max(1, 2**24 // len(relevance))):
        rows = queries[batch]
        relevant = relevance.block(rows, slice(0, len(relevance)))
        relevant[np.arange(len(rows)), rows] = -1
        useful.append((relevant > 0).any(axis=1) & (relevant == 0).any(axis=1))
    queries = queries[np.concatenate(useful)]
    if len(queries) == 0:
        raise ValueError(
            "y must give some sample a relevant one and an irrelevant one to rank; "
            "none that may query has both."
        )
    return queries


def _take(relevance, rows):
    """Relevance among some of the samples."""
    junk, labels = relevance.junk, relevance.labels
    return Relevance(
        relevance.positive[rows],
        None if junk is None else junk[rows],
        None if labels is None else labels[rows],
    )
