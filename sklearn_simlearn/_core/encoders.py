"""Encoders: both sides of a similarity as one value.

The similarity of a query and an item is the inner product of the encoded query and the
encoded item. The `fit` of a learner makes one encoder. The hold-out compares encoders.
The scorer and the index use only the encoder.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from sklearn_simlearn._core._rows_fast import add_rows
from sklearn_simlearn._core.products import inner_products, products_with
from sklearn_simlearn._core.rows import (
    inverse,
    row_dots,
    scale_rows,
    side_by_side,
    unit_rows,
)
from sklearn_simlearn._core.typing import Matrix

C = TypeVar("C", bound=type)

# Private classes that a stored estimator may hold.
STORABLE: set[type] = set()


def storable(cls: C) -> C:
    """Decorate a class to let `load` create its instances from a stored estimator.

    The file sets all attributes of an instance. Decorate only classes that do nothing
    when their attributes are set, and that do not open files or call functions that the
    attributes name. Public estimators, encoders of this package and named tuples need
    no decoration.
    """
    STORABLE.add(cls)
    return cls


class Encoder:
    """Base class of encoders, which hold both sides of a similarity.

    The similarity of a query and an item is the inner product of their encodings. An
    encoder is immutable and can be pickled. A subclass implements `items`, and
    `queries` if queries are encoded differently. Both take checked rows: a C-contiguous
    array, or CSR with sorted indices, of float32 or float64.

    See Also
    --------
    SimilarityLearner : Makes an encoder in `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.base import Encoder
    >>> class Weighted(Encoder):
    ...     def __init__(self, weights):
    ...         self.weights = weights
    ...
    ...     def queries(self, X):
    ...         return X * self.weights
    ...
    ...     def items(self, X):
    ...         return X
    >>> encoder = Weighted(np.array([1.0, 2.0]))
    >>> X = np.array([[1.0, 1.0], [0.0, 3.0]])
    >>> encoder.queries(X) @ encoder.items(X).T
    array([[ 3.,  6.],
           [ 6., 18.]])
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("sklearn_simlearn."):
            storable(cls)

    def items(self, X: Matrix) -> Matrix:
        """Encode items.

        Parameters
        ----------
        X : ndarray or csr_array of shape (n_items, n_features)
            Checked rows.

        Returns
        -------
        D : ndarray or csr_array of shape (n_items, n_columns)
            One row per item, of the dtype of `X`.
        """
        raise NotImplementedError

    def queries(self, X: Matrix) -> Matrix:
        """Encode queries; by default as items.

        Parameters
        ----------
        X : ndarray or csr_array of shape (n_queries, n_features)
            Checked rows.

        Returns
        -------
        Q : ndarray or csr_array of shape (n_queries, n_columns)
            One row per query, of the dtype of `X`.
        """
        return self.items(X)

    # Set this in a subclass whose column j of an encoded item depends on feature j.
    keeps_columns = False

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the features that the first columns of encoded items represent.

        Parameters
        ----------
        names : sequence of str
            Names of the features.

        Returns
        -------
        names : sequence of str
            One name per column. A feature with several columns is repeated. Columns
            that follow do not represent features. By default, all features in their
            order if the encoder sets `keeps_columns`, otherwise none.
        """
        return names if self.keeps_columns else ()

    @property
    def is_symmetric(self) -> bool:
        """True if queries and items are encoded in the same way."""
        return type(self).queries is Encoder.queries

    def compare(self, sides: "Sides") -> np.ndarray:
        """Return the similarities of two sides; subclasses may override it for speed.

        Parameters
        ----------
        sides : Sides
            Queries and items, with their encodings so far.

        Returns
        -------
        S : ndarray of shape (n_queries, n_items)
            The similarities.
        """
        return inner_products(sides.queries(self), sides.items(self), sides.n_threads)

    def products_with(
        self, X: Matrix, n_threads: int = 1
    ) -> Callable[[Matrix], np.ndarray]:
        """Encode items once, for comparisons with several blocks of queries.

        Parameters
        ----------
        X : ndarray or csr_array of shape (n_items, n_features)
            Checked rows of the items.

        n_threads : int, default=1
            Threads for products of sparse encodings.

        Returns
        -------
        products : callable
            Function of checked rows of queries. It returns their similarities to all
            items.
        """
        products = products_with(self.items(X), n_threads)
        return lambda X_queries: products(self.queries(X_queries))


class Encodings:
    """Rows of one side, encoded by several encoders; shared parts are encoded once.

    Parameters
    ----------
    X : ndarray or csr_array
        Checked rows.

    side : {"queries", "items"}
        Side of the rows.

    twin : Encodings, default=None
        The same rows on the other side. Symmetric encoders encode them only once.
    """

    def __init__(self, X: Matrix, side: str, twin: "Encodings | None" = None):
        self.X = X
        self.side = side
        self.twin = twin
        self._known: WeakKeyDictionary[Encoder, Matrix] = WeakKeyDictionary()
        self._values: WeakKeyDictionary[object, np.ndarray] = WeakKeyDictionary()

    def value(
        self, owner: object, function: Callable[[Matrix], np.ndarray]
    ) -> np.ndarray:
        """Return `function` of the rows; computed once for each owner."""
        if self.twin is not None:
            return self.twin.value(owner, function)
        if owner not in self._values:
            self._values[owner] = function(self.X)
        return self._values[owner]

    def __call__(self, encoder: Encoder) -> Matrix:
        """Return the rows, encoded by the encoder."""
        if self.twin is not None and encoder.is_symmetric:
            return self.twin(encoder)
        if encoder not in self._known:
            if isinstance(encoder, Composite):
                self._known[encoder] = encoder.combine(self)
            else:
                self._known[encoder] = getattr(encoder, self.side)(self.X)
        return self._known[encoder]


class SomeEncodings(Encodings):
    """Some rows of encodings, which are encoded together with the others."""

    def __init__(self, all_rows: Encodings, rows: slice):
        super().__init__(all_rows.X[rows], all_rows.side)
        self.all_rows, self.rows = all_rows, rows

    def __call__(self, encoder: Encoder) -> Matrix:
        """Return the rows, encoded by the encoder."""
        return self.all_rows(encoder)[self.rows]


class Sides:
    """Queries and items, to be compared by one or more encoders.

    Parameters
    ----------
    X_queries, X_items : ndarray or csr_array
        Checked rows. They may be the same object.

    n_threads : int, default=1
        Threads for products of sparse encodings.
    """

    def __init__(self, X_queries: Matrix, X_items: Matrix, n_threads: int = 1):
        self.items = Encodings(X_items, "items")
        twin = self.items if X_queries is X_items else None
        self.queries = Encodings(X_queries, "queries", twin)
        self.n_threads = n_threads
        self._known: WeakKeyDictionary[Encoder, np.ndarray] = WeakKeyDictionary()

    def similarity(self, encoder: Encoder) -> np.ndarray:
        """Return the similarity of every query to every item; do not write to it."""
        if encoder not in self._known:
            self._known[encoder] = encoder.compare(self)
        return self._known[encoder]

    def part(self, queries: slice, items: slice) -> "Sides":
        """Return some of the queries and items, with the encodings of this object."""
        part = copy(self)
        part.queries = SomeEncodings(self.queries, queries)
        part.items = SomeEncodings(self.items, items)
        part._known = WeakKeyDictionary()
        return part


class Composite(Encoder):
    """Base class of encoders that consist of other encoders."""

    def combine(self, rows: Encodings) -> Matrix:
        """Combine the encodings of the parts on one side."""
        raise NotImplementedError

    def items(self, X: Matrix) -> Matrix:
        """Return one encoded row per item."""
        return self.combine(Encodings(X, "items"))

    def queries(self, X: Matrix) -> Matrix:
        """Return one encoded row per query."""
        return self.combine(Encodings(X, "queries"))


@dataclass(frozen=True, eq=False)
class Chain(Composite):
    """Two encoders in sequence."""

    first: Encoder
    then: Encoder

    @property
    def is_symmetric(self) -> bool:
        """True if both parts are symmetric."""
        return self.first.is_symmetric and self.then.is_symmetric

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the columns of `then`."""
        return self.then.name_columns(self.first.name_columns(names))

    def combine(self, rows: Encodings) -> Matrix:
        """Return the output of `then` for the output of `first`."""
        return getattr(self.then, rows.side)(rows(self.first))


@dataclass(frozen=True, eq=False)
class Mixture(Composite):
    r"""Weighted sum of a learned similarity and of its start.

    .. math:: s(q, d) = (1 - a)\, s_\text{learned}(q, d) + a\, s_\text{start}(q, d)

    The encodings are concatenated, each multiplied by the root of its weight. If both
    encode items in the same way, the weighted queries are added instead and scaled to
    unit length, so that stored items stay valid. Rows of unit length give rows of unit
    length in both cases.

    Parameters
    ----------
    learned, start : Encoder
        The two similarities.

    share : float
        Weight :math:`a` of the start, from 0 to 1.

    same_items : bool, default=False
        True if both encode items in the same way.
    """

    learned: Encoder
    start: Encoder
    share: float
    same_items: bool = False

    @property
    def is_symmetric(self) -> bool:
        """True if both parts are symmetric and their encodings are concatenated."""
        parts_are = self.learned.is_symmetric and self.start.is_symmetric
        return parts_are and not self.same_items

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the start, then those of the learned columns."""
        start = self.start.name_columns(names)
        if self.same_items or len(start) == 0:
            return start
        return [*start, *self.learned.name_columns(names)]

    def combine(self, rows: Encodings) -> Matrix:
        """Return the start's columns, then the learned ones; or the sum of both."""
        start, learned = rows(self.start), rows(self.learned)
        if not self.same_items:
            return side_by_side(
                (self.share**0.5) * start, ((1 - self.share) ** 0.5) * learned
            )
        if rows.side == "items":
            return start
        return unit_rows((1 - self.share) * learned + self.share * start)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the weighted sum of the similarities of both parts."""
        a = self.share
        learned, start = sides.similarity(self.learned), sides.similarity(self.start)
        scale = np.ones(len(learned), dtype=learned.dtype)
        if self.same_items:
            learned_queries = sides.queries(self.learned)
            mixed = (1 - a) * learned_queries + a * sides.queries(self.start)
            scale[:] = inverse(np.sqrt(row_dots(mixed, mixed)))
        learned = np.ascontiguousarray(learned)
        start = np.ascontiguousarray(start, dtype=learned.dtype)
        S = np.empty_like(learned)
        add_rows(learned, start, (1 - a) * scale, a * scale, S)
        return S


def mix(
    learned: Encoder, start: Encoder, share: float, *, same_items: bool = False
) -> Encoder:
    """Return the mixture of two encoders, or one of them if the other has no weight."""
    if share == 1:
        return start
    if share == 0 and not same_items:
        return learned
    return Mixture(learned, start, float(share), same_items)


@dataclass(frozen=True, eq=False)
class Rescaled(Encoder):
    """Encoder whose queries are multiplied by a number."""

    base: Encoder
    factor: float

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the base."""
        return self.base.name_columns(names)

    def items(self, X: Matrix) -> Matrix:
        """Return the items of the base."""
        return self.base.items(X)

    def queries(self, X: Matrix) -> Matrix:
        """Return the queries of the base, times the factor."""
        Q = self.base.queries(X)
        return scale_rows(Q, np.full(Q.shape[0], self.factor))

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities of the base, times the factor."""
        return self.factor * sides.similarity(self.base)


@dataclass(frozen=True, eq=False)
class GivenSimilarities(Encoder):
    """Encoder whose similarities are given as a matrix of queries by items."""

    S: np.ndarray

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the given similarities."""
        return self.S
