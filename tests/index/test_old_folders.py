"""Folders that version 0.2.0.dev0 saved before the encoders were added."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

ARCHIVE = Path(__file__).parent / "data" / "index_0.2.0.dev0.zip"
X = np.array([[2.0, 0, 1, 0], [1, 1, 0, 0], [0, 3, 1, 0], [0, 0, 1, 4], [1, 0, 0, 1]])


@pytest.fixture
def folder(tmp_path):
    shutil.unpack_archive(ARCHIVE, tmp_path)
    return tmp_path / "saved"


def test_an_old_folder_is_read_with_an_estimator(folder):
    estimator = CosineSimilarity(use_idf=False).fit(X)
    index = SimilarityIndex.load(folder, estimator=estimator, verify=True)
    expected = SimilarityIndex(estimator).fit(X).remove([4])
    found = index.search(X, 4)
    assert_allclose(found.scores, expected.search(X, 4).scores)
    assert_array_equal(found.ids, expected.search(X, 4).ids)
    assert [row["name"] for row in index.metadata_] == list("abcd")
    # New ids start after that of the removed item.
    assert index.add(X[:1], metadata=[{"name": "f"}]).ids_.tolist() == [0, 1, 2, 3, 5]
    index.save(folder)
    again = SimilarityIndex.load(folder, trusted=())
    assert_array_equal(again.search(X, 5), index.search(X, 5))


def test_an_old_estimator_is_refused_with_the_remedy(folder):
    with pytest.raises(ValueError, match=r"0\.2\.0\.dev0.*Fit it again.*set_estimator"):
        SimilarityIndex.load(folder, trusted=())
    index = SimilarityIndex.load(folder)
    other = CosineSimilarity().fit(X)
    index.set_estimator(other)
    expected = SimilarityIndex(other).fit(X).remove([4]).search(X, 4)
    assert_allclose(index.search(X, 4).scores, expected.scores)
