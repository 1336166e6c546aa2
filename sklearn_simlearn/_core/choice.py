"""Choice of a hold-out in words, and the warning of a fit that keeps its start."""

from typing import Any

from sklearn.pipeline import Pipeline

from sklearn_simlearn._core.sklearn import NoteMixin
from sklearn_simlearn._core.warn import StartKeptWarning, warn_user

# The start of the learner, which is always a candidate.
START = None

# Parameters that do not change what is learned.
NOT_LEARNED = {"estimator", "holdout", "init", "n_jobs", "random_state"}


class ChoiceMixin(NoteMixin):
    """Mixin that shows the choice of the hold-out in `repr` and in the HTML view."""

    def _note(self):
        return describe_choice(self)


def describe_choice(estimator: Any) -> str:
    """Return the choice in words; an empty string if there was no hold-out.

    The choice of a pipeline is that of its last step; the choice of a union with one
    part is that of the part.
    """
    if isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    parts = getattr(estimator, "similarities_", {})
    if len(parts) == 1:
        return describe_choice(*parts.values())
    gain = getattr(estimator, "holdout_gain_", None)
    if gain is None:
        return ""
    results = getattr(estimator, "holdout_results_", None)
    if results is None:
        return "start kept, since there is too little to hold out"
    if keeps_start(results):
        return f"start kept{_describe_best(results)}"
    # In another unit than the share that was chosen, `share_` may be close to 1.
    chosen = results["candidates"][results["best_index"]]
    share = getattr(chosen, "share", getattr(estimator, "share_", None))
    words = "" if share is None else f"share of the start {share:.2g}, "
    if parts:
        weights = [
            f"{name} {weight:.2g}" for name, weight in estimator.weights_.items()
        ]
        words = f"weights {', '.join(weights)}; "
    error = estimator.holdout_error_
    return f"{words}gain {gain:.4f} +- {error:.4f} in {_name_measure(results)}"


def keeps_start(results: dict) -> bool:
    """Return whether the hold-out chose the start."""
    return results["candidates"][results["best_index"]] is START


def warn_if_start_is_kept(learner: Any, attributes: dict) -> None:
    """Warn if the hold-out measured candidates and chose the start."""
    results = attributes.get("holdout_results_")
    if results is None or not keeps_start(results):
        return
    unused = sorted(set(learner.get_params(deep=False)) - NOT_LEARNED)
    remedy = ""
    if getattr(learner, "holdout", None) in ("auto", "objects"):
        remedy = ' Pass holdout="samples" if future queries are of the classes in y.'
    warn_user(
        f"{type(learner).__name__} keeps its start: no candidate ranks held-out "
        f"samples better{_describe_best(results)}. So {', '.join(unused)} have no "
        f"effect.{remedy if 'ndcg_at_10' not in results else ''}",
        StartKeptWarning,
    )


def _describe_best(results):
    """Return the gain of the best candidate besides the start, if there is any."""
    gain, error = results["gain"], results["error"]
    others = [i for i, c in enumerate(results["candidates"]) if c is not START]
    if not others:
        return ""
    best = max(others, key=lambda i: gain[i] - error[i])
    return (
        f" (best candidate: gain {gain[best]:.4f} +- {error[best]:.4f} in "
        f"{_name_measure(results)}, {results['gain_at_1'][best]:.4f} at rank 1)"
    )


def _name_measure(results):
    return "nDCG@10" if "ndcg_at_10" in results else "mAP"
