"""The report: one page that needs nothing else."""

from sklearn_simlearn.report._report import RetrievalReport

__all__ = ["RetrievalReport"]
