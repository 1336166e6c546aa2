"""Rules for kernels, checked in their sources and instructions."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import sklearn_simlearn
from sklearn_simlearn.index.backends import _inverted_fast

PACKAGE = Path(sklearn_simlearn.__file__).parent
MAX_PARAMETERS = 14


def list_functions(source):
    """Return names and numbers of parameters of all functions of a kernel file."""
    source = re.sub(r'""".*?"""', "", source, flags=re.DOTALL)
    source = re.sub(r"#.*", "", source)
    for match in re.finditer(r"^ *(?:c?p?def)\b[^\n(=]*?(\w+)\(", source, re.MULTILINE):
        depth, n_commas, last = 1, 0, ""
        for character in source[match.end() :]:
            depth += (character in "([") - (character in ")]")
            if depth == 0:
                break
            if not character.isspace():
                n_commas += depth == 1 and character == ","
                last = character
        # A trailing comma ends the last parameter.
        yield match[1], n_commas + (last not in ("", ","))


def test_parameters_are_counted():
    source = '''
cdef class A:
    def __init__(self, a, b):
        self.f(1, 2, 3)
    cdef inline void g(self) noexcept nogil:
        pass
cdef const double* f(
    const double[:, ::1] x,  # in, out
    int (*g)(int, int), double[2] y,
) noexcept nogil:
    """A call f(1, 2)."""
cpdef h(): return f(1)
cdef double z = f(1, 2)
'''
    expected = [("__init__", 3), ("g", 1), ("f", 3), ("h", 0)]
    assert list(list_functions(source)) == expected


def test_no_kernel_has_many_parameters():
    sources = [path for kind in ("pyx", "pxd") for path in PACKAGE.rglob(f"*.{kind}")]
    if not sources:
        pytest.skip("The package is installed without its sources.")
    counts = {
        f"{path.relative_to(PACKAGE)}: {name}": n
        for path in sources
        for name, n in list_functions(path.read_text(encoding="utf-8"))
    }
    assert len(counts) > 50
    assert {name: n for name, n in counts.items() if n > MAX_PARAMETERS} == {}


def test_scan_of_sums_is_vectorised():
    # A compiler vectorises the scan only if it is written in this form. Otherwise the
    # scan takes fifteen times as long.
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which("objdump"):
        pytest.skip("It reads instructions of x86-64.")
    command = [
        "objdump",
        "--disassemble",
        "--no-show-raw-insn",
        _inverted_fast.__file__,
    ]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if not any(line.endswith(">:") and "__pyx_" in line for line in lines):
        pytest.skip("The kernel is stripped of its symbols.")
    for version, compare in (
        ("plain", r"pcmpgtw\s.*xmm"),
        ("avx2", r"vpmaxuw\s.*ymm"),
        ("avx512", r"vpmaxuw\s.*zmm"),
    ):
        name = f"<find_sums_{version}>:"
        start = next(i for i, line in enumerate(lines) if line.endswith(name))
        scan = lines[start : lines.index("", start)]
        assert any(re.search(rf"\b{compare}", line) for line in scan)
