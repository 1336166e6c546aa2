"""A notebook with progress, displays and the report, without warnings."""

from itertools import chain

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("ipywidgets")
pytest.importorskip("rich")

CELLS = [
    """
import warnings
warnings.simplefilter("error")
from sklearn.callback import ProgressBar
from sklearn.datasets import load_iris
from sklearn_simlearn import OASIS
X, y = load_iris(return_X_y=True)
learner = OASIS(holdout="samples", random_state=0).set_callbacks(ProgressBar())
learner.fit(X[::2], y[::2]);
""",
    """
from sklearn_simlearn.display import HoldoutDisplay
from sklearn_simlearn.report import RetrievalReport
HoldoutDisplay.from_estimator(learner);
""",
    """
from sklearn_simlearn.similarities import CosineSimilarity
models = {"cosine": CosineSimilarity(use_idf=False)}
models["OASIS"] = OASIS(holdout="samples", random_state=0)
RetrievalReport(models, X[1::2], y[1::2], X_train=X[::2], y_train=y[::2])
""",
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    # A busy machine may take long to start a kernel.
    client = nbclient.NotebookClient(notebook, timeout=100, startup_timeout=100)
    with pytest.MonkeyPatch.context() as patch:
        # If the variable is set, plots are not drawn inside the notebook.
        patch.delenv("MPLBACKEND", raising=False)
        # The home may be read-only.
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        return client.execute()


def test_a_notebook(notebook):
    outputs = [cell.outputs for cell in notebook.cells]
    for output in chain.from_iterable(outputs):
        assert output.output_type != "stream", output.text
    fitted, drawn, reported = (
        set().union(*(output.data for output in cell)) for cell in outputs
    )
    # The bar is a widget, and it is full at the end.
    widget = "application/vnd.jupyter.widget-view+json"
    assert widget in fitted
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]
    shown = str(state)
    assert "OASIS - fit" in shown
    assert "100%" in shown
    assert "image/png" in drawn
    assert {widget, "text/html"} <= reported
    (page,) = [
        output.data["text/html"]
        for output in outputs[-1]
        if output.output_type == "execute_result"
    ]
    assert page.startswith("<iframe sandbox")
