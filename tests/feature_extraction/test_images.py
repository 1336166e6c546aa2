"""ImageReader, ImageSequence and LocalDescriptors, with valid and invalid images."""

import io
import pickle
import re
import struct
import sys
import zlib

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, ImageOps
from sklearn.base import clone

from sklearn_simlearn._core.sklearn import safe_indexing
from sklearn_simlearn.feature_extraction import (
    ImageReader,
    LocalDescriptors,
    UnreadableImagesError,
)
from sklearn_simlearn.feature_extraction._decode import read_header


def make_picture(height=40, width=60, seed=0):
    """Return a smooth colour picture without symmetry."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 8, 3), dtype=np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def encode(picture, kind, **options):
    """Return a file written by Pillow from red, green and blue."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def make_png(width, height, data=b"\0" * 1000):
    """Return a PNG file with a given size in its header."""

    def chunk(name, body):
        return (
            struct.pack(">I4s", len(body), name)
            + body
            + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def read_one(source, **params):
    return ImageReader(**params).fit_transform([source])[0]


PICTURE = make_picture()


# -- valid pictures --


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_are_upright(kind, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    options = {"JPEG": {"quality": 98, "subsampling": 0}, "WEBP": {"lossless": True}}
    for mode in ("RGB", "RGBA"):
        if kind == "JPEG" and mode == "RGBA":
            continue
        picture = Image.fromarray(PICTURE).convert(mode)
        data = encode(picture, kind, exif=exif, **options.get(kind, {}))
        expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        found = read_one(data)
        expected = np.asarray(expected.convert("RGB"), dtype=int)
        assert_allclose(found, expected, atol=3 if kind == "JPEG" else 0)


def test_jpeg_is_upright_when_it_is_scaled_while_decoding():
    exif = Image.Exif()
    exif[274] = 6
    data = encode(make_picture(400, 600), "JPEG", exif=exif)
    found = read_one(data, max_size=60)
    assert found.shape == (60, 40, 3)
    expected = np.rot90(make_picture(400, 600), -1).reshape(60, 10, 40, 10, 3)
    assert_allclose(found, expected.mean(axis=(1, 3)), atol=6)


def test_sixteen_bits_are_scaled():
    gray = PICTURE[:, :, 0].astype(np.uint16) * 257
    for ending in (".png", ".tiff"):
        data = cv2.imencode(ending, gray)[1].tobytes()
        assert_array_equal(read_one(data), np.repeat(PICTURE[:, :, :1], 3, axis=2))
    color = cv2.imencode(".png", PICTURE[:, :, ::-1].astype(np.uint16) * 257)[1]
    assert_array_equal(read_one(color.tobytes()), PICTURE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floating_point_tiff(dtype):
    for scale in (1, 255):
        values = (PICTURE[:, :, ::-1] / 255 * scale).astype(dtype)
        data = cv2.imencode(".tiff", values)[1].tobytes()
        assert_array_equal(read_one(data), PICTURE)
    broken = values.copy()
    broken[3, 4] = np.nan
    data = cv2.imencode(".tiff", broken)[1].tobytes()
    with pytest.raises(UnreadableImagesError, match="not finite"):
        read_one(data)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_palettes(kind):
    image = Image.fromarray(PICTURE).quantize(16)
    expected = np.asarray(image.convert("RGB"))
    assert_array_equal(read_one(encode(image, kind)), expected)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_hidden_pixels_do_not_count(kind):
    alpha = np.full(PICTURE.shape[:2], 255, dtype=np.uint8)
    alpha[:, :30] = 0
    alpha[:10, 40:] = 128
    noise = np.random.default_rng(1).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    hidden = np.where(alpha[:, :, None] == 0, noise, PICTURE)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    for color in (PICTURE, hidden):
        data = encode(np.dstack([color, alpha]), kind, **options)
        found = read_one(data).astype(int)
        assert_array_equal(found[:, :30], 255)
        assert_array_equal(found[10:, 30:], PICTURE[10:, 30:])
        half = PICTURE[:10, 40:] * (128 / 255) + 255 * (127 / 255)
        assert_allclose(found[:10, 40:], half, atol=1)


def test_hidden_pixels_of_sixteen_bits():
    alpha = np.full((40, 60, 1), 65535, dtype=np.uint16)
    alpha[:, :30] = 0
    alpha[:10, 40:] = 32768
    deep = PICTURE[:, :, ::-1].astype(np.uint16) * 257
    for ending in (".png", ".tiff"):
        data = cv2.imencode(ending, np.dstack([deep, alpha]))[1].tobytes()
        found = read_one(data)
        part = alpha / 65535
        assert_allclose(found, PICTURE * part + 255 * (1 - part), atol=1.01)


def test_hidden_colours_of_palettes():
    image = Image.new("P", (4, 1))
    image.putdata([0, 1, 2, 3])
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9] + [0] * 756)
    for kind in ("GIF", "PNG"):
        found = read_one(encode(image, kind, transparency=1))
        expected = [[255, 0, 0], [255, 255, 255], [0, 0, 255], [9, 9, 9]]
        assert_array_equal(found[0], expected)


def test_gray_with_alpha_and_single_bits():
    alpha = np.full((40, 60), 255, dtype=np.uint8)
    alpha[:20] = 0
    gray = Image.fromarray(PICTURE[:, :, 1])
    both = gray.copy()
    both.putalpha(Image.fromarray(alpha))
    found = read_one(encode(both, "PNG"))
    assert_array_equal(found[:20], 255)
    assert_array_equal(found[20:, :, 0], PICTURE[20:, :, 1])
    bits = gray.convert("1")
    expected = np.asarray(bits.convert("RGB"))
    assert_array_equal(read_one(encode(bits, "PNG")), expected)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind):
    options = {"quality": 98} if kind == "JPEG" else {}
    data = encode(Image.fromarray(PICTURE).convert("CMYK"), kind, **options)
    assert_allclose(read_one(data), PICTURE.astype(int), atol=12)


def test_gray_is_read_as_jpeg_holds_it():
    data = encode(PICTURE, "JPEG")
    images = ImageReader().fit_transform([data])
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert_array_equal(images.read(0, "gray"), expected)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint16, np.float32, np.float64])
def test_arrays_of_every_type(dtype):
    white = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1
    for n_channels in (None, 1, 2, 3, 4):
        shape = (3, 5) if n_channels is None else (3, 5, n_channels)
        image = np.zeros(shape, dtype=dtype)
        image[1] = white
        image.flags.writeable = False
        found = read_one(image)
        assert found.shape == (3, 5, 3)
        assert found.dtype == np.uint8
        assert_array_equal(found[1], 255)
        # An alpha channel of zeros makes all pixels transparent.
        assert_array_equal(found[0], 255 if n_channels in (2, 4) else 0)


def test_large_pictures_are_scaled_down():
    picture = make_picture(300, 200)
    assert read_one(picture, max_size=None).shape == (300, 200, 3)
    assert read_one(picture, max_size=150).shape == (150, 100, 3)
    assert read_one(np.zeros((1, 900)), max_size=30).shape == (1, 30, 3)
    # A JPEG file of a camera, scaled to 1 / 8 while it is decoded.
    camera = encode(make_picture(2880, 3840), "JPEG", quality=60)
    images = ImageReader(max_size=480).fit_transform([camera])
    assert images.read(0, "gray").shape == (360, 480)


# -- images as a sequence --


def test_sequence_keeps_rows_in_order(tmp_path):
    paths = []
    for i in range(6):
        paths.append(tmp_path / f"{i}.png")
        cv2.imwrite(str(paths[-1]), np.full((4, 5), 10 * i, dtype=np.uint8))
    for sources in (paths, [str(path) for path in paths], np.array(paths, dtype=str)):
        images = ImageReader(n_jobs=2).fit_transform(sources)
        assert [image[0, 0, 0] for image in images] == [0, 10, 20, 30, 40, 50]
        rows = [4, 1]
        assert [image[0, 0, 0] for image in images[rows]] == [40, 10]
        assert [image[0, 0, 0] for image in safe_indexing(images, rows)] == [40, 10]
        assert images[np.arange(6) > 3].shape == (2,)
        assert [int(i) for i in images.map(np.max, n_jobs=2)] == [0, 10, 20, 30, 40, 50]
        assert pickle.loads(pickle.dumps(images))[3][0, 0, 0] == 30
    again = ImageReader(max_size=2).fit_transform(images)
    assert again[0].shape == (2, 2, 3)


def test_file_that_is_deleted(tmp_path):
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), PICTURE)
    images = ImageReader().fit_transform([path])
    path.unlink()
    with pytest.raises(ValueError, match=r"a\.png does not exist"):
        images[0]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a.jpg", "must be a sequence"),
        ([], "There are no images"),
        ([1.5], "at position 0"),
        ([np.zeros((2, 2)), np.zeros(3)], "at position 1"),
    ],
    ids=str,
)
def test_invalid_sequences_of_images(X, message):
    with pytest.raises(ValueError, match=message):
        ImageReader().fit_transform(X)


# -- invalid pictures --


def make_bad_files():
    jpeg = encode(make_picture(200, 300), "JPEG", quality=95)
    png = encode(PICTURE, "PNG")
    webp, gif = encode(PICTURE, "WEBP"), encode(PICTURE, "GIF")
    bmp, tiff = encode(PICTURE, "BMP"), encode(PICTURE, "TIFF")
    marker = bytearray(jpeg)
    marker[len(jpeg) // 2 : len(jpeg) // 2 + 2] = b"\xff\xc0"
    bits = bytearray(png)
    bits[len(png) // 2] ^= 16
    restarts = cv2.imencode(".jpg", PICTURE, [cv2.IMWRITE_JPEG_RST_INTERVAL, 2])[1]
    restarts = restarts.tobytes()
    first = restarts.index(b"\xff\xd0")
    second = restarts.index(b"\xff\xd1")
    # The decoder reads the first frame, which may be larger than the second.
    frame = jpeg[jpeg.index(b"\xff\xc0") :][:19]
    return {
        "empty.jpg": (b"", "is empty"),
        "text.jpg": (b"This is not an image." * 9, "is not a JPEG"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "cut.png": (png[: len(png) // 2], "truncated"),
        "cut.webp": (webp[: len(webp) // 2], "truncated"),
        "cut.gif": (gif[: len(gif) // 2], "truncated"),
        "cut.bmp": (bmp[: len(bmp) // 2], "truncated"),
        "cut.tiff": (tiff[: len(tiff) // 2], "truncated"),
        "head.jpg": (jpeg[:12], "truncated"),
        "head.png": (png[:20], "truncated"),
        "head.tiff": (tiff[:6], "truncated"),
        "marker.jpg": (bytes(marker), "is damaged"),
        "frames.jpg": (jpeg[:-2] + b"\xff\xfe\0\2" + frame + jpeg[-2:], "several"),
        "lost.jpg": (restarts[:first] + restarts[second:], "not in order"),
        "flipped.png": (bytes(bits), "checksum of PNG"),
        "bomb.png": (make_png(60_000, 60_000), "60000 x 60000 pixels"),
        "none.png": (make_png(0, 5), "has no pixels"),
        "int.tiff": (
            encode(Image.fromarray(np.zeros((4, 4), dtype=np.int32)), "TIFF"),
            "type int32",
        ),
    }


def test_a_folder_of_bad_images_in_one_report(tmp_path, capfd):
    bad = make_bad_files()
    for name, (data, _) in bad.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder.jpg").mkdir()
    cv2.imwrite(str(tmp_path / "good.png"), PICTURE)
    cv2.imwrite(str(tmp_path / "tiny.png"), PICTURE[:1, :1])
    names = [*bad, "folder.jpg", "missing.jpg", "good.png", "tiny.png"]
    messages = {name: message for name, (_, message) in bad.items()}
    messages |= {"folder.jpg": "is not a file", "missing.jpg": "does not exist"}
    paths = [tmp_path / name for name in names]

    with pytest.raises(UnreadableImagesError) as caught:
        ImageReader().fit_transform(paths)
    assert f"{len(messages)} of {len(paths)} images cannot be read" in str(caught.value)
    assert "ERROR" not in capfd.readouterr().err
    # The error is pickled if a worker of a grid search raises it.
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.failures == caught.value.failures
    for row, name in enumerate(names):
        assert (row in error.failures) == (name in messages)
        if name in messages:
            assert messages[name] in error.failures[row]
            assert row >= 20 or str(paths[row]) in str(error)

    with pytest.warns(UserWarning, match="images cannot be read"):
        images = ImageReader(on_error="warn", n_jobs=2).fit_transform(paths)
    assert images.failures == error.failures
    skipped = ImageReader(on_error="skip").fit_transform(paths)
    assert len(skipped) == len(paths)
    assert_array_equal(np.array(names)[skipped.is_readable], ["good.png", "tiny.png"])
    assert skipped[0].shape == (0, 0, 3)
    assert_array_equal(skipped[-2], PICTURE[:, :, ::-1])
    assert skipped[[0, -1]].failures == {0: "is empty"}
    features = LocalDescriptors().fit_transform(skipped)
    assert len(features) == len(paths)
    assert features.points_per_image[0] == 0


def test_damage_within_compressed_data_changes_the_picture_or_is_found():
    """Check that damaged files raise the documented error or are decoded."""
    data = encode(make_picture(100, 150), "JPEG", quality=95)
    start = data.index(b"\xff\xda")
    rng = np.random.default_rng(0)
    n_found = 0
    for _ in range(40):
        damaged = bytearray(data)
        for place in rng.integers(start + 14, len(data) - 2, size=3):
            damaged[place] ^= 1 << rng.integers(8)
        images = ImageReader(on_error="skip").fit_transform([bytes(damaged)])
        n_found += len(images.failures)
    assert n_found < 40


def test_any_bytes_are_an_image_or_a_fault():
    rng = np.random.default_rng(0)
    files = [encode(PICTURE, kind) for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF")]
    files.append(encode(Image.fromarray(PICTURE), "GIF"))
    sources = []
    for data in files:
        for _ in range(25):
            damaged = bytearray(data)
            for place in rng.integers(len(data[:60]), size=rng.integers(1, 4)):
                damaged[place] = rng.integers(256)
            sources.append(bytes(damaged[: rng.integers(1, len(data) + 1)]))
    reader = ImageReader(on_error="skip", max_pixels=10**6)
    images = reader.fit_transform(sources)
    assert len(images) == len(sources)
    for row in np.flatnonzero(images.is_readable):
        assert images[int(row)].size > 0


def test_headers_give_the_size():
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"):
        header = read_header(encode(PICTURE, kind))
        assert (header.width, header.height) == (60, 40)
    header = read_header(encode(PICTURE, "WEBP", lossless=True))
    assert (header.width, header.height) == (60, 40)


@pytest.mark.parametrize("kind", ["JPEG", "BMP", "GIF", "TIFF", "WEBP"])
def test_header_that_claims_too_much(kind):
    exif = {"exif": Image.Exif()} if kind == "WEBP" else {}
    data = bytearray(encode(PICTURE, kind, **exif))
    if kind == "JPEG":
        struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, 60_000, 60_000)
    elif kind == "BMP":
        struct.pack_into("<ii", data, 18, 60_000, -60_000)
    elif kind == "GIF":
        struct.pack_into("<HH", data, 6, 60_000, 60_000)
    elif kind == "WEBP":
        data[24:30] = 2 * (59_999).to_bytes(3, "little")
    else:
        # Entries of width and height: tag, type, count, value.
        for tag, side in ((256, 60), (257, 40)):
            entries = (struct.pack("<HHIHH", tag, t, 1, side, 0) for t in (3, 4))
            (place,) = (data.index(entry) for entry in entries if entry in data)
            struct.pack_into("<HHII", data, place, tag, 4, 1, 60_000)
    with pytest.raises(UnreadableImagesError, match="60000 x 60000 pixels, more than"):
        read_one(bytes(data))


def test_the_first_of_two_widths_counts():
    """Check that the first of repeated tags counts, as in libtiff."""
    sides = [(256, 60_000), (256, 1), (257, 60_000), (257, 1)]
    entries = (struct.pack("<HHII", tag, 4, 1, side) for tag, side in sides)
    data = struct.pack("<4sIH", b"II*\0", 8, 4) + b"".join(entries) + bytes(4)
    with pytest.raises(UnreadableImagesError, match="60000 x 60000 pixels, more than"):
        read_one(data)


@pytest.mark.parametrize("type_", [1, 9])
def test_a_first_width_of_another_type_counts(type_):
    """Check that a width that only libtiff reads is not replaced by the next one."""
    entries = [(256, type_, 200), (256, 4, 1), (257, type_, 200), (257, 4, 1)]
    entries = b"".join(struct.pack("<HHII", tag, t, 1, n) for tag, t, n in entries)
    data = struct.pack("<4sIH", b"II*\0", 8, 4) + entries + bytes(4)
    with pytest.raises(UnreadableImagesError, match="damaged in its header"):
        read_one(data)


def test_picture_of_many_channels():
    bands = np.zeros((4, 4, 6), dtype=np.uint8)
    with pytest.raises(UnreadableImagesError, match="with 1 to 4 channels"):
        read_one(bands)


def test_limit_of_pixels_is_kept_before_decoding(monkeypatch):
    data = encode(PICTURE, "PNG")

    def fail(*args):
        raise AssertionError("the picture was decoded")

    monkeypatch.setattr(cv2, "imdecode", fail)
    with pytest.raises(UnreadableImagesError, match="more than max_pixels=2399"):
        read_one(data, max_pixels=2399)


# -- SIFT --


def test_sift_against_opencv():
    images = [make_picture(120, 160, seed) for seed in range(3)]
    features = LocalDescriptors(50, n_jobs=2).fit_transform(images)
    plain = LocalDescriptors(50, descriptor="sift").fit_transform(images)
    assert plain.descriptors.dtype == np.uint8
    assert_array_equal(features.image_sizes, [[160, 120]] * 3)
    for i, image in enumerate(images):
        gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        points, expected = cv2.SIFT_create(50).detectAndCompute(gray, None)
        found = features[i]
        n = found.n_points
        assert 0 < n <= 50
        # OpenCV may return more features that are as strong as the last one.
        assert len(points) >= n
        where = {(p.pt, p.size, p.angle): d for p, d in zip(points, expected)}  # noqa: B905
        for j in range(n):
            place = (float(found.x[j]), float(found.y[j]))
            key = (place, float(found.scale[j]), float(found.angle[j]))
            d = where[key]
            assert_array_equal(plain[i].descriptors[j], d)
            assert_allclose(found.descriptors[j], np.sqrt(d / d.sum()), rtol=1e-6)


def test_no_more_features_than_asked_for():
    """Check equally strong features of a grid, all of which OpenCV returns."""
    tile = np.zeros((32, 32), dtype=np.uint8)
    tile[10:22, 10:22] = 255
    image = np.tile(tile, (6, 6))
    assert len(cv2.SIFT_create(5).detect(image, None)) > 5
    features = LocalDescriptors(5).fit_transform([image])
    assert features.n_points == 5


@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (64, 64)])
def test_images_without_features(shape):
    features = LocalDescriptors().fit_transform([np.full(shape, 0.5)])
    assert len(features) == 1
    assert features.descriptors.shape == (0, 128)


# -- estimators --


@pytest.mark.parametrize("estimator", [ImageReader(), LocalDescriptors()], ids=repr)
def test_conventions_of_estimators(estimator):
    assert clone(estimator).get_params() == estimator.get_params()
    params = dict.fromkeys(estimator.get_params(), object())
    for name in params:
        bad = clone(estimator).set_params(**{name: object()})
        with pytest.raises(ValueError, match=name):
            bad.fit([PICTURE])
    fitted = pickle.loads(pickle.dumps(clone(estimator).fit([PICTURE])))
    assert len(fitted.transform([PICTURE])) == 1


def test_missing_opencv_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    for estimator in (ImageReader(), LocalDescriptors()):
        with pytest.raises(ImportError, match=re.escape(".[vision]")):
            estimator.fit_transform([PICTURE])
