"""Pipeline that transforms queries and documents."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from joblib import Memory
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import available_if

from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.sklearn import DocLinkMixin, fit_context, num_samples
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._core.unwrap import find_model, list_steps, naming_rows
from sklearn_simlearn.compose._last import find_last
from sklearn_simlearn.metrics import map_scorer

SIDE_STEPS = ("query_steps", "document_steps")

# Last step of a Pipeline of transformers. It is added because `memory` does not cache
# the last step.
NOTHING = ("nothing", "passthrough")


def _ends_in_transformer(pipeline):
    last = pipeline.steps[-1][1]
    return last in (None, "passthrough") or hasattr(last, "transform")


class RetrievalPipeline(DocLinkMixin, Pipeline):
    """Pipeline for queries that search documents.

    With :class:`~sklearn_simlearn.metrics.Judgements` as `y`, the rows of `X` are
    queries, and `y` contains the documents. The steps are fitted on the documents, so
    that vocabularies and other statistics do not depend on the queries. They transform
    queries and documents. The last step receives the transformed queries, and the
    judgements with the transformed documents.

    With labels as `y`, or without `y`, it works like a
    :class:`~sklearn.pipeline.Pipeline`. A plain Pipeline does not transform documents.
    Scorers and the index therefore raise an error if a plain Pipeline was fitted with
    judgements.

    Parameters
    ----------
    steps : list of (name, estimator)
        Transformers of queries and documents, then a learner or a hand-made similarity.
        If the last step is a transformer, its output is compared by the cosine.

    query_steps : list of (name, transformer), default=None
        Transformers of the queries only, before `steps`. They are fitted on the
        queries.

    document_steps : list of (name, transformer), default=None
        Transformers of the documents only, before `steps`. They are fitted on the
        documents.

    memory : str or object with the interface of joblib.Memory, default=None
        Cache of fitted transformers. All folds of a cross-validation have the same
        documents, so transformers that are fitted on the documents are fitted once.

    verbose : bool, default=False
        Whether to print the time of each step.

    Attributes
    ----------
    named_steps : :class:`~sklearn.utils.Bunch`
        The steps in `steps` by name.

    See Also
    --------
    make_retrieval_pipeline : Makes a pipeline with automatic names.
    SimilarityUnion : A weighted sum of similarities.

    Notes
    -----
    The names in `steps`, `query_steps` and `document_steps` must differ.

    With judgements, parameters of `fit` can be passed to the last step only, as
    ``name__parameter=value`` or by metadata routing.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn_simlearn.compose import RetrievalPipeline
    >>> from sklearn_simlearn.metrics import Judgements
    >>> from sklearn_simlearn.similarities import BM25Similarity
    >>> documents = ["a cat sat on a mat", "a dog saw a cat", "ships at sea"]
    >>> queries = ["sea and ships", "cats or a mat"]
    >>> y = Judgements([[0, 0, 1], [1, 0, 0]], documents)
    >>> bm25 = RetrievalPipeline(
    ...     [("count", CountVectorizer()), ("bm25", BM25Similarity())]
    ... )
    >>> bm25.fit(queries, y).score(queries, y)
    1.0
    >>> bm25.similarity(["a dog"], documents).round(2)
    array([[0.  , 0.41, 0.  ]])
    """

    # Pipeline uses this parameter for metadata that are samples. Here, the documents
    # are in y.
    transform_input = None

    _parameter_constraints: dict = {
        **{
            name: rule
            for name, rule in Pipeline._parameter_constraints.items()
            if name != "transform_input"
        },
        "query_steps": [list, None],
        "document_steps": [list, None],
    }

    def __init__(
        self,
        steps: Sequence[tuple[str, BaseEstimator]],
        *,
        query_steps: Sequence[tuple[str, BaseEstimator]] | None = None,
        document_steps: Sequence[tuple[str, BaseEstimator]] | None = None,
        memory: str | Memory | None = None,
        verbose: bool = False,
    ):
        self.steps = steps
        self.query_steps = query_steps
        self.document_steps = document_steps
        self.memory = memory
        self.verbose = verbose

    # -- parameters --

    def get_params(self, deep: bool = True) -> dict:
        """Return the parameters, with those of all steps.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the parameters of the steps, too.

        Returns
        -------
        params : dict
            Values by name.
        """
        params = super().get_params(deep)
        for name in SIDE_STEPS:
            params |= self._get_params(name, deep=deep)
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the pipeline or of its steps.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The pipeline itself.
        """
        for name in SIDE_STEPS:
            if name in params:
                setattr(self, name, params.pop(name))
            for step_name, _ in getattr(self, name) or ():
                if step_name in params:
                    self._replace_estimator(name, step_name, params.pop(step_name))
        return super().set_params(**params)

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> Self:
        """Set the container of the output of all steps.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            The container; unchanged if None.

        Returns
        -------
        self : object
            The pipeline itself.
        """
        for step in list_steps(self.query_steps, self.document_steps):
            step.set_output(transform=transform)
        return super().set_output(transform=transform)

    def __getitem__(self, ind: Any) -> Any:
        """Return a step, or a pipeline of some steps.

        `query_steps` and `document_steps` precede the first step, so only a slice that
        starts with the first step contains them.
        """
        if not isinstance(ind, slice):
            return super().__getitem__(ind)
        part = super().__getitem__(ind)
        if ind.indices(len(self.steps))[0] == 0:
            part.query_steps, part.document_steps = (
                self.query_steps,
                self.document_steps,
            )
        return part

    # -- fit --

    def fit(self, X: MatrixLike, y: TargetLike | None = None, **params: Any) -> Self:
        """Fit the transformers, then the last step on the transformed samples.

        Parameters
        ----------
        X : sequence of queries or samples
            With :class:`~sklearn_simlearn.metrics.Judgements` as `y`, the queries.
            Otherwise the samples; without `y`, the documents.

        y : Judgements, array-like or None, default=None
            Judgements, which contain the documents. Labels are allowed if there are
            neither `query_steps` nor `document_steps`.

        **params : dict
            Parameters of the `fit` of the last step.

        Returns
        -------
        self : object
            The pipeline itself.
        """
        if isinstance(y, Judgements):
            check_judgements(y, num_samples(X))
            with naming_rows(X, documents=y.documents):
                return self._fit_sides(X, y.documents, y, **params)
        if not (self.query_steps or self.document_steps):
            with naming_rows(X):
                return super().fit(X, y, **params)
        if y is not None:
            raise ValueError(
                "query_steps and document_steps need Judgements as y. With other "
                "targets, the same samples are queries and items."
            )
        return self._fit_sides(X, X, None, **params)

    @fit_context(prefer_skip_nested_validation=False)
    def _fit_sides(self, X, documents, y, **params):
        self._check_steps()
        (name, last), params = self.steps[-1], self._read_fit_params(params)
        prepare = self._make_pipeline(
            [*(self.document_steps or ()), *self.steps[:-1], NOTHING]
        )
        D = prepare.fit_transform(documents)
        fitted = prepare.steps[:-1]
        n_own = len(self.document_steps or ())
        if n_own:
            self.document_steps = fitted[:n_own]
        self.steps = [*fitted[n_own:], (name, last)]
        needs_queries = _is_similarity(last) and y is not None
        if self.query_steps or needs_queries:
            prepare = self._make_pipeline([*(self.query_steps or ()), NOTHING])
            Q = prepare.fit_transform(X)
            if self.query_steps:
                self.query_steps = prepare.steps[:-1]
        if needs_queries:
            for step in list_steps(self.steps[:-1]):
                Q = step.transform(Q)
            self._fit_last(Q, y.with_documents(D), **params)
        else:
            self._fit_last(D, None, **params)
        return self

    def _fit_last(self, X, y, **params):
        last = self.steps[-1][1]
        if last is None or isinstance(last, str):
            return
        context = self._init_callback_context(max_subtasks=1)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        step = context.subcontext(task_name="fit-final-estimator")
        with step.propagate_callback_context(last):
            step.call_on_fit_task_begin(estimator=self, X=X, y=y)
            last.fit(X, y, **params)
            step.call_on_fit_task_end(estimator=self, X=X, y=y)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)

    def _make_pipeline(self, steps):
        return Pipeline(steps, memory=self.memory, verbose=self.verbose)

    def _check_steps(self):
        """Raise if a name occurs twice, or if the last step is a plain Pipeline."""
        self._validate_steps()
        parts = (self.query_steps or [], self.document_steps or [], self.steps)
        self._validate_names([name for part in parts for name, _ in part])
        last = self.steps[-1][1]
        inner = getattr(last, "estimator", last)
        if (
            isinstance(inner, Pipeline)
            and not isinstance(inner, RetrievalPipeline)
            and _is_similarity(inner)
            and len(list_steps(inner.steps)) > 1
        ):
            raise ValueError(
                "The last step is a Pipeline, which does not transform documents. Move "
                "its steps into this RetrievalPipeline, or replace it by a "
                "RetrievalPipeline."
            )

    def _read_fit_params(self, params):
        """Return the parameters of the last step."""
        name = self.steps[-1][0]
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **params)[name].fit
        prefix = f"{name}__"
        others = [key for key in params if not key.startswith(prefix)]
        if others:
            raise ValueError(
                f"With Judgements, only the last step takes parameters of fit, as "
                f"{prefix}...; got {', '.join(others)}."
            )
        return {key.removeprefix(prefix): value for key, value in params.items()}

    # -- use --

    @available_if(_ends_in_transformer)
    def fit_transform(
        self, X: MatrixLike, y: TargetLike | None = None, **params: Any
    ) -> Matrix:
        """Fit the pipeline and encode the queries.

        Parameters
        ----------
        X : sequence of queries or samples
            As for `fit`.

        y : Judgements, array-like or None, default=None
            As for `fit`.

        **params : dict
            As for `fit`.

        Returns
        -------
        Q : matrix of shape (n_samples, n_features_out)
            The encoded queries.
        """
        if isinstance(y, Judgements) or self.query_steps or self.document_steps:
            return self.fit(X, y, **params).transform(X)
        with naming_rows(X):
            return super().fit_transform(X, y, **params)

    @available_if(_ends_in_transformer)
    def transform(self, X: MatrixLike, **params: Any) -> Matrix:
        """Encode queries.

        Parameters
        ----------
        X : sequence of length n_queries
            Queries.

        **params : dict
            Parameters that the steps request.

        Returns
        -------
        Q : matrix of shape (n_queries, n_features_out)
            The encoded queries.
        """
        with naming_rows(X):
            for step in list_steps(self.query_steps):
                X = step.transform(X)
            return super().transform(X, **params)

    def transform_database(self, X: MatrixLike) -> Matrix:
        """Encode documents for an inner-product index.

        Parameters
        ----------
        X : sequence of length n_documents
            Documents.

        Returns
        -------
        D : matrix of shape (n_documents, n_features_out)
            The documents to store.
        """
        model = find_model(self)
        return model.encode_items(model.prepare_items(X))

    def similarity(self, X: MatrixLike, Y: MatrixLike | None = None) -> np.ndarray:
        """Return the similarity of every query to every document.

        Parameters
        ----------
        X : sequence of length n_queries
            Queries.

        Y : sequence of length n_documents, default=None
            Documents; `X` itself if None.

        Returns
        -------
        S : ndarray of shape (n_queries, n_documents)
            Larger is more similar.
        """
        model = find_model(self)
        compare = model.compare_with(model.prepare_items(X if Y is None else Y))
        Q = model.prepare_queries(X)
        return compare(Q, np.arange(num_samples(Q)), None)

    def score(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: ArrayLike | None = None,
        *,
        query_mask: ArrayLike | None = None,
    ) -> float:
        """Return the mean average precision.

        Parameters
        ----------
        X : sequence of queries or samples
            With judgements, the queries. Otherwise the samples, each of which queries
            the others.

        y : Judgements or array-like
            Judgements, which contain the documents; or labels of the samples.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the queries.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query. If None, every sample with a relevant sample queries.

        Returns
        -------
        score : float
            Between 0 and 1.
        """
        return map_scorer(
            self, X, y, sample_weight=sample_weight, query_mask=query_mask
        )


def make_retrieval_pipeline(
    *steps: BaseEstimator,
    query_steps: Sequence[BaseEstimator] | None = None,
    document_steps: Sequence[BaseEstimator] | None = None,
    memory: str | Memory | None = None,
    verbose: bool = False,
) -> RetrievalPipeline:
    """Make a :class:`RetrievalPipeline` whose steps are named after their classes.

    Parameters
    ----------
    *steps : list of estimators
        Transformers of queries and documents, then a learner or a hand-made similarity.

    query_steps, document_steps : list of transformers, default=None
        Transformers of only the queries or only the documents. Their names begin with
        "query-" and "document-".

    memory, verbose : default=None and False
        Parameters of the pipeline.

    Returns
    -------
    pipeline : RetrievalPipeline
        The pipeline.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn_simlearn import OASIS
    >>> from sklearn_simlearn.compose import make_retrieval_pipeline
    >>> model = make_retrieval_pipeline(TfidfVectorizer(), OASIS())
    >>> list(model.named_steps)
    ['tfidfvectorizer', 'oasis']
    """
    named = {
        side: [(f"{side}-{name}", step) for name, step in make_pipeline(*given).steps]
        for side, given in (("query", query_steps), ("document", document_steps))
        if given
    }
    return RetrievalPipeline(
        make_pipeline(*steps).steps,
        query_steps=named.get("query"),
        document_steps=named.get("document"),
        memory=memory,
        verbose=verbose,
    )


def _is_similarity(estimator):
    """Return True if an estimator, or the last one in it, compares samples."""
    if isinstance(estimator, RetrievalPipeline):
        return True
    return hasattr(find_last(estimator), "similarity")
