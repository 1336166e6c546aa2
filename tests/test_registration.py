"""A learner is whole when everything that belongs to it is there."""

import importlib.util
import re
from pathlib import Path

import pytest

import sklearn_simlearn
from sklearn_simlearn.base import SimilarityLearner

ROOT = Path(__file__).parents[1]
LEARNERS = [
    name
    for name in sklearn_simlearn.__all__
    if isinstance(getattr(sklearn_simlearn, name), type)
]


def read(*paths):
    return "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)


def pages(folder, pattern):
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).glob(pattern))]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_is_registered_everywhere(name):
    word = re.compile(rf"\b{name}\b")
    places = {
        "a line of LEARNERS in tests/test_common.py": read("tests/test_common.py"),
        "a line of ESTIMATORS in tests/test_fuzz.py": read("tests/test_fuzz.py"),
        "an entry in doc/api.rst": read("doc/api.rst"),
        "an entry in doc/whats_new.rst": read("doc/whats_new.rst"),
        "a page in doc/learners": read(*pages("doc/learners", "[!i]*.rst")),
        "an example in examples/": read(*pages("examples", "plot_*.py")),
        "a row in the table of README.rst": read("README.rst"),
        "a row in doc/user_guide/retrieval.rst": read("doc/user_guide/retrieval.rst"),
        "a row in sklearn_simlearn/comparison/_rows.py": read(
            "sklearn_simlearn/comparison/_rows.py"
        ),
    }
    missing = [place for place, text in places.items() if not word.search(text)]
    assert not missing, f"{name} lacks {', '.join(missing)}"


def test_every_learner_of_the_package_is_public():
    package = Path(sklearn_simlearn.__file__).parent
    for path in sorted(package.glob("[!_]*/_*.py")):
        if path.stem.startswith("__"):
            continue
        module = importlib.import_module(
            f"sklearn_simlearn.{path.parent.name}.{path.stem}"
        )
        for name, value in vars(module).items():
            is_learner = isinstance(value, type) and issubclass(
                value, SimilarityLearner
            )
            if is_learner and value.__module__ == module.__name__:
                assert name in sklearn_simlearn.__all__, f"{name} is not in __all__"


def test_the_order_of_the_gallery_names_scripts_that_exist():
    listed = re.findall(r'"(plot_\w+\.py)"', read("doc/conf.py"))
    assert listed
    missing = [name for name in listed if not (ROOT / "examples" / name).exists()]
    assert not missing, f"doc/conf.py orders {missing}, which examples/ lacks"
