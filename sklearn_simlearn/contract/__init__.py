"""The contract of a similarity, as checks for any estimator.

They complement scikit-learn's `check_estimator` and follow the tags of the estimator:
whether it takes sparse data, needs targets, and takes a relevance matrix.
"""

from sklearn_simlearn.contract import (  # noqa: F401  (each module adds its checks)
    _fit,
    _holdout,
    _judgements,
    _resources,
    _score,
    _similarity,
    _targets,
)
from sklearn_simlearn.contract._rules import CHECKS, check_learner

__all__ = ["CHECKS", "check_learner"]
