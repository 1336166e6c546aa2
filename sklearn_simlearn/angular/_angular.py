"""Query-dependent bilinear similarities, regularised by an angle."""

from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.encoders import mix
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.sklearn import (
    Interval,
    StrOptions,
    fit_context,
)
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.triplets import check_triplets
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._holdout import HOLDOUT, START, choose, warn_of_no_holdout
from sklearn_simlearn.angular._candidates import (
    check_memory,
    check_references,
    choose_candidates,
    choose_references,
    place_references,
)
from sklearn_simlearn.angular._dual import Dual, blocks_of_triplets
from sklearn_simlearn.angular._encoder import QueryMatrices, to_dense
from sklearn_simlearn.base import SimilarityLearner, callback_steps, replacing_state

# How much of the query is kept in its surrogate: what the hold-out chooses from.
SHRINKAGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)

# References in each of the several folds of objects, which bounds what they cost.
MAX_FOLD_REFERENCES = 500


class Setting(NamedTuple):
    """What the hold-out chooses."""

    matrix: str
    shrinkage: float


class AngularBilinearRanker(SimilarityLearner):
    r"""A bilinear similarity of its own for every query.

    For each of many *reference queries* :math:`q` a matrix :math:`W_q` is learned from
    a few labelled candidates, so that :math:`q^\top W_q x` ranks the relevant ones
    :math:`x_i` above the others :math:`x_j` by a unit margin. With few candidates a
    ranking SVM overfits; here the angle between :math:`W_q` and the identity is kept
    small as well [1]_:

    .. math::

        \min_W \; \tfrac12 \lVert W \rVert_F^2
            - \tfrac{\sigma}{2 d} (\operatorname{tr} W)^2
            + C \sum_{i, j} \max(0,\, 1 - q^\top W (x_i - x_j)) .

    A new query takes the mean of the normalised matrices of its nearest references. Its
    *surrogate* :math:`(1 - s) W^\top q + s q` is compared with the stored items by the
    cosine, so one static index serves all queries, whatever is learned. Held-out
    samples choose the form of :math:`W` and the shrinkage :math:`s`; where nothing
    helps, the query itself is kept. The derivation is in the
    :ref:`User Guide <angular>`.

    Rows are brought to unit length. Counts are first weighted: see `idf_`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge loss of a triplet.

    sigma : float, default=0.95
        Weight :math:`\sigma` of the angle, at least 0 and below 1. Zero is the plain
        ranking SVM; close to one, nothing but a multiple of the identity is cheap.

    matrix : {"auto", "diagonal", "full"}, default="auto"
        Form of :math:`W`. A full one has rank one besides its multiple of the identity,
        and is stored as such. "auto" lets the hold-out choose, and is "diagonal"
        without one.

    query_dependent : bool, default=True
        Whether each reference has its own :math:`W`. False learns a single one from the
        triplets of all references.

    references : {"random", "medoids", "centers"} or array-like, default="random"
        Where the reference queries come from: samples drawn at random; the samples next
        to the centres of k-means; or the centres themselves. An array holds rows of `X`
        if it is one-dimensional, queries if it is two-dimensional. A reference that is
        no sample takes over what is relevant to the sample next to it. Samples that are
        relevant to nothing are passed over.

    n_references : int, default=2000
        Largest number of references. All samples are references if they are fewer. Not
        used with an array of `references`.

    candidates : {"balanced", "nearest", "hard", "random"}, default="balanced"
        How the labelled candidates of a reference are chosen: half relevant and half
        irrelevant at random; the nearest samples of whatever kind; the nearest relevant
        and the nearest irrelevant ones, half each; or any samples at random. Balanced
        ones had the highest mean average precision on the sets tried.

    n_candidates : int, default=50
        Largest number of candidates per reference. Each relevant candidate makes a
        triplet with each irrelevant one.

    n_neighbors : int, default=5
        Number of references that a new query takes its matrix from.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        What future queries will be, which decides how far to go from the start:
        "objects" of classes never seen, "samples" of the classes in `y`. Samples of
        this kind are held out, and they choose `matrix_` and `shrinkage_`; then all
        samples are learned from. None is the paper's form: no shrinkage.

    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the margin.

    max_iter : int, default=1000
        Largest number of steps of the solver, in multiples of the number of triplets.

    n_jobs : int, default=None
        Threads of k-means and over the references. The result does not depend on it.

    random_state : int, RandomState instance or None, default=None
        Decides on what is held out, the references and the candidates. An int makes
        `fit` repeatable.

    Attributes
    ----------
    matrix_ : {"diagonal", "full"} or None
        Form of the matrices. None if the hold-out keeps the start: then nothing is
        learned, and there are none of the attributes from `reference_queries_` to
        `violation_`.

    shrinkage_ : float
        Share :math:`s` of the query in its surrogate; 1 if the start is kept.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if `X` holds counts. Rows are then those of tf-idf
        to the power 3/4.

    reference_queries_ : {ndarray, csr_array} of shape (n_references, n_features)
        The references, of unit length.

    reference_indices_ : ndarray of shape (n_references,)
        Rows of `X` that are the references, or stand for them.

    directions_ : {ndarray, csr_array} of shape (n_references, n_features)
        The part :math:`v` of each :math:`W` that is learned; see `identity_weights_`. A
        single row with ``query_dependent=False`` and a diagonal matrix.

    identity_weights_ : ndarray of shape (n_references,)
        The multiple :math:`k` of the identity in each :math:`W`, which is
        :math:`\operatorname{diag}(v) + k I` or :math:`q v^\top + k I`. A reference
        without triplets has the identity itself. A single entry with
        ``query_dependent=False``.

    norms_ : ndarray of shape (n_references,)
        Frobenius norm of each :math:`W`.

    mean_length_ : float
        Mean length of the references' own surrogates under :math:`W / \lVert W
        \rVert`, which learned surrogates are divided by.

    reference_weights_ : ndarray of shape (n_references, n_features)
        The diagonals :math:`w = v + k` of diagonal matrices.

    angles_ : ndarray of shape (n_references,)
        Angle between each :math:`W` and the identity in radians.

    n_triplets_ : ndarray of shape (n_references,)
        Number of triplets of each reference.

    n_steps_ : ndarray of shape (n_references,)
        Number of steps taken for each.

    n_iter_ : int
        The most steps taken for any reference in multiples of its triplets, at least 1.

    dual_objective_ : ndarray of shape (n_references,)
        Value of the dual problem, to be maximised.

    dual_gap_ : ndarray of shape (n_references,)
        By how much the primal objective is larger.

    violation_ : ndarray of shape (n_references,)
        Largest violation of the optimality conditions.

    See Also
    --------
    sklearn.svm.LinearSVC : Solves the problem of a single reference for ``sigma=0``,
        from the differences of its candidates.

    Notes
    -----
    With `m` candidates of a reference, their Gram matrix costs
    ``O(m ** 2 * n_features)``, or as much for each non-zero feature of sparse data, and
    each step ``O(m)``. Beyond 512 candidates the problem is solved block by block, so
    that memory stays bounded. The model takes ``O(n_references * n_features)`` memory;
    of sparse data only the non-zero features are stored.

    A query costs ``O(n_references * n_features)`` to find its neighbours, and
    ``O(n_neighbors * n_features)`` for its surrogate. Surrogates of sparse queries have
    the same non-zero features with a diagonal matrix; with a full one they have those
    of all candidates of their neighbours as well.

    k-means works with dense centres. Where these would not fit into scikit-learn's
    ``working_memory``, `fit` refuses sparse data and asks for another kind of
    `references`.

    References
    ----------
    .. [1] Z. Kuang, J. Sun and K.-Y. K. Wong. "Learning regularized, query-dependent
       bilinear similarities for large scale image retrieval". CVPR Workshops, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import AngularBilinearRanker
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digits(return_X_y=True)
    >>> cosine = CosineSimilarity(use_idf=False).fit(X[:900])
    >>> round(cosine.score(X[900:], y[900:]), 2)
    0.69
    >>> ranker = AngularBilinearRanker(holdout="samples", random_state=0)
    >>> ranker = ranker.fit(X[:900], y[:900])
    >>> round(ranker.score(X[900:], y[900:]), 2)
    0.9
    >>> ranker.matrix_
    'full'
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "sigma": [Interval(Real, 0, 1, closed="left")],
        "matrix": [StrOptions({"auto", "diagonal", "full"})],
        "query_dependent": ["boolean"],
        "references": [
            StrOptions({"random", "medoids", "centers"}),
            "array-like",
            "sparse matrix",
        ],
        "n_references": [Interval(Integral, 1, None, closed="left")],
        "candidates": [StrOptions({"balanced", "nearest", "hard", "random"})],
        "n_candidates": [Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "holdout": HOLDOUT,
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        C=1.0,
        *,
        sigma=0.95,
        matrix="auto",
        query_dependent=True,
        references="random",
        n_references=2000,
        candidates="balanced",
        n_candidates=50,
        n_neighbors=5,
        holdout="auto",
        tol=1e-3,
        max_iter=1000,
        n_jobs=None,
        random_state=None,
    ):
        self.C = C
        self.sigma = sigma
        self.matrix = matrix
        self.query_dependent = query_dependent
        self.references = references
        self.n_references = n_references
        self.candidates = candidates
        self.n_candidates = n_candidates
        self.n_neighbors = n_neighbors
        self.holdout = holdout
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(
        self, X: Matrix, relevance: Relevance, advance: Callable[..., bool]
    ) -> dict:
        given = check_references(self.references, X)
        rng = make_generator(self.random_state)
        if self.holdout is None:
            setting, attributes = self._plain_setting(), {}
        else:
            path = partial(self._path, X, relevance, given)
            setting, attributes = choose(path, X, relevance, self.holdout, rng, advance)
        start = Start.fit(relevance.items_of(X))
        if setting is START:
            return attributes | {
                "encoder_": start,
                "idf_": start.idf,
                "matrix_": None,
                "shrinkage_": 1.0,
                "n_iter_": 1,
            }

        rows = start.items(X)
        references, indices, blocks = self._choose_triplets(
            rows, start, relevance, given, np.arange(len(relevance)), rng
        )
        if not blocks:
            raise ValueError(
                "No reference has both a relevant and an irrelevant candidate in y "
                f"with {len(indices)} references and n_candidates={self.n_candidates}: "
                "raise either, or choose other candidates than "
                f'"{self.candidates}".'
            )
        dual = self._make_dual(rows, references, blocks, setting.matrix)
        return attributes | self._solve(dual, indices, setting, start, advance)

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit_triplets(self, X: MatrixLike, triplets: ArrayLike) -> Self:
        """Learn from triplets instead of labels, all the way: without a hold-out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        triplets : array-like of shape (n_triplets, 3), dtype int
            Rows of `X`: a query, a sample that is relevant to it, and one that is not,
            or less so. The queries become the references; `references`, `candidates`,
            their numbers and `holdout` are not used.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            triplets = check_triplets(triplets, rows.shape[0])
            warn_of_no_holdout(self, "fit_triplets")
            start, setting = Start.fit(rows), self._plain_setting()
            rows = start.items(rows)
            indices, query = np.unique(triplets[:, 0], return_inverse=True)
            blocks = blocks_of_triplets(query, triplets[:, 1], triplets[:, 2])
            dual = self._make_dual(rows, rows[indices], blocks, setting.matrix)
            with callback_steps(self, X, None) as advance:
                attributes = self._solve(dual, indices, setting, start, advance)
                self.__dict__.update(attributes)
        return self

    def _plain_setting(self):
        """Learn all the way; a diagonal unless a full matrix is asked for."""
        return Setting("full" if self.matrix == "full" else "diagonal", 0.0)

    def _path(self, X, relevance, given, train, rng) -> Iterator[tuple]:
        """Yield candidates and what they learn from some rows."""
        X, relevance = X[train], relevance.take(train)
        start = Start.fit(relevance.items_of(X))
        yield START, start

        limit = None if self.holdout == "samples" else MAX_FOLD_REFERENCES
        rows = start.items(X)
        references, _, blocks = self._choose_triplets(
            rows, start, relevance, given, train, rng, limit
        )
        if not blocks:
            return
        for form in ("diagonal", "full") if self.matrix == "auto" else (self.matrix,):
            dual = self._make_dual(rows, references, blocks, form)
            for task in dual.tasks():
                while not task.done:
                    task.advance()
            learned = self._encoder(dual.matrices(), start)
            for shrinkage in SHRINKAGES:
                mixed = mix(learned, start, shrinkage, same_items=True)
                yield Setting(form, shrinkage), mixed

    def _choose_triplets(self, X, start, relevance, given, rows, rng, limit=None):
        """Return references, the samples that stand for them, and blocks of triplets.

        `X` has some `rows` of the training data, encoded by the start. References are
        `given` as an array, or by name, and then at most `limit`.
        """
        n_references = min(self.n_references, limit or self.n_references)
        # A stream each, so that the candidates do not depend on how references came.
        reference_rng, candidate_rng = rng.spawn(2)
        if isinstance(given, str):
            references, indices = choose_references(
                given, n_references, X, relevance.can_query, self.n_jobs, reference_rng
            )
        else:
            references, indices = place_references(
                given, X, start, relevance.can_query, rows
            )
        blocks = choose_candidates(
            self.candidates,
            self.n_candidates,
            X,
            relevance,
            references,
            indices,
            candidate_rng,
        )
        return references, indices, blocks

    def _make_dual(self, X, references, blocks, form):
        if form == "full" and not self.query_dependent:
            check_memory(
                X,
                references.shape[0],
                "a single full matrix, which has a dense row for each reference",
                "lower n_references",
            )

        # From here on the inputs are sound: kernels check nothing.
        return Dual(
            X,
            references,
            blocks,
            pooled=not self.query_dependent,
            diagonal=form == "diagonal",
            kappa=self.sigma / (X.shape[1] * (1 - self.sigma)),
            C=self.C,
            tol=self.tol,
            max_iter=self.max_iter,
            n_threads=effective_n_jobs(self.n_jobs),
        )

    def _solve(self, dual, indices, setting, start, advance):
        """Return the fitted attributes."""

        def describe():
            return self._describe(dual, indices, setting, start)

        stop = False
        with one_blas_thread():
            for task in dual.tasks():
                while not (stop or task.done):
                    task.advance()
                    stop = advance(task.name, describe)
            fitted = describe()
        n_late = np.count_nonzero(dual.is_late)
        if n_late:
            warn_user(
                f"{n_late} of {np.count_nonzero(dual.n_triplets)} problems did not "
                f"reach tol={self.tol} in max_iter={self.max_iter} steps per triplet. "
                "Raise either, or lower C or sigma.",
                ConvergenceWarning,
            )
        return fitted

    def _describe(self, dual, indices, setting, start):
        """Return the fitted attributes of the solution so far."""
        matrices = dual.matrices()
        learned = self._encoder(matrices, start)
        n_steps, violation, sum_alpha, quadratic, hinge = dual.report().T
        objective = sum_alpha - quadratic / 2
        steps_per_triplet = np.ceil(n_steps / np.maximum(dual.n_triplets, 1))
        return {
            "encoder_": mix(learned, start, setting.shrinkage, same_items=True),
            "idf_": start.idf,
            "matrix_": setting.matrix,
            "shrinkage_": setting.shrinkage,
            "reference_queries_": matrices.queries,
            "reference_indices_": indices,
            "directions_": matrices.directions,
            "identity_weights_": matrices.identity_weights,
            "norms_": matrices.norms,
            "angles_": matrices.angles,
            "mean_length_": learned.length,
            "n_triplets_": dual.n_triplets,
            "n_steps_": n_steps.astype(np.int64),
            "n_iter_": int(steps_per_triplet.max(initial=1)),
            "dual_objective_": objective,
            "dual_gap_": quadratic / 2 + self.C * hinge - objective,
            "violation_": violation,
        }

    @property
    def reference_weights_(self) -> np.ndarray:
        """Diagonals of the learned matrices, one per row."""
        check_is_fitted(self)
        if self.matrix_ != "diagonal":
            raise AttributeError(
                "There are weights where the matrices are diagonal; here matrix_ is "
                f"{self.matrix_!r}."
            )
        directions = self.directions_
        if sparse.issparse(directions):
            check_memory(
                directions,
                directions.shape[0],
                "dense weights",
                "add directions_ and identity_weights_ for the rows you need",
            )
            directions = to_dense(directions)
        return directions + self.identity_weights_[:, None].astype(directions.dtype)

    def _encoder(self, matrices, start):
        return QueryMatrices(start, matrices, matrices.mean_length(), self.n_neighbors)
