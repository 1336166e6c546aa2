"""Check that text is plain English.

    python doc/check_style.py            # check all files
    python doc/check_style.py FILE ...   # check these files

Text is the whole of a page, the prose of a notebook and of HTML, and the comments,
docstrings and messages of code. It must not contain the phrases in `PHRASES`.
Docstrings must begin with a verb or a noun.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# Folders that builds write, and the two files that quote the phrases.
SKIPPED_FOLDERS = {
    "build",
    "dist",
    "_build",
    "_pictures",
    "auto_examples",
    "generated",
    "reproductions",
}
SKIPPED_FILES = {"doc/check_style.py", "tests/test_style.py"}
HIDDEN_FOLDERS = {".ci", ".github"}  # of those that begin with a dot, the ones to check

# Regular expressions of phrases, case-insensitive, with what to write instead.
PHRASES = {
    r"\banew\b": 'write "again"',
    r"\bbeside\b": 'write "against", "compared with" or "next to"',
    r"(?<!\bthere )\b(?:is|are|was|were|be) no (?!(?:longer|more|less|fewer|larger"
    r"|smaller|better|worse|later|earlier)\b)": 'write "is not a"',
    r"\bwhom\b": "name the person or the object",
    r"\bwho(?:so)?ever\b": 'write "to ..., do ..." or name the subject',
    r"(?:^|[.:;] )(?-i:Who|What|Whatever) (?![^.]*\?)": "name the subject",
    r"\bwhatever\b": 'write "any", or name the cases',
    r"\bgo(?:es)? with (?=--|judgements|labels|the kind)": 'write "requires"',
    r"\btak(?:e|es|en) off\b": 'write "remove" or "subtract"',
    r"\bwill do\b": 'write "is enough"',
    r"\ba trifle\b": 'write "slightly", or give the number',
    r"\bbe had\b": 'write "is available"',
    r"\ball that\b": 'write "everything that", or list it',
    r"\bso many\b": "give the number",
    r"\b(?:such )?as it (?:is|was|stands)\b": 'write "unchanged"',
    r"\b(?:tell|tells|telling|told)\b": 'write "show", "distinguish" or "report"',
    r"\b(?:say|says|saying|said)\b": 'write "state", "show" or "print"',
    r"\b(?:stand|stands|standing|stood)\b(?!-)": 'write "is", "is stored" or "means"',
    r"\b(?:hear|hears|hearing|heard)\b": 'write "receive"',
    r"\bearns? (?:its|their) place\b": "state the condition",
    r"\bwithout us\b": 'write "baseline"',
    r"\bout ?grows?\b": "name the limit",
    r"\bfor naught\b|\bin vain\b": 'write "without effect"',
    r"\bof (?:its|their) own\b(?: accord\b)?": 'write "its own ..." or "automatically"',
    r"\b(?:goes|go|comes|come) by (?:its|their|the)\b": 'write "depends on"',
    r"\b(?:is|are) up to the\b": 'write "depends on"',
    r"\bbut for\b(?! example)": 'write "except"',
    r"\bto the bit\b": 'write "exactly" or "bit by bit"',
    r"\bat hand\b": 'write "available"',
    r"\bleft alone\b": 'write "unchanged" or "not checked"',
    r"\bspeaks? for\b": 'write "is evidence of" or "raises"',
    r"\bowes?\b": 'write "is due to"',
    r"\bknows? no\b": 'write "does not ..."',
    r"\bwants\b(?! to\b)": 'write "need" or "expect"',
    r"\bsome \d": 'write "about"',
    r"\bnothing but\b": 'write "only"',
    r"\bhave (?:got|gone) to\b|\bgone by\b": "name the event",
    r"\balike\b": 'write "equal", "similar" or "in the same way"',
    r"\bmeanwhile\b": 'write "in between", or name the event',
    r"\b(?:one|two|\d+) at least\b": 'write "at least one"',
    r"\byet to be\b|\bis left to be\b|\bremains to be\b": 'write "not yet ..."',
    r"\b(?:is|are|was|were) of no\b": 'write "has no"',
    r"\bas \w+ as can be\b": "give the number",
    r"\bgoes? (?:under|through|into|without)\b": 'write "is stored in" or "passes"',
    r"\b(?:does|do) not pay\b|\bpays? off\b": 'write "saves time", or give the number',
    r"\bdifferences? to (?:the|a|its)\b": 'write "gain over" or "difference from"',
    r"\bsome (?:hundred|thousand|dozen)s?\b": 'write "a few hundred"',
    r"\blearns? nothing\b": 'write "does not learn"',
    r"\btable has the\b|\bhas (?:the|both) (?:figures|tables|speed|time of)\b": (
        'write "shows the"'
    ),
    r"\b(?:is|are|ends) ahead\b|\bahead of\b": 'write "better than" or "above"',
    r"\b(?:leads?|goes) from\b": 'name the action: "build", "turn into"',
    r"\b(?:lest|whence|thence|hitherto|herein|thereof|whereof|thereby)\b": (
        "use a usual word"
    ),
    r"\bthreads over\b": 'write "number of threads"',
    r"\balso (?:if|where|after)\b": 'write "even if" or "even after"',
    r"(?:^|[.;] )(?-i:So) (?:the|an?|each|every|it)\b": 'write "therefore"',
    r"(?:^|[.;:] )(?-i:Of) (?:an?|equal|several|those)\b": (
        'write "for", "among" or "if there are several"'
    ),
}

# Docstrings that begin with a clause.
CLAUSE = re.compile(r"(?:What|Whether|How|Which|Who|Whom|Whose|Where|When|Why|That)\b")
CLAUSE_ADVICE = "begin with a verb or a noun"

_PHRASES = {re.compile(phrase, re.I): advice for phrase, advice in PHRASES.items()}
_LITERAL = (
    r"|(?P<prefix>\b[A-Za-z]{1,2})?(?P<quote>\"\"\"|'''|\"|'|`)"
    r"(?P<text>(?:\\.|(?!(?P=quote)).)*?)(?P=quote)"
)
_HASH_CODE = re.compile(r"(?P<comment>\#[^\n]*)" + _LITERAL.replace("|`", ""), re.S)
_SLASH_CODE = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)" + _LITERAL, re.S)
_PARAGRAPH = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_DOCTEST = re.compile(r"^[ \t]*(?:>>>|\.\.\.)[^\n]*$", re.M)
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<!--|-->|<[^<>]*>", re.S)


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
    findings = []
    for text, places, is_docstring in READERS[suffix](_DOCTEST.sub(_blank, source)):
        found = [
            (match.start(), match[0].strip(" .:;"), advice)
            for phrase, advice in _PHRASES.items()
            for match in phrase.finditer(text)
        ]
        clause = CLAUSE.match(text) if is_docstring else None
        if clause is not None and all(start for start, _, _ in found):
            found.append((clause.start(), clause[0], CLAUSE_ADVICE))
        for start, phrase, advice in found:
            line = 1 + source.count("\n", 0, places[start])
            findings.append(Finding(line, phrase, advice))
    return sorted(findings)


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def _read_page(source: str) -> Iterator[Passage]:
    """Yield the paragraphs of a page."""
    for match in _PARAGRAPH.finditer(source):
        yield _fold([(match[0], match.start())])


def _read_markup(source: str) -> Iterator[Passage]:
    """Yield the paragraphs of a page in HTML, without its tags."""
    yield from _read_page(_MARKUP.sub(_blank, source))


def _read_notebook(source: str) -> Iterator[Passage]:
    """Yield the prose and the comments of a notebook; a cell is at its first line."""
    place = 0
    for cell in json.loads(source)["cells"]:
        lines = cell["source"]
        if lines:
            place = source.index(json.dumps(lines[0], ensure_ascii=False), place)
        read = _read_page if cell["cell_type"] == "markdown" else _read_code
        for passage in read(_DOCTEST.sub(_blank, "".join(lines))):
            yield passage._replace(places=[place] * len(passage.places))


def _read_script(source: str) -> Iterator[Passage]:
    """Yield literals and comments of JavaScript and C."""
    yield from _read_code(source, _SLASH_CODE)


def _read_code(source: str, syntax: re.Pattern = _HASH_CODE) -> Iterator[Passage]:
    """Yield docstrings, literals and comments; those next to each other as one."""
    pieces: list[tuple[str, int]] = []
    end, is_comment = 0, False
    for match in syntax.finditer(source):
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
        piece = ("\n" + text.lstrip("#/* ") if is_comment else text), match.end(group)
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


READERS = {
    **dict.fromkeys((".rst", ".md", ".yml", ".yaml", ".cff"), _read_page),
    **dict.fromkeys((".py", ".pyx", ".pxd", ".toml", ""), _read_code),  # "": .ci/run
    **dict.fromkeys((".js", ".css", ".h"), _read_script),
    **dict.fromkeys((".html", ".svg"), _read_markup),
    ".ipynb": _read_notebook,
}


def find_files(root: Path) -> list[Path]:
    """Return the files to check, relative to the root."""
    paths = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted(path for path in paths if _is_checked(path))


def _is_checked(path):
    hidden = {part for part in path.parts[:-1] if part.startswith(".")}
    return (
        (path.suffix in READERS if path.suffix else path == Path(".ci", "run"))
        and path.as_posix() not in SKIPPED_FILES
        and not SKIPPED_FOLDERS.intersection(path.parts)
        and hidden <= HIDDEN_FOLDERS
    )


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="default: all files")
    options = parser.parse_args(arguments)
    paths = [path.resolve().relative_to(root) for path in options.files]
    n_findings = 0
    for path in paths or find_files(root):
        source = (root / path).read_text(encoding="utf-8")
        for line, phrase, advice in check_text(source, path.suffix):
            print(f'{path.as_posix()}:{line}: "{phrase}": {advice}')
            n_findings += 1
    return int(n_findings > 0)


if __name__ == "__main__":
    sys.exit(main())
