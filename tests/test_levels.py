"""Test that a package imports from lower levels only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_simlearn

PACKAGE = Path(sklearn_simlearn.__file__).parent

LEVELS = [
    {"_core"},
    {"metrics", "_folds"},
    {"model_selection", "_holdout"},
    {"base", "_validation"},
    {"_query_sets", "contract", "similarities", "datasets", "feature_extraction"},
    {
        "angular",
        "compose",
        "histogram",
        "mahalanobis",
        "memory",
        "oasis",
        "posterior",
        "query_map",
        "two_covariance",
    },
    {"index"},
    {"reranking", "display"},
    {"report", "serve"},
    {"comparison"},
    {"__init__", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}


def part_of(path):
    """Return the first part of a module's name below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path):
    """Return the parts of the package that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            root, _, rest = (node.module or "").partition(".")
            if root == "sklearn_simlearn":
                names = [rest] if rest else [alias.name for alias in node.names]
                yield from (name.partition(".")[0] for name in names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                root, _, rest = alias.name.partition(".")
                if root == "sklearn_simlearn" and rest:
                    yield rest.partition(".")[0]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_a_module_imports_from_lower_levels_only(path):
    own = part_of(path)
    # A folder that is not listed, or a public name of the root, is a learner.
    own_level = LEVEL.get(own, LEVEL["oasis"])
    for part in imported_parts(path):
        level = LEVEL.get(part, LEVEL["oasis"])
        assert part == own or level < own_level, (
            f"{path.relative_to(PACKAGE)} (level {own_level + 1}) imports {part} "
            f"(level {level + 1})"
        )


def loaded_modules(module):
    """Return the modules of the package that an import of one of them loads."""
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return [name for name in run.stdout.split() if name.startswith("sklearn_simlearn")]


def test_metrics_load_no_index_and_few_modules():
    loaded = loaded_modules("sklearn_simlearn.metrics")
    assert not [name for name in loaded if name.startswith("sklearn_simlearn.index")]
    assert len(loaded) <= 27, loaded


def test_public_names_are_imported_when_they_are_used():
    assert loaded_modules("sklearn_simlearn") == ["sklearn_simlearn"]
    assert set(sklearn_simlearn.__all__) <= set(dir(sklearn_simlearn))
    for name in sklearn_simlearn.__all__:
        assert getattr(sklearn_simlearn, name).__name__ == name
    assert sklearn_simlearn.metrics.__name__ == "sklearn_simlearn.metrics"
    for name in ("nothing", "_nothing"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(sklearn_simlearn, name)
