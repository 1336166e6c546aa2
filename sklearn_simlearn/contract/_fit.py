"""Checks of `fit`: repeatable, independent of order, threads and earlier fits."""

import numpy as np

from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._core.sklearn import get_threadpool_controller
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.contract._rules import (
    distance,
    raises,
    require,
    require_equal,
    rule,
)
from sklearn_simlearn.contract._samples import (
    chosen,
    fit,
    learns,
    refit,
    samples,
    with_row,
)


@rule
def check_fit_is_repeatable(estimator):
    """A random_state gives exactly the same similarity again, with every option."""
    X, y = samples(estimator)
    for options in [{}, *find_options(estimator)]:
        try:
            first = fit(estimator, X, y, options)
        except (TypeError, ValueError):
            if not options:
                raise
            continue  # options may exclude each other, or need other data
        second = fit(estimator, X, y, options)
        require_equal(
            first.similarity(X),
            second.similarity(X),
            f"a second fit with {options or 'the given parameters'} differs.",
        )


def find_options(estimator):
    """Yield every option that the constraints of the parameters list, one at a time."""
    for name, constraints in getattr(estimator, "_parameter_constraints", {}).items():
        if name in ("random_state", "n_jobs"):
            continue
        options: list = []
        for constraint in constraints:
            if constraint is None:
                options.append(None)
            elif isinstance(constraint, str):
                options += [False, True] if constraint == "boolean" else []
            else:
                options += sorted(getattr(constraint, "options", ()), key=str)
        current = getattr(estimator, name)
        if current is None or isinstance(current, bool | str):
            yield from ({name: option} for option in options if option != current)


@rule
def check_order_of_samples_does_not_matter(estimator):
    """Another order of the samples changes no more than another random_state does."""
    if not learns(estimator):
        return
    X, y = samples(estimator)
    shuffled = np.random.default_rng(1).permutation(len(y))
    orders = (np.arange(len(y)), shuffled[::-1], np.argsort(-y, kind="stable"))
    # Differences by chance, and within the tolerance of a solver.
    names = estimator.get_params(deep=False)
    others = []
    for seed, factor in [(1001, 0.1), (1002, 10), (1003, 1)]:
        options = {"random_state": seed} if "random_state" in names else {}
        options |= {"tol": factor * estimator.tol} if "tol" in names else {}
        others += [options] if options else []
    fits = [fit(estimator, X[shuffled], y[shuffled], o) for o in [{}, *others]]
    for order in orders:
        other = fit(estimator, X[order], y[order])
        # The choice may differ by chance, so fits with the same choice are compared.
        alike = [m.similarity(X) for m in fits if chosen(m) == chosen(other)]
        if not alike:
            continue
        # The other fits show the effect of chance on a single one.
        known = alike if len(alike) > 1 else [m.similarity(X) for m in fits]
        by_chance = max(distance(alike[0], S) for S in known)
        by_order = distance(alike[0], other.similarity(X))
        require(
            by_order <= max(3 * by_chance, 1e-6),
            f"in another order the similarity differs by {by_order:.2g}, with another "
            f"random_state or tol by {by_chance:.2g}.",
        )


@rule
def check_threads_do_not_matter(estimator):
    """Threads of BLAS and n_jobs do not change the result: use one_blas_thread."""
    if not learns(estimator):
        return
    # Large enough for BLAS to share the work among threads.
    X, y = samples(estimator, n_objects=14, n_words=100)
    options = {"n_jobs": 2} if "n_jobs" in estimator.get_params() else {}
    blas = get_threadpool_controller()
    with blas.limit(limits=2, user_api="blas"):
        fitted = fit(estimator, X, y, options)
    with blas.limit(limits=1, user_api="blas"):
        expected = fit(estimator, X, y)
        for name in ("transform", "transform_database"):
            actual, wanted = (getattr(model, name)(X) for model in (fitted, expected))
            require(
                abs(actual - wanted).max() == 0,
                f"{name} differs after a fit with two threads of BLAS and {options}.",
            )


@rule
def check_global_random_state_is_left_alone(estimator):
    """NumPy's global random state is neither set nor used: draw from random_state."""
    X, y = samples(estimator)
    kept = np.random.get_state()  # noqa: NPY002
    try:
        # A state that no code would set.
        np.random.seed(3_141_592_653)  # noqa: NPY002
        before = np.random.get_state()  # noqa: NPY002
        fit(estimator, X, y).similarity(X)
        after = np.random.get_state()  # noqa: NPY002
    finally:
        np.random.set_state(kept)  # noqa: NPY002
    for x, z in zip(after, before, strict=True):
        require_equal(x, z, "a fit sets it, or draws from it.")


@rule
def check_refit_leaves_nothing_behind(estimator):
    """A fit replaces all state of the previous fit."""
    X, y = samples(estimator)
    fitted = fit(estimator, X, y)
    fitted.stale_ = fitted._stale = "of an earlier fit"
    # Other labels and other samples of the same shape.
    other_X, other_y = X[::-1], np.roll(y, 3)
    fresh = fit(fitted, other_X, other_y)
    names = set(vars(fresh))
    again = refit(fitted, other_X, other_y)
    for name in ("stale_", "_stale"):
        require(not hasattr(again, name), f"the attribute {name} survives a refit.")
    require(
        set(vars(again)) == names,
        f"a refit and a first fit differ in the attributes {set(vars(again)) ^ names}.",
    )
    require_equal(
        again.similarity(X), fresh.similarity(X), "a refit differs from a first fit."
    )


@rule
def check_failed_fit_changes_nothing(estimator):
    """A fit that fails, even at its end, does not change the state."""
    X, y = samples(estimator)
    fitted = fit(estimator, X[:, :20], y)
    state = {name: id(value) for name, value in vars(fitted).items()}
    before = fitted.similarity(X[:, :20])
    with raises(ValueError, "fit with a NaN in X"):
        refit(fitted, with_row(X, 0, np.nan), y)
    if isinstance(fitted, SimilarityLearner):
        with raises(ZeroDivisionError, "fit with a callback that fails"):
            refit(fitted.set_callbacks(_FailAtTheEnd()), X, y)
        fitted.set_callbacks()
    after = {name: id(value) for name, value in vars(fitted).items()}
    require(after == state, "attributes change.")
    require_equal(fitted.similarity(X[:, :20]), before, "the similarity changes.")


class _FailAtTheEnd(FitCallback):
    """A callback that raises at the end of a fit."""

    def on_fit_task_end(self, estimator, context, **kwargs):
        """Fail with the last task, which is the fit itself."""
        if context.parent is None:
            raise ZeroDivisionError
