"""Decoding of images, with checks of the bytes before the decoder reads them.

The headers are read here for two reasons: to check the size of a picture before memory
is allocated, and to find faults and properties that OpenCV does not report: truncated
and damaged files, and the orientation of pictures with transparency.
"""

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.threads import ProcessContext

# Largest size of a file in bytes.
MAX_FILE = 2**30

_PNG, _GIF = b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a")
_TIFF = {b"II*\0": "<", b"MM\0*": ">"}
_WIDTH, _HEIGHT, _ORIENTATION, _EXTRA_SAMPLES = 256, 257, 274, 338

# In the compressed data of a JPEG, 0xFF is followed by 0 or by a restart marker.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_RESTART = re.compile(rb"\xff([\xd0-\xd7])")

# Markers that may follow compressed data: tables, scans, applications, comments.
_AFTER_SCAN = {0xC4, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


@dataclass
class Header:
    """Properties of a picture from the header of a file."""

    kind: str
    width: int
    height: int
    orientation: int = 1  # not yet applied by OpenCV's IMREAD_UNCHANGED
    has_applied_alpha: bool = False  # colours are already multiplied by alpha


def decode(data: bytes, *, mode: str, max_size: int | None, max_pixels: int):
    """Return the pixels of an encoded image, upright and scaled to `max_size`.

    Parameters
    ----------
    data : bytes
        Content of the file.

    mode : {"rgb", "gray"}
        Colours or brightness.

    max_size : int or None
        Largest length of a side in pixels. Larger pictures are scaled down.

    max_pixels : int
        Largest number of pixels. Larger pictures raise an error before they are
        decoded.

    Returns
    -------
    pixels : ndarray of shape (height, width, 3) or (height, width), dtype uint8
    """
    cv2 = import_optional("cv2", "vision", "Reading image files")
    header = read_header(data)
    n_pixels = header.width * header.height
    if n_pixels == 0:
        raise ValueError("has no pixels")
    if n_pixels > max_pixels:
        raise ValueError(
            f"has {header.width} x {header.height} pixels, more than max_pixels="
            f"{max_pixels}"
        )
    if header.kind == "JPEG":
        pixels = _decode_jpeg(cv2, data, header, mode, max_size)
    else:
        pixels = _call(cv2, data, cv2.IMREAD_UNCHANGED)
        if pixels.ndim == 3 and pixels.shape[2] in (3, 4):
            pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
        # libtiff multiplies colours of 8 bits by alpha.
        is_applied = header.has_applied_alpha or (
            header.kind == "TIFF" and pixels.dtype == np.uint8
        )
        pixels = _turn(pixels, header.orientation)
        pixels = as_pixels(pixels, mode, has_applied_alpha=is_applied)
    return shrink(pixels, max_size)


def as_pixels(
    array: np.ndarray, mode: str, *, has_applied_alpha: bool = False
) -> np.ndarray:
    """Return an array of pixels as 8-bit red, green and blue, or as 8-bit grey.

    16-bit values are scaled down. Floating-point values are from 0 to 1, or from 0 to
    255 if one of them is above 1. Transparent pixels become white.
    """
    cv2 = import_optional("cv2", "vision", "Converting images")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4) or array.size == 0:
        raise ValueError(
            f"is an array of shape {array.shape}. The shape must be (height, width) or "
            "(height, width, n_channels) with 1 to 4 channels"
        )
    array = np.ascontiguousarray(_as_bytes(array))
    if array.shape[2] in (2, 4):
        color, alpha = np.split(array.astype(np.uint16), [-1], axis=2)
        if has_applied_alpha:
            color = np.minimum(color, alpha) + (255 - alpha)
        else:
            color = (color * alpha + 255 * (255 - alpha) + 127) // 255
        array = color.astype(np.uint8)
    if mode == "gray":
        return (
            array[:, :, 0]
            if array.shape[2] == 1
            else cv2.cvtColor(array, cv2.COLOR_RGB2GRAY)
        )
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


def shrink(pixels: np.ndarray, max_size: int | None) -> np.ndarray:
    """Return the image, scaled down to `max_size` pixels along its longer side."""
    longer = max(pixels.shape[:2])
    if max_size is None or longer <= max_size:
        return pixels
    cv2 = import_optional("cv2", "vision", "Scaling images")
    height, width = (max(1, round(n * max_size / longer)) for n in pixels.shape[:2])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def scale_to_square(pixels: np.ndarray, size: int) -> np.ndarray:
    """Return an image scaled to a square, without regard to its proportions."""
    cv2 = import_optional("cv2", "vision", "Scaling images")
    shrinks = min(pixels.shape[:2]) > size
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(pixels, (size, size), interpolation=how)


def _silence() -> Callable[[], object]:
    logging = import_optional("cv2", "vision", "Reading images").utils.logging
    before = logging.getLogLevel()
    logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    return partial(logging.setLogLevel, before)


# Context that suppresses the messages of OpenCV.
quiet_decoder = ProcessContext(_silence)


def _as_bytes(array):
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if array.dtype.kind != "f":
        raise ValueError(
            f"has pixels of type {array.dtype}. The type must be bool, uint8, uint16 "
            "or float"
        )
    if not np.isfinite(array).all():
        raise ValueError("has pixels that are not finite")
    scale = 255 if array.max() <= 1 else 1
    return np.rint(np.clip(array * scale, 0, 255)).astype(np.uint8)


def _decode_jpeg(cv2, data, header, mode, max_size):
    """Decode with OpenCV, which rotates the image and scales it by powers of 2."""
    color = mode == "rgb"
    flag = cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE
    longer = max(header.width, header.height)
    for factor, of_gray, of_color in (
        (8, cv2.IMREAD_REDUCED_GRAYSCALE_8, cv2.IMREAD_REDUCED_COLOR_8),
        (4, cv2.IMREAD_REDUCED_GRAYSCALE_4, cv2.IMREAD_REDUCED_COLOR_4),
        (2, cv2.IMREAD_REDUCED_GRAYSCALE_2, cv2.IMREAD_REDUCED_COLOR_2),
    ):
        if max_size is not None and longer >= factor * max_size:
            flag = of_color if color else of_gray
            break
    pixels = _call(cv2, data, flag)
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB) if color else pixels


def _call(cv2, data, flag):
    try:
        pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flag)
    except cv2.error as error:
        raise ValueError(f"cannot be decoded ({error.err})") from None
    if pixels is None:
        raise ValueError("cannot be decoded: it is truncated or damaged")
    return pixels


def _turn(pixels, orientation):
    """Return the picture, rotated by its EXIF orientation."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


# -- headers --


def read_header(data: bytes) -> Header:
    """Return kind and size of an encoded image; raise if the file is truncated."""
    if len(data) == 0:
        raise ValueError("is empty")
    try:
        if data.startswith(b"\xff\xd8"):
            return _read_jpeg(data)
        if data.startswith(_PNG):
            return _read_png(data)
        if data.startswith(_GIF):
            return Header("GIF", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"BM"):
            return _read_bmp(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _read_webp(data)
        if data[:4] in _TIFF:
            tags = _read_tags(data)
            return Header(
                "TIFF",
                tags[_WIDTH],
                tags[_HEIGHT],
                has_applied_alpha=tags.get(_EXTRA_SAMPLES) == 1,
            )
    except (struct.error, IndexError, KeyError):
        raise ValueError("is truncated or damaged in its header") from None
    raise ValueError("is not a JPEG, PNG, TIFF, WebP, BMP or GIF file")


def _read_jpeg(data):
    size, position = None, 2
    while True:
        # 0xFF may be repeated before a marker.
        if data[position] != 0xFF:
            raise ValueError("is damaged: a marker of JPEG is missing")
        while data[position] == 0xFF:
            position += 1
        marker = data[position]
        position += 1
        if marker == 0xD9:
            break
        (length,) = struct.unpack_from(">H", data, position)
        if marker in _FRAMES:
            if size is not None:
                # A decoder may read another frame than the one that is checked here.
                raise ValueError("is damaged: it is a JPEG with several frames")
            height, width = struct.unpack_from(">HH", data, position + 3)
            size = width, height
        position += length
        if marker == 0xDA:
            position = _skip_scan(data, position)
    if size is None:
        raise ValueError("is damaged: it is a JPEG without a picture")
    return Header("JPEG", *size)


def _skip_scan(data, start):
    """Return the end of compressed data. Only its markers can be checked."""
    found = _NEXT_MARKER.search(data, start)
    if found is None:
        raise ValueError("is truncated")
    if data[found.end() - 1] not in _AFTER_SCAN | {0xD9}:
        raise ValueError("is damaged: its compressed data hold an unexpected marker")
    restarts = [ord(n) for n in _RESTART.findall(data, start, found.start())]
    if any(n != 0xD0 + i % 8 for i, n in enumerate(restarts)):
        raise ValueError("is damaged: its restart markers are not in order")
    return found.start()


def _read_png(data):
    width, height = struct.unpack_from(">II", data, 16)
    orientation, position = 1, len(_PNG)
    while True:
        length, name = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, position + 8 + length)
        if zlib.crc32(body, zlib.crc32(name)) != checksum:
            raise ValueError("is damaged: a checksum of PNG fails")
        if name == b"eXIf":
            orientation = _read_orientation(body)
        if name == b"IEND":
            return Header("PNG", width, height, orientation)
        position += 12 + length


def _read_bmp(data):
    (size_of_header,) = struct.unpack_from("<I", data, 14)
    if size_of_header == 12:
        return Header("BMP", *struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return Header("BMP", abs(width), abs(height))


def _read_webp(data):
    (size,) = struct.unpack_from("<I", data, 4)
    if len(data) < size + 8:
        raise ValueError("is truncated")
    kind = data[12:16]
    if kind == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        width, height = (n & 0x3FFF for n in struct.unpack_from("<HH", data, 26))
    orientation, position = 1, 12
    while kind == b"VP8X" and position + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, position)
        if name == b"EXIF":
            body = data[position + 8 : position + 8 + length]
            orientation = _read_orientation(body.removeprefix(b"Exif\0\0"))
        position += 8 + length + length % 2
    return Header("WebP", width, height, orientation)


def _read_orientation(exif):
    """Return the orientation from EXIF data, which have the format of a TIFF file."""
    try:
        orientation = _read_tags(exif).get(_ORIENTATION, 1)
    except (struct.error, KeyError):
        return 1
    return orientation if 1 <= orientation <= 8 else 1


def _read_tags(data):
    """Return the unsigned numbers in the first directory of a TIFF file.

    If a tag is repeated, the first one counts, as in libtiff, even if its value has
    another type and is left out.
    """
    order = _TIFF[data[:4]]
    (start,) = struct.unpack_from(order + "I", data, 4)
    (n_tags,) = struct.unpack_from(order + "H", data, start)
    tags, seen = {}, set()
    for i in range(n_tags):
        place = start + 2 + 12 * i
        tag, type_, count = struct.unpack_from(order + "HHI", data, place)
        if count == 1 and type_ in (3, 4) and tag not in seen:
            form = "H" if type_ == 3 else "I"
            (tags[tag],) = struct.unpack_from(order + form, data, place + 8)
        seen.add(tag)
    return tags
