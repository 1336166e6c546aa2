"""Learn similarities that rank: retrieval in scikit-learn terms."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

# Modules of the public names. They are imported when a name is first used, so that the
# import of a package such as `sklearn_simlearn.metrics` does not load all learners.
_MODULES = {
    "OASIS": "oasis",
    "AngularBilinearRanker": "angular",
    "ClassPosteriorSimilarity": "posterior",
    "EmbeddingModelMap": "query_map",
    "HistogramRankSVM": "histogram",
    "MemoryVectorQuery": "memory",
    "QueryDocumentMap": "query_map",
    "SparseMahalanobisLearner": "mahalanobis",
    "StartKeptWarning": "_core.warn",
    "TwoCovarianceSimilarity": "two_covariance",
}

__all__ = list(_MODULES)

if TYPE_CHECKING:
    from sklearn_simlearn._core.warn import StartKeptWarning
    from sklearn_simlearn.angular import AngularBilinearRanker
    from sklearn_simlearn.histogram import HistogramRankSVM
    from sklearn_simlearn.mahalanobis import SparseMahalanobisLearner
    from sklearn_simlearn.memory import MemoryVectorQuery
    from sklearn_simlearn.oasis import OASIS
    from sklearn_simlearn.posterior import ClassPosteriorSimilarity
    from sklearn_simlearn.query_map import EmbeddingModelMap, QueryDocumentMap
    from sklearn_simlearn.two_covariance import TwoCovarianceSimilarity
else:

    def __getattr__(name):
        if name in _MODULES:
            value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
            globals()[name] = value  # found without this function from now on
            return value
        if not name.startswith("_"):
            module = f"{__name__}.{name}"
            try:
                return import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
