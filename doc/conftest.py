"""The lines of the pages run as tests, each page in a folder of its own."""

import pytest
from sklearn import config_context

# Only pages that are written, not what a build makes of them.
collect_ignore_glob = ["*.py"]
collect_ignore = ["_build", "auto_examples", "generated"]


@pytest.fixture(autouse=True)
def page(tmp_path, monkeypatch):
    """Files go to a scratch folder, figures are closed, settings are undone."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    with config_context():
        yield
    plt.close("all")
