"""Data sets of the experiments, with the files that hold them and their sources.

Nothing is downloaded. Files are read from the folder that `SIMLEARN_DATA` names.
"""

import os
from pathlib import Path
from typing import NamedTuple

CIFAR = "the folder of CIFAR-10 pictures that SIMLEARN_CIFAR10 names"


class Data(NamedTuple):
    """A data set: its title, contents, source, and the arrays of each file."""

    title: str
    text: str
    source: str
    files: dict[str, str]


_COUNTS = "CSR matrix `data`, `indices`, `indptr`, `shape` of the counts"
_GEOMETRY = "`offsets`, `x`, `y`, `scale`, `angle`, `word_20k`, `image_wh`, `is_query`"

DATA = {
    "paris": Data(
        "Paris photographs",
        "276 photographs of 5 landmarks; 26 are marked as queries. Counts of 20,000 "
        "RootSIFT words that were learned on the same photographs, the local features, "
        "and features of EfficientNet-lite0 (1,280 dimensions).",
        "https://github.com/GrigorySamokhin/Landmark-Image-Retrieval",
        {
            "paris_subset_bovw20k.npz": f"{_COUNTS}, `words`, `y`, `is_query`",
            "paris_subset_geometry.npz": f"{_GEOMETRY}, `label`",
            "paris_subset_cnn.npz": "`feat`, `y`, `is_query`",
        },
    ),
    "ukbench": Data(
        "UKbench",
        "The first 1,000 of the 10,200 images: 250 objects, four images each. Counts "
        "of 20,000 RootSIFT words, the words, the local features, EfficientNet-lite0 "
        "features, and VLAD vectors after PCA to 512 dimensions.",
        "https://archive.org/details/ukbench",
        {
            "ukbench1000_bovw20k.npz": f"{_COUNTS}, `group`",
            "ukbench1000_codebook20k.npz": "`centroids`",
            "ukbench1000_geometry.npz": f"{_GEOMETRY}, `word_50k`, `group`",
            "ukbench1000_cnn.npz": "`feat`, `group`",
            "ukbench1000_vlad64.npz": "`pca512`, `group`",
        },
    ),
    "pictures": Data(
        "UKbench pictures",
        "The first 80 images of UKbench as JPEG files: 20 objects, four images each.",
        "https://archive.org/details/ukbench",
        {"ukbench_sample80.npz": "`jpeg_bytes`, `jpeg_offsets`, `group`"},
    ),
    "mnist": Data(
        "MNIST",
        "70,000 images of digits, 28 x 28 pixels, after PCA to 260 dimensions; rows of "
        "unit length.",
        "http://yann.lecun.com/exdb/mnist/",
        {"mnist.npz": "`X_train`, `y_train`, `X_test`, `y_test`"},
    ),
    "web": Data(
        "MNIST with a background",
        "300,000 items of 60 dimensions: MNIST, and 230,000 synthetic items, each the "
        "mean of two images of different digits.",
        "made from MNIST",
        {},
    ),
    "caltech": Data(
        "Caltech-101",
        "9,144 images of 101 classes as counts of 1,000 visterms: blocks of 32 pixels, "
        "local binary patterns and colours (`BlockVisterms`).",
        "https://data.caltech.edu/records/mzrjq-6wc02",
        {"caltech101_oasis_b32_1k.npz": f"{_COUNTS}, `y`, `is_background`"},
    ),
    "words": Data(
        "Synthetic words",
        "5,000 images of 500,000 synthetic words, about 2,500 in an image, the size of "
        "Oxford5K (`make_visual_words`). Only times and numbers of unknowns are "
        "measured on it.",
        "made by the package",
        {},
    ),
    "cifar": Data(
        "CIFAR-10",
        "60,000 pictures of 10 classes in a folder with one folder per class, which "
        "`SIMLEARN_CIFAR10` names. Gist descriptors of 320 dimensions are computed "
        "from the pictures and reduced to 225 by PCA.",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        {},
    ),
}

FILES = {
    file: f"{data.title}, from {data.source}; arrays: {arrays}"
    for data in DATA.values()
    for file, arrays in data.files.items()
}


FILES[CIFAR] = f"from {DATA['cifar'].source}"


def find_missing(names) -> list[str]:
    """Return those of these files that are not available."""
    return [name for name in names if not find_path(name).exists()]


def find_path(name: str) -> Path:
    """Return the path of a file; a path that does not exist if no folder is named."""
    if name == CIFAR:
        return Path(os.environ.get("SIMLEARN_CIFAR10") or "SIMLEARN_CIFAR10 is not set")
    return Path(os.environ.get("SIMLEARN_DATA") or "SIMLEARN_DATA is not set") / name
