"""Features of images: agreement with stored features, speed, memory.

    python benchmarks/bench_features.py [PART ...] [--descriptors 1000000] [--threads 2]

PART is photographs, levels, assignment, vlad or large. The default is all except the
last.
They read ukbench_sample80.npz, the vocabulary and the counts of UKbench from
SIMLEARN_DATA. The 80 photographs are decoded and described again; their words are
compared with the stored ones, feature by feature. Assignment is timed on their
descriptors, repeated and shuffled. "large" needs no data: it learns 500,000 words from
synthetic descriptors in a file, which takes about 10 minutes on one core.
"""

import argparse
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise

import faiss
import numpy as np
from _common import as_counts, best_seconds, load, print_table

from sklearn_simlearn.feature_extraction import (
    VLAD,
    ImageReader,
    LocalDescriptors,
    LocalFeatures,
    VisualVocabulary,
)
from sklearn_simlearn.index.backends._faiss import faiss_threads
from sklearn_simlearn.similarities import CosineSimilarity


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--words", type=int, default=500_000)
    parser.add_argument("--points", type=int, default=4_000_000)
    options = parser.parse_args()
    parts = set(options.parts or ("photographs", "levels", "assignment", "vlad"))
    if parts - {"large"}:
        features, y = describe_photographs(options.threads)
        words = load("ukbench1000_codebook20k.npz")["centroids"].astype(np.float32)
    if "photographs" in parts:
        compare_words(features, words, options.threads)
        compare_rankings(features, words, y, options.threads)
    if "levels" in parts:
        compare_levels(features, y, options.threads)
    if "assignment" in parts:
        time_assignment(features.descriptors, words, options)
    if "vlad" in parts:
        time_vlad(features, options.threads)
    if "large" in parts:
        learn_many_words(options)


def describe_photographs(n_threads):
    arrays = load("ukbench_sample80.npz")
    data, offsets = arrays["jpeg_bytes"].tobytes(), arrays["jpeg_offsets"]
    photographs = [data[i:j] for i, j in pairwise(offsets)]
    start = time.perf_counter()
    images = ImageReader(n_jobs=n_threads).fit_transform(photographs)
    middle = time.perf_counter()
    features = LocalDescriptors(n_jobs=n_threads).fit_transform(images)
    end = time.perf_counter()
    to_check, to_describe = (
        1e3 * seconds / len(images) for seconds in (middle - start, end - middle)
    )
    print(
        f"{len(images)} photographs: {to_check:.1f} ms each to check, "
        f"{to_describe:.1f} ms to decode and describe"
    )
    return features, arrays["group"]


def compare_words(features, words, n_threads):
    """Match features by their position; count those with the same word."""
    stored = load("ukbench1000_geometry.npz")
    found = VisualVocabulary.from_words(words, n_jobs=n_threads).assign(features)
    n_stored = stored["offsets"][len(features)]
    n_equal = 0
    for i, image in enumerate(found):
        part = slice(stored["offsets"][i], stored["offsets"][i + 1])
        columns = (stored[name][part] for name in ("x", "y", "word_20k"))
        theirs = Counter(zip(*columns, strict=True))
        ours = Counter(zip(image.x, image.y, image.words, strict=True))
        n_equal += (theirs & ours).total()
    print(
        f"words equal to the stored ones: {n_equal} of {n_stored} "
        f"({n_equal / n_stored:.3%}); {found.n_points} found"
    )


def compare_rankings(features, words, y, n_threads):
    """Measure tf-idf on 80 photographs, and on all 1,000 with 80 rows replaced."""
    arrays = load("ukbench1000_bovw20k.npz")
    stored = as_counts(arrays, np.float32)
    n = len(features)
    ours = VisualVocabulary.from_words(words, n_jobs=n_threads).transform(features)
    own = VisualVocabulary(2000, n_jobs=n_threads, random_state=0)
    own_counts = own.fit_transform(features)
    by_cell = VisualVocabulary(2000, search="hnsw", n_jobs=n_threads, random_state=0)
    soft = VisualVocabulary(
        2000, assignment="soft", n_jobs=n_threads, random_state=0
    ).fit_transform(features)
    mixed = stored.tolil()
    mixed[:n] = ours
    mixed = mixed.tocsr()
    everything = CosineSimilarity().fit(stored)
    rows = [
        ("stored counts", stored[:n], everything),
        ("ours, stored vocabulary", ours, everything),
        ("ours, 2,000 words of these photographs", own_counts, None),
        (
            "ours, 2,000 words, k-means in two levels",
            by_cell.fit_transform(features),
            None,
        ),
        ("ours, 2,000 words, soft assignment", soft, None),
    ]
    table = []
    for name, X, similarity in rows:
        similarity = CosineSimilarity().fit(X) if similarity is None else similarity
        table.append((name, f"{similarity.score(X, y):.4f}"))
    group = arrays["group"]
    for name, X in (("all 1,000: stored", stored), ("all 1,000: 80 of ours", mixed)):
        table.append((name, f"{CosineSimilarity().fit(X).score(X, group):.4f}"))
    print_table(("tf-idf", "mAP"), table)


def compare_levels(features, y, n_threads, n_seeds=3):
    """Compare k-means of all words at once with two levels: means over some seeds."""
    table = []
    for n_words in (500, 2000, 8000):
        for search in ("exact", "hnsw"):
            found = []
            for seed in range(n_seeds):
                start = time.process_time()
                vocabulary = VisualVocabulary(
                    n_words, search=search, n_jobs=n_threads, random_state=seed
                ).fit(features)
                seconds = time.process_time() - start
                X = vocabulary.transform(features)
                residuals = (
                    features.descriptors
                    - vocabulary.words_[
                        VisualVocabulary.from_words(vocabulary.words_).find_words(
                            features.descriptors
                        )
                    ]
                )
                error = np.einsum("ij,ij->i", residuals, residuals).mean()
                found.append((seconds, error, CosineSimilarity().fit(X).score(X, y)))
            seconds, error, score = np.mean(found, axis=0)
            table.append(
                (f"{n_words} words, search={search!r}", f"{seconds:.1f}")
                + (f"{error:.4f}", f"{score:.4f}")
            )
    print_table(("k-means", "CPU seconds", "mean squared distance", "mAP"), table)


def time_assignment(descriptors, words, options):
    rng = np.random.default_rng(0)
    n = options.descriptors
    X = descriptors[rng.permutation(np.arange(n) % len(descriptors))]
    flat = faiss.IndexFlatL2(words.shape[1])
    flat.add(words)

    def search_flat(part):
        with faiss_threads(options.threads):
            return flat.search(part, 1)[1].ravel()

    assign = {"FAISS flat": search_flat}
    for search in ("exact", "hnsw", "ivf"):
        vocabulary = VisualVocabulary.from_words(
            words, search=search, n_jobs=options.threads
        )
        assign[search] = vocabulary.find_words
    # Alternately and in CPU seconds, so that other load on the machine slows all of
    # them equally.
    seconds, n_equal = dict.fromkeys(assign, 0.0), dict.fromkeys(assign, 0)
    for part in np.array_split(X, 20):
        found = {}
        for name, function in assign.items():
            start = time.process_time()
            found[name] = function(part)
            seconds[name] += time.process_time() - start
            n_equal[name] += np.sum(found[name] == found["FAISS flat"])
    rows = [
        (
            name,
            f"{seconds[name]:.2f}",
            f"{seconds['FAISS flat'] / seconds[name]:.2f}x",
            f"{n_equal[name] / n:.2%}",
        )
        for name in assign
    ]
    title = f"{n:,} descriptors to {len(words):,} words"
    print_table((title, "CPU seconds", "speed", "agreement"), rows)


def time_vlad(features, n_threads):
    vlad = VLAD(64, n_jobs=n_threads, random_state=0).fit(features)
    words = vlad.vocabularies_[0].words_
    assigned = vlad.vocabularies_[0].assign(features)

    def loop():
        V = np.zeros((len(features), *words.shape), dtype=np.float32)
        residuals = features.descriptors - words[assigned.words]
        np.add.at(V, (features.image_of_point, assigned.words), residuals)
        return V

    seconds = {"VLAD.transform": best_seconds(lambda: vlad.transform(features))}
    seconds["numpy.add.at, words given, not normalised"] = best_seconds(loop)
    print_table(
        (f"VLAD of {features.n_points} descriptors", "ms"),
        [(name, f"{s * 1e3:.0f}") for name, s in seconds.items()],
    )


def learn_many_words(options, n_components=128, n_images=10_000):
    """Measure time and memory of a large vocabulary of memory-mapped descriptors."""
    rng = np.random.default_rng(0)
    centers = rng.gamma(0.5, 20, (20_000, n_components)).astype(np.float32)
    directions = rng.normal(size=(16, n_components)).astype(np.float32)
    shape = (options.points, n_components)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/descriptors.npy"
        write_descriptors(path, shape, centers, directions, rng)
        offsets = np.linspace(0, options.points, n_images + 1).astype(np.int64)
        geometry = np.broadcast_to(np.float32(1), (4, options.points))
        mapped = LocalFeatures(offsets, *geometry, np.load(path, mmap_mode="r"))
        vocabulary = VisualVocabulary(
            options.words,
            search="hnsw",
            max_iter=10,
            points_per_word=None,
            n_jobs=options.threads,
            random_state=0,
        )
        before, seen, done = _anonymous_bytes(), [], threading.Event()

        def watch():
            while not done.wait(0.05):
                seen.append(_anonymous_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        start, start_cpu = time.perf_counter(), time.process_time()
        vocabulary.fit(mapped)
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        done.set()
        watcher.join()
    new = draw(centers, directions, 10_000, rng)
    exact = VisualVocabulary.from_words(vocabulary.words_, n_jobs=options.threads)
    agreement = np.mean(vocabulary.find_words(new) == exact.find_words(new))
    print(
        f"{options.words:,} words from {options.points:,} descriptors: {seconds:.0f} s "
        f"({cpu:.0f} s of one core); a file of {4 * np.prod(shape) / 2**20:.0f} MiB; "
        f"at most {(max(seen) - before) / 2**20:.0f} MiB of memory, "
        f"{vocabulary.words_.nbytes / 2**20:.0f} MiB of it the words; "
        f"search agrees with the exact one for {agreement:.2%}"
    )


def write_descriptors(path, shape, centers, directions, rng):
    file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for block in np.array_split(file, 100):
        block[:] = draw(centers, directions, len(block), rng)
    file.flush()


def draw(centers, directions, n, rng):
    """Draw descriptors around some centres, in few directions, in SIFT's range."""
    noise = rng.normal(0, 12, (n, len(directions))).astype(np.float32) @ directions
    values = centers[rng.integers(0, len(centers), n)] + noise
    return np.clip(values, 0, 255)


def _anonymous_bytes():
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
