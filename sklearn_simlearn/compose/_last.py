"""Last estimator of pipelines and searches."""

from typing import Any

from sklearn.pipeline import Pipeline

from sklearn_simlearn.similarities._hand_made import HandMadeSimilarity


def find_last(estimator: Any) -> Any:
    """Return the last estimator in pipelines and searches, fitted or not."""
    while True:
        if isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "similarity") or not hasattr(estimator, "estimator"):
            return estimator
        else:
            estimator = estimator.estimator


def has_query_steps(pipeline: Pipeline) -> bool:
    """Return True if a step of a pipeline is fitted on the queries."""
    last: Any = pipeline
    while isinstance(last, Pipeline):
        if getattr(last, "query_steps", None):
            return True
        last = last.steps[-1][1]
    return False


def uses_documents_only(pipeline: Pipeline) -> bool:
    """Return True if a fit with Judgements depends on the documents only."""
    if has_query_steps(pipeline):
        return False
    last = find_last(pipeline)
    return not hasattr(last, "similarity") or isinstance(last, HandMadeSimilarity)
