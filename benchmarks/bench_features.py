"""Features of images: agreement with stored ones, speed against FAISS, memory.

    python benchmarks/bench_features.py [--descriptors 1000000] [--threads 2]

reads ukbench_sample80.npz, the vocabulary and the counts of UKbench from SIMLEARN_DATA.
The 80 photographs are decoded and described anew; their words are compared with the
stored ones, feature by feature. Assignment is timed on their descriptors, repeated and
shuffled.
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
from sklearn_simlearn.index._faiss import faiss_threads
from sklearn_simlearn.similarities import CosineSimilarity


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    features, y = describe_photographs(options.threads)
    words = load("ukbench1000_codebook20k.npz")["centroids"].astype(np.float32)
    compare_words(features, words, options.threads)
    compare_rankings(features, words, y, options.threads)
    time_assignment(features.descriptors, words, options)
    time_vlad(features, options.threads)
    measure_memory(features, options)


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
    """Features are matched by their place; those without a match differ."""
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
    """tf-idf on the 80 photographs, and on all 1,000 with the 80 rows replaced."""
    arrays = load("ukbench1000_bovw20k.npz")
    stored = as_counts(arrays, np.float32)
    n = len(features)
    ours = VisualVocabulary.from_words(words, n_jobs=n_threads).transform(features)
    own = VisualVocabulary(2000, n_jobs=n_threads, random_state=0)
    own_counts = own.fit_transform(features)
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
    # By turns, so that whatever else the machine does slows all of them alike.
    seconds, n_equal = dict.fromkeys(assign, 0.0), dict.fromkeys(assign, 0)
    for part in np.array_split(X, 10):
        found = {}
        for name, function in assign.items():
            start = time.perf_counter()
            found[name] = function(part)
            seconds[name] += time.perf_counter() - start
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
    title = f"{n} descriptors to {len(words)} words"
    print_table((title, "seconds", "speed", "agreement"), rows)


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


def measure_memory(features, options):
    """Most memory of k-means beyond what is mapped from a file."""
    n_copies = max(1, min(options.descriptors, 500_000) // features.n_points)
    many = LocalFeatures.concatenate([features] * n_copies)
    with tempfile.TemporaryDirectory() as folder:
        many.save(folder)
        size = many.descriptors.nbytes
        del many
        mapped = LocalFeatures.load(folder)
        vocabulary = VisualVocabulary(
            200, max_iter=5, points_per_word=None, n_jobs=options.threads
        )
        before, seen, done = _anonymous_bytes(), [], threading.Event()

        def watch():
            while not done.wait(0.005):
                seen.append(_anonymous_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        vocabulary.fit(mapped)
        done.set()
        watcher.join()
    print(
        f"k-means of {size / 2**20:.0f} MiB of mapped descriptors took at most "
        f"{(max(seen) - before) / 2**20:.0f} MiB of memory"
    )


def _anonymous_bytes():
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
