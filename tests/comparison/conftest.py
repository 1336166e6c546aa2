"""Samples and rows that several tests of the comparison share."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from threadpoolctl import threadpool_limits

from sklearn_simlearn.comparison import _command_line as command
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity


class Leading(TransformerMixin, BaseEstimator):
    """Keep the first columns."""

    def __init__(self, n_columns):
        self.n_columns = n_columns

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[:, : self.n_columns]

    def __sklearn_is_fitted__(self):
        return True


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    """Use one thread: the matrices are small, and more threads would mostly spin."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def leading():
    """Return the class of a transformer that is not part of the package."""
    return Leading


@pytest.fixture(scope="module")
def words():
    """Return 120 samples of 10 classes."""
    return make_visual_words(10, 12, n_words=200, return_X_y=True, random_state=0)


@pytest.fixture
def user_file(words, tmp_path):
    """Return a file with the same samples."""
    X, y = words
    path = tmp_path / "mine.npz"
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
    return path


@pytest.fixture(scope="module")
def saved(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "index"
    SimilarityIndex(CosineSimilarity()).fit(*words).save(folder)
    return folder


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line: exit code, output and errors."""

    def run(*arguments):
        try:
            code = command.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run
