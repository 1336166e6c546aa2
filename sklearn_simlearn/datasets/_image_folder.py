"""List of photographs in a folder or a table."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import validate_params
from sklearn_simlearn.datasets._texts import number_labels

# Endings of the files that `ImageReader` reads.
ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif")


@validate_params({"return_X_y": ["boolean"]}, prefer_skip_nested_validation=True)
def load_image_folder(path: str | os.PathLike[str], *, return_X_y: bool = False) -> Any:
    """List the images in a folder, with a class for each sub-folder.

    The images are not opened. Use
    :class:`~sklearn_simlearn.feature_extraction.ImageReader` to read them.

    Parameters
    ----------
    path : str or path-like
        Folder or CSV file. The sub-folders of a folder are the classes; they may have
        sub-folders, too. Images outside of sub-folders are distractors. A CSV file is
        in UTF-8 and has the columns ``path``, relative to the file, and ``label``. An
        empty label marks a distractor.

    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : ndarray of shape (n_images,), dtype str
            Names of the files. For a folder, the files that end in .jpg, .jpeg, .png,
            .tif, .tiff, .webp, .bmp or .gif, sorted by path; hidden files and folders
            are skipped. For a CSV file, all files in its order.
        target : ndarray of shape (n_images,), dtype int
            Number of the class, -1 for a distractor.
        target_names : ndarray of shape (n_classes,), dtype str
            Names of the classes, sorted.

    (data, target) : tuple if `return_X_y` is True

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn_simlearn.datasets import load_image_folder
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("tower/b.jpg", "arch/a.png", "readme.txt", "other.jpg"):
    ...         file = Path(folder, name)
    ...         file.parent.mkdir(exist_ok=True)
    ...         file.touch()
    ...     images = load_image_folder(folder)
    >>> [Path(file).name for file in images.data]
    ['a.png', 'other.jpg', 'b.jpg']
    >>> images.target, images.target_names
    (array([ 0, -1,  1]), array(['arch', 'tower'], dtype='<U5'))
    """
    path = Path(path)
    if path.is_dir():
        files, labels = _list_folder(path)
    elif path.is_file():
        files, labels = _read_table(path)
    else:
        raise ValueError(f"{path} is neither a folder nor a CSV file.")
    if not files:
        raise ValueError(
            f"{path} has no images. A folder must have sub-folders with files that end "
            f"in {', '.join(ENDINGS)}."
        )
    data = np.array([str(file) for file in files])
    target, names = number_labels(labels)
    if return_X_y:
        return data, target
    return Bunch(data=data, target=target, target_names=np.array(names, dtype=str))


def _list_folder(folder):
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if name.lower().endswith(ENDINGS) and not name.startswith(".")
        ]
    found.sort(key=lambda file: file.parts)
    inner = [file.relative_to(folder).parts for file in found]
    return found, [parts[0] if len(parts) > 1 else "" for parts in inner]


def _read_table(path):
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}.") from None
    if rows and not {"path", "label"} <= set(rows[0]):
        raise ValueError(
            f"{path} must have the columns path and label; it has "
            f"{', '.join(map(str, rows[0]))}."
        )
    for number, row in enumerate(rows, start=2):
        if not row["path"] or row["label"] is None:
            raise ValueError(f"Line {number} of {path} lacks a path or a label.")
    return [path.parent / row["path"] for row in rows], [row["label"] for row in rows]
