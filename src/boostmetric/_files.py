"""Atomic writes, and .npz files of arrays with a JSON header; `docs/files.md` has the format."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from boostmetric._version import __version__


class FileFormatError(ValueError):
    """A file is damaged, or is not a BoostMetric file of the expected kind and version."""


def resolve_output(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` creates or replaces, with symbolic links resolved.

    Raises an OSError if it is not a regular file (such as a folder, a device or a named pipe) or
    not writable, or if its folder does not exist. Call it before a long computation.
    """
    target = Path(os.path.realpath(path))
    existing = None
    # Of links such as /dev/stdout the resolved name may not exist, although they lead to a pipe.
    with suppress(FileNotFoundError):
        existing = os.stat(path).st_mode
    if existing is not None and stat.S_ISDIR(existing):
        raise IsADirectoryError(f"{path} is a directory; pass a file path.")
    if existing is not None and not stat.S_ISREG(existing):
        raise OSError(f"{path} is not a regular file; pass the path of a new file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Directory {target.parent} does not exist.")
    for each in (target, target.parent) if existing is not None else (target.parent,):
        if not os.access(each, os.W_OK):
            raise PermissionError(f"{each} is not writable.")
    return target


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same directory; it replaces `path` unless an error is raised.

    After a crash or a power failure, `path` has either its old or its new contents. A symbolic
    link stays, and the file that it leads to is replaced. The new file has the permissions and, if
    possible, the owner of the old one. All files of this package are written by this function.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> with atomic_write(path) as temporary:
    ...     _ = temporary.write_text("done")
    >>> path.read_text()
    'done'
    """
    target = resolve_output(path)
    old = target.stat() if target.exists() else None
    # The name of the file may be as long as names can be. Process ids are not unique in a folder
    # that several computers share.
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}")
    # Until its permissions are known to be those of the old file, only the owner can read it. The
    # umask applies to a new file.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600))
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            if old is not None:
                # Only root may change owners, and some file systems have neither owners nor modes.
                if hasattr(os, "chown"):
                    with suppress(OSError):
                        os.chown(temporary, old.st_uid, old.st_gid)
                with suppress(OSError):
                    os.chmod(temporary, old.st_mode & 0o777)
            # Flush the contents before renaming; otherwise a power failure may leave an empty file.
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # other systems cannot flush a directory
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    facts: Mapping[str, Any],
    arrays: Mapping[str, NDArray],
) -> None:
    """Write arrays and JSON-serializable facts to a .npz file, atomically.

    Parameters
    ----------
    path : the file; no suffix is added
    kind : kind of contents, such as "metric"
    version : format version of this kind
    facts : values that `json.dumps` accepts, including NaN and infinity; tuples become lists
    arrays : boolean, integer, float32 or float64 arrays by name; "header" is reserved

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> save_arrays(path, "note", 1, {"gap": math.inf}, {"ends": np.array([1.0, 2.0])})
    >>> load_arrays(path, "note", 1)
    ({'gap': inf}, {'ends': array([1., 2.])})
    """
    header = {
        "kind": kind,
        "version": version,
        "boostmetric": __version__,
        "arrays": list(arrays),
        "facts": facts,
    }
    encoded = np.frombuffer(json.dumps(header).encode(), np.uint8)
    members: dict[str, Any] = {"header": encoded, **arrays}
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **members)


def load_arrays(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read the facts and arrays of a file written by `save_arrays`.

    Nothing is unpickled, and no array is larger than the file. Raises a FileFormatError if the file
    is damaged or has a different kind or version.
    """
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise FileFormatError(f"{path} is not a BoostMetric file.")
        try:
            if not _check_members(file):
                raise FileFormatError(f"{path} is not a BoostMetric file.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as members:
                # The byte order may be that of another computer.
                arrays = {
                    name: array.astype(array.dtype.newbyteorder("="), copy=False)
                    for name, array in members.items()
                }
            header = json.loads(arrays.pop("header").tobytes())
            if arrays.keys() != set(header["arrays"]):  # the directory of a zip has no checksum
                raise ValueError("arrays are missing")
            stored, written_by, facts = (header[key] for key in ("version", "boostmetric", "facts"))
            if header["kind"] != kind:
                found, expected = (
                    f"{'an' if each[0] in 'aeiou' else 'a'} {each} file"
                    for each in (header["kind"], kind)
                )
                raise FileFormatError(f"{path} is {found}, not {expected}.")
            if stored != version:
                advice = "Upgrade boostmetric" if stored > version else f"Write the {kind} again"
                raise FileFormatError(
                    f"{path} has version {stored} of the {kind} format, written by boostmetric "
                    f"{written_by}; boostmetric {__version__} reads version {version}. {advice}."
                )
        except (FileFormatError, MemoryError):
            raise
        except Exception as error:  # NumPy, json and zipfile raise almost any for damaged contents
            raise FileFormatError(
                f"{path} is damaged ({error}). Copy or write it again."
            ) from error
    return facts, arrays


def _check_members(file: BinaryIO) -> bool:
    """Return whether a zip file has a header; raise a ValueError if its members are not arrays.

    The declared sizes are compared with the size of the file before memory is allocated.
    """
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if "header.npy" not in names:
            return False
        if len(set(names)) < len(names):
            raise ValueError("two members have the same name")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("a member is compressed")
        if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
            raise ValueError("the members are larger than the file")
        for entry in entries:
            with archive.open(entry) as member:
                if np.lib.format.read_magic(member) != (1, 0):
                    raise ValueError(f"{entry.filename} is not an array")
                shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                # Half precision is not exact, and the size of long doubles depends on the computer.
                if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
                    raise ValueError(f"{entry.filename} has dtype {dtype}")
                # A shorter array would end the reading before the checksum is verified.
                if member.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
                    raise ValueError(f"{entry.filename} does not have the shape {shape}")
    return True
