"""Photographs: the comparison on the command line, and opening a saved index.

    python benchmarks/bench_images.py [PART ...] [--other FOLDER] [--network MODEL]

PART is comparison, features, vectors, opening or page; the default is all. The
photographs are the 80 of ukbench_sample80.npz in SIMLEARN_DATA, with crops, rotations,
reductions and recompressions.

comparison: CPU time of ``python -m sklearn_simlearn --images`` on 400 photographs in a
terminal, and the longest time without output. --other names the folder of another
version with compiled kernels, which is also run.

features: mean average precision of the cosine of each kind of features on the 80
original photographs and on the places of the package; --network adds a network. Stored
words and vectors of a network are compared on 276 photographs of 5 landmarks of Paris.

vectors: mean average precision of VLAD and TriangulationEmbedding on the same local
descriptors, with CPU times.

opening: an index of 1,000 photographs is saved, the photographs are deleted, and the
index is opened in another folder.

page: time of two commands that index and serve 500 photographs, until the page in
Chromium shows ten results for a photograph. With and without sub-folders for classes.
--network adds a run with --onnx.
"""

import argparse
import os
import pty
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from _common import as_counts, load, print_table
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.datasets import load_image_folder, load_places
from sklearn_simlearn.feature_extraction import (
    VLAD,
    ColorHistograms,
    GistDescriptors,
    ImageReader,
    LocalDescriptors,
    ONNXDescriptors,
    TriangulationEmbedding,
    VisualVocabulary,
)
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

ROOT = Path(__file__).resolve().parents[1]

PARTS = ("comparison", "features", "vectors", "opening", "page")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--other", metavar="FOLDER")
    parser.add_argument("--network", metavar="MODEL")
    options = parser.parse_args()
    parts = options.parts or PARTS
    with tempfile.TemporaryDirectory() as folder:
        if "comparison" in parts:
            time_comparison(Path(folder, "few"), options.other)
        if "features" in parts:
            compare_features(options.network)
            compare_landmarks()
        if "vectors" in parts:
            compare_vectors()
        if "opening" in parts:
            time_opening(Path(folder, "many"))
        if "page" in parts:
            time_page(Path(folder), options.network)


# -- photographs --


def read_originals():
    """Return the photographs as bytes of JPEG files, and their objects."""
    arrays = load("ukbench_sample80.npz")
    data, offsets = arrays["jpeg_bytes"], arrays["jpeg_offsets"]
    jpegs = [data[start:stop].tobytes() for start, stop in pairwise(offsets)]
    return jpegs, arrays["group"]


def write_photographs(folder, n_copies):
    """Write the originals and changed copies of them, a sub-folder per object."""
    rng = np.random.default_rng(0)
    for i, (jpeg, group) in enumerate(zip(*read_originals(), strict=True)):
        place = folder / name_object(group)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:02}.jpg").write_bytes(jpeg)
        image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        for copy in range(n_copies):
            change = (crop, turn, reduce, lambda image, rng: image)[copy % 4]
            quality = [cv2.IMWRITE_JPEG_QUALITY, 20 if copy % 4 == 3 else 90]
            path = place / f"{i:02} copy {copy:02}.jpg"
            cv2.imwrite(str(path), change(image, rng), quality)


def name_object(group):
    return f"object {group:02}"


def crop(image, rng):
    height, width = image.shape[:2]
    top, left = int(rng.integers(height // 4)), int(rng.integers(width // 4))
    return image[top : top + 3 * height // 4, left : left + 3 * width // 4]


def turn(image, rng):
    height, width = image.shape[:2]
    center, angle = (width / 2, height / 2), float(rng.uniform(-30, 30))
    matrix = cv2.getRotationMatrix2D(center, angle, 1.0)
    return cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT)


def reduce(image, rng):
    factor = rng.uniform(0.5, 0.9)
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)


# -- parts --


def time_comparison(folder, other):
    write_photographs(folder, 4)
    rows = [("this version", *run_comparison(str(ROOT), folder))]
    if other is not None:
        rows.append(("other version", *run_comparison(other, folder)))
        rows.append(("ratio", f"{rows[0][1] / rows[1][1]:.2f}", "", ""))
    print_table(("400 photographs", "CPU s", "longest gap s", "at s"), rows)


def run_comparison(root, folder):
    """Return CPU seconds, the longest time without output, and when it began."""
    place = tempfile.mkdtemp()
    command = [sys.executable, "-m", "sklearn_simlearn", "--images", str(folder)]
    command += ["--report", "page.html", "--save", "index"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.environ.update(PYTHONPATH=root, TERM="xterm", COLUMNS="100")
        os.execv(sys.executable, command)
    start = time.monotonic()
    times = [start]
    while True:
        try:
            data = os.read(terminal, 2**16)
        except OSError:  # the process has closed the terminal
            break
        if not data:
            break
        times.append(time.monotonic())
    _, status, usage = os.wait4(pid, 0)
    shutil.rmtree(place)
    if status:
        sys.exit(f"The comparison of {root} failed.")
    gaps = np.diff(times)
    cpu = round(usage.ru_utime + usage.ru_stime, 1)
    return cpu, round(gaps.max(), 2), round(times[gaps.argmax()] - start, 1)


def read_sets():
    """Return images and labels of the 80 photographs and of the places."""
    originals, group = read_originals()
    places = load_places()
    return {
        "UKbench": (ImageReader().fit_transform(originals), group),
        "places": (ImageReader().fit_transform(list(places.images)), places.target),
    }


def compare_features(network):
    sets = read_sets()
    kinds = {
        "colours": ColorHistograms(),
        "Gist": GistDescriptors(),
        "words": make_pipeline(
            LocalDescriptors(), VisualVocabulary(2000, search="hnsw", random_state=0)
        ),
    }
    if network is not None:
        kinds["network"] = ONNXDescriptors(network)
    rows = []
    for name, extractor in kinds.items():
        cells, seconds, n_images = [], time.process_time(), 0
        for images, y in sets.values():
            X = extractor.fit_transform(images)
            cosine = CosineSimilarity(use_idf=name == "words").fit(X)
            cells.append(f"{cosine.score(X, y):.3f}")
            n_images += len(images)
        seconds = time.process_time() - seconds
        rows.append((name, *cells, f"{1000 * seconds / n_images:.1f}"))
    print_table(("mAP of the cosine", *sets, "CPU ms per image"), rows)


def compare_vectors():
    rows = []
    for name, (images, y) in read_sets().items():
        features = LocalDescriptors().fit_transform(images)
        for model in (
            VLAD(16, random_state=0),
            VLAD(64, random_state=0),
            TriangulationEmbedding(8, random_state=0),
            TriangulationEmbedding(16, random_state=0),
        ):
            times = [time.process_time()]
            model.fit(features)
            times.append(time.process_time())
            V = model.transform(features)
            times.append(time.process_time())
            score = CosineSimilarity(use_idf=False).fit(V).score(V, y)
            label = f"{name}, {type(model).__name__}, {model.n_words} words"
            seconds = [f"{s:.1f}" for s in np.diff(times)]
            rows.append((label, V.shape[1], f"{score:.3f}", *seconds))
    print_table(("", "numbers", "mAP of the cosine", "s to fit", "s"), rows)


def compare_landmarks():
    words, vectors = load("paris_subset_bovw20k.npz"), load("paris_subset_cnn.npz")
    is_query = words["is_query"]
    rows = []
    for name, X in (
        ("words", as_counts(words)),
        ("network", vectors["feat"].astype(np.float32)),
    ):
        cosine = CosineSimilarity(use_idf=name == "words").fit(X[~is_query])
        score = cosine.score(X, words["y"].astype(int), query_mask=is_query)
        rows.append((name, f"{score:.3f}"))
    print_table(("mAP of the cosine", "landmarks"), rows)


def time_opening(folder):
    write_photographs(folder / "photographs", 12)
    paths = load_image_folder(folder / "photographs").data[:1000]
    names = [str(Path(path).relative_to(folder)) for path in paths]
    model = make_pipeline(
        ImageReader(),
        LocalDescriptors(200),
        VisualVocabulary(5000, search="hnsw", random_state=0),
        CosineSimilarity(),
    )
    index = SimilarityIndex(model).fit(paths, ids=names)
    queries = [Path(path).read_bytes() for path in paths[::100]]
    expected = index.search(queries)
    index.save(folder / "index")
    shutil.rmtree(folder / "photographs")
    (folder / "elsewhere").mkdir()
    shutil.move(folder / "index", folder / "elsewhere" / "index")
    os.chdir(folder / "elsewhere")
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        opened = SimilarityIndex.load("index", trusted=())
        seconds.append(time.perf_counter() - start)
    found = opened.search(queries)
    same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    print(
        f"1,000 photographs: opened in {1000 * min(seconds):.0f} ms (first "
        f"{1000 * seconds[0]:.0f} ms), same answers: {same}"
    )
    os.chdir("/")


def time_page(folder, network):
    write_photographs(folder / "classes", 6)
    rng = np.random.default_rng(1)
    paths = rng.permutation(load_image_folder(folder / "classes").data)
    for path in map(Path, paths[500:]):
        path.unlink()
    (folder / "flat").mkdir()
    for path in map(Path, paths[:500]):
        shutil.copy(path, folder / "flat" / f"{path.parent.name} {path.name}")
    # A photograph that is not in the folder.
    jpegs, groups = read_originals()
    image = cv2.imdecode(np.frombuffer(jpegs[33], np.uint8), cv2.IMREAD_COLOR)
    cv2.imwrite(str(folder / "query.jpg"), turn(crop(image, rng), rng))
    name = name_object(groups[33])
    runs = [("without classes", "flat", []), ("with classes", "classes", [])]
    if network is not None:
        runs.append(("without classes, network", "flat", ["--onnx", network]))
    rows = []
    tools = runpy.run_path(str(ROOT / "tests" / "browser.py"))
    Page, check_pages = tools["Page"], tools["check_pages"]
    program = next(filter(None, map(shutil.which, check_pages.BROWSERS)))
    with check_pages.open_browser(program) as browser:
        for title, place, more in runs:
            seconds, cpu, ids = look_at_page(
                folder, place, more, lambda url: Page(browser, url)
            )
            n_right = sum(id_.startswith(name) for id_ in ids)
            rows.append((title, f"{seconds:.0f}", f"{cpu:.0f}", n_right))
    print_table(("500 photographs", "s", "CPU s", "same object, of 10"), rows)


def look_at_page(folder, place, more, open_page):
    """Return the seconds until ten results are shown, CPU seconds, and their ids."""
    command = [sys.executable, "-m", "sklearn_simlearn"]
    options = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    start, cpu = time.monotonic(), count_cpu()
    subprocess.run(
        [*command, "--images", place, "--save", f"{place} index", *more],
        stdout=subprocess.DEVNULL,
        check=True,
        **options,
    )
    process = subprocess.Popen(
        [*command, "serve", f"{place} index", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    page = open_page(process.stdout.readline().split()[-1])
    page.drop(folder / "query.jpg")
    page.wait_for_results("document.querySelectorAll('#results > li').length >= 10")
    seconds = time.monotonic() - start
    process.terminate()
    process.communicate()
    return seconds, count_cpu() - cpu, page.ids()[:10]


def count_cpu():
    """Return the CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
