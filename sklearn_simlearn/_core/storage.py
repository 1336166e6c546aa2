"""Arrays in a folder: a JSON header, .npy files, and checksums of blocks.

The folder holds ``index.json`` and a sub-folder of arrays that this header names. A
save writes a new sub-folder and then replaces the header by an atomic rename. A process
that opens the folder during a save sees either the old or the new arrays. Nothing is
unpickled.
"""

import io
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from sklearn_simlearn._core import npy_header

FORMAT = "sklearn_simlearn.index"
VERSION = 1
HEADER = "index.json"

# Bytes of the longest header. A longer file is not read.
MAX_HEADER = 2**28

# Bytes per checksum. The first read of a block of this size takes a millisecond, and
# the header of a large index is still small.
BLOCK = 2**22

# Kinds of numbers, texts and dates that are stored; `object` would need pickle.
KINDS = "biufUmM"

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_GENERATION = re.compile(r"arrays-[a-z0-9_]+\Z")


def write_folder(folder, index, arrays, files=None):
    """Store arrays. Replace the content of the folder atomically.

    Parameters
    ----------
    folder : path-like
        Folder, created if it does not exist.

    index : dict
        Values that JSON can represent, stored in the header.

    arrays : dict of ndarray
        Arrays by name. Names are lower-case words.

    files : dict of bytes, default=None
        Contents of other files by name. Names consist of letters, digits, "_", "-" and
        ".".
    """
    for name in files or {}:
        if not _is_file_name(name):
            raise ValueError(f"{name!r} is not a name for a file in an index folder.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # The header may be damaged, but it must be the header of an index.
    if FORMAT.encode() not in (_read_header_bytes(folder) or FORMAT.encode()):
        raise ValueError(
            f"{folder / HEADER} does not belong to an index of sklearn_simlearn, and "
            "would be replaced. Save the index to another folder."
        )
    generation, previous = folder / f"arrays-{secrets.token_hex(8)}", None
    generation.mkdir()
    try:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "generation": generation.name,
            "index": index,
            "files": {},
        }
        for name, array in arrays.items():
            content["files"][f"{name}.npy"] = _write_file(
                generation / f"{name}.npy", _write_array(name, array)
            )
        for name, data in (files or {}).items():
            content["files"][name] = _write_file(
                generation / name, lambda file, data=data: file.write(data)
            )
        _sync(generation)
        header = generation / HEADER
        text = _dump({"content": content, "checksum": _checksum(content)})
        if len(text) > MAX_HEADER:
            raise ValueError(f"The header of the index exceeds {MAX_HEADER} bytes.")
        _write_file(header, lambda file: file.write(text))
        with suppress(ValueError):
            previous = read_generation(folder)
        os.replace(header, folder / HEADER)
    except BaseException:
        shutil.rmtree(generation, ignore_errors=True)
        raise
    _sync(folder)
    if previous is not None:
        # Processes that use the old arrays keep them. On Windows, the files stay, too.
        shutil.rmtree(folder / previous, ignore_errors=True)


def open_folder(folder, *, mmap=True, verify=False, wanted_files=()):
    """Open a folder that `write_folder` stored.

    Parameters
    ----------
    folder : path-like

    mmap : bool, default=True
        Map the arrays into memory instead of reading them.

    verify : bool, default=False
        Check all checksums now. Otherwise the checksum of a block is checked when the
        block is first read. Without `mmap`, all checksums are checked now.

    wanted_files : sequence of str, default=()
        Names of other files to read, if they exist.

    Returns
    -------
    index : dict
        Values that were passed to `write_folder`.

    arrays : StoredArrays

    files : dict of bytes
    """
    folder = Path(folder)
    content = _read_header(folder)
    while True:
        try:
            arrays, files = _open_generation(folder, content, mmap, wanted_files)
            break
        except FileNotFoundError as error:
            # Another process may have replaced the index since its header was read.
            newer = _read_header(folder)
            if newer == content:
                raise damaged(f"{Path(error.filename).name} is missing") from None
            content = newer
    if verify or not mmap:
        arrays.verify_all(arrays)
    return content["index"], arrays, files


class StoredArrays(Mapping):
    """Arrays of a folder by name. Each block is verified when it is first read."""

    def __init__(self):
        self._files = {}
        self._arrays = {}

    def __getitem__(self, name):
        """Return the whole array, without verifying its blocks."""
        return self._arrays[name]

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self):
        return len(self._arrays)

    def read(self, name):
        """Return the whole array, verified."""
        if name not in self:
            raise damaged(f"it has no array {name!r}")
        self.verify(name)
        return self[name]

    def verify_all(self, names):
        """Verify all blocks of some arrays."""
        for name in names:
            self.verify(name)

    def verify(self, name, start=0, stop=None):
        """Verify the blocks that hold the rows `start` to `stop` of an array."""
        array, file = self[name], self._files[name]
        stop = len(array) if stop is None else stop
        if stop <= start:
            return
        row = array.nbytes // len(array)
        if not file.verify(file.offset + start * row, file.offset + stop * row):
            return
        # If checksums are forged, bytes may not be valid values of their type.
        values = array[start:stop]
        if array.dtype.kind == "b" and values.view(np.uint8).max(initial=0) > 1:
            raise damaged(f"{name} holds bytes that are not booleans")
        if array.dtype.kind == "U" and array.dtype.itemsize:
            points = np.ascontiguousarray(values).view(np.uint32)
            if points.max(initial=0) > 0x10FFFF:
                raise damaged(f"{name} holds numbers that are not characters")

    def _put(self, file):
        """Add the array of an .npy file."""
        name = file.name.removesuffix(".npy")
        if name == file.name or not _NAME.match(name):
            raise damaged(f"{file.name!r} is not a name of an array")
        self._arrays[name] = file.as_array()
        self._files[name] = file

    def group(self, prefix):
        """Return the arrays whose names have a prefix, by the rest of their names."""
        part = StoredArrays()
        for name in self:
            if name.startswith(prefix):
                part._arrays[name.removeprefix(prefix)] = self._arrays[name]
                part._files[name.removeprefix(prefix)] = self._files[name]
        return part


def pack(index, arrays):
    """Return arrays as bytes, for `unpack`.

    Parameters
    ----------
    index : dict
        Values that JSON can represent.

    arrays : dict of ndarray
        Arrays by name. Names are lower-case words.
    """
    content = {"format": FORMAT, "version": VERSION, "index": index, "files": {}}
    parts = []
    for name in sorted(arrays):
        file = io.BytesIO()
        _write_array(name, arrays[name])(file)
        parts.append(file.getvalue())
        content["files"][f"{name}.npy"] = _describe(io.BytesIO(parts[-1]))
    header = _dump({"content": content, "checksum": _checksum(content)})
    return b"".join([len(header).to_bytes(8, "little"), header, *parts])


def unpack(data):
    """Return the values and the arrays in the result of `pack`, all verified.

    Returns
    -------
    index : dict

    arrays : StoredArrays
    """
    start = 8 + int.from_bytes(data[:8], "little")
    content = _parse_header(data[8:start], "a change")
    arrays = StoredArrays()
    for file_name, entry in sorted(content["files"].items()):
        size, checksums = _check_entry(file_name, entry)
        # The copy is aligned in memory.
        part = np.frombuffer(data[start : start + size], dtype=np.uint8).copy()
        if len(part) != size:
            raise damaged(f"{file_name} is truncated")
        arrays._put(_File(file_name, part, checksums))
        start += size
    if start != len(data):
        raise damaged("a change has bytes after its end")
    arrays.verify_all(arrays)
    return content["index"], arrays


class _File:
    """Bytes of a file, with a mask of its verified blocks."""

    def __init__(self, name, data, checksums):
        self.name, self.bytes, self.checksums = name, data, checksums
        self.verified = np.zeros(len(checksums), dtype=bool)
        self.offset = 0

    @classmethod
    def open(cls, path, entry, mmap):
        """Open a file. Raise unless it has the size in its entry of the header."""
        size, checksums = _check_entry(path.name, entry)
        found = path.stat().st_size
        if found != size:
            raise damaged(f"{path.name} has {found} bytes instead of {size}")
        if size == 0:
            data = np.empty(0, dtype=np.uint8)
        elif mmap:
            data = np.memmap(path, dtype=np.uint8, mode="r")
        else:
            data = np.fromfile(path, dtype=np.uint8)
        if len(data) != size:
            raise damaged(f"{path.name} was truncated while it was opened")
        return cls(path.name, data, checksums)

    def verify(self, start=0, stop=None):
        """Verify the blocks of a range of bytes; return whether any was new."""
        stop = len(self.bytes) if stop is None else stop
        blocks = slice(start // BLOCK, -(-stop // BLOCK))
        new = np.flatnonzero(~self.verified[blocks]) + blocks.start
        for block in new:
            data = self.bytes[block * BLOCK : (block + 1) * BLOCK]
            if zlib.crc32(data) != self.checksums[block]:
                raise damaged(f"block {block} of {self.name} fails its checksum")
            self.verified[block] = True
        return len(new) > 0

    def as_array(self):
        """Return the array of an .npy file; raise unless it is valid."""
        head = io.BytesIO(self.bytes[: npy_header.MAX_HEADER].tobytes())
        try:
            shape, is_fortran, dtype = npy_header.read_header(head)
        except Exception as error:
            # The parser raises errors of many types if the bytes are not a header.
            raise damaged(f"{self.name} is not an .npy file") from error
        self.offset = head.tell()
        n_values = 1
        for length in shape:
            n_values *= length
        if (
            is_fortran
            or len(shape) == 0
            or not _is_storable(dtype)
            or not dtype.isnative
            or min(shape, default=0) < 0
            or self.offset % npy.ARRAY_ALIGN
            or self.offset + n_values * dtype.itemsize != len(self.bytes)
        ):
            raise damaged(f"the header of {self.name} does not match its size")
        if n_values * dtype.itemsize == 0:
            return np.empty(shape, dtype=dtype)
        array = np.asarray(self.bytes[self.offset :]).view(dtype).reshape(shape)
        array.flags.writeable = False
        return array


def _open_generation(folder, content, mmap, wanted_files):
    arrays, files = StoredArrays(), {}
    generation = folder / content["generation"]
    for file_name, entry in content["files"].items():
        if file_name.endswith(".npy"):
            arrays._put(_File.open(generation / file_name, entry, mmap))
        elif file_name in wanted_files:
            file = _File.open(generation / file_name, entry, mmap=False)
            file.verify()
            files[file_name] = file.bytes.tobytes()
    return arrays, files


def _read_header(folder):
    text = _read_header_bytes(folder)
    if text is None:
        raise ValueError(f"{folder} is not a saved index: it has no {HEADER}.")
    content = _parse_header(text, HEADER)
    generation = content.get("generation")
    if not (isinstance(generation, str) and _GENERATION.match(generation)):
        raise damaged(f"{HEADER} does not name a folder of arrays")
    return content


def _read_header_bytes(folder):
    """Return the bytes of the header; None if there is no such file."""
    path = folder / HEADER
    if not path.is_file():  # a pipe or a device may not end
        return None
    with open(path, "rb") as file:
        text = file.read(MAX_HEADER + 1)
    if len(text) > MAX_HEADER:
        raise damaged(f"{HEADER} has more than {MAX_HEADER} bytes")
    return text


def _parse_header(text, name):
    """Return the content of a header; raise unless it describes files."""
    try:
        header = json.loads(text)
        content, checksum = header["content"], header["checksum"]
        whole = _checksum(content) == checksum
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(f"{name} is not a header") from None
    if not whole:
        raise damaged(f"{name} fails its checksum")
    if not (isinstance(content, dict) and content.get("format") == FORMAT):
        raise ValueError(f"{name} does not belong to an index of sklearn_simlearn.")
    if content.get("version") != VERSION:
        raise ValueError(
            f"The index has format {content.get('version')!r}, but this version of "
            f"sklearn_simlearn reads {VERSION}. Build and save it again with this "
            "version."
        )
    for part in ("files", "index"):
        if not isinstance(content.get(part), dict):
            raise damaged(f"{name} lacks {part!r}")
    for file_name in content["files"]:
        if not _is_file_name(file_name):
            raise damaged(
                f"{name} names {file_name!r}, which is not a file of the folder"
            )
    return content


def _is_file_name(name):
    """Return whether a name has no separators, drives or ".."."""
    return isinstance(name, str) and _FILE.match(name) is not None


def _check_entry(name, entry):
    size = entry.get("size") if isinstance(entry, dict) else None
    checksums = entry.get("checksums") if isinstance(entry, dict) else None
    if (
        type(size) is not int
        or not isinstance(checksums, list)
        or size < 0
        or len(checksums) != -(-size // BLOCK)
    ):
        raise damaged(f"{HEADER} has an invalid description of {name}")
    return size, checksums


def _write_array(name, array):
    if not _NAME.match(name):
        raise ValueError(f"{name!r} is not a name for a stored array.")
    if not _is_storable(array.dtype):
        raise ValueError(
            f"{name} has dtype {array.dtype}, which cannot be stored without pickle. "
            "Use numbers, strings or dates."
        )
    dtype = array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
    return lambda file: npy.write_array(file, array, allow_pickle=False)


def _write_file(path, write):
    """Write a file to the disk; return its entry for the header."""
    with open(path, "w+b") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        return _describe(file)


def _describe(file):
    """Return the entry of a file for the header."""
    checksums = [zlib.crc32(data) for data in iter(lambda: file.read(BLOCK), b"")]
    return {"size": file.tell(), "checksums": checksums}


def read_generation(folder):
    """Return the name of the sub-folder that holds the current arrays."""
    return _read_header(Path(folder))["generation"]


def _sync(folder):
    """Flush the names in a folder to the disk. Windows has no call for this."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dump(value):
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The header of an index must be valid JSON: {error}."
        ) from None


def _checksum(content):
    return zlib.crc32(_dump(content))


def _is_storable(dtype):
    if dtype.fields is not None:
        return all(_is_storable(field[0]) for field in dtype.fields.values())
    # NumPy allocates a character per value of a string type without characters.
    return dtype.subdtype is None and dtype.kind in KINDS and dtype.itemsize > 0


class DamagedError(ValueError):
    """Raised if the content of a folder differs from the saved one."""


def damaged(fault):
    """Return the error for a fault in a folder."""
    return DamagedError(
        f"The index is damaged: {fault}. Restore it, or build it again."
    )
