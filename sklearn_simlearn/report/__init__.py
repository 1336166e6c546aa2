"""The report of a comparison: a single HTML file."""

from sklearn_simlearn.report._report import RetrievalReport

__all__ = ["RetrievalReport"]
