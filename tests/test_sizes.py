"""Files and functions of the package stay short."""

import ast
from pathlib import Path

import sklearn_simlearn

PACKAGE = Path(sklearn_simlearn.__file__).parent
MAX_LINES_OF_FILE = 500
MAX_LINES_OF_FUNCTION = 60  # without the docstring


def count_lines(source):
    """Return the lines of each function without its docstring, by name."""
    lines = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                length -= first.end_lineno - first.lineno + 1
            lines[node.name] = max(length, lines.get(node.name, 0))
    return lines


def test_lines_of_functions_are_counted():
    source = '''
def f(x):
    """One.

    Two.
    """
    return x

class A:
    async def g(self):
        pass
'''
    assert count_lines(source) == {"f": 2, "g": 2}


def test_no_file_is_long():
    paths = [
        p for kind in ("py", "pyx", "pxd", "h") for p in PACKAGE.rglob(f"*.{kind}")
    ]
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in paths
    }
    long = {name: n for name, n in lengths.items() if n > MAX_LINES_OF_FILE}
    assert long == {}


def test_no_function_is_long():
    long = [
        f"{path.relative_to(PACKAGE)}: {name} has {n} lines"
        for path in PACKAGE.rglob("*.py")
        for name, n in count_lines(path.read_text("utf-8")).items()
        if n > MAX_LINES_OF_FUNCTION
    ]
    assert long == []
