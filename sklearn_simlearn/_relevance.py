"""One reading of `y`, shared by every learner, splitter and scorer."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array, gen_batches

DISTRACTOR = -1


class Relevance:
    """Which samples are relevant to which.

    Read `y` with :func:`check_relevance` rather than building this class by hand.

    Parameters
    ----------
    positive : csr_array of shape (n_samples, n_columns)
        Weight of each sample in each class, object, topic or text query.

    junk : csr_array of shape (n_samples, n_columns) or None
        Non-zero where a sample is junk for the queries of a column.

    labels : ndarray of shape (n_samples,) or None
        Column of each sample, `DISTRACTOR` for none, where there is at most one.
    """

    def __init__(self, positive, junk=None, labels=None):
        self.positive = positive
        self.junk = junk
        self.labels = labels

    def __len__(self):
        return self.positive.shape[0]

    @property
    def can_query(self):
        """Mask of the samples that belong to some column: no distractors."""
        return np.diff(self.positive.indptr) > 0

    def block(self, queries, items):
        """Relevance of some samples to others: 1, or 0 if not, or -1 if junk.

        Parameters
        ----------
        queries, items : slice or ndarray of int
            Samples along the rows and along the columns.

        Returns
        -------
        relevance : ndarray of shape (n_queries, n_items), dtype int8
        """
        if self.labels is not None:
            query_labels = self.labels[queries, None]
            relevant = query_labels == self.labels[items]
            relevant &= query_labels != DISTRACTOR
            return relevant.view(np.int8)
        shared = self._in_common(queries, self.positive[items]) > 0
        relevance = shared.toarray().view(np.int8)
        if self.junk is not None:
            junk = self._in_common(queries, self.junk[items]).toarray() > 0
            relevance[junk & (relevance == 0)] = -1
        return relevance

    def graded_block(self, queries, items):
        """Like `block`, with the weights two samples have in common as relevance.

        Returns
        -------
        relevance : ndarray of shape (n_queries, n_items), dtype float64
            The sum over shared columns of the product of both weights; -1 for junk.
        """
        relevance = self.block(queries, items).astype(np.float64)
        if self.labels is None:
            shared = self._in_common(queries, self.positive[items]).toarray()
            np.copyto(relevance, shared, where=relevance > 0)
        return relevance

    def objects(self):
        """Samples that hang together, directly or through others.

        Returns
        -------
        objects : ndarray of shape (n_samples,), dtype int64
            The same number for all samples that are linked by shared columns,
            `DISTRACTOR` for those that belong to none.
        """
        if self.labels is not None:
            return self.labels.copy()
        n_samples, n_columns = self.positive.shape
        graph = sparse.block_array(
            [[None, self.positive], [sparse.csr_array((n_columns, n_samples)), None]]
        )
        _, component = connected_components(graph, directed=False)
        # Components are numbered through samples and columns alike: close the gaps.
        objects = np.full(n_samples, DISTRACTOR, dtype=np.int64)
        member = self.can_query
        _, objects[member] = np.unique(
            component[:n_samples][member], return_inverse=True
        )
        return objects

    def find_queries(self, among=None):
        """Mask of the samples that have both relevant and irrelevant ones to rank.

        Parameters
        ----------
        among : ndarray of shape (n_samples,), dtype bool, default=None
            Samples that may query; all if None.
        """
        is_query = self.can_query
        if among is not None:
            is_query &= among
        for _, rows, relevant in self.search(np.flatnonzero(is_query), graded=False):
            is_query[rows] = (relevant > 0).any(axis=1) & (relevant == 0).any(axis=1)
        return is_query

    def search(self, queries, *, graded=True):
        """Samples that query all of them, few enough at a time to compare with all.

        Parameters
        ----------
        queries : ndarray of int
            Samples that query.

        graded : bool, default=True
            Whether relevance is by weight where there are weights.

        Yields
        ------
        batch : slice
            Of the queries.

        rows : ndarray of int
            The samples it stands for.

        relevance : ndarray of shape (n_rows, n_samples)
            As by `block` or `graded_block`, and -1 for the query itself.
        """
        n_samples = len(self)
        find = self.graded_block if graded and self.labels is None else self.block
        for batch in gen_batches(max(len(queries), 1), max(1, 2**24 // n_samples)):
            rows = queries[batch]
            relevance = find(rows, slice(0, n_samples))
            relevance[np.arange(len(rows)), rows] = -1
            yield batch, rows, relevance

    def take(self, rows):
        """Relevance among some of the samples."""
        return Relevance(
            self.positive[rows],
            None if self.junk is None else self.junk[rows],
            None if self.labels is None else self.labels[rows],
        )

    def _in_common(self, queries, columns):
        return self.positive[queries] @ columns.T


def check_relevance(y, *, n_samples=None):
    """Check `y` and say which samples are relevant to which.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
            (n_samples, n_columns)
        Labels of any kind, where the integer -1 marks a distractor; or a relevance
        matrix, positive where a sample is relevant (the value is its weight), zero
        where not, negative where it is junk.

    n_samples : int, default=None
        Number of samples `y` must have; any if None.

    Returns
    -------
    relevance : Relevance
    """
    if not sparse.issparse(y):
        y = _as_array(y)
    if n_samples is not None and y.shape[0] != n_samples:
        raise ValueError(
            f"y and X must have the same number of samples; got {y.shape[0]} and "
            f"{n_samples}."
        )
    return _read_labels(y) if y.ndim == 1 else _read_matrix(y)


def stack_targets(first, second):
    """One `y` for the samples of two: labels with labels, matrices with matrices."""
    if not (sparse.issparse(first) or sparse.issparse(second)):
        first, second = _as_array(first), _as_array(second)
    if first.ndim != second.ndim or first.shape[1:] != second.shape[1:]:
        raise ValueError(
            "The targets of the queries and of the database must be of one kind; got "
            f"shapes {first.shape} and {second.shape}. Give labels for both, or two "
            "relevance matrices with the same columns."
        )
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.vstack([first, second], format="csr")
    if (first.dtype.kind in "OUS") != (second.dtype.kind in "OUS"):
        raise ValueError(
            "The labels of the queries and of the database must be of one type; got "
            f"{first.dtype} and {second.dtype}."
        )
    return np.concatenate([first, second])


def _as_array(y):
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None: give "
            "labels or a relevance matrix."
        )
    try:
        y = np.asarray(y)
    except ValueError:
        raise ValueError(
            "y is ragged: its rows differ in length. For several labels a sample pass "
            "a relevance matrix, such as MultiLabelBinarizer().fit_transform(y)."
        ) from None
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y must be 1-dimensional (labels) or 2-dimensional (a relevance matrix); "
            f"got shape {y.shape}."
        )
    if y.dtype.kind == "O" and any(isinstance(v, list | tuple | set) for v in y.flat):
        raise ValueError(
            "y holds lists. For several labels a sample pass a relevance matrix, such "
            "as MultiLabelBinarizer().fit_transform(y)."
        )
    return y


def _read_labels(y):
    kind = y.dtype.kind
    if kind == "f":
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        if (y != np.rint(y)).any():
            raise ValueError(
                "Unknown label type: y holds real numbers. Labels are integers or "
                "strings; for graded relevance pass a matrix of shape (n_samples, "
                "n_columns)."
            )
        y = y.astype(np.int64)
    elif kind == "c":
        raise ValueError("Complex data not supported: y must hold labels.")
    elif kind == "O":
        missing = np.array([label is None or label != label for label in y], dtype=bool)
        if missing.any():
            raise ValueError(
                "Input y contains NaN or None. Use the integer label -1 for samples "
                "that belong to no class."
            )
    elif kind not in "biuSU":
        raise ValueError(f"Unknown label type: y has dtype {y.dtype}.")
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError(
            "y mixes labels of different types: use integers only, or strings only."
        ) from None

    labels = codes.astype(np.int64)
    if classes.dtype.kind == "i" or (
        classes.dtype.kind == "O" and all(isinstance(c, int) for c in classes)
    ):
        if len(classes) == 2 and classes[0] == DISTRACTOR and classes[1] == 1:
            raise ValueError(
                "The labels are -1 and 1 alone, which is ambiguous: -1 means a "
                "distractor, relevant to nothing. Use 0 and 1 for two classes, or any "
                "label but 1 for one class among distractors."
            )
        if len(classes) and classes[0] == DISTRACTOR:
            labels -= 1
        elif DISTRACTOR in classes:
            distractor = int(np.flatnonzero(classes == DISTRACTOR)[0])
            labels[codes == distractor] = DISTRACTOR
            labels[codes > distractor] -= 1

    member = labels != DISTRACTOR
    n_columns = labels.max(initial=DISTRACTOR) + 1
    positive = sparse.csr_array(
        (
            np.ones(np.count_nonzero(member)),
            labels[member],
            np.concatenate([[0], np.cumsum(member)]),
        ),
        shape=(len(y), n_columns),
    )
    return Relevance(positive, labels=labels)


def _read_matrix(y):
    if not sparse.issparse(y) and y.shape[1] == 1:
        raise ValueError(
            "y has a single column, which is ambiguous: pass y.ravel() if it holds "
            "labels, or scipy.sparse.csr_array(y) if it is a relevance matrix with one "
            "object."
        )
    y = check_array(
        y, accept_sparse="csr", dtype=np.float64, input_name="y", ensure_min_features=1
    )
    y = sparse.csr_array(y, copy=True)
    y.sum_duplicates()
    junk = (y < 0).tocsr().astype(np.float64)
    positive = y.maximum(0).tocsr()
    positive.eliminate_zeros()
    positive.sort_indices()
    return Relevance(positive, junk if junk.nnz else None)
