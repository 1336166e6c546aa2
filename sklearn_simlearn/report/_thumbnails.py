"""Small images as data URIs, with a limit on their total size."""

import base64
import io

import numpy as np

from sklearn_simlearn._core.optional import import_optional

# Longest sides in pixels and qualities of JPEG that are tried in turn.
SIZES = ((112, 80), (96, 75), (80, 70), (64, 65), (48, 60), (32, 50), (20, 40))

# Maximum total size of the images of a page, in characters.
MAX_CHARACTERS = 3_500_000

# Largest side of images that are stored without loss and shown with visible pixels.
MAX_PIXEL_ART = 32


def encode_pictures(pictures: dict[int, np.ndarray]) -> dict[int, str]:
    """Return images as data URIs, in the largest size that the limit allows.

    Raises
    ------
    ImportError
        If Pillow is missing.
    """
    Image = import_optional("PIL.Image", "display", "A report with images")
    images = {}
    for row, picture in pictures.items():
        image = Image.fromarray(picture)
        if image.mode == "RGBA":
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image).convert("RGB")
        images[row] = image
    for side, quality in SIZES:
        encoded = {row: _encode(image, side, quality) for row, image in images.items()}
        if sum(map(len, encoded.values())) <= MAX_CHARACTERS:
            return encoded
    raise ValueError(
        f"The {len(images)} images to show take more than {MAX_CHARACTERS:,} "
        f"characters, even at {SIZES[-1][0]} pixels. Set a smaller n_shown or "
        "n_neighbors."
    )


def is_pixel_art(picture: np.ndarray) -> bool:
    """Return whether an image is small enough to be shown with visible pixels."""
    return max(picture.shape[:2]) <= MAX_PIXEL_ART


def _encode(image, side, quality):
    file = io.BytesIO()
    if max(image.size) <= MAX_PIXEL_ART:
        image.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        small = image.copy()
        small.thumbnail((side, side))
        small.save(file, "JPEG", quality=quality, optimize=True)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
