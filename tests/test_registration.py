"""A learner is complete if all of its files and entries exist.

``python tests/test_registration.py`` writes what follows from a learner itself.
"""

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import sklearn_simlearn
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn.base import SimilarityLearner, SimilarityMixin

ROOT = Path(__file__).parents[1]


def has_paper(learner):
    """Return whether a learner has a form that its paper describes."""
    return issubclass(learner, PaperFormMixin)


LEARNERS = [
    name
    for name, value in inspect.getmembers(sklearn_simlearn, inspect.isclass)
    if name in sklearn_simlearn.__all__ and issubclass(value, SimilarityMixin)
]
COMPARISON = "sklearn_simlearn/comparison/_rows.py"

# The lines that follow from a learner: the file, the line they come after, the lines.
DERIVED = [
    ("doc/api/learners.rst", "   OASIS\n", "   {name}\n"),
    ("doc/learners/index.rst", "   oasis\n", "   {page}\n"),
    (
        "doc/learners/index.rst",
        "- :ref:`oasis`: a matrix W for the similarity q'Wd, from any kind of `y`.\n",
        "- :ref:`{page}`: {summary}.\n",
    ),
    (
        "README.rst",
        "online, from triplets (Chechik et al., 2010).\n",
        "   * - ``{name}``\n     - {sentence}\n",
    ),
    (COMPARISON, "import (\n    OASIS,\n", "    {name},\n"),
    (
        COMPARISON,
        '    Row("OASIS", _learner(OASIS)),\n',
        '    Row("{name}", _learner({name})),\n',
    ),
]


def read(*paths):
    return "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)


def pages(folder, pattern):
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).glob(pattern))]


def describe(name):
    """Return the derived lines of a learner."""
    learner = getattr(sklearn_simlearn, name)
    sentence = inspect.getdoc(learner).splitlines()[0]
    summary = sentence[0].lower() + sentence[1:].rstrip(".")
    page = learner.__module__.split(".")[1]
    return {"name": name, "page": page, "sentence": sentence, "summary": summary}


def is_missing(name, path, lines):
    """Return whether a file does not name a learner, or its page."""
    about = describe(name)
    word = about["page"] if "{page}" in lines else name
    return not re.search(rf"\b{word}\b", read(path))


def write_derived_lines(name, root=ROOT):
    """Insert the lines that follow from a learner where they are missing."""
    missing = [place for place in DERIVED if is_missing(name, place[0], place[2])]
    for path, after, lines in missing:
        text = (root / path).read_text(encoding="utf-8")
        assert after in text, f"{path} lacks the line {after!r}"
        text = text.replace(after, after + lines.format(**describe(name)), 1)
        (root / path).write_text(text, encoding="utf-8")
    return [path for path, *_ in missing]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_is_registered_everywhere(name):
    word = re.compile(rf"\b{name}\b")
    page = f"doc/learners/{describe(name)['page']}.rst"
    places = {
        "an entry in doc/whats_new/": read(*pages("doc/whats_new", "*.rst")),
        f"the page {page}": read(page) if (ROOT / page).exists() else "",
    }
    missing = [place for place, text in places.items() if not word.search(text)]
    assert not missing, f"{name} lacks {', '.join(missing)}"
    examples = read(page, *pages("examples", "*/plot_*.py"))
    assert re.search(rf"(>>> |^).*\b{name}\(", examples, re.M), (
        f"{name} lacks an example that runs, in {page} or in examples/"
    )
    unwritten = {path for path, _, lines in DERIVED if is_missing(name, path, lines)}
    assert not unwritten, (
        f"{name} lacks lines in {', '.join(sorted(unwritten))}: run "
        "python tests/test_registration.py"
    )


@pytest.mark.parametrize(
    "name", [name for name in LEARNERS if has_paper(getattr(sklearn_simlearn, name))]
)
def test_the_form_of_a_paper_is_on_the_page_of_its_learner(name):
    page = read(f"doc/learners/{describe(name)['page']}.rst")
    section = re.search(
        r"^The form of the paper\n[-=]+\n(.*?)\n\n[^\n]+\n[-=]{4,}\n", page, re.M | re.S
    )
    assert section, f"the page of {name} lacks a section on the form of the paper"
    assert f"{name}.from_paper(" in section[1]
    parameters = getattr(sklearn_simlearn, name)._paper_parameters
    assert parameters, f"{name} lacks _paper_parameters"
    defaults = getattr(sklearn_simlearn, name)().get_params()
    changed = [key for key, value in parameters.items() if value != defaults[key]]
    unnamed = [key for key in changed if key not in section[1]]
    assert not unnamed, f"the page of {name} does not name {unnamed}"


def test_derived_lines_are_written(tmp_path, monkeypatch):
    for path in {path for path, *_ in DERIVED}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(read(path), encoding="utf-8")

    class Novel(SimilarityLearner):
        """Similarity of a kind that is new."""

    Novel.__module__ = "sklearn_simlearn.novel._novel"
    monkeypatch.setattr(sklearn_simlearn, "Novel", Novel, raising=False)
    assert len(write_derived_lines("Novel", tmp_path)) == len(DERIVED)
    for path, _, lines in DERIVED:
        written = (tmp_path / path).read_text(encoding="utf-8")
        assert lines.format(**describe("Novel")) in written
    assert "     - Similarity of a kind that is new.\n" in (
        tmp_path / "README.rst"
    ).read_text(encoding="utf-8")


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


def test_the_gallery_orders_every_example():
    gallery = re.search(r"^GALLERY = (\{.*?^\})", read("doc/conf.py"), re.M | re.S)
    ordered = ast.literal_eval(gallery[1])
    found = {path.parent.name: [] for path in pages("examples", "*/README.rst")}
    for path in pages("examples", "**/*.py"):
        assert path.parent.name in found, f"{path}: no README.rst"
        found[path.parent.name].append(path.stem)
    assert {section: sorted(names) for section, names in ordered.items()} == found


if __name__ == "__main__":
    for learner in LEARNERS:
        for written in write_derived_lines(learner):
            print(f"{learner}: {written}")
