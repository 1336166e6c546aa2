"""Files that are replaced as a whole."""

import os
import secrets
from pathlib import Path


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file under another name, then rename it.

    If anything fails, a file of this name stays unchanged.
    """
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(8)}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
