"""Weighted sum of similarities of different columns."""

from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import validate_data

from sklearn_simlearn._core.choice import ChoiceMixin
from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.sklearn import (
    BaseComposition,
    fit_context,
    num_samples,
    safe_indexing,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import RandomState
from sklearn_simlearn._core.unwrap import Model, find_model
from sklearn_simlearn._folds import MAX_ROWS, Fold, make_folds
from sklearn_simlearn._holdout import HOLDOUT, SharedFolds, read_holdout, settle
from sklearn_simlearn.base import EncodedSimilarityMixin, replacing_state
from sklearn_simlearn.compose._last import has_query_steps, uses_documents_only
from sklearn_simlearn.compose._parts import Columns, Part, WeightedSum
from sklearn_simlearn.compose._pipeline import RetrievalPipeline
from sklearn_simlearn.compose._weights import (
    Learned,
    Samples,
    learn_weights,
    measure_spread,
)


class SimilarityUnion(
    ChoiceMixin, MetaEstimatorMixin, EncodedSimilarityMixin, BaseComposition
):
    r"""Weighted sum of several similarities, each with separate columns.

    .. math:: s(q, d) = \sum_p \frac{w_p}{\sigma_p}\, s_p(q, d)

    BM25 finds documents with the words of a query. Vectors find documents with a
    similar meaning. The sum of both is often better than either. The weights
    :math:`w_p` are learned from `y` by a hold-out, or given. The scales
    :math:`\sigma_p` make different similarities comparable.

    Parameters
    ----------
    similarities : list of (name, similarity, columns)
        The parts. A similarity is a learner, a hand-made similarity, a pipeline that
        ends in one, or a transformer, whose output is compared by the cosine.
        "passthrough" is the cosine of the columns. With judgements, a pipeline must be
        a :class:`RetrievalPipeline`.

        Columns are selected as in :class:`~sklearn.compose.ColumnTransformer`. A name
        selects one column of a frame, such as texts. A list of names or numbers, a
        slice or a mask selects several columns. A function receives `X` and returns one
        of these. ``slice(None)`` selects `X` itself, for example a list of texts. Other
        frames may have the columns in another order, because columns with names are
        found by their names.

    weights : dict, default=None
        Weight of each part by name. The weights are divided by their sum. If None, they
        are learned from `y`; without `y`, they are equal.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of data that is held out to choose the weights, as in the learners. "auto"
        is "queries" for judgements and "objects" for labels. If None, the weights are
        equal.

    random_state : int, RandomState instance or None, default=None
        Draws the folds.

    Attributes
    ----------
    similarities_ : dict
        The fitted parts by name.

    weights_ : dict
        Weights :math:`w_p` by name, with the sum 1.

    scales_ : dict
        Scales :math:`\sigma_p` by name: the difference between the highest and the mean
        similarity of the items to a query, averaged over queries.

    holdout_gain_, holdout_error_ : float
        Gain of the chosen weights over the best single part on held-out queries, and
        its standard error: in nDCG@10 with judgements, otherwise in mean average
        precision. Set only if weights were learned.

    holdout_results_ : dict
        All weights that were tried, as tuples in the order of the parts, with their
        measures.

    encoder_ : Encoder
        Encoder of the sum as an inner product. Parts with weight 0 are left out.

    n_features_in_ : int
        Number of columns of `X`, if it has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if all are strings.

    See Also
    --------
    RetrievalPipeline : Steps that transform queries and documents.

    Notes
    -----
    Held-out queries choose the weights. The parts are fitted without these queries.
    First, the best subset of the parts with equal weights is found. Other weights, from
    a grid, are chosen only if their gain over this subset is larger than its error.
    This avoids overfitting with few queries. A part that does not help gets the weight
    0. See :ref:`hybrid_search`.

    With judgements, the learners in the union hold out the same queries. A learner that
    is fitted without the queries of a fold has the settings that the other folds chose.

    An encoded item concatenates the encodings of the parts. The weights are applied to
    the queries. Stored items of an index therefore stay valid as long as the same parts
    have a weight other than 0.

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
    {'words': 0.5, 'letters': 0.5}
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
        random_state: RandomState = None,
    ):
        self.similarities = similarities
        self.weights = weights
        self.holdout = holdout
        self.random_state = random_state

    # -- parameters --

    @property
    def _pairs(self):
        """The parts without columns, in the form of the base class."""
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
            Whether to return the parameters of the parts, too.

        Returns
        -------
        params : dict
            Values by name.
        """
        return self._get_params("_pairs", deep=deep)

    def set_params(self, **params: Any) -> Self:
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
    def fit(self, X: Any, y: TargetLike | None = None) -> Self:
        """Fit the parts, and learn their weights.

        Parameters
        ----------
        X : {array-like, sparse matrix, frame, list} of length n_samples
            With judgements, the queries; otherwise the samples.

        y : Judgements, labels, relevance matrix or None, default=None
            Target. :class:`~sklearn_simlearn.metrics.Judgements` contain the documents,
            which must have the columns of `X`.

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
                "similarities must be a non-empty list of (name, similarity, columns); "
                f"got {self.similarities!r}."
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
                f"weights must hold one number for each of the parts {names}; got "
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
        if max(values) <= 0:
            raise ValueError("At least one of the weights must be larger than 0.")
        # Division by the largest weight first, so that the sum is finite.
        shares = np.array(values, dtype=np.float64) / float(max(values))
        return tuple((shares / shares.sum()).tolist())

    def _find_columns(self, samples):
        """Return the columns of each part; queries and items must have them."""
        found = [
            Columns.find(samples.X, columns) for _, _, columns in self.similarities
        ]
        for (name, part), columns in zip(self._pairs, found, strict=True):
            items = columns.take(samples.items)
            if part == "passthrough" and len(getattr(items, "shape", ())) == 1:
                raise ValueError(
                    f"The part {name!r} compares vectors, but {columns.chosen!r} "
                    f"selects one column without its table. Pass [{columns.chosen!r}]."
                )
        return found

    def _fit_parts(self, samples, columns, weights):
        """Return the fitted attributes."""
        rng = make_generator(self.random_state)
        fitting = _Fitting(self._pairs, columns, samples)
        learned = Learned(weights, None, {})
        n_parts = len(columns)
        if weights is None:
            learned = Learned((1 / n_parts,) * n_parts, None, {})
            if samples.y is not None and self.holdout is not None and n_parts > 1:
                holdout = read_holdout(self.holdout, samples.relevance)
                folds = make_folds(samples.relevance, holdout, rng)
                fitting.prepare(holdout, folds)
                by_class = holdout == "objects"
                learned = learn_weights(
                    fitting.fit, samples, n_parts, folds, by_class=by_class
                )
        parts = fitting.fit(None)
        spreads = learned.spreads
        if spreads is None:
            fold = samples.sample(rng)
            found = samples.find_similarities(parts, fold, {})
            spreads = [measure_spread(S, fold) for S in found]
        factors = np.array(learned.weights) / spreads
        names = [name for name, _ in self._pairs]
        encoder = WeightedSum(
            tuple(
                part._replace(factor=float(factor), name=name)
                for part, factor, name in zip(parts, factors, names, strict=True)
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

    # -- requirements of the mixin --

    def _check_rows(self, X, *, reset=False):
        """Return samples of any kind. The parts check their columns."""
        if reset:
            validate_data(self, X, reset=True, skip_check_array=True)
        return X

    @property
    def _n_features_out(self):
        return self._n_columns


class _Fitting:
    """Function that fits the parts of a union on some rows.

    Parameters
    ----------
    parts : list of (name, similarity)
        The parts. They are cloned before each fit.

    columns : list of Columns
        Columns of the parts.

    samples : Samples
        All rows.
    """

    def __init__(self, parts: list, columns: list, samples: Samples):
        self.parts, self.columns, self.samples = parts, columns, samples
        self._folds: list[Fold] = []
        self._whole: list = []
        self._shared: dict[int, Model] = {}
        self._chosen: dict[int, list] = {}
        self._encoders: dict[int, list] = {}

    def prepare(self, holdout: str, folds: list[Fold]) -> None:
        """Fit the parts on all rows, to save work in the folds.

        If all folds have all documents, a part that depends on the documents only is
        the same in all folds. With judgements, learners hold out the same folds. In a
        fold, a learner then uses the settings that the other folds chose: its hold-out
        kept the encoder, or it is fitted without a hold-out. With labels, the settings
        are chosen on all rows if there are many queries; otherwise again in each fold.
        """
        relevance = self.samples.require_relevance()
        shared = SharedFolds(holdout, relevance, folds)
        is_large = np.count_nonzero(relevance.find_queries()) >= MAX_ROWS
        self._folds = folds
        for number in range(len(self.columns)):
            with shared.lend() if self.samples.is_judged else nullcontext():
                pipeline = self._fit_part(number, self.samples.X, self.samples.y)
            self._whole.append(pipeline)
            if holdout == "queries" and uses_documents_only(pipeline):
                self._shared[number] = find_model(pipeline)
            results = _find_results(pipeline)
            if results is None:
                continue
            if (
                shared.encoders
                and holdout == "queries"
                and not has_query_steps(pipeline)
            ):
                self._encoders[number] = shared.encoders
            elif shared.candidates:
                self._chosen[number] = shared.candidates
            elif is_large and not self.samples.is_judged:
                best = results["candidates"][results["best_index"]]
                self._chosen[number] = [best] * len(folds)

    @property
    def fitted(self) -> list:
        """Return the parts, fitted on all rows."""
        return [pipeline.steps[0][1] for pipeline in self._whole]

    def fit(self, fold: int | None) -> list[Part]:
        """Return the parts fitted on the rows of a fold; on all rows if None."""
        numbers = range(len(self.columns))
        if fold is None:
            if not self._whole:
                X, y = self.samples.X, self.samples.y
                self._whole = [self._fit_part(number, X, y) for number in numbers]
            models = [find_model(pipeline) for pipeline in self._whole]
        else:
            X, y = self.samples.take(self._folds[fold].train)
            models = [self._fit_in_fold(number, X, y, fold) for number in numbers]
        return [
            Part(columns, model, 1.0)
            for model, columns in zip(models, self.columns, strict=True)
        ]

    def _fit_in_fold(self, number, X, y, fold):
        """Return the model of a part that is fitted on the rows of a fold."""
        if number in self._shared:
            return self._shared[number]
        if number in self._encoders:
            model = find_model(self._whole[number])
            learner = copy(model.learner)
            learner.encoder_ = self._encoders[number][fold]
            return replace(model, learner=learner)
        if number not in self._chosen:
            return find_model(self._fit_part(number, X, y))
        with settle(self._chosen[number][fold]):
            return find_model(self._fit_part(number, X, y))

    def _fit_part(self, number, X, y):
        """Return a part as the only step of a fitted RetrievalPipeline.

        This pipeline fits a transformer on the documents, and raises an error if the
        part is a plain Pipeline.
        """
        (name, part), columns = self.parts[number], self.columns[number]
        if not isinstance(part, str):
            part = clone(part)
        if isinstance(y, Judgements):
            y = y.with_documents(columns.take(y.documents))
        pipeline = RetrievalPipeline([("similarity", part)])
        try:
            return pipeline.fit(columns.take(X), y)
        except Exception as error:
            error.add_note(
                f"This is an error of the part {name!r} of the SimilarityUnion. Its "
                f"columns are {columns.chosen!r}. A name or number selects one column, "
                "such as texts; a list selects a table, such as vectors."
            )
            raise


def _find_results(estimator):
    """Return the hold-out results of the learner at the end of nested pipelines.

    Return None if there is no such learner, or if it fits other learners, which have
    their own hold-outs.
    """
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    if isinstance(estimator, str) or any(
        hasattr(value, "fit") for value in estimator.get_params(deep=False).values()
    ):
        return None
    return getattr(estimator, "holdout_results_", None)
