from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric._archive import ArchiveError, read_archive, write_archive

FACTS = {"name": "ü\ud800\n", "gap": math.inf, "list": [1, None, True, -math.inf, {"": 0.1}]}
ARRAYS = {"coefs": np.array([1.5, -0.0]), "flags": np.array([[True], [False]])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thing.archive"


@pytest.fixture
def written(path: Path) -> Path:
    write_archive(path, "thing", 1, FACTS, ARRAYS)
    return path


def same(found: tuple[dict[str, Any], dict[str, NDArray]]) -> bool:
    facts, arrays = found
    return (
        facts == FACTS
        and arrays.keys() == ARRAYS.keys()
        and all(
            arrays[name].dtype == expected.dtype and arrays[name].tobytes() == expected.tobytes()
            for name, expected in ARRAYS.items()
        )
    )


def signed(path: Path, members: dict[str, bytes], **options: Any) -> None:
    """A zip file of these members with right checksums, made without the code under test."""
    lines = [f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members)]
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in {**members, "SHA256SUMS": "".join(lines).encode()}.items():
            archive.writestr(name, data)


def header(**changes: Any) -> dict[str, bytes]:
    facts = {"format": "boostmetric", "kind": "thing", "version": 1, "facts": {}, **changes}
    return {"facts.json": json.dumps(facts).encode()}


def npy(array: NDArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def refused(path: Path) -> str:
    """The message with which a file is refused, but for its path."""
    with pytest.raises(ArchiveError) as error:
        read_archive(path, "thing", 1)
    message = str(error.value)
    assert message.startswith(str(path))
    return message.removeprefix(f"{path} ")


def test_what_is_written_is_read(written: Path) -> None:
    assert same(read_archive(written, "thing", 1))
    assert same(read_archive(str(written), "thing", 7))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (0, 4), (2, 3, 4), (1, 1)])
def test_arrays_keep_values_type_shape_and_order(
    shape: tuple[int, ...], order: str, dtype: str, path: Path, rng: np.random.Generator
) -> None:
    array = np.asarray(rng.standard_normal(shape) * 100).astype("i8").astype(dtype)
    array = np.array(array, order="F" if order == "F" else "C")
    write_archive(path, "thing", 1, {}, {"a": array})
    found = read_archive(path, "thing", 1)[1]["a"]
    assert (found.dtype, found.shape, found.strides) == (array.dtype, shape, array.strides)
    assert np.array_equal(found, array)
    assert found.flags.writeable
    # numpy's own reader of a folder of arrays, which a zip file of .npy members is, agrees.
    with np.load(path) as folder:
        assert np.array_equal(folder["a"], array)


def test_the_other_byte_order_and_views(path: Path) -> None:
    arrays = {"big": np.arange(3, dtype=">f8"), "view": np.arange(20.0).reshape(4, 5)[::2, ::-1]}
    write_archive(path, "thing", 1, {}, arrays)
    found = read_archive(path, "thing", 1)[1]
    assert found["big"].tolist() == [0, 1, 2]
    assert found["big"].dtype == np.dtype("f8")
    assert np.array_equal(found["view"], arrays["view"])


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(10**40), 0.1, 5e-324, 1.7976931348623157e308, "", "\x00", "$float"),
        *([], {}, [[{}]], math.inf, -math.inf, {"float": "nan"}, np.float64(0.1)),
    ],
)
def test_facts_come_back_equal_and_as_strict_json(value: Any, path: Path) -> None:
    write_archive(path, "thing", 1, {"value": value}, {})
    facts, _ = read_archive(path, "thing", 1)
    assert facts == {"value": value}
    assert type(facts["value"]) is (float if isinstance(value, float) else type(value))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    with zipfile.ZipFile(path) as archive:
        json.loads(archive.read("facts.json"), parse_constant=refuse)


def test_nan_and_tuples(path: Path) -> None:
    write_archive(path, "thing", 1, {"gaps": (math.nan, 1)}, {})
    gaps = read_archive(path, "thing", 1)[0]["gaps"]
    assert isinstance(gaps, list)
    assert math.isnan(gaps[0])


def test_equal_contents_are_equal_bytes(path: Path, tmp_path: Path) -> None:
    write_archive(path, "thing", 1, {"a": 1, "b": 2}, {"x": np.ones(2), "y": np.zeros(1)})
    other = tmp_path / "other"
    write_archive(other, "thing", 1, {"b": 2, "a": 1}, {"y": np.zeros(1), "x": np.ones(2)})
    assert path.read_bytes() == other.read_bytes()


def test_the_checksums_are_those_of_sha256sum(written: Path, tmp_path: Path) -> None:
    program = shutil.which("sha256sum")
    if program is None:
        pytest.skip("needs the program sha256sum")
    with zipfile.ZipFile(written) as archive:
        archive.extractall(tmp_path)
    checked = subprocess.run(
        [program, "--check", "--strict", "SHA256SUMS"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.split(":")[0] for line in checked.stdout.splitlines()]
    assert names == ["coefs.npy", "facts.json", "flags.npy"]


def test_the_format_is_as_documented(path: Path) -> None:
    """A file that other code wrote by the documentation alone is read."""
    members = header(facts={"gap": {"$float": "-inf"}})
    signed(path, {**members, "a.npy": npy(np.arange(3.0)), "b.npy": npy(np.eye(2, dtype="f4").T)})
    facts, arrays = read_archive(path, "thing", 1)
    assert facts == {"gap": -math.inf}
    assert arrays["a"].tolist() == [0, 1, 2]
    assert arrays["b"].dtype == np.float32


def test_no_truncated_file_is_read(written: Path) -> None:
    data = written.read_bytes()
    for length in range(len(data)):
        written.write_bytes(data[:length])
        refused(written)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_no_flipped_byte_gives_other_contents(written: Path, mask: int) -> None:
    data = written.read_bytes()
    n_refused = 0
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= mask
        written.write_bytes(changed)
        try:
            assert same(read_archive(written, "thing", 1)), position
        except ArchiveError:
            n_refused += 1
    assert n_refused > len(data) // 2


def test_no_random_damage_gives_other_contents(written: Path, rng: np.random.Generator) -> None:
    data = written.read_bytes()
    for _ in range(2000):
        changed = bytearray(data)
        start, length = rng.integers(len(data)), rng.integers(1, 12)
        changed[start : start + length] = rng.bytes(int(rng.integers(0, 12)))
        written.write_bytes(changed)
        try:
            assert same(read_archive(written, "thing", 1))
        except ArchiveError:
            continue


def test_no_random_change_with_right_checksums_raises_anything_else(
    written: Path, rng: np.random.Generator
) -> None:
    with zipfile.ZipFile(written) as archive:
        members = {name: archive.read(name) for name in ("facts.json", "coefs.npy", "flags.npy")}
    outcomes = set()
    for _ in range(1000):
        name = str(rng.choice(list(members)))
        changed = bytearray(members[name])
        changed[rng.integers(len(changed))] = rng.integers(256)
        signed(written, {**members, name: bytes(changed)})
        try:
            read_archive(written, "thing", 1)
            outcomes.add("read")
        except ArchiveError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_no_file_no_archive(tmp_path: Path) -> None:
    needed = "give the path of a file that boostmetric wrote."
    assert refused(tmp_path / "none") == f"is not there: {needed}"
    assert refused(tmp_path) == f"is a folder: {needed}"
    text = tmp_path / "text"
    for data in (b"", b"PK", b"hello, world", npy(np.eye(2))):
        text.write_bytes(data)
        assert (
            refused(text)
            == "is no zip file, so boostmetric did not write it: give a file that it did."
        )
    np.savez(tmp_path / "arrays.npz", a=np.eye(2))
    assert refused(tmp_path / "arrays.npz") == (
        "is a zip file without facts.json or SHA256SUMS, so boostmetric did not write it: give a "
        "file that it did."
    )


def test_what_may_not_be_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert refused(written) == "may not be read: change its permissions."


def test_another_kind_and_a_newer_version(path: Path) -> None:
    write_archive(path, "checkpoint", 1, {}, {})
    assert refused(path) == "is a checkpoint, not a thing: give a file that holds a thing."
    write_archive(path, "thing", 2, {}, {})
    assert refused(path) == (
        "was written by a newer boostmetric (format 2 of a thing; this one reads up to 1): "
        "upgrade boostmetric."
    )


Change = Callable[[dict[str, bytes]], dict[str, bytes]]


@pytest.mark.parametrize(
    "change",
    [
        lambda members: {**members, "extra.npy": members["coefs.npy"]},
        lambda members: {name: members[name] for name in members if name != "coefs.npy"},
        lambda members: {**members, "coefs.npy": npy(np.array([1.5, 2.5]))},
        lambda members: {**members, "facts.json": members["facts.json"].replace(b"1", b"0")},
        lambda members: {**members, "SHA256SUMS": members["SHA256SUMS"].upper()},
    ],
    ids=["a member more", "a member less", "other numbers", "other facts", "other checksums"],
)
def test_tampering(written: Path, change: Change) -> None:
    with zipfile.ZipFile(written) as archive:
        members = change({name: archive.read(name) for name in archive.namelist()})
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert refused(written) == (
        "is damaged (its contents are not those of SHA256SUMS): get it again from where it came "
        "from, or write it anew."
    )


def claiming(shape: str, dtype: str = "<f8", numbers: int = 2) -> bytes:
    """An array whose header claims a shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return (
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(8) * numbers
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (claiming("(1250000000000,)"), r"shape \(1250000000000,\) does not fit 144 bytes"),
        (claiming("(3,)"), "does not fit"),
        (claiming("(1,)"), "does not fit"),
        (claiming(f"(0, {10**30})", numbers=0), "is damaged"),
        (claiming(f"({'9' * 5000},)"), "is damaged"),
        (claiming("(2,)", "|O"), "no header of the format NPY 1.0"),
        (claiming("(2,)", "<c8"), "no header of the format NPY 1.0"),
        (claiming("(2,)", "<f1"), "is damaged"),
        (claiming("(-1,)"), "no header"),
        (claiming("(__import__('os'),)"), "no header"),
        (claiming("(2,)").replace(b"NUMPY\x01", b"NUMPY\x02"), "no header"),
        (claiming("(2,)").replace(b"v\x00", b"w\x00"), "no header"),
        (b"", "no header"),
        (npy(np.array([{}], dtype=object)), "no header"),
    ],
)
def test_arrays_that_are_none(data: bytes, message: str, path: Path) -> None:
    signed(path, {**header(), "a.npy": claiming("(2,)")})
    assert read_archive(path, "thing", 1)[1]["a"].tolist() == [0, 0]
    signed(path, {**header(), "a.npy": data})
    with pytest.raises(ArchiveError, match=message):
        read_archive(path, "thing", 1)


@pytest.mark.parametrize(
    "members",
    [
        {"facts.json": b""},
        {"facts.json": b"\xff"},
        {"facts.json": b"[]"},
        {"facts.json": b'"format"'},
        {"facts.json": b"[" * 100_000},
        header(format="other"),
        header(facts=[]),
        header(facts=None),
        header(version="1"),
        header(version=None),
        header(facts={"x": math.nan}),
        header(facts={"x": {"$float": "1"}}),
        header(facts={"x": {"$float": []}}),
        {"facts.json": b'{"format": "boostmetric"}'},
    ],
)
def test_facts_that_are_none(members: dict[str, bytes], path: Path) -> None:
    signed(path, members)
    assert refused(path).startswith("is damaged (")


def test_zip_bombs_are_not_opened(path: Path) -> None:
    bomb = npy(np.zeros(1_000_000))
    signed(path, {**header(), "a.npy": bomb}, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    assert "a member is compressed" in refused(path)


def test_members_that_share_bytes_are_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file whose directory names the same large member over and over."""
    signed(path, {**header(), "a.npy": npy(np.zeros(1000))})
    plain = zipfile.ZipFile.infolist

    def repeated(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
        entries = plain(archive)
        for number in range(3):
            copy = zipfile.ZipInfo(f"copy{number}.npy")
            copy.file_size = next(e.file_size for e in entries if e.filename == "a.npy")
            entries = [*entries, copy]
        return entries

    monkeypatch.setattr(zipfile.ZipFile, "infolist", repeated)
    assert "members claim to be larger than the file" in refused(path)


@pytest.mark.parametrize("offset", [2**40, 2**62, 2**63, 2**64 - 1])
def test_members_beyond_the_end_of_the_file(offset: int, path: Path) -> None:
    signed(path, header())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", npy(np.zeros(1)))
        archive.filelist[0].header_offset = offset
    assert refused(path).startswith("is damaged (")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(written: Path) -> None:
    with zipfile.ZipFile(written, "a") as archive:
        archive.writestr("coefs.npy", npy(np.zeros(2)))
    assert "two members have the same name" in refused(written)


@pytest.mark.parametrize(
    ("facts", "arrays", "message"),
    [
        ({"x": {1, 2}}, {}, r"facts hold a set: only None, booleans, numbers, texts, and lists"),
        ({"x": [np.int64(1)]}, {}, "facts hold a int64"),
        ({1: 2}, {}, r"1 cannot be a key of facts: a text other than \$float can"),
        ({"x": {"$float": "nan"}}, {}, r"'\$float' cannot be a key of facts"),
        ({}, {"a": np.array([None])}, r"the array a is of object: only booleans, integers and"),
        ({}, {"a": np.array(["x"])}, "the array a is of <U1"),
        ({}, {"a": np.zeros(1, np.longdouble)}, "the array a is of"),
        ({}, {"../a": np.zeros(1)}, r"'../a' cannot name an array: letters, digits and under"),
        ({}, {"": np.zeros(1)}, "cannot name an array"),
    ],
)
def test_what_cannot_be_written(
    facts: dict[str, Any], arrays: dict[str, NDArray], message: str, written: Path
) -> None:
    before = written.read_bytes()
    with pytest.raises((TypeError, ValueError), match=message):
        write_archive(written, "thing", 1, facts, arrays)
    assert written.read_bytes() == before
    assert os.listdir(written.parent) == [written.name]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError) as error:
        write_archive(tmp_path, "thing", 1, {}, {})
    assert str(error.value) == f"{tmp_path} is a folder: give the name of a file in it."
    with pytest.raises(ArchiveError) as error:
        write_archive(tmp_path / "no" / "where", "thing", 1, {}, {})
    assert str(error.value) == (
        f"{tmp_path}/no/where cannot be written: there is no folder {tmp_path}/no. Make it."
    )


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(
    failing: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_archive(written, "thing", 1, {"new": True}, {})
    assert same(read_archive(written, "thing", 1))
    assert os.listdir(written.parent) == [written.name]


def test_the_disk_has_the_file_before_the_name_and_the_name_at_the_end(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        kind = "folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"
        calls.append(kind if sys.platform == "linux" else "")
        if kind == "file" and sys.platform == "linux":
            assert zipfile.is_zipfile(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        calls.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_archive(written, "thing", 1, {}, {})
    if sys.platform == "linux":
        assert calls == ["file", "rename", "folder"]


KILLED = """
import os, signal, sys
import numpy as np
from boostmetric._archive import write_archive
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_archive(sys.argv[1], "thing", 1, {"new": True}, {"a": np.zeros(100_000)})
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a signal")
def test_a_killed_process_leaves_the_old_file(written: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(written)])
    assert done.returncode == -signal.SIGKILL
    assert same(read_archive(written, "thing", 1))
