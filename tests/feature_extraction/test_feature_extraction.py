"""Pipelines from photographs to an index, and common properties of transformers."""

import cv2
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn.datasets import load_image_folder
from sklearn_simlearn.feature_extraction import (
    VLAD,
    BlockVisterms,
    ColorHistograms,
    GistDescriptors,
    ImageReader,
    LocalDescriptors,
    ONNXDescriptors,
    PowerNormalizer,
    TriangulationEmbedding,
    VisualVocabulary,
)
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.similarities import CosineSimilarity

N_OBJECTS, N_VIEWS = 6, 4


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Write a folder of views of textured objects; vary rotation and light."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for i in range(N_OBJECTS):
        texture = rng.integers(0, 256, (14, 14, 3), dtype=np.uint8)
        texture = texture // 2 + rng.integers(0, 128, 3, dtype=np.uint8)
        texture = cv2.resize(texture, (140, 140), interpolation=cv2.INTER_CUBIC)
        folder = root / f"object {i}"
        folder.mkdir()
        for view in range(N_VIEWS):
            turn = cv2.getRotationMatrix2D((70, 70), 20 * view, 1 - 0.05 * view)
            image = cv2.warpAffine(texture, turn, (140, 140), borderValue=(99, 99, 99))
            image = np.clip(image * (1 - 0.03 * view), 0, 255).astype(np.uint8)
            cv2.imwrite(str(folder / f"view {view}.jpg"), image)
    return root


def make_model(memory=None):
    return make_pipeline(
        ImageReader(n_jobs=2),
        LocalDescriptors(150, n_jobs=2),
        VisualVocabulary(120, random_state=0),
        HistogramRankSVM(holdout=None, random_state=0),
        memory=memory,
    )


def test_pipeline_fits_searches_and_serves(photographs, tmp_path):
    paths, y = load_image_folder(photographs, return_X_y=True)
    model = make_model()
    model.fit(paths, y)
    assert map_scorer(model, paths, y) > 0.9
    index = SimilarityIndex(model).fit(paths, ids=paths)
    _, found = index.search(paths[5:6], k=N_VIEWS)
    assert found[0, 0] == paths[5]
    assert sum("object 1" in path for path in found[0]) >= 3
    # The index is saved without pickle. A query may be a file as bytes.
    index.save(tmp_path / "index")
    opened = SimilarityIndex.load(tmp_path / "index", trusted=())
    assert_array_equal(opened.search(paths[5:6], k=N_VIEWS)[1], found)
    with open(paths[5], "rb") as file:
        assert_array_equal(opened.search([file.read()], k=N_VIEWS)[1], found)


def test_grid_search_with_a_cache(photographs, tmp_path, monkeypatch):
    paths, y = load_image_folder(photographs, return_X_y=True)
    calls = []
    describe = LocalDescriptors.transform

    def count(self, X):
        calls.append(len(X))
        return describe(self, X)

    monkeypatch.setattr(LocalDescriptors, "transform", count)
    search = GridSearchCV(
        make_model(memory=str(tmp_path)),
        {"visualvocabulary__n_words": [40, 80], "histogramranksvm__truncation": [1, 2]},
        scoring=map_scorer,
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
    )
    search.fit(paths, y)
    assert 0.5 < search.best_score_ <= 1
    # Training images of 2 folds and of the refit, and test images of 4 x 2 fits.
    n_training = sum(n == len(paths) // 2 for n in calls) - 4 * 2
    assert n_training == 2
    assert sum(n == len(paths) for n in calls) == 1


def test_other_chains_of_transformers(photographs):
    paths, y = load_image_folder(photographs, return_X_y=True)
    features = make_pipeline(ImageReader(), LocalDescriptors(150)).fit_transform(paths)
    # Local features are split into folds by image.
    scores = cross_val_score(
        make_pipeline(VLAD(8, random_state=0), CosineSimilarity(use_idf=False)),
        features,
        y,
        cv=2,
        scoring=map_scorer,
    )
    assert scores.min() > 0.9
    frozen = FrozenEstimator(VisualVocabulary(100, random_state=0).fit(features))
    soft = make_pipeline(
        frozen, PowerNormalizer(), CosineSimilarity(use_idf=False)
    ).fit(features)
    assert map_scorer(soft, features, y) > 0.9
    blocks = BlockVisterms(20, block_size=32, step=16, n_colors=8, random_state=0)
    similarity = make_pipeline(ImageReader(), blocks, CosineSimilarity()).fit(paths)
    assert map_scorer(similarity, paths, y) > 0.5


@pytest.mark.parametrize(
    "estimator",
    [
        ImageReader(),
        LocalDescriptors(),
        VisualVocabulary(),
        VLAD(),
        TriangulationEmbedding(),
        BlockVisterms(),
        ColorHistograms(),
        GistDescriptors(),
        ONNXDescriptors("network.onnx"),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize(
    "name",
    [
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_get_params_invariance",
        "check_no_attributes_set_in_init",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
def test_checks_of_sklearn_that_need_no_array(estimator, name):
    getattr(estimator_checks, name)(type(estimator).__name__, estimator)


# -- a folder as data --


def test_folder_in_order(tmp_path):
    names = ["b/2.jpg", "b/10.JPG", "a/deep/x.png", "a/a.txt", "top.gif", ".h/1.jpg"]
    for name in [*names, "a/.hidden.jpg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    data = load_image_folder(tmp_path)
    found = [path.removeprefix(f"{tmp_path}").replace("\\", "/") for path in data.data]
    assert found == ["/a/deep/x.png", "/b/10.JPG", "/b/2.jpg", "/top.gif"]
    assert_array_equal(data.target, [0, 1, 1, -1])
    assert_array_equal(data.target_names, ["a", "b"])


def test_table_of_images(tmp_path):
    table = tmp_path / "images.csv"
    table.write_text("label,path\nz,1.jpg\n,sub/2.jpg\na,3.jpg\n", encoding="utf-8-sig")
    data = load_image_folder(table)
    assert data.data.tolist() == [
        str(tmp_path / "1.jpg"),
        str(tmp_path / "sub" / "2.jpg"),
        str(tmp_path / "3.jpg"),
    ]
    assert_array_equal(data.target, [1, -1, 0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no images"),
        (b"path,label\n", "has no images"),
        (b"file,label\na,b\n", "must have the columns path and label"),
        (b"path,label\na\n", "Line 2"),
        (b"path,label\n,b\n", "Line 2"),
        (b"\xff\xfe\n", "not a CSV file in UTF-8"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    table = tmp_path / "images.csv"
    table.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_image_folder(table)


def test_no_folder(tmp_path):
    with pytest.raises(ValueError, match="has no images"):
        load_image_folder(tmp_path)
    with pytest.raises(ValueError, match="neither a folder nor a CSV file"):
        load_image_folder(tmp_path / "none")
