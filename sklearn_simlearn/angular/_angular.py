"""Query-dependent bilinear similarities, regularised by an angle."""

from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.encoders import mix
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.threads import count_threads, one_blas_thread
from sklearn_simlearn._core.typing import Matrix, RandomState
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._holdout import HOLDOUT, START, Choice, choose
from sklearn_simlearn.angular._candidates import (
    GivenTriplets,
    Limit,
    check_memory,
    check_references,
    choose_triplets,
)
from sklearn_simlearn.angular._dual import Dual
from sklearn_simlearn.angular._encoder import QueryMatrices, to_dense
from sklearn_simlearn.base import TripletLearner

# Shares of the query in its surrogate that the hold-out tries.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)

# Largest number of references in a fold, and of candidates of a reference. They bound
# the cost of the hold-out. Queries of known classes need near references.
FOLD_LIMIT = Limit(references=250, candidates=30)
FOLD_LIMIT_OF_KNOWN = Limit(references=1600, candidates=30)

# Smallest tolerance in a fold. More precision does not change the choice.
FOLD_TOL = 0.1


class Candidate(NamedTuple):
    """A candidate of the hold-out."""

    matrix: str
    share: float


class AngularBilinearRanker(PaperFormMixin, TripletLearner):
    r"""Bilinear similarity with a separate matrix for every query.

    The ranker learns a matrix :math:`W` for each of many *reference queries* :math:`q`
    from a few labelled candidates. The score :math:`q^\top W x` ranks the relevant
    candidates :math:`x_i` above the others :math:`x_j` by a margin of one. With few
    candidates, a ranking SVM overfits. Therefore the angle between :math:`W` and the
    identity is also penalised [1]_:

    .. math::

        \min_W \; \tfrac12 \lVert W \rVert_F^2
            - \tfrac{\sigma}{2 d} (\operatorname{tr} W)^2
            + C \sum_{i, j} \max(0,\, 1 - q^\top W (x_i - x_j)) .

    The matrix of a new query is the mean of the normalised matrices of its nearest
    references. The items are ranked by their cosine with the *surrogate* of the query,
    :math:`(1 - s) W^\top q + s q`. The stored items do not depend on :math:`W`, so one
    index serves all queries. Held-out samples choose the form of :math:`W` and the
    share :math:`s` of the query. If no :math:`W` helps, the query itself is used.
    `from_paper` returns the form of the paper. The derivation is in the
    :ref:`User Guide <angular>`.

    Rows are scaled to unit length. Counts are weighted first; see `idf_`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge loss of a triplet.

    sigma : float, default=0.95
        Weight :math:`\sigma` of the angle, from 0 to less than 1. Zero is the plain
        ranking SVM. A value close to one heavily penalises every matrix except
        multiples of the identity.

    matrix : {"auto", "diagonal", "full"}, default="auto"
        Form of :math:`W`. A full matrix is a multiple of the identity plus a matrix of
        rank one. "auto" lets the hold-out choose, and means "diagonal" without a
        hold-out.

    query_dependent : bool, default=True
        Whether each reference has its own :math:`W`. False learns a single matrix from
        the triplets of all references.

    references : {"random", "medoids", "centers"} or array-like, default="random"
        Source of the reference queries: samples drawn at random; the samples nearest to
        the centres of k-means; or the centres themselves. A one-dimensional array holds
        row numbers of `X`, a two-dimensional array holds queries. A reference that is
        not a sample takes its relevance from the nearest sample. Samples without any
        relevant sample are skipped.

    n_references : int, default=2000
        Largest number of references. If there are fewer samples, all of them are
        references. Not used if `references` is an array.

    candidates : {"balanced", "nearest", "hard", "random"}, default="balanced"
        Choice of the labelled candidates of a reference. "balanced" draws relevant and
        irrelevant samples at random, half each. "nearest" takes the nearest samples, as
        the paper does. "hard" takes the nearest relevant and the nearest irrelevant
        samples, half each. "random" draws any samples. "balanced" had the highest mean
        average precision on the benchmark data.

    n_candidates : int, default=50
        Largest number of candidates per reference. Each relevant candidate forms a
        triplet with each irrelevant candidate.

    n_neighbors : int, default=5
        Number of nearest references whose matrices are averaged for a new query.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of samples that are held out to choose `matrix_` and `share_`. Hold out
        whole classes ("objects") if future queries are of classes that are not in `y`,
        or "samples" if they are of the classes in `y`. Then the ranker learns from all
        samples. None holds out nothing and uses a share of 0.

    tol : float, default=1e-2
        Largest violation of the optimality conditions, in units of the margin.

    max_iter : int, default=1000
        Largest number of steps of the solver, in multiples of the number of triplets.

    n_jobs : int, default=None
        Number of threads. It does not change the result.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out, and draws the references and the candidates.
        An int makes `fit` repeatable.

    Attributes
    ----------
    matrix_ : {"diagonal", "full"} or None
        Form of the matrices. None if the hold-out keeps the start, the cosine with the
        query itself; then the attributes from `reference_queries_` to `violation_` are
        not set.

    share_ : float
        Share :math:`s` of the query in its surrogate; 1 if the start is kept.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies if `X` holds counts, else None. Counts are replaced
        by their tf-idf to the power 3/4.

    reference_queries_ : {ndarray, csr_array} of shape (n_references, n_features)
        The references, of unit length.

    reference_indices_ : ndarray of shape (n_references,)
        Row numbers of `X` of the references, or of the samples nearest to them.

    directions_ : {ndarray, csr_array} of shape (n_references, n_features)
        The learned part :math:`v` of each :math:`W`; see `identity_weights_`. A single
        row with ``query_dependent=False`` and a diagonal matrix.

    identity_weights_ : ndarray of shape (n_references,)
        The multiple :math:`k` of the identity in each :math:`W`, which is
        :math:`\operatorname{diag}(v) + k I` or :math:`q v^\top + k I`. A reference
        without triplets has the identity itself. A single entry with
        ``query_dependent=False``.

    norms_ : ndarray of shape (n_references,)
        Frobenius norm of each :math:`W`.

    mean_length_ : float
        Mean length of :math:`W^\top q / \lVert W \rVert` over the references. The
        learned part of a surrogate is divided by it.

    reference_weights_ : ndarray of shape (n_references, n_features)
        The diagonals :math:`w = v + k` of diagonal matrices.

    angles_ : ndarray of shape (n_references,)
        Angle between each :math:`W` and the identity, in radians.

    n_triplets_ : ndarray of shape (n_references,)
        Number of triplets of each reference.

    n_steps_ : ndarray of shape (n_references,)
        Number of steps of the solver for each reference.

    n_iter_ : int
        Largest number of steps per triplet over all references, at least 1.

    dual_objective_ : ndarray of shape (n_references,)
        Value of the dual objective, which the solver maximises.

    dual_gap_ : ndarray of shape (n_references,)
        Difference between the primal and the dual objective.

    violation_ : ndarray of shape (n_references,)
        Largest violation of the optimality conditions.

    See Also
    --------
    sklearn.svm.LinearSVC : Solves the problem of a single reference for ``sigma=0``,
        from the differences of its candidates.

    Notes
    -----
    With `m` candidates of a reference, the Gram matrix takes ``O(m ** 2 * n_features)``
    time, and each step of the solver ``O(m)``. For sparse data, only non-zero features
    count. With more than 512 candidates, the problem is solved block by block, which
    bounds the memory. The model takes ``O(n_references * n_features)`` memory; for
    sparse data, only non-zero features are stored.

    A query takes ``O(n_references * n_features)`` time to find its nearest references,
    and ``O(n_neighbors * n_features)`` for its surrogate. With diagonal matrices, the
    surrogate of a sparse query has the non-zero features of the query. With full
    matrices, it also has those of the candidates of its nearest references.

    k-means computes dense centres. If `X` is sparse and the centres do not fit into
    scikit-learn's ``working_memory``, `fit` raises an error.

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

    _paper_parameters = {
        "C": 1.0,
        "sigma": 0.95,
        "matrix": "diagonal",
        "query_dependent": True,
        "references": "medoids",
        "n_references": 1000,
        "candidates": "nearest",
        "n_candidates": 50,
        "n_neighbors": 10,
        "holdout": None,
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        sigma: float = 0.95,
        matrix: Literal["auto", "diagonal", "full"] = "auto",
        query_dependent: bool = True,
        references: Literal["random", "medoids", "centers"] | ArrayLike = "random",
        n_references: int = 2000,
        candidates: Literal["balanced", "nearest", "hard", "random"] = "balanced",
        n_candidates: int = 50,
        n_neighbors: int = 5,
        holdout: str | None = "auto",
        tol: float = 1e-2,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        random_state: RandomState = None,
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
        self,
        X: Matrix,
        relevance: Relevance,
        advance: Callable[..., bool],
        triplets: np.ndarray | None = None,
    ) -> dict:
        if triplets is None:
            given = check_references(self.references, X)
        else:
            given = GivenTriplets(triplets)
        rng = make_generator(self.random_state)
        if self.holdout is None:
            candidate, attributes = Choice(self._plain_candidate(), {})
        else:
            path = partial(self._path, X, relevance, given)
            candidate, attributes = choose(
                path, X, relevance, self.holdout, rng, advance
            )
        start = Start.fit(relevance.items_of(X))
        if candidate is START:
            return attributes | {
                "encoder_": start,
                "idf_": start.idf,
                "matrix_": None,
                "share_": 1.0,
                "n_iter_": 1,
            }

        rows = start.items(X)
        references, indices, blocks = choose_triplets(
            self, rows, start, relevance, given, np.arange(len(relevance)), rng
        )
        if not blocks:
            raise ValueError(
                "No reference has both a relevant and an irrelevant candidate in y "
                f"with {len(indices)} references and n_candidates={self.n_candidates}. "
                "Increase either, or set candidates to another value than "
                f'"{self.candidates}".'
            )
        dual = self._make_dual(rows, references, blocks, candidate.matrix)
        return attributes | self._solve(dual, indices, candidate, start, advance)

    def _unused_parameters(self):
        unused = {}
        if not self.query_dependent:
            unused["n_neighbors"] = "query_dependent=False"
        if not isinstance(self.references, str):
            unused["n_references"] = "an array of references"
        return unused

    def _plain_candidate(self):
        """Return the form without a hold-out; diagonal unless "full" is set."""
        return Candidate("full" if self.matrix == "full" else "diagonal", 0.0)

    def _path(self, X, relevance, given, train, rng) -> Iterator[tuple]:
        """Yield the candidates, each with the encoder that it learns from some rows."""
        X, relevance = X[train], relevance.take(train)
        start = Start.fit(relevance.items_of(X))
        yield START, start

        is_known = self.holdout == "samples"
        limit = FOLD_LIMIT_OF_KNOWN if is_known else FOLD_LIMIT
        rows = start.items(X)
        references, _, blocks = choose_triplets(
            self, rows, start, relevance, given, train, rng, limit
        )
        if not blocks:
            return
        for form in ("full", "diagonal") if self.matrix == "auto" else (self.matrix,):
            tol = max(self.tol, FOLD_TOL)
            dual = self._make_dual(rows, references, blocks, form, tol)
            for task in dual.tasks():
                while not task.done:
                    task.advance()
            learned = self._encoder(dual.matrices(), start)
            for share in SHARES:
                mixed = mix(learned, start, share, same_items=True)
                yield Candidate(form, share), mixed

    def _make_dual(self, X, references, blocks, form, tol=None):
        if form == "full" and not self.query_dependent:
            check_memory(
                X,
                references.shape[0],
                "a single full matrix, which has a dense row for each reference",
                "lower n_references",
            )

        # From here on, the inputs are valid. Kernels do not check them.
        return Dual(
            X,
            references,
            blocks,
            pooled=not self.query_dependent,
            diagonal=form == "diagonal",
            kappa=self.sigma / (X.shape[1] * (1 - self.sigma)),
            C=self.C,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter,
            n_threads=count_threads(self.n_jobs),
        )

    def _solve(self, dual, indices, candidate, start, advance):
        """Return the fitted attributes."""

        def describe():
            return self._describe(dual, indices, candidate, start)

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
                "Increase max_iter or tol, or reduce C or sigma.",
                ConvergenceWarning,
            )
        return fitted

    def _describe(self, dual, indices, candidate, start):
        """Return the fitted attributes of the solution so far."""
        matrices = dual.matrices()
        learned = self._encoder(matrices, start)
        n_steps, violation, sum_alpha, quadratic, hinge = dual.report().T
        objective = sum_alpha - quadratic / 2
        steps_per_triplet = np.ceil(n_steps / np.maximum(dual.n_triplets, 1))
        return {
            "encoder_": mix(learned, start, candidate.share, same_items=True),
            "idf_": start.idf,
            "matrix_": candidate.matrix,
            "share_": candidate.share,
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
                "Only diagonal matrices have reference_weights_; here matrix_ is "
                f"{self.matrix_!r}."
            )
        directions = self.directions_
        if sparse.issparse(directions):
            check_memory(
                directions,
                directions.shape[0],
                "dense weights",
                "compute directions_ + identity_weights_ for the rows you need",
            )
            directions = to_dense(directions)
        return directions + self.identity_weights_[:, None].astype(directions.dtype)

    def _encoder(self, matrices, start):
        return QueryMatrices(start, matrices, matrices.mean_length(), self.n_neighbors)
