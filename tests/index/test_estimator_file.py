"""Forged estimators raise an error before they call or write anything."""

import importlib
import io
import itertools
import json
import pkgutil
import zipfile
import zlib

import numpy as np
import pytest
import skops.io
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sklearn_simlearn
from sklearn_simlearn import OASIS, ClassPosteriorSimilarity
from sklearn_simlearn._core import storage
from sklearn_simlearn.comparison._baselines import Chosen, Dense, InnerProduct
from sklearn_simlearn.comparison._command_line import main
from sklearn_simlearn.index import SimilarityIndex, _estimator_file
from sklearn_simlearn.posterior import _probabilities
from sklearn_simlearn.similarities import CosineSimilarity

WRITE = "sklearn_simlearn._core.storage.write_folder"
CALLS = []


def call_me(*args):
    """Raise, since no file may call this function."""
    CALLS.append(args)
    return CosineSimilarity()


# -- parts of a skops file, built by hand --

_ids = itertools.count(1)


def node(loader, name, **parts):
    module, _, attribute = name.rpartition(".")
    names = {"__module__": module, "__class__": attribute}
    return {"__loader__": loader, "__id__": next(_ids), **names, **parts}


def plain(value):
    return node("JsonNode", "builtins.str", content=json.dumps(value), is_json=True)


def sequence(*parts, kind="tuple"):
    return node(f"{kind.title()}Node", f"builtins.{kind}", content=list(parts))


def mapping(content, key_type=None):
    key_type = key_type or node("TypeNode", "builtins.str")
    types = sequence(*[key_type] * len(content), kind="list")
    return node("DictNode", "builtins.dict", content=content, key_types=types)


def call(name, *args):
    return node("ConstructorFromReduceNode", name, content=sequence(*args))


def partial(function):
    content = {
        "func": function,
        "args": sequence(),
        "kwds": mapping({}),
        "namespace": plain(None),
    }
    return node("PartialNode", "functools.partial", content=content)


def method(owner, name):
    return node("MethodNode", owner, content={"func": name, "obj": instance(owner)})


def instance(name, **attributes):
    return node("ObjectNode", name, content=mapping(attributes))


def forge(root, protocol=None, **files):
    """Return the bytes of a file whose estimator is `root`."""
    protocol = skops.io._protocol.PROTOCOL if protocol is None else protocol
    schema = root | {"protocol": protocol, "_skops_version": skops.__version__}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("schema.json", json.dumps(schema))
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def forge_header(folder, name, data):
    """Write a file into a folder, and add it to the header."""
    path = folder / storage.HEADER
    content = json.loads(path.read_bytes())["content"]
    content["files"][name] = {"size": len(data), "checksums": [zlib.crc32(data)]}
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    path.write_text(json.dumps({"content": content, "checksum": checksum}))


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ME = f"{__name__}.call_me"
CLASS = f"{OASIS.__module__}.OASIS"
INDEX = f"{SimilarityIndex.__module__}.SimilarityIndex"

# Content of a file, and the name that the message must contain.
FORGED = {
    "function called": (call(WRITE, plain("x")), WRITE),
    "function of others called": (call("os.system", plain("true")), "os.system"),
    "builtin called": (call("builtins.eval", plain("1")), "builtins.eval"),
    "loader called": (call("numpy.load", plain("x.npy")), "numpy.load"),
    "pickle called": (call("joblib.load", plain("x.pkl")), "joblib.load"),
    "utility of scikit-learn": (
        call("sklearn.datasets._base.load_files", plain("x")),
        "sklearn.datasets._base.load_files",
    ),
    "function as a value": (node("FunctionNode", WRITE), WRITE),
    "function as a type": (node("TypeNode", WRITE), WRITE),
    "function as a type of keys": (
        mapping({"x": plain(1)}, key_type=node("FunctionNode", ME)),
        ME,
    ),
    "function as a class": (instance(ME), ME),
    "function as a list": (node("ListNode", ME, content=[]), ME),
    "function as a set": (node("SetNode", ME, content=[]), ME),
    "function as a dict": (
        mapping({}) | {"__module__": __name__, "__class__": "call_me"},
        ME,
    ),
    "function of an array": (node("NdArrayNode", ME, type="numpy", file="a.npy"), ME),
    "function as random state": (node("RandomStateNode", ME, content=mapping({})), ME),
    "function as a loss": (
        node(
            "LossNode", ME, content=mapping({}), __reduce__={"args": sequence(plain(1))}
        ),
        ME,
    ),
    "old function": (
        node(
            "FunctionNode",
            "numpy.exp",
            content={"module_path": __name__, "function": "call_me"},
        ),
        ME,
    ),
    "partial": (partial(node("FunctionNode", "numpy.exp")), "functools.partial"),
    "methodcaller": (
        node("OperatorFuncNode", "operator.methodcaller", attrs=sequence(plain("x"))),
        "operator.methodcaller",
    ),
    "attrgetter": (
        node("OperatorFuncNode", "operator.attrgetter", attrs=sequence(plain("x"))),
        "operator.attrgetter",
    ),
    "method": (method(CLASS, "fit"), f"{CLASS}, {CLASS}.fit"),
    "method of an index": (method(INDEX, "save"), f"{INDEX}, {INDEX}.save"),
    "own class called": (call(CLASS), CLASS),
    "own class as a type": (node("TypeNode", CLASS), CLASS),
    "own class as a type of keys": (
        mapping({"x": plain(1)}, key_type=node("TypeNode", CLASS)),
        CLASS,
    ),
    "own class of an array": (
        node("NdArrayNode", CLASS, type="numpy", file="a.npy"),
        CLASS,
    ),
    "own class created and called": (sequence(instance(CLASS), call(CLASS)), CLASS),
    "index": (instance(INDEX, _items=mapping({})), INDEX),
    "other own class": (
        instance("sklearn_simlearn.index._ids.Ids"),
        "sklearn_simlearn.index._ids.Ids",
    ),
    "own module that does not exist": (
        instance("sklearn_simlearn.nothing.OASIS"),
        "sklearn_simlearn.nothing.OASIS",
    ),
    "class that an own module imports": (
        instance("sklearn_simlearn._core.storage.Path"),
        "sklearn_simlearn._core.storage.Path",
    ),
    "package with a similar name": (
        instance("sklearn_simlearn_more.OASIS"),
        "sklearn_simlearn_more.OASIS",
    ),
    "sparse array called": (
        call("scipy.sparse._csr.csr_array", plain([[1]])),
        "scipy.sparse._csr.csr_array",
    ),
    "function inside an estimator": (
        instance(
            "sklearn.preprocessing._function_transformer.FunctionTransformer",
            func=node("FunctionNode", WRITE),
        ),
        WRITE,
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_estimators_are_refused(case, tmp_path, monkeypatch):
    root, name = FORGED[case]
    protocol = 0 if case == "old function" else None
    data = forge(root, protocol, **{"a.npy": npy_bytes(np.zeros(1))})
    monkeypatch.chdir(tmp_path)
    CALLS.clear()
    with pytest.raises(ValueError, match="not trusted") as caught:
        _estimator_file.load_estimator(data, ())
    assert f": {name}." in str(caught.value)
    assert "list them in `trusted`" in str(caught.value)
    assert CALLS == []
    assert list(tmp_path.iterdir()) == []


def test_a_small_file_is_not_expanded_to_any_size(monkeypatch):
    data = _estimator_file.dump_estimator(CosineSimilarity().fit(np.eye(3)))
    with zipfile.ZipFile(stream := io.BytesIO(data), "a") as file:
        file.writestr("zeros.npy", bytes(2**20), zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(_estimator_file, "MAX_EXPANDED", 2**19)
    _estimator_file.load_estimator(data, ())
    with pytest.raises(ValueError, match=r"cannot be read \(\d+ bytes expand to 10"):
        _estimator_file.load_estimator(stream.getvalue(), ())


def test_a_long_description_is_not_parsed():
    """Check that JSON of 8 MiB in a file of 8 KiB, which takes 200 MB, is refused."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"[" + b"[]," * (2**23 // 3) + b"0]")
    with pytest.raises(ValueError, match=r"cannot be read \(\d+ bytes expand to 83"):
        _estimator_file.load_estimator(file.getvalue(), ())


def test_a_vocabulary_of_pairs_of_words_is_read(monkeypatch):
    monkeypatch.setattr(_estimator_file, "MAX_SCHEMA", 2**16)
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(500)]
    texts = [" ".join(rng.choice(words, 300)) for _ in range(10)]
    counts = CountVectorizer(ngram_range=(1, 2))
    pipeline = make_pipeline(counts, CosineSimilarity()).fit(texts)
    data = _estimator_file.dump_estimator(pipeline)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.getinfo("schema.json").file_size > 20 * len(data) + 2**16
    loaded = _estimator_file.load_estimator(data, ())
    assert loaded[0].vocabulary_ == counts.vocabulary_


@pytest.fixture
def saved(counts, tmp_path):
    X, y = counts
    folder = tmp_path / "index"
    SimilarityIndex(OASIS(n_triplets=100, random_state=0)).fit(X, y).save(folder)
    return folder


def test_forged_folder_writes_nothing(saved, tmp_path, capsys):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    content = node("BytesNode", "builtins.bytes", file="content")
    files = mapping({str(victim): content})
    target = str(tmp_path / "target")
    root = call(WRITE, plain(target), mapping({}), mapping({}), files)
    data = forge(root, content=b"forged")
    (path,) = saved.rglob(_estimator_file.ESTIMATOR_FILE)
    path.write_bytes(data)
    forge_header(saved, path.name, data)
    with pytest.raises(ValueError, match=r"not trusted: .*write_folder"):
        SimilarityIndex.load(saved, trusted=())
    queries = tmp_path / "queries.npz"
    np.savez(queries, X=np.ones((1, 3)))
    assert main(["search", str(saved), str(queries)]) != 0
    assert "write_folder" in capsys.readouterr().err
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x.npy", "/x.npy", "a/b.npy", "a\\b.npy", "c:x", "a\n"]
)
def test_names_of_files_stay_in_the_folder(name, saved, tmp_path):
    forge_header(saved, name, b"x")
    with pytest.raises(ValueError, match="not a file of the folder"):
        SimilarityIndex.load(saved)
    with pytest.raises(ValueError, match="not a name for a file"):
        storage.write_folder(tmp_path / "new", {}, {}, {name: b""})
    assert not (tmp_path / "new").exists()


def test_functions_are_trusted_by_name_only(counts):
    X, _ = counts
    model = make_pipeline(FunctionTransformer(call_me), CosineSimilarity())
    model[-1].fit(X)
    data = _estimator_file.dump_estimator(model)
    with pytest.raises(ValueError, match=r"not trusted: .*call_me"):
        _estimator_file.load_estimator(data, ())
    opened = _estimator_file.load_estimator(data, [ME])
    assert opened[0].func is call_me
    CALLS.clear()


# -- classes that may be stored --


# Indexes hold other indexes; the others have no estimators or abstract ones.
NOT_STORED = ("index", "reranking", "display", "serve", "base", "contract")


def public_estimators():
    """Return all public estimators that may be part of an index."""
    for module in pkgutil.iter_modules(sklearn_simlearn.__path__):
        if module.name.startswith("_") or module.name in NOT_STORED:
            continue
        found = importlib.import_module(f"sklearn_simlearn.{module.name}")
        for package in (found, sklearn_simlearn):
            for name in getattr(package, "__all__", ()):
                each = getattr(package, name)
                if isinstance(each, type) and issubclass(each, BaseEstimator):
                    yield each


@pytest.mark.parametrize("trusted", [True, "numpy.log1p"])
def test_trusted_is_a_sequence_of_names(trusted):
    data = _estimator_file.dump_estimator(CosineSimilarity())
    with pytest.raises(TypeError, match=r"trusted must be a sequence.*trusted=\(\)"):
        _estimator_file.load_estimator(data, trusted)


def test_public_estimators_are_trusted():
    estimators = set(public_estimators())
    assert OASIS in estimators
    for each in estimators:
        name = f"{each.__module__}.{each.__name__}"
        assert _estimator_file.is_trusted(name, {"ObjectNode"}), name
        # Setting the attributes of an instance runs no code of this package.
        for method_name in ("__setstate__", "__reduce__", "__reduce_ex__", "__new__"):
            assert getattr(each, method_name) in (
                getattr(BaseEstimator, method_name, None),
                getattr(object, method_name, None),
            )


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClassPosteriorSimilarity(random_state=0),
        lambda: ClassPosteriorSimilarity(
            make_pipeline(TfidfTransformer(), CosineSimilarity()),
            classifier=LogisticRegression(),
            random_state=0,
        ),
        lambda: make_pipeline(
            TfidfTransformer(), Dense(), Chosen(CosineSimilarity(), {}), InnerProduct()
        ),
    ],
)
def test_private_parts_are_trusted(make, counts):
    X, y = counts
    X, y = X[y >= 0], y[y >= 0]
    model = make().fit(X, y)
    opened = _estimator_file.load_estimator(_estimator_file.dump_estimator(model), ())
    expected = model.transform(X)
    found = opened.transform(X)
    if sparse.issparse(expected):
        found, expected = found.toarray(), expected.toarray()
    assert_array_equal(found, expected)


def test_all_posteriors_are_trusted():
    for each in _probabilities.Posterior.__subclasses__():
        name = f"{each.__module__}.{each.__name__}"
        assert _estimator_file.is_trusted(name, {"ObjectNode"}), name


def test_a_vocabulary_is_stored_in_a_few_bytes_per_word():
    texts = [" ".join(f"word{i}" for i in range(j, 4000, 9)) for j in range(9)]
    model = make_pipeline(CountVectorizer(), CosineSimilarity()).fit(texts)
    data = _estimator_file.dump_estimator(model)
    assert len(data) < 60 * 4000
    loaded = _estimator_file.load_estimator(data, ())
    assert loaded[0].vocabulary_ == model[0].vocabulary_
