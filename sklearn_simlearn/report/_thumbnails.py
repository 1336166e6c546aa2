"""Small images as data URIs, together below a bound."""

import base64
import io

import numpy as np

# Longest side in pixels and quality of JPEG, tried in turn.
SIZES = ((112, 80), (96, 75), (80, 70), (64, 65), (48, 60), (32, 50), (20, 40))

# What the images of a page may take, in characters.
MAX_CHARACTERS = 3_500_000

# Images with no longer side stay without loss, in pixels that can be seen.
MAX_PIXEL_ART = 32


def encode_pictures(pictures: dict[int, np.ndarray]) -> dict[int, str]:
    """Data URIs of images, as large as the bound on them all allows.

    Raises
    ------
    ImportError
        Without Pillow.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            'Images in a report need Pillow: pip install "sklearn-simlearn[display]".'
        ) from None

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
        f"characters, even at {SIZES[-1][0]} pixels: set a smaller n_shown or "
        "n_neighbors."
    )


def is_pixel_art(picture: np.ndarray) -> bool:
    """Whether an image is so small that its pixels are to be seen."""
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
