"""The estimator of an index as a file, by skops."""

from sklearn_simlearn._core.storage import damaged

ESTIMATOR_FILE = "estimator.skops"

# Types within learners that skops does not know to be harmless.
TRUSTED_TYPES = ("scipy.sparse._csr.csr_array", "scipy.sparse._csc.csc_array")


def dump_estimator(estimator):
    """An estimator as bytes; of a search, what it found."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    return _import_skops().dumps(estimator)


def load_estimator(data, trusted):
    skops = _import_skops()
    try:
        types = skops.get_untrusted_types(data=data)
        trusted = {*trusted, *TRUSTED_TYPES}
        unknown = [
            name
            for name in types
            if not name.startswith("sklearn_simlearn.") and name not in trusted
        ]
        if not unknown:
            return skops.loads(data, trusted=types)
    except Exception as error:
        # Damaged bytes fail in as many ways as skops has parts.
        raise damaged(f"its estimator cannot be read ({error})") from error
    raise ValueError(
        f"The estimator has types that are not trusted: {', '.join(unknown)}. If you "
        "trust them, and who saved the index, list them in `trusted`."
    )


def _import_skops():
    try:
        import skops.io
    except ImportError:
        raise ImportError(
            "Estimators are stored by the package skops: pip install "
            '"sklearn-simlearn[serve]".'
        ) from None
    return skops.io
