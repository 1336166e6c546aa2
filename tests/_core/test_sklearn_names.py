"""Private names of scikit-learn are imported in one module only."""

import ast
import re
from pathlib import Path

import pytest

import sklearn_simlearn
from sklearn_simlearn._core import sklearn

PACKAGE = Path(sklearn_simlearn.__file__).parent


def is_private(dotted):
    """Return True if a part of a dotted name of scikit-learn is private."""
    root, *parts = dotted.split(".")
    private = (part.startswith("_") and not part.endswith("__") for part in parts)
    return root == "sklearn" and any(private)


def private_names(code):
    """Return the private names of scikit-learn that Python code uses."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    return {name for name in names if is_private(name)}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from sklearn.base import BaseEstimator, _fit_context", {"_fit_context"}),
        ("from sklearn.utils._chunking import get_chunk_n_rows", {"get_chunk_n_rows"}),
        ("def f():\n    import sklearn.utils._mask as mask", {"_mask"}),
        ("import sklearn\nsklearn.utils._safe_indexing(X)", {"_safe_indexing"}),
        ("import sklearn\nsklearn.__version__", set()),
        ("from sklearn.utils import Bunch, gen_batches", set()),
        ("from sklearn_simlearn._core.sklearn import Interval", set()),
        ("self._encode_queries(X)", set()),
    ],
)
def test_the_search_finds_private_names(code, names):
    assert {name.split(".")[-1] for name in private_names(code)} == names


@pytest.mark.parametrize(
    "module",
    [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "sklearn.py"
    ],
)
def test_one_module_imports_private_names(module):
    names = private_names((PACKAGE / module).read_text(encoding="utf-8"))
    assert not names, "import them through sklearn_simlearn._core.sklearn"


def test_kernels_do_not_import_sklearn():
    for path in PACKAGE.rglob("*.p[yx][xd]"):
        code = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|c?import) sklearn\b", code, re.MULTILINE), path


def test_the_module_exports_all_of_its_names():
    assert all(hasattr(sklearn, name) for name in sklearn.__all__)
    assert not any(name.startswith("_") for name in sklearn.__all__)
