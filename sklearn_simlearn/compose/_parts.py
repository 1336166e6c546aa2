"""Parts of a union: columns, fitted similarities, and their weighted sum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.rows import canonical_csr, side_by_side
from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn._core.targets import show_ids
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.unwrap import Model


class Columns(NamedTuple):
    """Columns of the samples that a part compares.

    In a frame, columns that were chosen by position in `fit` are found by their names,
    so a frame may have its columns in another order.

    Parameters
    ----------
    chosen : str, int, slice, list of str or int, or mask
        The columns. A single name selects one column as a one-dimensional object, such
        as a column of texts; other values select a two-dimensional object.
        ``slice(None)`` selects the samples themselves.

    names : str, list of str or None, default=None
        Names of the columns in a frame; None if the columns have no names.

    shape : tuple or None, default=None
        Shape of a sample, which other samples must have if the columns are taken by
        position; None if it does not matter.
    """

    chosen: Any
    names: Any = None
    shape: tuple[int, ...] | None = None

    @classmethod
    def find(cls, X: Any, chosen: Any) -> "Columns":
        """Return the columns chosen, directly or by a function, from some samples."""
        chosen = chosen(X) if callable(chosen) else chosen
        columns = cls(chosen)
        if columns.are_all:
            return columns
        part = columns.take(X)
        if 0 in part.shape[1:]:
            raise ValueError(
                f"{chosen!r} selects no column: choose at least one column per part."
            )
        names: Any = getattr(part, "name", None)
        if hasattr(part, "columns"):
            names = list(part.columns)
        if not all(isinstance(name, str) for name in np.atleast_1d(names).tolist()):
            names = None
        return cls(chosen, names, _as_indexable(X).shape[1:])

    @property
    def are_all(self) -> bool:
        """Return True if the columns are the samples themselves."""
        return isinstance(self.chosen, slice) and self.chosen == slice(None)

    def take(self, X: Any) -> Any:
        """Return these columns of an array, sparse matrix, frame or list."""
        if self.are_all:
            return X
        X = _as_indexable(X)
        columns = self.chosen
        if self.names is not None and hasattr(X, "columns"):
            columns = self.names
        elif self.shape is not None and X.shape[1:] != self.shape:
            raise ValueError(
                f"The columns {columns!r} were chosen from samples of shape "
                f"{self.shape}, but these samples have the shape {X.shape[1:]}."
            )
        try:
            return safe_indexing(X, columns, axis=1)
        except Exception as error:  # each library of frames has its own
            raise ValueError(
                f"The columns {columns!r} cannot be taken from a {type(X).__name__} of "
                f"shape {X.shape}. {_find_remedy(X, error)}"
            ) from error


def _as_indexable(X):
    """Return samples whose columns can be taken."""
    if sparse.issparse(X):
        return canonical_csr(X)
    return X if hasattr(X, "shape") else np.asarray(X)


def _find_remedy(X, error):
    """Return what to do if columns of samples cannot be taken."""
    known = getattr(X, "columns", None)
    if known is not None:
        return f"It has the columns {show_ids([*map(str, known)])}."
    if isinstance(X, np.ndarray) and X.ndim < 2:
        return (
            "Pass queries and documents as frames or arrays with columns, or "
            "slice(None) as the columns of a part that takes all of X."
        )
    return str(error)


class Part(NamedTuple):
    """Fitted similarity of some columns, with the factor of its queries."""

    columns: Columns
    model: Model
    factor: float
    name: str = ""

    def encode_queries(self, X: Any) -> Matrix:
        """Return encoded queries, times the factor."""
        Q = self.model.prepare_queries(self.columns.take(X))
        return self.factor * _as_floats(self.model.encode_queries(Q))

    def encode_items(self, X: Any) -> Matrix:
        """Return encoded items."""
        D = self.model.prepare_items(self.columns.take(X))
        return _as_floats(self.model.encode_items(D))

    def compare_with(self, X: Any, n_threads: int = 1) -> Callable[[Any], np.ndarray]:
        """Return a function from queries to their similarities with some items."""
        D = self.model.prepare_items(self.columns.take(X))
        compare = self.model.compare_with(D, n_threads=n_threads)

        def similarities(X_queries):
            Q = self.model.prepare_queries(self.columns.take(X_queries))
            return self.factor * compare(Q, np.arange(num_samples(Q)), None)

        return similarities


@dataclass(frozen=True, eq=False)
class WeightedSum(Encoder):
    r"""Sum of the similarities of several parts.

    .. math:: s(q, d) = \sum_p f_p\, s_p(q, d)

    The encodings of the parts are concatenated. Queries are multiplied by the factors
    :math:`f_p`, so that stored items stay valid if the factors change.

    Parameters
    ----------
    parts : tuple of Part
        The parts, each with a factor other than 0.
    """

    parts: tuple[Part, ...]

    def queries(self, X: Any) -> Matrix:
        """Return one encoded row per query."""
        return _join([part.encode_queries(X) for part in self.parts])

    def items(self, X: Any) -> Matrix:
        """Return one encoded row per item."""
        return _join([part.encode_items(X) for part in self.parts])

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the sum of the similarities of the parts."""
        return self.products_with(sides.items.X, sides.n_threads)(sides.queries.X)

    def products_with(self, X: Any, n_threads: int = 1) -> Callable[[Any], np.ndarray]:
        """Return a function from queries to their similarities with some items.

        Each part is compared separately: dense encodings by BLAS, sparse encodings by
        postings.
        """
        functions = [part.compare_with(X, n_threads) for part in self.parts]

        def similarities(X_queries):
            total = functions[0](X_queries)
            for function in functions[1:]:
                total = total + function(X_queries)
            return total

        return similarities


def _as_floats(encoded):
    """Return encodings in single or double precision."""
    if encoded.dtype in (np.float32, np.float64):
        return encoded
    return encoded.astype(np.float64)


def _join(parts: Sequence[Matrix]) -> Matrix:
    """Return matrices side by side; CSR if one of them is sparse."""
    if len(parts) == 1:
        return parts[0]
    joined = side_by_side(*parts, dtype=np.result_type(*parts))
    return canonical_csr(joined) if sparse.issparse(joined) else joined
