"""Report of a comparison as an HTML page."""

import os
from collections.abc import Collection, Mapping
from html import escape
from numbers import Integral

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from sklearn_simlearn._core.files import replace_file
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.progress import progress, timed_fit
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import ImagesLike, MatrixLike, TextsLike
from sklearn_simlearn.display._curves import check_baselines
from sklearn_simlearn.display._pictures import check_length
from sklearn_simlearn.index._base import is_fitted
from sklearn_simlearn.report._findings import Findings
from sklearn_simlearn.report._measurement import measure_estimator
from sklearn_simlearn.report._page import make_page


class RetrievalReport:
    """HTML page that compares estimators, query by query.

    The page has a table with confidence intervals and paired tests, curves, the gain or
    loss of each query, the results of the best, worst and most changed queries, and the
    parameters of the estimators. The page is one file and loads nothing from a network.
    Sorting and filtering need JavaScript; everything else works without it. A notebook
    displays the report.

    Parameters
    ----------
    estimators : dict
        Learners, pipelines, searches or transformers by name. Estimators that are not
        fitted are cloned and fitted on `X_train` and `y_train`.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples that were not used to fit the estimators. Each sample queries the
        others.

    y : array-like of shape (n_samples,) or (n_samples, n_columns), \
            PairwiseRelevance or Judgements
        Labels, relevance matrix or relevance by pairs. With judgements, the samples are
        queries that search the documents.

    images : sequence of length n_samples, default=None
        Images of the samples: arrays of shape (height, width) or (height, width, 3), or
        Pillow images. The page shows reduced copies.

    texts : sequence of length n_samples, default=None
        Texts of the samples; with judgements, of the queries. Not needed if `X` holds
        texts.

    document_texts : sequence of length n_documents, default=None
        Texts of the documents of judgements. Not needed if the documents are texts.

    baselines : collection of str, default=None
        Names of the baselines. Gains are relative to the best of them. If None, the
        first estimator is the baseline.

    X_train, y_train : default=None
        Training samples for estimators that are not fitted.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query. If None, every sample with a relevant item queries.

    n_shown : int, default=6
        Number of queries in each of four lists: largest gains, largest losses, best
        and worst rankings.

    n_neighbors : int, default=8
        Number of results per query.

    title : str, default="Retrieval report"
        Title of the page.

    Attributes
    ----------
    table_ : list of dict
        A line per estimator, as in the table of the page.

    gains_ : dict of ndarray of shape (n_queries,)
        Gain in average precision over the baseline for each query, by name.

    queries_ : ndarray of shape (n_queries,)
        Rows of `X` that query.

    baseline_, best_ : str
        Name of the best baseline, and of the best estimator.

    estimators_ : dict
        The fitted estimators.

    See Also
    --------
    NeighborsDisplay : Queries with their results as a figure.
    sklearn_simlearn.metrics.retrieval_report : The measures alone.

    Notes
    -----
    All text that comes from data is escaped. While estimators are fitted and measured,
    progress is shown on a terminal and in notebooks, if rich is installed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn import OASIS
    >>> from sklearn_simlearn.report import RetrievalReport
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_iris(return_X_y=True)
    >>> report = RetrievalReport(
    ...     {
    ...         "cosine": CosineSimilarity(use_idf=False),
    ...         "OASIS": OASIS(holdout="samples", random_state=0),
    ...     },
    ...     X[1::2],
    ...     y[1::2],
    ...     X_train=X[::2],
    ...     y_train=y[::2],
    ... )
    >>> report.best_
    'OASIS'
    >>> report.save("report.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        estimators: Mapping[str, BaseEstimator],
        X: MatrixLike,
        y: TargetLike,
        images: ImagesLike | None = None,
        texts: TextsLike | None = None,
        *,
        document_texts: TextsLike | None = None,
        baselines: Collection[str] | None = None,
        X_train: MatrixLike | None = None,
        y_train: TargetLike | None = None,
        query_mask: ArrayLike | None = None,
        n_shown: int = 6,
        n_neighbors: int = 8,
        title: str = "Retrieval report",
    ):
        _check_estimators(estimators, X_train)
        if baselines is not None and not check_baselines(baselines, estimators):
            raise ValueError("baselines must name at least one of the estimators.")
        for name, value in (("n_shown", n_shown), ("n_neighbors", n_neighbors)):
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be at least 1; got {value!r}.")
        check_length("images", images, num_samples(X), "X")
        check_length("texts", texts, num_samples(X), "X")
        _check_documents(y, images, document_texts)
        measured = {}
        with progress(list(estimators)) as show:
            for name, estimator in estimators.items():
                show(name)
                seconds = None
                if not is_fitted(estimator):
                    estimator = clone(estimator)
                    seconds = timed_fit(estimator, X_train, y_train, name, show)
                show(name, "measuring")
                measured[name] = measure_estimator(
                    estimator, X, y, query_mask=query_mask, fit_seconds=seconds
                )
        self._take(
            Findings(
                measured,
                X,
                y,
                images=images,
                texts=texts,
                document_texts=document_texts,
                baselines=baselines,
                n_shown=n_shown,
                n_neighbors=n_neighbors,
                title=title,
            )
        )

    @classmethod
    def _from_findings(cls, findings: Findings):
        """Return the report of given measurements."""
        report = cls.__new__(cls)
        report._take(findings)
        return report

    def _take(self, findings):
        self._findings = findings
        self.table_, self.gains_ = findings.table, findings.gains
        self.queries_ = findings.queries
        self.baseline_, self.best_ = findings.baseline, findings.best
        self.estimators_ = {
            name: measured.estimator for name, measured in findings.measured.items()
        }

    def to_html(self) -> str:
        """Return the page.

        Returns
        -------
        page : str
            A complete HTML document. Lone surrogates, which occur in file names that
            are not UTF-8, are written as backslash escapes.
        """
        page = make_page(self._findings)
        return page.encode(errors="backslashreplace").decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. If writing fails, an old file is kept.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        replace_file(path, self.to_html().encode())

    def _repr_html_(self):
        """Return the page in a frame, which isolates its style from the notebook."""
        return (
            '<iframe sandbox="allow-scripts" style="width:100%;height:40rem;border:0" '
            f'srcdoc="{escape(self.to_html())}"></iframe>'
        )

    def __repr__(self):
        return (
            f"RetrievalReport({list(self.estimators_)}, {self._findings.n_queries} "
            f"queries, best: {self.best_!r})"
        )


def _check_estimators(estimators, X_train):
    if not (
        isinstance(estimators, dict)
        and estimators
        and all(isinstance(name, str) for name in estimators)
    ):
        raise TypeError(
            "estimators must be a dict from names to estimators, with at least one; "
            f"got {estimators!r}."
        )
    for name, estimator in estimators.items():
        if X_train is None and not is_fitted(estimator):
            raise NotFittedError(
                f"{name!r} is not fitted. Fit it first, or pass X_train and y_train."
            )


def _check_documents(y, images, document_texts):
    if not isinstance(y, Judgements):
        if document_texts is not None:
            raise ValueError("document_texts requires Judgements as y.")
        return
    if images is not None:
        raise ValueError(
            "images requires samples that query each other, but Judgements have "
            "queries and documents. Pass texts and document_texts instead."
        )
    check_length("document_texts", document_texts, y.shape[1], "y.documents")
