"""Online algorithm for scalable image similarity (OASIS)."""

from copy import deepcopy
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.sparse.linalg import svds
from sklearn.callback import with_callbacks

from sklearn_simlearn._core.dask import is_partitioned
from sklearn_simlearn._core.dask_batches import partial_fit_partitions
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import Interval, StrOptions, fit_context
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.triplets import check_triplets, triplet_sampler
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._holdout import HOLDOUT, choose, warn_of_no_holdout
from sklearn_simlearn.base import SimilarityLearner, callback_steps, replacing_state
from sklearn_simlearn.oasis._dask import learn_held_out, learn_plain
from sklearn_simlearn.oasis._encoders import Bilinear, Dissimilarity, Factors
from sklearn_simlearn.oasis._path import Path
from sklearn_simlearn.oasis._steps import (
    Rankers,
    Settings,
    draw_stream,
    given_stream,
    positive_factor,
)

# Largest W of the plain form, in GiB.
MAX_GIB = 4


class OASIS(SimilarityLearner):
    r"""Bilinear similarity learned online from triplets.

    OASIS [1]_ learns a matrix :math:`W` so that :math:`S_W(q, x) = q^\top W x` ranks
    samples relevant to the query above all others by a unit margin. Each triplet
    :math:`(q, x^+, x^-)` moves :math:`W` just far enough to satisfy it:

    .. math::

        W \leftarrow W + \tau\, q (x^+ - x^-)^\top, \qquad
        \tau = \min\left(C,\;
            \frac{\max(0,\, 1 - S_W(q, x^+) + S_W(q, x^-))}
                 {\lVert q \rVert^2 \lVert x^+ - x^- \rVert^2}\right).

    By default it goes from the cosine only as far as held-out samples say that this
    helps, learns from rows of unit length and hard negatives, and serves the cosine
    under :math:`W`. ``holdout=None`` is the paper's plain form. The derivations are in
    the :ref:`User Guide <oasis>`.

    Parameters
    ----------
    C : float, default=0.1
        Largest step :math:`\tau`. Smaller values resist label noise.

    n_triplets : int, default=100_000
        Number of triplets drawn and visited, each once. This is the whole training
        budget: an online learner has no convergence to wait for. With a `holdout`, it
        is a bound, and held-out samples choose from 1,000, 4,000, 16,000, ... and, for
        queries of new classes, from no more than these.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        What is held out to decide how far to go from the cosine (of tf-idf where `X`
        holds counts): whole classes, for queries of classes that are not in `y`; or
        samples, for queries of the classes in `y`. With "samples" and labels, the
        metric of linear discriminant analysis is tried as a place to start from, too.
        None learns the plain form, all the way: the rows of `X` as they are, random
        negatives, and :math:`W` itself.

    symmetric : {None, "final", "online", "dissimilarity"}, default=None
        How the :math:`W` of the plain form is made symmetric: not at all; by
        :math:`(W + W^\top) / 2` at the end; by the same after every step; or by
        learning :math:`S_W(q, x) = -(q - x)^\top W (q - x)` instead.

    psd : {None, "final"} or int, default=None
        Project the :math:`W` of the plain form onto the symmetric positive
        semi-definite matrices: never, at the end, or after every so many triplets and
        at the end. `transform` then embeds queries and items in the same space.

    n_components : int, default=None
        Keep so many dimensions of what was learned: of the embedding, or, in the plain
        form, of a factorisation of :math:`W`.

    n_models : int, default=1
        Train this many rankers on independent triplets, `n_triplets` each, and average
        them.

    relevance_threshold : float, default=0.0
        With a relevance matrix, the joint probability up to which two samples count as
        irrelevant to each other.

    n_jobs : int, default=None
        Number of rankers to train at a time. The joblib backend in force is used, so a
        :func:`joblib.parallel_config` spreads the rankers over a cluster.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out and which triplets are drawn. An int makes
        `fit` repeatable, to the bit and for any `n_jobs`.

    Attributes
    ----------
    shrinkage_ : float
        Share of the start in the similarity: 1 where nothing helps. Only with a
        `holdout`, as the attributes up to `idf_`.

    components_ : ndarray of shape (n_components, n_features)
        The embedding of rows of unit length; not there if `shrinkage_` is 1. In the
        plain form with `psd`, ``components_.T @ components_`` is :math:`W`, or its best
        approximation of rank `n_components`.

    offset_ : ndarray of shape (n_components,)
        What is subtracted from embedded rows.

    regularization_ : float or None
        Of the metric of linear discriminant analysis that :math:`W` started from; None
        if it started from the identity.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if `X` holds counts.

    W_ : ndarray of shape (n_features, n_features)
        The learned matrix of the plain form, of the dtype of `X`.

    query_components_, item_components_ : ndarray of shape (n_components, n_features)
        In the plain form with `n_components` and no `psd`, the factors:
        ``query_components_.T @ item_components_`` approximates :math:`W`.

    loss_curve_ : ndarray of shape (n_intervals,)
        Mean hinge loss over each 10,000 triplets, every loss taken before its own
        update.

    n_triplets_ : int
        Number of triplets that each ranker has visited, over all calls of
        `partial_fit`.

    n_updates_ : int
        Number of them that moved :math:`W`, of all rankers.

    See Also
    --------
    sklearn.neighbors.NeighborhoodComponentsAnalysis : Learns a distance, from all
        pairs at once.

    Notes
    -----
    With a `holdout`, data of more than 500 features is projected on its 500 leading
    directions first, so that the cost of a triplet is bounded; the start keeps all
    features. Then `transform` gives the learned columns after those of the start.

    Of a Dask array or DataFrame, `fit` trains rankers on its cluster, one for each of
    up to 16 streams of batches that the partitions are shuffled into, and averages
    them; `n_triplets` are visited by each. The hold-out is drawn from a sample of some
    20,000 rows, which also tells the directions to learn in. See
    :ref:`the User Guide <scaling>`.

    In the plain form a triplet costs ``O(n_features ** 2)`` for dense data, done in
    blocks by BLAS, and for sparse data the number of non-zeros of the query times those
    of the other two. :math:`W` takes ``n_features ** 2`` numbers. Memory does not
    depend on `n_triplets`.

    BLAS is held to one thread while training, so that results do not depend on the
    number of cores.

    References
    ----------
    .. [1] G. Chechik, V. Sharma, U. Shalit and S. Bengio. "Large scale online learning
       of image similarity through ranking". Journal of Machine Learning Research, 11,
       1109-1135, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import OASIS
    >>> X, y = load_digits(return_X_y=True)
    >>> oasis = OASIS(holdout="samples", random_state=0).fit(X[:900], y[:900])
    >>> round(oasis.score(X[900:], y[900:]), 2)
    0.82
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_triplets": [Interval(Integral, 1, None, closed="left")],
        "holdout": HOLDOUT,
        "symmetric": [StrOptions({"final", "online", "dissimilarity"}), None],
        "psd": [
            StrOptions({"final"}),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "relevance_threshold": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        C=0.1,
        *,
        n_triplets=100_000,
        holdout="auto",
        symmetric=None,
        psd=None,
        n_components=None,
        n_models=1,
        relevance_threshold=0.0,
        n_jobs=None,
        random_state=None,
    ):
        self.C = C
        self.n_triplets = n_triplets
        self.holdout = holdout
        self.symmetric = symmetric
        self.psd = psd
        self.n_components = n_components
        self.n_models = n_models
        self.relevance_threshold = relevance_threshold
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        rng = make_generator(self.random_state)
        if self.holdout is None:
            sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
            return self._learn_plain(X, self._draw(sampler, rng), advance)
        path = self._path(X, relevance)

        # From here on the inputs are sound: kernels check nothing.
        with one_blas_thread():
            choice = choose(path, X, relevance, self.holdout, rng, advance)
            attributes = path.refit(choice.candidate, rng, advance)
        return attributes | choice.attributes

    def _learn_partitions(self, X, y):
        rng = make_generator(self.random_state)
        if self.holdout is None:
            return learn_plain(self, X, y, rng, self._serve_plain)
        return learn_held_out(self, X, y, rng, self._path)

    def _path(self, X, relevance):
        if self.symmetric is not None or self.psd is not None:
            raise ValueError(
                "symmetric and psd are for the plain form: set holdout=None with them."
            )
        return Path(
            X,
            relevance,
            n_triplets=self.n_triplets,
            n_models=self.n_models,
            n_components=self.n_components,
            known_classes=self.holdout == "samples",
            threshold=self.relevance_threshold,
            settings=self._settings(),
        )

    # -- the plain form --

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: MatrixLike, y: MatrixLike, *, n_features: int | None = None
    ) -> Self:
        """Go on learning, from `n_triplets` triplets of one batch of samples.

        This is the plain form, whatever `holdout` says: a stream leaves nothing to hold
        out. After a `fit` with a `holdout` it starts anew.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples; or a Dask collection, whose partitions are shuffled into
            batches that are learned from one after the other, on the cluster.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Its labels or relevance matrix. Triplets are formed within the batch.

        n_features : int, default=None
            Width of the data, if a sparse batch may be narrower: the columns it lacks
            count as zero.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self, afresh=hasattr(self, "shrinkage_")):
            if is_partitioned(X):
                self.__dict__.update(partial_fit_partitions(self, X, y))
                return self
            rows = self._check_batch(X, n_features)
            relevance = check_relevance(y, n_samples=rows.shape[0])
            sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
            # One stream of random numbers runs through all batches.
            rng = deepcopy(getattr(self, "_rng", None))
            rng = rng or make_generator(self.random_state)
            streams = self._draw(sampler, rng)
            with callback_steps(self, X, y) as advance:
                attributes = self._learn_plain(rows, streams, advance)
                self.__dict__.update(attributes, _rng=rng)
        return self

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit_triplets(self, X: MatrixLike, triplets: ArrayLike) -> Self:
        """Learn the plain form from given triplets, each visited once, in their order.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        triplets : array-like of shape (n_triplets, 3)
            Rows of `X`: a query, a sample relevant to it, and one that is less so.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            self._learn_given(rows, triplets, "fit_triplets")
        return self

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit_triplets(
        self, X: MatrixLike, triplets: ArrayLike, *, n_features: int | None = None
    ) -> Self:
        """Go on learning the plain form from given triplets, as `partial_fit` does.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples.

        triplets : array-like of shape (n_triplets, 3)
            Rows of `X`: a query, a sample relevant to it, and one that is less so.

        n_features : int, default=None
            Width of the data, if a sparse batch may be narrower.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self, afresh=hasattr(self, "shrinkage_")):
            rows = self._check_batch(X, n_features)
            self._learn_given(rows, triplets, "partial_fit_triplets")
        return self

    def _check_batch(self, X, n_features):
        if n_features is not None and sparse.issparse(X) and X.shape[1] < n_features:
            X = X.tocsr(copy=True)
            X.resize(X.shape[0], n_features)
        return self._check_rows(X, reset=not hasattr(self, "W_"))

    def _draw(self, sampler, rng):
        return [draw_stream(sampler, stream) for stream in rng.spawn(self.n_models)]

    def _learn_given(self, X, triplets, method):
        triplets = check_triplets(triplets, X.shape[0])
        warn_of_no_holdout(self, method)
        with callback_steps(self, X, None) as advance:
            attributes = self._learn_plain(
                X, [given_stream(triplets)], advance, n_triplets=len(triplets)
            )
            self.__dict__.update(attributes)

    def _learn_plain(self, X, streams, advance, *, n_triplets=None):
        """Visit the triplets of the streams, a ranker each, going on from W if any."""
        rankers = Rankers(self._first_W(X), X, streams, self._settings())
        n_triplets_before = getattr(self, "n_triplets_", 0)
        n_updates_before = getattr(self, "n_updates_", 0)

        # From here on the inputs are sound: kernels check nothing.
        with one_blas_thread():
            for _ in rankers.learn_up_to(n_triplets or self.n_triplets):
                if advance("interval", lambda: self._serve_plain(rankers.average())):
                    break
            attributes = self._serve_plain(rankers.average())
        return attributes | {
            "loss_curve_": np.array(rankers.losses),
            "n_triplets_": n_triplets_before + rankers.n_triplets,
            "n_updates_": n_updates_before + rankers.n_updates,
        }

    def _settings(self):
        return Settings(self.C, self.symmetric, self.psd, self.n_jobs)

    def _first_W(self, X):
        """A matrix to begin with that is nobody else's."""
        if hasattr(self, "W_"):
            return self.W_.astype(X.dtype, copy=True)
        n_features = X.shape[1]
        gib = n_features**2 * X.dtype.itemsize / 2**30
        if gib > MAX_GIB:
            raise ValueError(
                f"The plain W of {n_features} features would take {gib:.3g} GiB, more "
                f"than {MAX_GIB}: set a holdout, which learns in a few hundred "
                "directions, or reduce the number of features."
            )
        return np.eye(n_features, dtype=X.dtype)

    def _serve_plain(self, W):
        """Return the attributes of a model of the plain form."""
        if self.symmetric == "final":
            W = (W + W.T) / 2
        encoder, attributes = Bilinear(W), {}
        if self.psd is not None:
            components = positive_factor(W)
            W = components.T @ components
            components = components[: self.n_components]
            encoder, attributes = Factors(components), {"components_": components}
        elif self.n_components is not None:
            left, right = _factorise(W, self.n_components)
            encoder = Factors(left, right)
            attributes = {"query_components_": left, "item_components_": right}
        if self.symmetric == "dissimilarity":
            encoder = Dissimilarity(encoder)
        return {"encoder_": encoder, "W_": W, **attributes}


def _factorise(W, rank):
    """Factors of the best approximation of a rank: left.T @ right."""
    if 4 * rank < W.shape[0]:
        U, s, Vt = svds(W, k=rank, v0=np.ones(W.shape[0], dtype=W.dtype))
        U, s, Vt = U[:, ::-1], s[::-1], Vt[::-1]
    else:
        U, s, Vt = linalg.svd(W)
    root = np.sqrt(s[:rank])
    left, right = (U[:, :rank] * root).T, root[:, None] * Vt[:rank]
    return np.ascontiguousarray(left), np.ascontiguousarray(right)
