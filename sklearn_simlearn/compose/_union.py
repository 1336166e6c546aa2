"""A weighted sum of similarities, each on its own columns."""

from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils.validation import validate_data

from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.sklearn import (
    BaseComposition,
    fit_context,
    num_samples,
    safe_indexing,
)
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn._holdout import HOLDOUT, read_holdout
from sklearn_simlearn.base import EncodedSimilarityMixin, replacing_state
from sklearn_simlearn.compose._parts import Part, WeightedSum, take_columns
from sklearn_simlearn.compose._pipeline import RetrievalPipeline, uses_documents_only
from sklearn_simlearn.compose._weights import (
    Learned,
    Samples,
    learn_weights,
    measure_spread,
)


class SimilarityUnion(MetaEstimatorMixin, EncodedSimilarityMixin, BaseComposition):
    r"""Weighted sum of several similarities, each of its own columns.

    .. math:: s(q, d) = \sum_p \frac{w_p}{\sigma_p}\, s_p(q, d)

    BM25 finds documents with the words of a query, vectors find those with its meaning,
    and the sum of both is better than either. The weights :math:`w_p` are learned from
    `y` by a hold-out, or given. The scales :math:`\sigma_p` make the weights of
    different similarities comparable.

    Parameters
    ----------
    similarities : list of (name, similarity, columns)
        The parts. A similarity is a learner, a hand-made similarity, a pipeline that
        ends in one, or a transformer, whose output is compared by the cosine;
        "passthrough" is the cosine of the columns. With judgements, steps of a pipeline
        must be in a :class:`RetrievalPipeline`.

        Columns are chosen as in :class:`~sklearn.compose.ColumnTransformer`: a name
        gives one column of a frame, such as texts; a list of names or numbers, a slice
        or a mask gives several; a function gets `X` and returns one of these.
        ``slice(None)`` is `X` itself, which may be a list of texts then.

    weights : dict, default=None
        Weight of each part by name. They are divided by their sum. If None, they are
        learned from `y`; without `y` they are equal.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        What the choice of the weights holds out, as in the learners. "auto" is
        "queries" for judgements and "objects" for labels. With None the weights are
        equal.

    random_state : int, RandomState instance or None, default=None
        Decides on the folds.

    Attributes
    ----------
    similarities_ : dict
        The fitted parts by name.

    weights_ : dict
        Weights :math:`w_p` by name, with the sum 1.

    scales_ : dict
        Scales :math:`\sigma_p` by name: how far the best item is above the mean item of
        a query, on average over queries.

    holdout_gain_, holdout_error_ : float
        Gain of the chosen weights over the best part on held-out queries, in nDCG at 10
        with judgements and in mean average precision otherwise, and its standard error.
        Only if weights were learned.

    holdout_results_ : dict
        All weights that were tried, as tuples in the order of the parts, with their
        measures.

    encoder_ : Encoder
        The sum as an inner product. Parts of weight 0 are left out.

    n_features_in_ : int
        Number of columns of `X`, if it has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if all are strings.

    See Also
    --------
    RetrievalPipeline : Steps that transform queries and documents.

    Notes
    -----
    The weights are those of a grid that rank best on held-out queries, with parts that
    were fitted without these queries. Each part alone and equal weights are in the
    grid. The gain of a mixture is usually larger than what chance adds to the choice:
    see :ref:`hybrid_search`.

    The encoding of an item holds the encodings of the parts side by side, and the
    weights are in the queries. So items that an index stores stay valid as long as the
    same parts have a weight other than 0.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
    >>> from sklearn_simlearn.datasets import load_categories
    >>> from sklearn_simlearn.similarities import BM25Similarity
    >>> categories = load_categories()
    >>> train, test, y_train, y_test = train_test_split(
    ...     categories.data, categories.target, random_state=0
    ... )
    >>> words = make_retrieval_pipeline(
    ...     CountVectorizer(stop_words="english"), BM25Similarity()
    ... )
    >>> letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))
    >>> union = SimilarityUnion(
    ...     [("words", words, slice(None)), ("letters", letters, slice(None))],
    ...     random_state=0,
    ... ).fit(train, y_train)
    >>> union.weights_
    {'words': 0.3, 'letters': 0.7}
    >>> round(union.score(test, y_test), 2)
    0.35
    """

    _parameter_constraints: dict = {
        "similarities": [list],
        "weights": [dict, None],
        "holdout": HOLDOUT,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        similarities: list,
        *,
        weights: dict | None = None,
        holdout: str | None = "auto",
        random_state=None,
    ):
        self.similarities = similarities
        self.weights = weights
        self.holdout = holdout
        self.random_state = random_state

    # -- parameters --

    @property
    def _pairs(self):
        """The parts without columns, as the base class takes them."""
        try:
            return [(name, part) for name, part, _ in self.similarities]
        except (TypeError, ValueError):
            return self.similarities

    @_pairs.setter
    def _pairs(self, pairs):
        self.similarities = [
            (name, part, columns)
            for (name, part), (_, _, columns) in zip(
                pairs, self.similarities, strict=True
            )
        ]

    def get_params(self, deep: bool = True) -> dict:
        """Return the parameters, with those of the parts.

        Parameters
        ----------
        deep : bool, default=True
            Whether the parameters of the parts are returned too.

        Returns
        -------
        params : dict
            Values by name.
        """
        return self._get_params("_pairs", deep=deep)

    def set_params(self, **params) -> Self:
        """Set parameters of the union or of its parts.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The union itself.
        """
        self._set_params("_pairs", **params)
        return self

    # -- fit --

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the parts, and learn their weights.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame, list} of length n_samples
            Queries, with judgements; otherwise samples.

        y : Judgements, labels, relevance matrix or None, default=None
            With :class:`~sklearn_simlearn.metrics.Judgements`, documents with the
            columns of `X` come with it.

        Returns
        -------
        self : object
            The union itself.
        """
        with replacing_state(self):
            self._check_rows(X, reset=True)
            self._check_names()
            weights = self._check_weights()
            if isinstance(y, Judgements):
                check_judgements(y, num_samples(X))
            samples = Samples.read(X, y)
            columns = self._find_columns(samples)
            self.__dict__.update(self._fit_parts(samples, columns, weights))
        return self

    def _check_names(self):
        if not self.similarities or not all(
            isinstance(part, tuple) and len(part) == 3 for part in self.similarities
        ):
            raise ValueError(
                "similarities must be a list of (name, similarity, columns), with at "
                f"least one; got {self.similarities!r}."
            )
        self._validate_names([name for name, _ in self._pairs])
        for name, part in self._pairs:
            if part != "passthrough" and not hasattr(part, "fit"):
                raise TypeError(
                    f"The part {name!r} must be an estimator or 'passthrough'; got "
                    f"{part!r}."
                )

    def _check_weights(self):
        """Return the given weights with the sum 1, in the order of the parts."""
        if self.weights is None:
            return None
        names = [name for name, _ in self._pairs]
        if set(self.weights) != set(names):
            raise ValueError(
                f"weights must hold a number for each of the parts {names}; got "
                f"{self.weights!r}."
            )
        values = [self.weights[name] for name in names]
        if not all(
            isinstance(value, Real) and np.isfinite(value) and value >= 0
            for value in values
        ):
            raise ValueError(
                f"weights must be finite and not negative; got {self.weights!r}."
            )
        if sum(values) <= 0:
            raise ValueError("One of the weights must be larger than 0.")
        return tuple(value / sum(values) for value in values)

    def _find_columns(self, samples):
        """Return the columns of each part; both sides must have them."""
        found = [
            columns(samples.X) if callable(columns) else columns
            for _, _, columns in self.similarities
        ]
        for columns in found:
            take_columns(samples.X, columns)
            take_columns(samples.items, columns)
        return found

    def _fit_parts(self, samples, columns, weights):
        """Return the fitted attributes."""
        rng = make_generator(self.random_state)
        fitting = _Fitting([part for _, part in self._pairs], columns, samples)
        learned = Learned(weights, None, {})
        n_parts = len(columns)
        if weights is None:
            learned = Learned((1 / n_parts,) * n_parts, None, {})
            if samples.y is not None and self.holdout is not None and n_parts > 1:
                holdout = read_holdout(self.holdout, samples.relevance)
                fitting.share_fixed(keep=holdout == "queries")
                learned = learn_weights(
                    fitting.fit, samples, n_parts, self.holdout, rng
                )
        parts = fitting.fit(None)
        spreads = learned.spreads
        if spreads is None:
            fold = samples.sample(rng)
            spreads = [
                measure_spread(samples.find_similarities(part, fold), fold)
                for part in parts
            ]
        factors = np.array(learned.weights) / spreads
        names = [name for name, _ in self._pairs]
        encoder = WeightedSum(
            tuple(
                part._replace(factor=float(factor))
                for part, factor in zip(parts, factors, strict=True)
                if factor > 0
            )
        )
        return {
            "encoder_": encoder,
            "_n_columns": encoder.queries(safe_indexing(samples.X, [0])).shape[1],
            "similarities_": dict(zip(names, fitting.fitted, strict=True)),
            "weights_": dict(zip(names, learned.weights, strict=True)),
            "scales_": dict(zip(names, map(float, spreads), strict=True)),
            "_is_judged": samples.is_judged,
            **learned.attributes,
        }

    # -- what the mixin asks for --

    def _check_rows(self, X, *, reset=False):
        """Return samples of any kind; the parts check their columns."""
        if reset:
            validate_data(self, X, reset=True, skip_check_array=True)
        return X

    @property
    def _n_features_out(self):
        return self._n_columns


class _Fitting:
    """Fits the parts of a union on some rows.

    Parameters
    ----------
    similarities : list
        The parts, which are cloned.

    columns : list
        Their columns.

    samples : Samples
        All rows.

    Attributes
    ----------
    fitted : list
        The estimators of the last fit.
    """

    def __init__(self, similarities: list, columns: list, samples: Samples):
        self.similarities, self.columns, self.samples = similarities, columns, samples
        self.fitted: list = []
        self._shared: dict[int, Any] = {}
        self._can_share = False

    def share_fixed(self, *, keep: bool) -> None:
        """Fit parts once that depend on the documents only, if all folds have them."""
        self._can_share = keep

    def fit(self, rows: np.ndarray | None) -> list[Part]:
        """Return the parts fitted on some rows; on all if None."""
        samples = self.samples
        X, y = (samples.X, samples.y) if rows is None else samples.take(rows)
        pipelines = [self._fit_part(i, X, y) for i in range(len(self.columns))]
        self.fitted = [pipeline.steps[0][1] for pipeline in pipelines]
        return [
            Part(columns, find_model(pipeline), 1.0)
            for pipeline, columns in zip(pipelines, self.columns, strict=True)
        ]

    def _fit_part(self, number, X, y):
        """Return a part as the only step of a fitted pipeline.

        The pipeline fits a transformer on the documents, and refuses a plain Pipeline.
        """
        if number in self._shared:
            return self._shared[number]
        part, columns = self.similarities[number], self.columns[number]
        if not isinstance(part, str):
            part = clone(part)
        if isinstance(y, Judgements):
            y = y.with_documents(take_columns(y.documents, columns))
        pipeline = RetrievalPipeline([("similarity", part)])
        pipeline.fit(take_columns(X, columns), y)
        if self._can_share and uses_documents_only(pipeline):
            self._shared[number] = pipeline
        return pipeline
