"""Execute the notebooks and compare their text outputs with those that are stored."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
for package in ("ipykernel", "matplotlib", "pandas", "skops"):
    pytest.importorskip(package)

NOTEBOOKS = sorted(Path(__file__, "../../examples/notebooks").resolve().glob("*.ipynb"))


def text_outputs(notebook):
    """Return the printed text and the shown values of each cell of code."""
    return [
        "".join(
            output.get("text", "") or output.get("data", {}).get("text/plain", "")
            for output in cell.outputs
            if output.output_type in ("stream", "execute_result")
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [
        "first_search",
        "judge_and_report",
        "search_text",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_a_new_run(path, monkeypatch, tmp_path):
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # the home may be read-only
    stored = text_outputs(nbformat.read(path, as_version=4))
    notebook = nbformat.read(path, as_version=4)
    # A busy machine may take long to start a kernel.
    nbclient.NotebookClient(notebook, timeout=100, startup_timeout=100).execute()
    assert text_outputs(notebook) == stored
