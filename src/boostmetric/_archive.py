"""Files of arrays and facts: versioned, checked, without code, written whole or not at all.

An archive is a zip file whose members are stored, not compressed: `facts.json`, one `NAME.npy` for
each array, and `SHA256SUMS`, which has the checksums of the others. `docs/files.md` has the format.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from boostmetric._files import whole

FORMAT = "boostmetric"
FACTS, SUMS = "facts.json", "SHA256SUMS"

MARK = "$float"
"""The key of an object that stands for a number which JSON has not: {"$float": "nan"}."""

NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)\{'descr': '(?P<dtype>[<|][biuf][1248])', "
    rb"'fortran_order': (?P<fortran>True|False), 'shape': \((?P<shape>[0-9, ]*)\), \} *\n",
    re.DOTALL,
)
"""What a member `NAME.npy` begins with. A header that must look so needs no evaluation."""

DAMAGE = (EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile)
"""What reading a damaged file may raise."""


class ArchiveError(ValueError):
    """A file that cannot be read or written as an archive. The message says why and what to do."""


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    facts: Mapping[str, Any],
    arrays: Mapping[str, NDArray],
) -> None:
    """Write an archive. Whatever happens meanwhile, `path` has the old or the new one, whole.

    Parameters
    ----------
    path : the file, with any suffix
    kind : what the archive holds, a noun: "metric"
    version : of the format of this kind
    facts : None, booleans, numbers, texts, and lists and mappings (from texts) of such. Tuples
        become lists
    arrays : by name (letters, digits and underscores), of booleans, integers or floating-point
        numbers of at most 8 bytes

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> write_archive(path, "note", 1, {"gap": math.inf}, {"ends": np.array([1.0, 2.0])})
    >>> read_archive(path, "note", 1)
    ({'gap': inf}, {'ends': array([1., 2.])})
    """
    path = Path(path)
    if path.is_dir():
        raise ArchiveError(f"{path} is a folder: give the name of a file in it.")
    if not path.parent.is_dir():
        raise ArchiveError(f"{path} cannot be written: there is no folder {path.parent}. Make it.")
    header = {"format": FORMAT, "kind": kind, "version": version, "facts": _encoded(facts)}
    members = {FACTS: json.dumps(header, sort_keys=True, allow_nan=False).encode()}
    members |= {f"{name}.npy": _to_npy(name, arrays[name]) for name in sorted(arrays)}
    members[SUMS] = _sums(members)
    with whole(path) as temporary, open(temporary, "wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in members.items():
                archive.writestr(_entry(name), data)
        # What the folder says of a file may reach the disk before the file does.
        file.flush()
        os.fsync(file.fileno())
    _flush_folder(path.parent)


def read_archive(
    path: str | os.PathLike[str], kind: str, version: int, oldest: int = 1
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """The facts and the arrays of an archive, as they were written, or an `ArchiveError`.

    Nothing in the file is run or unpickled, and no array larger than the file is made from it.

    Parameters
    ----------
    path : the file
    kind : what it must hold
    version, oldest : the newest and the oldest format of this kind that the caller understands
    """
    path = Path(path)
    try:
        members = _members(path)
        if members.pop(SUMS, None) != _sums(members):
            raise ValueError(f"its contents are not those of {SUMS}")
        header = _from_json(members.pop(FACTS))
        _check_header(path, header, kind, version, oldest)
        arrays = {name.removesuffix(".npy"): _from_npy(data) for name, data in members.items()}
        return header["facts"], arrays
    except ArchiveError:
        raise
    except PermissionError as error:
        raise ArchiveError(f"{path} may not be read: change its permissions.") from error
    except DAMAGE as error:
        raise ArchiveError(
            f"{path} is damaged ({error}): get it again from where it came from, or write it anew."
        ) from error


def _members(path: Path) -> dict[str, bytes]:
    """What the file holds, by name; no more than there are bytes in it."""
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is not there"
        raise ArchiveError(f"{path} {found}: give the path of a file that boostmetric wrote.")
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise ArchiveError(
                f"{path} is no zip file, so boostmetric did not write it: give a file that it did."
            )
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if FACTS not in entries or SUMS not in entries:
                raise ArchiveError(
                    f"{path} is a zip file without {FACTS} or {SUMS}, so boostmetric did not write "
                    "it: give a file that it did."
                )
            if len(entries) < len(archive.infolist()):
                raise ValueError("two members have the same name")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
                raise ValueError("a member is compressed")
            if sum(entry.file_size for entry in entries.values()) > path.stat().st_size:
                raise ValueError("its members claim to be larger than the file")
            return {name: archive.read(entry) for name, entry in entries.items()}


def _check_header(path: Path, header: Any, kind: str, version: int, oldest: int) -> None:
    if header["format"] != FORMAT or not isinstance(header["facts"], dict):
        raise ValueError(f"{FACTS} is not as boostmetric writes it")
    if header["kind"] != kind:
        raise ArchiveError(
            f"{path} is a {header['kind']}, not a {kind}: give a file that holds a {kind}."
        )
    if header["version"] > version:
        raise ArchiveError(
            f"{path} was written by a newer boostmetric (format {header['version']} of a {kind}; "
            f"this one reads up to {version}): upgrade boostmetric."
        )
    if header["version"] < oldest:
        raise ArchiveError(
            f"{path} was written by an older boostmetric (format {header['version']} of a {kind}; "
            f"this one reads format {oldest} and later): use the version that wrote it."
        )


def _sums(members: Mapping[str, bytes]) -> bytes:
    """The checksums of members by name, as the program sha256sum writes and checks them."""
    lines = (f"{sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))
    return "".join(lines).encode()


def _entry(name: str) -> zipfile.ZipInfo:
    """The same for every file of the same contents: no time, no system."""
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, 0o644 << 16
    return entry


def _flush_folder(folder: Path) -> None:
    """Have the disk know of a renamed file. Only POSIX lets a program open a folder for that."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _encoded(value: Any) -> Any:
    """Facts as JSON has them."""
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str) or key == MARK]:
            raise TypeError(f"{wrong[0]!r} cannot be a key of facts: a text other than {MARK} can.")
        return {key: _encoded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {MARK: float.__repr__(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"facts hold a {type(value).__name__}: only None, booleans, numbers, texts, and lists and "
        "mappings of such can be written."
    )


def _from_json(data: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def decoded(found: dict[str, Any]) -> Any:
        return NUMBERS[found[MARK]] if MARK in found else found

    return json.loads(data, object_hook=decoded, parse_constant=refuse)


def _to_npy(name: str, array: NDArray) -> bytes:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise ValueError(f"{name!r} cannot name an array: letters, digits and underscores can.")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(
            f"the array {name} is of {array.dtype}: only booleans, integers and floating-point "
            "numbers of at most 8 bytes can be written."
        )
    buffer = io.BytesIO()
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    np.lib.format.write_array(buffer, little, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _from_npy(data: bytes) -> NDArray:
    header = HEADER.match(data)
    if header is None or int.from_bytes(header["length"], "little") + 10 != header.end():
        raise ValueError("an array has no header of the format NPY 1.0")
    dtype = np.dtype(header["dtype"].decode())
    shape = tuple(int(size) for size in header["shape"].split(b",") if size.strip())
    if math.prod(shape) * dtype.itemsize != len(data) - header.end():
        raise ValueError(f"an array of shape {shape} does not fit {len(data)} bytes")
    order: Literal["C", "F"] = "F" if header["fortran"] == b"True" else "C"
    numbers = np.frombuffer(data, dtype, offset=header.end())
    # A copy that may be written to, in the order of bytes of this machine.
    return numbers.reshape(shape, order=order).astype(dtype.newbyteorder("="))
