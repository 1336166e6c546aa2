"""Maps of queries and documents, and a shift of judged documents."""

from numbers import Integral, Real
from typing import Literal

from scipy import sparse

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import RandomState
from sklearn_simlearn._holdout import HOLDOUT, choose
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.query_map._path import Candidate, Path
from sklearn_simlearn.query_map._two_widths import Documents, TwoWidths

# Largest number of features for maps; a map has this number squared of entries.
MAX_FEATURES = 4096

# Shift without a hold-out.
SHIFT = 0.6


class QueryDocumentMap(SimilarityLearner):
    r"""Maps of frozen vectors, learned from judgements of queries against documents.

    Queries and documents are vectors of an embedding model, which is not trained.
    The learner maps the unit vectors :math:`q` and :math:`d` to

    .. math::

        q' = \frac{(I + V)^\top q}{\lVert (I + V)^\top q \rVert}, \qquad
        d' = \frac{(I + U)^\top d}{\lVert (I + U)^\top d \rVert}, \qquad
        s(q, d) = \langle q', d' \rangle .

    The maps minimise a listwise softmax loss with a penalty on :math:`V` and
    :math:`U`. Then each judged document is shifted towards the queries that it is
    relevant to: :math:`d'' \propto d' + g\, m`. The unit vector :math:`m` has the
    direction of the mean of these :math:`q'`. Held-out queries choose among the cosine,
    the maps, the shift, and maps with a shift. New documents are not shifted, and are
    mapped with :math:`U / 4` instead of :math:`U`. The derivations are in the
    :ref:`User Guide <query_map>`.

    Parameters
    ----------
    maps : {"both", "queries"} or None, default="both"
        Sides that are mapped: queries and documents, or queries only. With "queries"
        and ``shift=False``, documents are encoded as for the cosine, so a stored index
        stays valid when the learner is fitted again. None learns only the shift.

    shift : bool, default=True
        Whether judged documents may be shifted. A document is recognised by its
        values in single precision. If `y` holds labels, nothing is shifted.

    alpha : float, default=20.0
        Strength of the penalty. Larger values keep the maps closer to the identity.

    max_iter : int, default=60
        Number of steps, each on a batch of 256 queries. For a few thousand queries or
        more, 200 steps give better maps in more than three times the time.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of data that is held out to choose the maps and the shift. With judgements,
        "queries" holds out queries, which search all documents, and "documents" also
        holds out half of the documents; use it if most future documents are new. With
        labels, "objects" holds out whole classes, and "samples" holds out samples of
        known classes. "auto" is "queries" with judgements and "objects" with labels.
        With fewer than 40 queries, the only shift that is tried is 0.3. None holds out
        nothing: it uses the maps after `max_iter` steps and a shift of 0.6.

    random_state : int, RandomState instance or None, default=None
        Decides which queries are held out and the order of the batches. An int makes
        `fit` exactly repeatable.

    Attributes
    ----------
    query_map_ : ndarray of shape (n_features, n_document_features) or None
        The matrix :math:`I + V` by which unit rows of queries are multiplied; None if
        queries are not mapped. If queries and documents differ in their number of
        features, the product of the rotation and :math:`I + V`.

    document_map_ : ndarray of shape (n_document_features, n_document_features) or None
        The matrix :math:`I + U` of known documents; None if they are not mapped.

    shift_ : float
        The factor :math:`g`; 0 if nothing is shifted.

    n_iter_ : int
        Number of steps; at least 1, as scikit-learn requires.

    loss_curve_ : ndarray of shape (n_steps,)
        Loss of the batch of each step, without the penalty; empty without maps.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if the documents hold counts.

    n_features_in_ : int
        Number of features of the queries.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    EmbeddingModelMap : Maps queries of a new embedding model to an old one.
    OASIS : Learns one map for both sides, from triplets.
    sklearn_simlearn.metrics.Judgements : Judgements to pass as `y`.

    Notes
    -----
    Rows have at most 4,096 features if maps are learned. Reduce wider rows by
    :class:`~sklearn.decomposition.TruncatedSVD`, or pass ``maps=None``.

    A step uses at most 2,048 documents: those relevant to the queries of the batch,
    and a sample of the others. The time of a fit therefore does not grow with the
    number of documents. Memory is bounded by the `working_memory` of scikit-learn.

    Queries and documents may be dense vectors with different numbers of features. Then
    the start is not the cosine, but a rotation of the queries into the space of the
    documents. It maps each query as close as possible to the mean of its relevant
    documents. This needs a few hundred queries. If both models have encoded the same
    items, :class:`EmbeddingModelMap` is better.

    A judged document is shifted only if it has the same values as in `fit`. If a step
    before the learner computes them again with other rounding errors, the document is
    not recognised and counts as new.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn import QueryDocumentMap
    >>> from sklearn_simlearn.metrics import Judgements
    >>> rng = np.random.default_rng(0)
    >>> documents = rng.standard_normal((90, 8))
    >>> topic = np.arange(60) % 30
    >>> queries = np.roll(documents[topic], 1, axis=1)
    >>> queries += 0.5 * rng.standard_normal(queries.shape)
    >>> y = Judgements(topic[:, None] == np.arange(90), documents)
    >>> model = QueryDocumentMap(random_state=0).fit(queries[:40], y[:40])
    >>> model.shift_ > 0
    True
    >>> model.score(queries[40:], y[40:]) > 0.2
    True
    """

    _parameter_constraints: dict = {
        "maps": [StrOptions({"both", "queries"}), None],
        "shift": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "holdout": HOLDOUT,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        maps: Literal["both", "queries"] | None = "both",
        *,
        shift: bool = True,
        alpha: float = 20.0,
        max_iter: int = 60,
        holdout: str | None = "auto",
        random_state: RandomState = None,
    ):
        self.maps = maps
        self.shift = shift
        self.alpha = alpha
        self.max_iter = max_iter
        self.holdout = holdout
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        shift = self.shift and isinstance(relevance, JudgedRelevance)
        self._check_task(X, shift)
        rng = make_generator(self.random_state)
        path = Path(
            X,
            relevance,
            maps=self.maps,
            shift=shift,
            alpha=self.alpha,
            max_iter=self.max_iter,
        )
        with one_blas_thread():
            if self.holdout is None:
                n_iter = 0 if self.maps is None else self.max_iter
                candidate = Candidate(n_iter, SHIFT if shift else 0.0)
                return path.refit(candidate, rng, advance)
            choice = choose(
                path, X, relevance, self.holdout, rng, advance, keep=path.is_small
            )
            attributes = path.refit(choice.candidate, rng, advance)
        return attributes | choice.attributes

    def _unused_parameters(self):
        names = ("alpha", "max_iter") if self.maps is None else ()
        return dict.fromkeys(names, "maps=None")

    def _stack(self, rows, documents):
        checker = Documents()
        found = checker._check_rows(documents, reset=True)
        if found.shape[1] == rows.shape[1]:
            return super()._stack(rows, documents)
        if sparse.issparse(rows) or sparse.issparse(found):
            raise ValueError(
                f"Queries have {rows.shape[1]} features and documents have "
                f"{found.shape[1]}. This is supported for dense vectors only."
            )
        self._documents = checker
        return TwoWidths(rows, found)

    @property
    def _has_two_widths(self):
        return hasattr(self, "_documents")

    def _check_items(self, X):
        return (self._documents if self._has_two_widths else self)._check_rows(X)

    def _check_task(self, X, shift):
        """Raise if there is nothing to learn, or the rows are too wide for maps."""
        if self.maps is None and not shift:
            raise ValueError(
                "There is nothing to learn: with maps=None, only judged documents are "
                "shifted. Set shift=True and pass Judgements as y, or set maps."
            )
        if self.maps is not None and X.shape[1] > MAX_FEATURES:
            raise ValueError(
                f"Maps of {X.shape[1]} features are too large; the limit is "
                f"{MAX_FEATURES}. Reduce the features, for example with TruncatedSVD, "
                "or pass maps=None to learn only the shift of judged documents."
            )
