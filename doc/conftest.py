"""Run the examples of the pages as tests, each page in its own folder."""

import pytest

# Only pages that are written, not what a build makes of them.
collect_ignore_glob = ["*.py"]
collect_ignore = ["_build", "auto_examples", "generated"]


@pytest.fixture(autouse=True)
def page(tmp_path, monkeypatch):
    """Run in a temporary folder; close figures and restore settings afterwards."""
    # The process that starts the workers reads this file, too, but runs no tests.
    from sklearn import config_context

    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    with config_context():
        yield
    plt.close("all")
