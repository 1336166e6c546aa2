"""Reader of untrusted text files, with bounded memory and errors that name the line."""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

MAX_LINE = 2**24  # bytes
MAX_ID = 256  # characters

# Bytes in memory of a line's strings, list entries and dictionary entry, without its
# characters.
LINE_COST = 256


class Budget:
    """Limit of the memory of files.

    Parameters
    ----------
    max_bytes : int or None
        Number of bytes; None for no limit.
    """

    def __init__(self, max_bytes: int | None):
        self.max_bytes = max_bytes
        self.bytes_left = math.inf if max_bytes is None else max_bytes

    def take(self, path: Path, n_bytes: int) -> None:
        """Reserve memory for a file; raise if too little is left."""
        self.bytes_left -= n_bytes
        if self.bytes_left < 0:
            raise ValueError(
                f"{path}: needs more than max_bytes={self.max_bytes} in memory. "
                "Increase max_bytes if you trust the file."
            )


class TextFile:
    """Text in UTF-8, plain or compressed by gzip, read line by line.

    Parameters
    ----------
    path : Path
        File. If its name ends in ".gz", it is decompressed.

    budget : Budget
        Limit of the memory of the lines.
    """

    def __init__(self, path: Path, budget: Budget):
        self.path = path
        self.budget = budget
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        """Yield lines with their ends. `line` is the number of the last one, from 1."""
        self.line = 0
        open_file = gzip.open if self.path.suffix == ".gz" else open
        with open_file(self.path, "rb") as file:
            while line := self._read_line(file):
                self.line += 1
                yield self._decode(line)

    def _read_line(self, file):
        try:
            line = file.readline(MAX_LINE + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.fail(f"the gzip file is damaged ({error})", self.line + 1)
        if len(line) > MAX_LINE:
            self.fail(f"the line has more than {MAX_LINE} bytes", self.line + 1)
        self.budget.take(self.path, len(line) + LINE_COST)
        return line

    def _decode(self, line):
        try:
            return line.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"not text in UTF-8 ({error.reason} at byte {error.start + 1})")

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield JSON objects, one per line."""
        for line in self:
            if not line.strip():
                self.fail("the line is empty. Every line must hold a JSON object")
            try:
                value = json.loads(line)
            except RecursionError:
                self.fail("the JSON value is nested too deeply")
            except json.JSONDecodeError as error:
                self.fail(f"not JSON ({error.msg}, at character {error.pos + 1})")
            except ValueError as error:  # a number with thousands of digits
                self.fail(f"not JSON that can be read ({error})")
            if not isinstance(value, dict):
                self.fail(f"a JSON {type(value).__name__} instead of an object")
            yield value

    def get_text(self, values: dict[str, Any], key: str) -> str:
        """Return the text under a key of the current line; fail if it is missing."""
        if key not in values:
            found = ", ".join(map(repr, list(values)[:10])) or "nothing"
            self.fail(f"{key!r} is missing; the line has {found}")
        text = values[key]
        if not isinstance(text, str):
            self.fail(f"{key!r} is of type {type(text).__name__}; write a string")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                self.fail(f"{key!r} has half of a surrogate pair, which is not text")
        return text

    def get_name(self, values: dict[str, Any], key: str) -> str:
        """Return the id or label under a key of the current line as a string."""
        value = values.get(key)
        name = str(value) if type(value) is int else self.get_text(values, key)
        if len(name) > MAX_ID:
            self.fail(f"{key!r} has {len(name)} characters, more than {MAX_ID}")
        if "\0" in name:
            self.fail(f"{key!r} contains a null character")
        return name

    def as_array(self, names: list[str]) -> np.ndarray:
        """Return ids or labels of the file as an array of strings."""
        width = max(map(len, names), default=1)
        self.budget.take(self.path, 4 * width * len(names))
        return np.array(names, dtype=str)

    def fail(self, fault: str, line: int | None = None) -> NoReturn:
        """Raise for a fault in a line; by default, the current one."""
        number = self.line if line is None else line
        raise ValueError(f"{self.path}, line {number}: {fault}.") from None


class Numbering:
    """Numbers of unique ids, in the order of their lines."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def add(self, file: TextFile, id_: str) -> None:
        """Add the id of the current line of a file; fail if it is empty or known."""
        if not id_:
            file.fail("the id is empty")
        if id_ in self.lines:
            file.fail(f"the id {id_!r} is also in line {self.lines[id_]}")
        self.lines[id_] = file.line
