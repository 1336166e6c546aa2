"""Lines of Python that fit a similarity again."""

import textwrap
from typing import Any

from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

from sklearn_simlearn._core.sklearn import public_module
from sklearn_simlearn.comparison._baselines import Chosen, Dense, InnerProduct
from sklearn_simlearn.comparison._comparison import Result
from sklearn_simlearn.comparison._task import Task
from sklearn_simlearn.compose import RetrievalPipeline, SimilarityUnion

# Largest number of columns of a line, without the indent of 4 that is printed.
WIDTH = 76


def write_lines(result: Result, task: Task, source: list[str]) -> list[str]:
    """Return lines of Python that fit the similarity on all samples.

    Parameters
    ----------
    result : Result
        Result with the fitted estimator.

    task : Task
        Task of the comparison.

    source : list of str
        Lines that make X and y, including imports. Not used if the row has its own
        features.
    """
    estimator, task = result.measured.estimator, result.row.find_task(task)
    if result.row.features is not None:
        source = result.row.features.code
    # In a pipeline, tf-idf makes all rows sparse.
    is_sparse = sparse.issparse(task.X_train) or task.has_counts
    imports, expression = _write(estimator, is_sparse)
    if result.row.is_baseline and task.labels is not None and task.labels.min() < 0:
        source = [*source, "X, y = X[y != -1], y[y != -1]  # without distractors"]
    imports.update(line for line in source if line.startswith("from "))
    lines = [
        *sorted(imports),
        "",
        *(line for line in source if line not in imports),
        *_break_lines(f"model = {expression}"),
        "model.fit(X, y)",
    ]
    if not hasattr(estimator, "similarity"):
        is_product = isinstance(estimator[-1], InnerProduct)
        last = estimator[-2 if is_product else -1]
        what = "predict_proba" if _is_classifier(last) else "transform"
        how = "inner product of" if is_product else "cosine between"
        lines.append(f"# The similarity is the {how} rows of model.{what}(X).")
    return lines


def _break_lines(expression):
    """Return lines of an expression, broken between arguments if they are long."""
    lines: list = []
    for line in expression.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += textwrap.wrap(
            line,
            WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def write_features(steps: list) -> list[str]:
    """Return lines of Python that make features X of images."""
    imports, expression = _write(make_pipeline(*steps), is_sparse=False)
    return [*sorted(imports), *_break_lines(f"X = {expression}.fit_transform(images)")]


def _write(estimator: Any, is_sparse: bool) -> tuple[set[str], str]:
    """Return imports, and an expression that makes an estimator like this one."""
    if isinstance(estimator, SimilarityUnion):
        return _write_union(estimator)
    if isinstance(estimator, Pipeline | FeatureUnion):
        is_union = isinstance(estimator, FeatureUnion)
        steps_of = estimator.transformer_list if is_union else estimator.steps
        parts = [_write(step, is_sparse) for _, step in steps_of]
        imports = set().union(*(names for names, _ in parts))
        steps = [expression for _, expression in parts if expression]
        if len(steps) == 1:
            return imports, steps[0]
        is_ours = isinstance(estimator, RetrievalPipeline)
        module = "sklearn_simlearn.compose" if is_ours else "sklearn.pipeline"
        name = "make_retrieval_pipeline" if is_ours else "make_pipeline"
        name = "make_union" if is_union else name
        imports.add(f"from {module} import {name}")
        lines = "".join(f"    {step},\n" for step in steps)
        return imports, f"{name}(\n{lines})"
    if isinstance(estimator, Chosen):
        return _write(estimator.chosen_, is_sparse)
    if isinstance(estimator, InnerProduct):
        return set(), ""
    if isinstance(estimator, Dense):
        if not is_sparse:
            return set(), ""
        imports = {"from sklearn.preprocessing import FunctionTransformer"}
        return imports, "FunctionTransformer(lambda X: X.toarray(), accept_sparse=True)"
    kind = type(estimator)
    module = public_module(kind)
    # Clone, since the repr of a fitted learner also shows the choice of its hold-out.
    expression = " ".join(clone(estimator).__repr__(N_CHAR_MAX=10_000).split())
    return {f"from {module} import {kind.__name__}"}, expression


def _write_union(union):
    imports = {"from sklearn_simlearn.compose import SimilarityUnion"}
    lines = []
    for name, part, columns in union.similarities:
        expression = repr(part)
        if not isinstance(part, str):
            names, expression = _write(part, is_sparse=False)
            imports |= names
        expression = " ".join(expression.split())
        expression = expression.replace("( ", "(").replace(", )", ")")
        lines.append(f"        ({name!r}, {expression}, {columns!r}),")
    end = [f"    random_state={union.random_state},", ")"]
    return imports, "\n".join(["SimilarityUnion(", "    [", *lines, "    ],", *end])


def _is_classifier(step):
    return isinstance(step, Chosen) and not hasattr(step.chosen_, "transform")
