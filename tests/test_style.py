"""The linter for plain English, on sources that hold known phrases."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "doc" / "check_style.py"
if not SCRIPT.is_file():
    pytest.skip("needs the folder doc", allow_module_level=True)


@pytest.fixture(scope="module")
def style():
    spec = importlib.util.spec_from_file_location("check_style", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find(style, source, suffix=".py"):
    """Return lines and phrases of the findings."""
    return [(line, phrase) for line, phrase, _ in style.check_text(source, suffix)]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Fit it anew.", "anew"),
        ("LDA beside the cosine", "beside"),
        ("a list is no array", "is no"),
        ("for whom it is", "whom"),
        ("Whoever needs more", "Whoever"),
        ("the same for whatever data", "whatever"),
        ("It is stored. What was learned is kept.", "What"),
        ("It is stored. Who opens it sees it.", "Who"),
        ("A copy will do.", "will do"),
        ("a trifle slower", "a trifle"),
        ("Wheels can be had for Linux.", "be had"),
        ("all that is stored", "all that"),
        ("so many items", "so many"),
        ("keep it as it is", "as it is"),
        ("The data cannot tell.", "tell"),
        ("It says so.", "says"),
        ("It stands here.", "stands"),
        ("a callback hears it", "hears"),
        ("It starts of its own accord.", "of its own accord"),
        ("A page has a folder of its own.", "of its own"),
        ("all but for the last", "but for"),
        ("the same to the bit", "to the bit"),
        ("It takes some 5 minutes.", "some 5"),
        ("a word that speaks for it", "speaks for"),
        ("the difference to the start", "difference to the"),
        ("It needs some hundred queries.", "some hundred"),
        ("Gist learns nothing.", "learns nothing"),
        ("The table has the times.", "table has the"),
        ("The page has the figures.", "has the figures"),
        ("OASIS is ahead of LDA.", "is ahead"),
        ("This page goes from texts to an index.", "goes from"),
        ("Threads over the queries.", "Threads over"),
        ("It is sparse, also if X is dense.", "also if"),
        ("It is stored. So the index stays valid.", "So the"),
        ("Save it. Of a search, save the best.", "Of a"),
    ],
)
@pytest.mark.parametrize(
    ("frame", "suffix"),
    [
        ("x = 1\n# {}\n", ".py"),
        ('x = 1\n"""{}"""\n', ".py"),
        ("x = 1\nraise ValueError(f'{}')\n", ".py"),
        ("cdef int x = <int> 1\nx += 1  # {}\n", ".pyx"),
        ("Title\n{}\n", ".rst"),
    ],
)
def test_phrases(style, frame, suffix, text, phrase):
    assert find(style, frame.format(text), suffix) == [(2, phrase)]


@pytest.mark.parametrize(
    "text",
    [
        "There is no file, and it is no longer there.",
        "It is no more than a megabyte, and there are no items.",
        "the standard form; understand; besides; forehead",
        "The legend is next to the axes (see `legend_next_to`).",
        "Each page has its own folder, but for example no index.",
    ],
)
def test_plain_text(style, text):
    assert find(style, f'"""{text}"""\n# {text}\n') == []
    assert find(style, text, ".rst") == []


def test_questions(style):
    assert find(style, 'query = "Who sleeps?"\n') == []
    assert find(style, "# Who sleeps is out.\n") == [(1, "Who")]


def test_phrases_across_lines(style):
    source = 'x = 1\nraise ValueError(\n    f"{x} is "\n    "no array."\n)\n'
    assert find(style, source) == [(3, "is no")]
    assert find(style, "# Cheaper, and it will\n# do here.\n") == [(1, "will do")]
    assert find(style, "A copy will\ndo.\n", ".rst") == [(1, "will do")]
    # Two statements and two paragraphs are read one by one.
    assert find(style, 'a = "it will"\nb = "do this"\n') == []
    assert find(style, "# it will\n\n# do this\n") == []
    assert find(style, "It will\n\ndo.\n", ".rst") == []


def test_code_is_not_text(style):
    source = 'whom = all(that for that in tell)\n"""Example.\n\n>>> whom = 1\n"""\n'
    assert find(style, source) == []


@pytest.mark.parametrize("word", ["What", "Whether", "How far", "Which", "Where"])
def test_docstrings_begin_with_a_verb_or_a_noun(style, word):
    [(line, phrase)] = find(style, f'def f():\n    """{word} it goes."""\n')
    assert (line, phrase) == (2, word.split()[0])
    # A parameter may be described by a clause, and a comment may be a question.
    assert find(style, f'"""Plot.\n\nax : bool\n    {word} it goes.\n"""\n') == []
    assert find(style, f"# {word} it goes?\n") == []


@pytest.fixture
def tree(style, tmp_path, capsys):
    """Write files, run the linter on them; return its exit code and output."""

    def check(files, *arguments):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(content, encoding="utf-8")
        code = style.main(list(arguments), root=tmp_path)
        return code, capsys.readouterr().out

    return check


def test_exit_code(tree):
    assert tree({"doc/a.rst": "plain\n", "a.py": "# plain\n"}) == (0, "")
    code, out = tree({"new.pyx": "# anew\n"})
    assert (code, out) == (1, 'new.pyx:1: "anew": write "again"\n')


def test_files_of_builds_are_skipped(tree):
    names = "build/a.py", "doc/_build/a.rst", ".venv/a.py", "doc/generated/a.rst"
    assert tree(dict.fromkeys(names, "# anew\n")) == (0, "")


def test_findings_of_some_files(tree, tmp_path):
    tree({"a.py": "# anew\n", "doc/a.rst": "anew\n"})
    code, out = tree({}, str(tmp_path / "doc" / "a.rst"))
    assert (code, out) == (1, 'doc/a.rst:1: "anew": write "again"\n')


def test_all_kinds_of_files_are_read(tree):
    cell = {"cell_type": "markdown", "source": ["# Title\n", "\n", "Fit it\n", "anew."]}
    notebook = {"cells": [cell, {"cell_type": "code", "source": ["anew = 1  # anew"]}]}
    files = {
        ".ci/run": "# Install it anew\npip install .\n",
        ".github/SECURITY.md": "Fit it\nanew.\n",
        "a.h": "/* Fit it\n * anew. */\nint anew;\n",
        "a.html": "<p class='anew'>Fit it\n<b>anew</b></p><script>anew()</script>\n",
        "a.ipynb": json.dumps(notebook, indent=1),
        "a.js": "anew(`Fit\n it anew`); // plain\n",
        "a.toml": 'name = "fit it anew"\n',
        "other": "anew\n",
    }
    code, out = tree(files)
    assert code == 1
    assert [line.split(" ")[0] for line in out.splitlines()] == [
        ".ci/run:1:",
        ".github/SECURITY.md:2:",
        "a.h:2:",
        "a.html:2:",
        "a.ipynb:6:",
        "a.ipynb:15:",
        "a.js:2:",
        "a.toml:1:",
    ]
