"""Check that text is plain English.

    python doc/check_style.py            # check all files
    python doc/check_style.py --update   # write doc/style_baseline.txt again
    python doc/check_style.py FILE ...   # list the findings in these files

Comments, docstrings and messages of Python and Cython files and all text of .rst files
must not contain the phrases in `PHRASES`. Docstrings must begin with a verb or a noun.

Files that are not yet rewritten are in ``doc/style_baseline.txt`` with the number of
their findings. A file that is not listed must be clean, and a number must not rise. If
a number falls, ``--update`` writes the lower one. The sum of all numbers never rises,
but it may be distributed over other files, so that a file can be moved or split.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path("doc", "style_baseline.txt")
PATTERNS = ("*.py", "*.pyx", "*.pxd", "*.rst")

# Folders that builds write, and the two files that quote the phrases.
SKIPPED_FOLDERS = {"build", "dist", "_build", "_pictures", "auto_examples", "generated"}
SKIPPED_FILES = {"doc/check_style.py", "tests/test_style.py"}

# Regular expressions of phrases, case-insensitive, with what to write instead.
PHRASES = {
    r"\banew\b": 'write "again"',
    r"\bbeside\b": 'write "against", "compared with" or "next to"',
    r"(?<!\bthere )\b(?:is|are|was|were|be) no (?!(?:longer|more|less|fewer|larger"
    r"|smaller|better|worse|later|earlier)\b)": 'write "is not a"',
    r"\bwhom\b": "name the person or the object",
    r"\bwho(?:so)?ever\b": 'write "to ..., do ..." or name the subject',
    r"(?:^|[.:;] )Who (?![^.]*\?)": "name the subject",
    r"\bwill do\b": 'write "is enough"',
    r"\ba trifle\b": 'write "slightly", or give the number',
    r"\bbe had\b": 'write "is available"',
    r"\ball that\b": 'write "everything that", or list it',
    r"\bso many\b": "give the number",
    r"\bas it (?:is|was|stands)\b": 'write "unchanged"',
    r"\b(?:tell|tells|telling|told)\b": 'write "show", "distinguish" or "report"',
    r"\b(?:say|says|saying|said)\b": 'write "state", "show" or "print"',
    r"\b(?:stand|stands|standing|stood)\b(?!-)": 'write "is", "is stored" or "means"',
    r"\b(?:hear|hears|hearing|heard)\b": 'write "receive"',
    r"\bearns? (?:its|their) place\b": "state the condition",
    r"\bwithout us\b": 'write "baseline"',
    r"\bout ?grows?\b": "name the limit",
    r"\bfor naught\b|\bin vain\b": 'write "without effect"',
}

# Docstrings that begin with a clause.
CLAUSE = re.compile(r"(?:What|Whether|How|Which|Who|Whom|Whose|Where|When|Why|That)\b")
CLAUSE_ADVICE = "begin with a verb or a noun"

_PHRASES = {re.compile(phrase, re.I): advice for phrase, advice in PHRASES.items()}
_SOURCE_TEXT = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<prefix>\b[A-Za-z]{1,2})?(?P<quote>\"\"\"|'''|\"|')"
    r"(?P<text>(?:\\.|(?!(?P=quote)).)*?)(?P=quote)",
    re.S,
)
_PARAGRAPH = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_DOCTEST = re.compile(r"^[ \t]*(?:>>>|\.\.\.)[^\n]*$", re.M)


class Finding(NamedTuple):
    """Phrase at a line of a file, with what to write instead."""

    line: int
    phrase: str
    advice: str


class Passage(NamedTuple):
    """Text that is read as a whole; `places` are the offsets of its characters."""

    text: str
    places: list[int]
    is_docstring: bool = False


def check_text(source: str, suffix: str) -> list[Finding]:
    """Return the findings in the content of a file, by line."""
    read = _read_pages if suffix == ".rst" else _read_code
    findings = []
    for text, places, is_docstring in read(_DOCTEST.sub(_blank, source)):
        found = [
            (match.start(), match[0].strip(" .:;"), advice)
            for phrase, advice in _PHRASES.items()
            for match in phrase.finditer(text)
        ]
        clause = CLAUSE.match(text) if is_docstring else None
        if clause is not None:
            found.append((clause.start(), clause[0], CLAUSE_ADVICE))
        for start, phrase, advice in found:
            line = 1 + source.count("\n", 0, places[start])
            findings.append(Finding(line, phrase, advice))
    return sorted(findings)


def _blank(match):
    return " " * len(match[0])


def _read_pages(source: str) -> Iterator[Passage]:
    """Yield the paragraphs of a page."""
    for match in _PARAGRAPH.finditer(source):
        yield _fold([(match[0], match.start())])


def _read_code(source: str) -> Iterator[Passage]:
    """Yield docstrings, literals and comments; those next to each other as one."""
    pieces: list[tuple[str, int]] = []
    end, is_comment = 0, False
    for match in _SOURCE_TEXT.finditer(source):
        group = "text" if match["comment"] is None else "comment"
        between = source[end : match.start()]
        if (
            between.strip()
            or between.count("\n") > 1
            or is_comment != (group != "text")
        ):
            yield _fold(pieces)
            pieces = []
        is_comment, end = group == "comment", match.end()
        text = match[group]
        piece = ("\n" + text.lstrip("# ") if is_comment else text), match.end(group)
        pieces.append((piece[0], piece[1] - len(piece[0])))
        if match["quote"] in ('"""', "'''"):
            yield _fold(pieces)._replace(is_docstring=True)
            pieces = []
    yield _fold(pieces)


def _fold(pieces):
    """Join pieces of text and their offsets, with runs of white space as one space."""
    characters: list[str] = []
    places = []
    for text, start in pieces:
        for place, character in enumerate(text, start):
            character = " " if character.isspace() else character
            if character != " " or (characters and characters[-1] != " "):
                characters.append(character)
                places.append(place)
    return Passage("".join(characters), places)


def find_files(root: Path) -> list[Path]:
    """Return the files to check, relative to the root."""
    paths = [
        path.relative_to(root) for pattern in PATTERNS for path in root.rglob(pattern)
    ]
    return sorted(
        path
        for path in paths
        if path.as_posix() not in SKIPPED_FILES
        and not SKIPPED_FOLDERS.intersection(path.parts)
        and not any(part.startswith(".") for part in path.parts)
    )


def read_baseline(path: Path) -> dict[str, int]:
    """Return the allowed number of findings by file; empty without a baseline."""
    if not path.is_file():
        return {}
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for count, name in lines}


def write_baseline(path: Path, counts: dict[str, int]) -> None:
    """Write the numbers of findings of the files that have any."""
    lines = [f"{count} {name}\n" for name, count in sorted(counts.items()) if count]
    path.write_text("".join(lines), encoding="utf-8")


def compare(
    findings: dict[str, list[Finding]], allowed: dict[str, int]
) -> tuple[dict[str, list[Finding]], list[str]]:
    """Return the findings of files with more than allowed, and files with fewer."""
    worse = {
        name: found
        for name, found in findings.items()
        if len(found) > allowed.get(name, 0)
    }
    better = [n for n, count in allowed.items() if len(findings.get(n, ())) < count]
    return worse, better


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--update", action="store_true", help="write the baseline again"
    )
    parser.add_argument(
        "files", nargs="*", type=Path, help="list all of their findings"
    )
    options = parser.parse_args(arguments)
    paths = [path.resolve().relative_to(root) for path in options.files]
    findings = {
        path.as_posix(): check_text(
            (root / path).read_text(encoding="utf-8"), path.suffix
        )
        for path in paths or find_files(root)
    }
    baseline = root / BASELINE
    allowed = {} if paths else read_baseline(baseline)
    worse, better = compare(findings, allowed)
    n_found, n_allowed = sum(map(len, findings.values())), sum(allowed.values())
    if options.update:
        if baseline.is_file() and n_found > n_allowed:
            print(f"{n_found} findings; the baseline allows {n_allowed}.")
            return 1
        write_baseline(baseline, {name: len(f) for name, f in findings.items()})
        return 0
    for name, found in worse.items():
        for line, phrase, advice in found:
            print(f'{name}:{line}: "{phrase}": {advice}')
        if name in allowed:
            print(f"{name}: {len(found)} findings; at most {allowed[name]} are allowed")
    if better and not worse:
        print("These files have fewer findings than doc/style_baseline.txt allows:")
        print(*better, "Run: python doc/check_style.py --update", sep="\n")
    return int(bool(worse or better))


if __name__ == "__main__":
    sys.exit(main())
