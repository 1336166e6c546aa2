"""The documentation is complete, its blocks run, and the checks of its pages check."""

import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from pathlib import Path

import pytest
from numpydoc.validate import validate
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr

import sklearn_simlearn

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"

MODULES = ["sklearn_simlearn"] + [
    f"sklearn_simlearn.{module.name}"
    for module in pkgutil.iter_modules(sklearn_simlearn.__path__)
    if not module.name.startswith("_")
]
# The folder of a learner exports what the root exports.
MODULES[1:] = [
    module
    for module in MODULES[1:]
    if not set(importlib.import_module(module).__all__) & set(sklearn_simlearn.__all__)
]

# What numpydoc would have and this project does not: a long summary where a line says
# all, a "See Also" everywhere, nameless return values, a description of a display that
# is returned, and summaries that begin with a verb.
NOT_ASKED_FOR = {"ES01", "RT02", "RT03", "SA01", "SS05"}
# An example belongs to a class or a function, not to each method.
NOT_ASKED_OF_METHODS = {"EX01"}
# Nor to an error, or to what needs the file of a network.
WITHOUT_EXAMPLE = {"UnreadableImagesError", "ONNXDescriptors"}


def public_names(module):
    return [f"{module}.{name}" for name in importlib.import_module(module).__all__]


def find(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_estimators():
    names = [name for module in MODULES for name in public_names(module)]
    return [
        name
        for name in names
        if isinstance(find(name), type)
        and issubclass(find(name), BaseEstimator)
        and name != "sklearn_simlearn.base.SimilarityLearner"
    ]


def documented_names():
    """Names in the API reference, with the modules that they are listed under."""
    module, names = None, []
    for line in (DOC / "api.rst").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"(?:   |\.\. py:data:: )(\w+)$", line):
            names.append(f"{module}.{found[1]}")
    return names


def test_the_api_reference_has_every_public_name():
    public = sorted(name for module in MODULES for name in public_names(module))
    assert sorted(documented_names()) == public


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_follow_numpydoc(module):
    faults = []
    for name in public_names(module):
        value = find(name)
        if not inspect.isclass(value) and not inspect.isroutine(value):
            continue
        has_example = name.rpartition(".")[2] not in WITHOUT_EXAMPLE
        ignored = NOT_ASKED_FOR if has_example else NOT_ASKED_FOR | {"EX01"}
        faults += read_faults(name, ignored)
        for method in vars(value) if inspect.isclass(value) else ():
            is_documented = inspect.isroutine(getattr(value, method)) or isinstance(
                vars(value)[method], property
            )
            if is_documented and not method.startswith("_"):
                ignored = NOT_ASKED_FOR | NOT_ASKED_OF_METHODS
                faults += read_faults(f"{name}.{method}", ignored)
    assert not faults, "\n".join(faults)


def read_faults(name, ignored):
    errors = validate(name)["errors"]
    return [f"{name}: {code} {text}" for code, text in errors if code not in ignored]


@pytest.mark.parametrize("name", public_estimators())
def test_the_question_mark_leads_to_the_api_reference(name, monkeypatch):
    monkeypatch.setenv("SIMLEARN_DOC_URL", "https://docs.example/{stable}/")
    estimator = find(name).__new__(find(name))  # whatever parameters it may need
    page = f"https://docs.example/{{stable}}/generated/{name}.html"
    assert estimator._get_doc_link() == page


def test_the_question_mark_is_in_the_html_view(monkeypatch):
    learner = sklearn_simlearn.OASIS()
    monkeypatch.setenv("SIMLEARN_DOC_URL", "https://docs.example")
    page = "https://docs.example/generated/sklearn_simlearn.OASIS.html"
    assert page in estimator_html_repr(learner)


def test_there_is_no_question_mark_without_pages(monkeypatch):
    monkeypatch.delenv("SIMLEARN_DOC_URL", raising=False)
    link = sklearn_simlearn.OASIS()._get_doc_link()
    built = Path(sklearn_simlearn.__file__).parents[1] / "doc" / "_build" / "index.html"
    assert link.startswith("file:") if built.is_file() else link == ""


# -- blocks --


def test_every_block_of_python_runs():
    """Python is written as doctest, or is marked as that of a package not installed."""
    for page in sorted(DOC.rglob("*.rst")):
        if "auto_examples" in page.parts or "generated" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^\.\. code-block:: python\n(.*)", text, re.M):
            assert ":class: needs-" in block[1], f"{page} has a block that never runs"


def test_every_page_with_blocks_is_tested(request):
    tested = [ROOT / path for path in request.config.getini("testpaths")]
    for page in sorted(DOC.rglob("*.rst")):
        if "auto_examples" in page.parts or "generated" in page.parts:
            continue
        if ">>> " in page.read_text(encoding="utf-8"):
            assert any(page.is_relative_to(path) for path in tested), page


def read_tables(page):
    """List-tables of a page, as dictionaries from row and column to the cell."""
    text = (DOC / page).read_text(encoding="utf-8")
    tables = []
    for block in re.findall(r"^\.\. list-table::\n((?: .*\n|\n)*)", text, re.M):
        rows = re.split(r"^   \* -", block, flags=re.M)[1:]
        rows = [re.split(r"^     -", row, flags=re.M) for row in rows]
        head, *rows = [[" ".join(cell.split()) for cell in row] for row in rows]
        tables.append(
            {
                (row[0], name): cell
                for row in rows
                for name, cell in zip(head, row, strict=True)
            }
        )
    return tables


# Names of rows, in the table for choosing and in the two for known and for new classes.
ROWS = {
    "the better cosine": None,
    ":ref:`ClassPosteriorSimilarity <posterior>`": ("posterior", None),
    ":ref:`OASIS <oasis>`": ("OASIS, samples", "OASIS"),
    ":ref:`AngularBilinearRanker <angular>`": ("angular, samples", "angular"),
    ":ref:`HistogramRankSVM <histogram>`": ("histogram, samples", "histogram"),
    ":ref:`SparseMahalanobisLearner <mahalanobis>`": (
        "Mahalanobis, samples",
        "Mahalanobis",
    ),
    "linear discriminant analysis": ("LDA", None),
    "logistic regression": ("logistic", None),
}


def test_figures_for_choosing_are_those_of_the_benchmark():
    (choose,) = read_tables("choose.rst")
    by_default, known, _, new = read_tables("user_guide/defaults.rst")
    sets = {"MNIST", "Office", "Reuters", "Paris words", "Caltech, new", "Reuters, new"}
    assert {name for _, name in choose} >= sets
    for (row, column), cell in choose.items():
        if column not in sets:
            continue
        name = column.removesuffix(", new")
        table = new if column.endswith("new") else known
        if ROWS[row] is None:
            cosines = by_default if table is known else new
            figures = [cosines[name, kind] for kind in ("cosine", "tf-idf")]
            expected = max(figure[:4] for figure in figures)
        else:
            learner = ROWS[row][table is new]
            expected = table[name, learner][:4] if learner else ""
        assert cell == expected, (row, column)


# -- the checks of built pages --


@pytest.fixture
def checks(monkeypatch):
    """The modules that check built pages."""
    monkeypatch.syspath_prepend(DOC)
    yield importlib.import_module("check_links"), importlib.import_module("check_pages")
    del sys.modules["check_links"], sys.modules["check_pages"]


GOOD = """<!doctype html><html><head><style>p {margin: 0}</style></head>
<body><h1 id="top">A title</h1><p>Text, and <a href="#top">a link</a>.</p>
<pre style="overflow-x: auto">A line of code that is %s long</pre>
<script>console.log("fine")</script></body></html>""" % ("very " * 50)

FAULTS = {
    "console": '<script>console.error("broken")</script>',
    "script": "<script>nothing.at.all</script>",
    "network": '<img src="https://example.com/picture.png" width="9" alt="">',
    "text over text": '<p style="position: absolute; top: 25px">Over the title</p>',
    "sideways": '<div style="width: 3000px">wide</div>',
    "cut off": '<p style="overflow: hidden; white-space: nowrap">%s</p>' % ("a " * 999),
}


def test_links_are_checked(tmp_path, checks):
    find_faults = checks[0].find_faults
    page = tmp_path / "index.html"
    page.write_text(GOOD)
    assert list(find_faults(tmp_path)) == []
    page.write_text(
        '<a href="missing.html"></a><a href="#nowhere"></a><a href="https://a.b"></a>'
        '<script src="https://cdn.example/x.js"></script><p id="here"></p>'
        '<a href="index.html#here"></a>'
    )
    (tmp_path / "x.css").write_text("@font-face {src: url(//fonts.example/a.woff)}")
    faults = list(find_faults(tmp_path))
    assert len(faults) == 4
    for part in ("missing.html", "#nowhere", "cdn.example", "fonts.example"):
        assert any(part in fault for fault in faults)


@pytest.mark.skipif(sys.platform == "win32", reason="Chromium is driven by pipes")
def test_pages_are_checked_in_a_browser(tmp_path, checks):
    check_pages = checks[1]
    program = next(filter(None, map(shutil.which, check_pages.BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    pages = {"": GOOD} | {
        fault: GOOD.replace("</body>", f"{html}</body>")
        for fault, html in FAULTS.items()
    }
    with check_pages.open_browser(program) as browser:
        for fault, html in pages.items():
            page = tmp_path / "page.html"
            page.write_text(html)
            faults = check_pages.check_page(browser, page, 360, "light")
            if fault:
                assert faults, fault
                assert any(fault in found for found in faults), (fault, faults)
            else:
                assert faults == []


def test_without_a_browser_nothing_is_checked_and_that_is_said(
    tmp_path, checks, monkeypatch, capsys
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert checks[1].main([str(tmp_path)]) == 0
    assert "No pages were opened" in capsys.readouterr().out
