"""Estimators of non-negative samples, and of counts."""

from sklearn.utils.validation import check_non_negative

from sklearn_simlearn._core.rows import check_counts


class NonNegativeMixin:
    """Raise if samples hold negative numbers. Put it before the other base classes."""

    _check_values = staticmethod(check_non_negative)

    def _check_rows(self, X, *, reset=False):
        X = super()._check_rows(X, reset=reset)
        self._check_values(X, type(self).__name__)
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


class CountsMixin(NonNegativeMixin):
    """Raise if samples hold negative numbers or fractions."""

    _check_values = staticmethod(check_counts)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True  # integers, in scikit-learn's vocabulary
        return tags
