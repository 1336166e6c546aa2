"""The parts of a fitted estimator: steps and a learner."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.dask import PartitionedRows, take_rows
from sklearn_simlearn._core.encoders import Encoder, storable
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.rows import canonical_csr, unit_rows
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.typing import Matrix

# Errors of vectorizers for values that are not texts.
ERRORS_OF_TEXTS = (AttributeError, TypeError, ValueError)


@storable
@dataclass
class Model:
    """A fitted estimator, taken apart by :func:`find_model`.

    Attributes
    ----------
    query_steps, item_steps : list of transformers
        Applied in turn to queries and to items. They are equal unless the estimator is
        a RetrievalPipeline.

    learner : object or None
        Compares the output of the steps; None means the cosine.

    database : tuple (X, y) or None
        Training samples, if the estimator kept them.

    steps_of_queries : list of transformers
        Steps outside a RetrievalPipeline, which a fit with Judgements fits on queries.
    """

    query_steps: list
    item_steps: list
    learner: Any
    database: tuple | None
    steps_of_queries: list

    @cached_property
    def has_encodings(self) -> bool:
        """Return whether the similarity is an inner product of encodings."""
        return self.learner is None or (
            hasattr(self.learner, "transform_database") and not self.is_pairwise
        )

    def __getstate__(self):
        """Return the state without cached values."""
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @property
    def takes_groups(self) -> bool:
        """Return whether several samples can query together."""
        return (
            self.learner is not None
            and "groups" in signature(self.learner.similarity).parameters
        )

    @property
    def is_pairwise(self) -> bool:
        """Return whether samples are rows of a matrix of similarities to each other."""
        return self.learner is not None and get_tags(self.learner).input_tags.pairwise

    @property
    def has_two_sides(self) -> bool:
        """Return whether queries have other steps than items."""
        pairs = zip_longest(self.query_steps, self.item_steps)
        return any(query_step is not item_step for query_step, item_step in pairs)

    def prepare_queries(self, X):
        """Return queries as the learner takes them; sparse ones as canonical CSR."""
        with naming_rows(X):
            return _apply_steps(X, self.query_steps)

    def prepare_items(self, X):
        """Return items as the learner takes them; sparse ones as canonical CSR."""
        with naming_rows(items=X):
            return _apply_steps(X, self.item_steps)

    def prepare_samples(self, X):
        """Return samples that query each other, as queries and as items."""
        queries = self.prepare_queries(X)
        return queries, self.prepare_items(X) if self.has_two_sides else queries

    def name_features(self, names=None):
        """Return the names of the features of prepared items, or None.

        Parameters
        ----------
        names : ndarray of str, default=None
            Names of the features before the steps.
        """
        for step in self.item_steps:
            try:
                names = step.get_feature_names_out(names)
            except (AttributeError, ValueError):  # the step has no names
                names = None
        if names is None:
            names = getattr(self.learner, "feature_names_in_", None)
        if names is None and hasattr(self.learner, "n_features_in_"):
            names = [f"x{i}" for i in range(self.learner.n_features_in_)]
        return None if names is None else np.asarray(names, dtype=object)

    def refuse_steps_of_queries(self) -> None:
        """Raise if a step outside a RetrievalPipeline may be fitted on queries."""
        if self.steps_of_queries:
            names = _name_steps(self.steps_of_queries)
            raise ValueError(
                f"With Judgements as y, {names} would be fitted on the "
                "queries instead of the documents. Use make_retrieval_pipeline(...) of "
                "sklearn_simlearn.compose, which fits its steps on the documents. If "
                "they are fitted on documents already, pass them as "
                "RetrievalPipeline(steps)."
            )

    def encode_queries(self, X, **params) -> Matrix:
        """Return the surrogate queries of prepared samples."""
        if self.learner is None:
            return _unit_rows(X)
        self._require_encodings()
        if self._encoder is not None:
            return self._encoder.queries(self.learner._check_rows(X), **params)
        return _as_rows(self.learner.transform(X, **params))

    def encode_items(self, X) -> Matrix:
        """Return prepared samples in the form in which they are stored."""
        if self.learner is None:
            return _unit_rows(X)
        self._require_encodings()
        if self._encoder is not None:
            return self._encoder.items(self.learner._check_items(X))
        return _as_rows(self.learner.transform_database(X))

    @property
    def _encoder(self) -> Encoder | None:
        """The encoder of a learner of this package; None for other estimators."""
        return getattr(self.learner, "encoder_", None)

    def compare_with(
        self, X_items, *, in_groups: bool = False, n_threads: int = 1
    ) -> Callable[..., np.ndarray]:
        """Return a function that compares queries with items, encoded only once.

        Parameters
        ----------
        X_items : prepared samples
            Items to compare with.

        in_groups : bool, default=False
            Whether the learner's `similarity` takes queries in groups.

        n_threads : int, default=1
            Threads for products of sparse encodings.

        Returns
        -------
        compare : callable
            ``compare(X, rows, groups)``: similarity of these rows of prepared samples,
            or of their groups in sorted order, to all items.
        """
        if isinstance(X_items, PartitionedRows):
            return self._compare_with_partitions(X_items, in_groups, n_threads)
        if self._encoder is not None and self.has_encodings and not in_groups:
            check, items = self.learner._check_rows, self.learner._check_items(X_items)
            of_queries = self._encoder.products_with(items, n_threads)
            return lambda X, rows, groups: of_queries(check(take_rows(X, rows)))
        if self.has_encodings and not in_groups:
            products = products_with(self.encode_items(X_items), n_threads)
            return lambda X, rows, groups: products(
                self.encode_queries(take_rows(X, rows))
            )

        def compare(X, rows, groups):
            params = {"groups": groups} if in_groups else {}
            X_queries, Y = take_rows(X, rows), X_items
            if self.is_pairwise:
                X_queries, Y = X_queries[:, rows], Y[:, rows]
            # A user's estimator may return integers.
            return check_array(
                self.learner.similarity(X_queries, Y, **params),
                dtype=[np.float64, np.float32],
                order="C",
                ensure_all_finite=False,
            )

        return compare

    def _compare_with_partitions(self, X_items, in_groups, n_threads):
        """Return the same as `compare_with`, for items on a cluster."""
        if in_groups or not self.has_encodings:
            raise TypeError(
                "Groups, and similarities that are not inner products, need the items "
                "in memory. Call X.compute() if they fit into it."
            )
        stored = X_items.map(_Stored, self, n_threads)
        return lambda X, rows, groups: np.hstack(
            stored.ask(_Stored.products, self.encode_queries(take_rows(X, rows)))
        )

    def _require_encodings(self):
        if not self.has_encodings:
            raise TypeError(
                f"The similarity of {self.learner!r} is not an inner product and has "
                "no encodings. Use `similarity`."
            )


def find_model(estimator) -> Model:
    """Return the steps and the learner at the end of searches and pipelines.

    Parameters
    ----------
    estimator : object
        A fitted learner; a pipeline, search, FrozenEstimator or KeepTrainingData with
        one at its end; or any transformer, which is compared by the cosine.

    Returns
    -------
    model : Model
    """
    check_is_fitted(estimator)
    inner, database = estimator, None
    query_steps: list = []
    item_steps: list = []
    plain_steps: list = []
    is_plain, is_frozen = True, False
    while isinstance(inner, Pipeline) or not hasattr(inner, "similarity"):
        if isinstance(inner, Pipeline):
            is_plain = is_plain and not hasattr(inner, "document_steps")
            *shared, (_, last) = inner.steps
            query_steps += list_steps(getattr(inner, "query_steps", None), shared)
            item_steps += list_steps(getattr(inner, "document_steps", None), shared)
            plain_steps += list_steps(shared) if is_plain else []
            inner = last
        elif isinstance(inner, FrozenEstimator):
            inner, is_frozen = inner.estimator, True
        elif hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        elif hasattr(inner, "training_data_"):
            if not query_steps and not item_steps:
                database = inner.training_data_
            inner = inner.estimator_
        elif inner in (None, "passthrough"):
            inner = None
            break
        elif hasattr(inner, "transform"):
            query_steps.append(inner)
            item_steps.append(inner)
            plain_steps += [inner] if is_plain else []
            inner = None
            break
        else:
            raise TypeError(
                f"Retrieval needs an estimator with `similarity` or `transform`; got "
                f"{inner!r}."
            )
    if plain_steps and getattr(inner, "_is_judged", False):
        raise ValueError(
            f"{type(inner).__name__} was fitted with Judgements in a Pipeline, which "
            f"passed the documents on without {_name_steps(plain_steps)}. Use "
            "make_retrieval_pipeline(...) of sklearn_simlearn.compose, which "
            "transforms queries and documents."
        )
    of_queries = [] if is_frozen else [step for step in plain_steps if _learns(step)]
    return Model(query_steps, item_steps, inner, database, of_queries)


def list_steps(*parts) -> list:
    """Return the transformers of lists of (name, transformer), or of None."""
    return [
        step
        for part in parts
        for _, step in part or ()
        if not (step is None or isinstance(step, str))
    ]


class naming_rows:  # a generator would take as long as encoding a query
    """Context in which the first value among texts that is not a text is named.

    If transformers raise, the error is replaced by one that names the value.

    Parameters
    ----------
    X : sequence, default=None
        Samples, which may be of any kind.

    **others : dict of sequences
        Other samples by the name that the error uses, such as `documents`.
    """

    def __init__(self, X: Any = None, **others: Any):
        self._samples = others | {"": X}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object):
        if not isinstance(error, ERRORS_OF_TEXTS):
            return
        for name, samples in self._samples.items():
            row, place = _find_other(samples), f" of the {name}" if name else ""
            if row is not None:
                value = list(samples)[row]
                raise ValueError(
                    f"Row {row}{place} is {value!r:.100}, which is not a text. Replace "
                    "it with a text, such as '', or leave out the row."
                ) from error


def _find_other(samples):
    """Return the number of the first row that is not a text among texts, or None."""
    is_sequence = isinstance(samples, list | tuple) or (
        len(getattr(samples, "shape", ())) == 1
    )
    if not is_sequence or num_samples(samples) == 0:
        return None
    is_text = [isinstance(value, str | bytes) for value in samples]
    return is_text.index(False) if any(is_text) and not all(is_text) else None


def _name_steps(steps):
    return ", ".join(dict.fromkeys(type(step).__name__ for step in steps))


def _learns(step):
    """Return whether `fit` of a transformer changes its output."""
    if isinstance(step, FrozenEstimator):
        return False
    return not hasattr(step, "__sklearn_tags__") or get_tags(step).requires_fit


class _Stored:
    """Encoded items on a worker, to compare queries with."""

    def __init__(self, X, model, n_threads):
        D = model.encode_items(X)
        self._products = products_with(D, n_threads)
        arrays = (D.data, D.indices) if sparse.issparse(D) else (D,)
        self._size = sum(array.nbytes for array in arrays)

    def products(self, Q):
        return self._products(Q)

    def __sizeof__(self):
        return self._size


def _apply_steps(X, steps):
    if isinstance(X, PartitionedRows):
        return X.map(_apply_steps, steps)
    for step in steps:
        X = step.transform(canonical_csr(X) if sparse.issparse(X) else X)
    return canonical_csr(X) if sparse.issparse(X) else X


def _unit_rows(X):
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    return unit_rows(X)


def _as_rows(X):
    """Return the output of another estimator as an array or a sparse matrix."""
    return X if sparse.issparse(X) else np.asarray(X)
