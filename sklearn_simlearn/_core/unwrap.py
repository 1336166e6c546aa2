"""The parts of a fitted estimator: steps, a learner, a comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.dask import PartitionedRows, take_rows
from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.rows import canonical_csr, unit_rows
from sklearn_simlearn._core.storable import storable
from sklearn_simlearn._core.typing import Matrix


@storable
@dataclass
class Model:
    """A fitted estimator, taken apart by :func:`find_model`.

    Attributes
    ----------
    steps : list of transformers
        Applied in turn to queries and items alike.

    learner : object or None
        Compares what comes out; None stands for the cosine.

    database : tuple (X, y) or None
        Training samples, if the estimator kept them.
    """

    steps: list
    learner: object
    database: tuple | None

    @cached_property
    def has_encodings(self) -> bool:
        """Whether the similarity is an inner product of encodings."""
        return self.learner is None or (
            hasattr(self.learner, "transform_database") and not self.is_pairwise
        )

    def __getstate__(self):
        """Return the state without what was computed from it."""
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @property
    def takes_groups(self) -> bool:
        """Whether several samples can query together."""
        return (
            self.learner is not None
            and "groups" in signature(self.learner.similarity).parameters
        )

    @property
    def is_pairwise(self) -> bool:
        """Whether samples are rows of a matrix of similarities to each other."""
        return self.learner is not None and get_tags(self.learner).input_tags.pairwise

    def prepare(self, X):
        """Samples as the learner takes them; sparse ones as canonical CSR."""
        if isinstance(X, PartitionedRows):
            return X.map(_prepare, self)
        for step in self.steps:
            X = step.transform(canonical_csr(X) if sparse.issparse(X) else X)
        return canonical_csr(X) if sparse.issparse(X) else X

    def encode_queries(self, X, **params) -> Matrix:
        """Return the surrogate queries of prepared samples."""
        if self.learner is None:
            return _unit_rows(X)
        self._require_encodings()
        if self._encoder is not None:
            return self._encoder.queries(self.learner._check_rows(X), **params)
        return _as_rows(self.learner.transform(X, **params))

    def encode_items(self, X) -> Matrix:
        """Return prepared samples as they are stored."""
        if self.learner is None:
            return _unit_rows(X)
        self._require_encodings()
        if self._encoder is not None:
            return self._encoder.items(self.learner._check_rows(X))
        return _as_rows(self.learner.transform_database(X))

    @property
    def _encoder(self) -> Encoder | None:
        """The encoder of a learner of this package; None of a foreign estimator."""
        return getattr(self.learner, "encoder_", None)

    def compare_with(
        self, X_items, *, in_groups: bool = False, n_threads: int = 1
    ) -> Callable[..., np.ndarray]:
        """A function that compares queries with some items, which it encodes only once.

        Parameters
        ----------
        X_items : prepared samples
            Items to compare with.

        in_groups : bool, default=False
            Whether queries come in groups, which is up to the learner's `similarity`.

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
            # It may be that of a user's estimator, of integers too.
            return check_array(
                self.learner.similarity(X_queries, Y, **params),
                dtype=[np.float64, np.float32],
                order="C",
                ensure_all_finite=False,
            )

        return compare

    def _compare_with_partitions(self, X_items, in_groups, n_threads):
        """As `compare_with`, for items on a cluster: only similarities come from it."""
        if in_groups or not self.has_encodings:
            raise TypeError(
                "Groups, and similarities that are no inner product, need the items in "
                "memory: call X.compute() if they fit into it."
            )
        stored = X_items.map(_Stored, self, n_threads)
        return lambda X, rows, groups: np.hstack(
            stored.ask(_Stored.products, self.encode_queries(take_rows(X, rows)))
        )

    def _require_encodings(self):
        if not self.has_encodings:
            raise TypeError(
                f"The similarity of {self.learner!r} is no inner product, so it has no "
                "encodings: use `similarity`."
            )


def find_model(estimator) -> Model:
    """Look through searches and pipelines for the learner at their end.

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
    inner, steps, database = estimator, [], None
    while not hasattr(inner, "similarity"):
        if isinstance(inner, Pipeline):
            *head, (_, inner) = inner.steps
            steps += [step for _, step in head if step not in (None, "passthrough")]
        elif isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        elif hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        elif hasattr(inner, "training_data_"):
            if not steps:
                database = inner.training_data_
            inner = inner.estimator_
        elif inner in (None, "passthrough"):
            return Model(steps, None, database)
        elif hasattr(inner, "transform"):
            return Model(steps + [inner], None, database)
        else:
            raise TypeError(
                f"Retrieval needs an estimator with `similarity` or `transform`; got "
                f"{inner!r}."
            )
    return Model(steps, inner, database)


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


def _prepare(X, model):
    return model.prepare(X)


def _unit_rows(X):
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    return unit_rows(X)


def _as_rows(X):
    """Return what a foreign estimator gives as an array or a sparse matrix."""
    return X if sparse.issparse(X) else np.asarray(X)
