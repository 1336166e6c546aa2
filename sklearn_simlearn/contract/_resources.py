"""Checks of the memory that a fit takes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from scipy import sparse
from sklearn import config_context

from sklearn_simlearn.contract._rules import require, rule
from sklearn_simlearn.contract._samples import fit, make_samples, samples, takes_sparse

SPARSE_CLASSES = (
    sparse.csr_array,
    sparse.csr_matrix,
    sparse.csc_array,
    sparse.csc_matrix,
    sparse.coo_array,
    sparse.coo_matrix,
)


@rule
def check_memory_grows_with_the_samples_only(estimator):
    """A fit holds no n_samples x n_samples array: work in relevance.batches."""
    # Distractors are training samples, and do not lengthen the hold-out.
    n_samples = 6000
    X, y = samples(estimator, n_words=20, n_distractors=n_samples - 60)
    with config_context(working_memory=1):
        fit(estimator, X[:66], y[:66])  # imports and compiles what is needed
        tracemalloc.start()
        try:
            fit(estimator, X, y)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    require(
        peak < n_samples**2,
        f"a fit on {n_samples} samples of 20 features takes {peak / 2**20:.0f} MiB.",
    )


@rule
def check_sparse_samples_stay_sparse(estimator):
    """Sparse samples are not made dense, in a fit or when they are encoded."""
    if not takes_sparse(estimator):
        return
    X, y = make_samples(n_words=40)
    n_samples, n_features = X.shape[0], 600
    wide = sparse.hstack(
        [X, sparse.csr_array((n_samples, n_features - 40))], format="csr"
    )
    # Rare words in the other columns, two per sample.
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(n_samples), 2)
    columns = rng.integers(40, n_features, size=len(rows))
    wide = wide + sparse.csr_array((np.ones(len(rows)), (rows, columns)), wide.shape)
    with _watching_conversions() as shapes:
        fitted = fit(estimator, wide, y)
        for name in ("fit", "similarity", "transform", "transform_database"):
            if name != "fit":
                getattr(fitted, name)(wide)
            for shape in shapes:
                n_rows = min(shape, default=0)
                require(
                    n_features not in shape or not n_samples / 2 <= n_rows <= n_samples,
                    f"{name} makes an array of shape {shape} of sparse samples.",
                )
            shapes.clear()


@contextmanager
def _watching_conversions() -> Iterator[list[tuple]]:
    """List the shapes of dense arrays that are made from sparse matrices."""
    shapes: list[tuple] = []

    def watch(kind):
        original = kind.toarray
        is_own = "toarray" in vars(kind)

        def toarray(self, *args, **kwargs):
            result = original(self, *args, **kwargs)
            shapes.append(result.shape)
            return result

        def restore():
            if is_own:
                kind.toarray = original
            else:
                del kind.toarray

        kind.toarray = toarray
        stack.callback(restore)

    with ExitStack() as stack:
        for kind in SPARSE_CLASSES:
            watch(kind)
        yield shapes
