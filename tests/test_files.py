from __future__ import annotations

import io
import json
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric._files import FileFormatError, atomic_write, load_arrays, save_arrays

FACTS = {"name": "ü\ud800\n", "gap": math.inf, "list": [1, None, True, -math.inf, {"": 0.1}]}
ARRAYS = {"coefs": np.array([1.5, -0.0]), "flags": np.array([[True], [False]])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "thing"
    save_arrays(path, "thing", 1, FACTS, ARRAYS)
    return path


def has_original_contents(path: Path) -> bool:
    facts, arrays = load_arrays(path, "thing", 1)
    return (
        facts == FACTS
        and arrays.keys() == ARRAYS.keys()
        and all(
            arrays[name].dtype == expected.dtype and arrays[name].tobytes() == expected.tobytes()
            for name, expected in ARRAYS.items()
        )
    )


def is_rejected(path: Path) -> bool:
    try:
        load_arrays(path, "thing", 1)
    except FileFormatError:
        return True
    return False


def npy(array: NDArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(**changes: Any) -> bytes:
    """The member with the header, made without the code under test."""
    facts = {"kind": "thing", "version": 1, "boostmetric": "0.1", "arrays": [], "facts": {}}
    facts |= changes
    return npy(np.frombuffer(json.dumps(facts).encode(), np.uint8))


def zipped(path: Path, members: dict[str, bytes], **options: Any) -> None:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_facts_and_arrays_are_restored(path: Path) -> None:
    assert has_original_contents(path)
    save_arrays(path, "thing", 1, {"gaps": (math.nan, np.float64(0.1), 5e-324)}, {})
    np.testing.assert_equal(load_arrays(path, "thing", 1)[0], {"gaps": [math.nan, 0.1, 5e-324]})


@pytest.mark.parametrize("dtype", ["?", "i8", "f4", "f8"])
@pytest.mark.parametrize(("order", "shape"), [("C", ()), ("C", (3, 4)), ("F", (3, 4))])
def test_arrays_keep_dtype_shape_and_order(
    shape: tuple[int, ...], order: Any, dtype: str, path: Path, rng: np.random.Generator
) -> None:
    array = np.array(rng.integers(0, 100, shape), dtype=dtype, order=order)
    save_arrays(path, "thing", 1, {}, {"a": array})
    loaded = load_arrays(path, "thing", 1)[1]["a"]
    assert (loaded.dtype, loaded.shape, loaded.strides) == (array.dtype, shape, array.strides)
    assert np.array_equal(loaded, array)
    assert loaded.flags.writeable


def test_byte_order_becomes_native(path: Path) -> None:
    save_arrays(path, "thing", 1, {}, {"a": np.array([[1, 2]], ">f8", order="F")})
    array = load_arrays(path, "thing", 1)[1]["a"]
    assert array.dtype.isnative
    assert array.tolist() == [[1, 2]]


def test_lack_of_memory_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(MemoryError):
        load_arrays(path, "thing", 1)


def test_empty_arrays_keep_their_shape(path: Path) -> None:
    save_arrays(path, "thing", 1, {}, {"a": np.empty((4, 0))})
    assert load_arrays(path, "thing", 1)[1]["a"].shape == (4, 0)


def test_numpy_and_json_read_the_file_as_documented(path: Path) -> None:
    with np.load(path, allow_pickle=False) as members:
        found = json.loads(members["header"].tobytes())
        assert members["coefs"].tolist() == [1.5, 0]
    assert (found["kind"], found["version"], found["facts"]) == ("thing", 1, FACTS)
    zipped(
        path,
        {"a.npy": npy(np.arange(3.0)), "header.npy": header(arrays=["a"], facts={"x": math.inf})},
    )
    facts, arrays = load_arrays(path, "thing", 1)
    assert facts == {"x": math.inf}
    assert arrays["a"].tolist() == [0, 1, 2]


def test_truncated_files_are_rejected(path: Path) -> None:
    data = path.read_bytes()
    for length in range(0, len(data), 3):
        path.write_bytes(data[:length])
        assert is_rejected(path), length


def test_changed_bytes_never_change_the_contents(path: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes()
    n_rejected = 0
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        if is_rejected(path):
            n_rejected += 1
        else:
            assert has_original_contents(path), position
    assert n_rejected > len(data) // 6
    for _ in range(150):
        changed = bytearray(data)
        start, length = rng.integers(len(data)), rng.integers(1, 12)
        changed[start : start + length] = rng.bytes(int(rng.integers(0, 12)))
        path.write_bytes(changed)
        assert is_rejected(path) or has_original_contents(path)


def test_other_files_are_rejected(path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_arrays(tmp_path / "none", "thing", 1)
    with pytest.raises(IsADirectoryError):
        load_arrays(tmp_path, "thing", 1)
    for data in (b"", b"PK", b"hello, world", npy(np.eye(2))):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=r"thing is not a BoostMetric file\.$"):
            load_arrays(path, "thing", 1)
    zipped(path, {"a.npy": npy(np.eye(2))})
    with pytest.raises(FileFormatError, match=r"thing is not a BoostMetric file\.$"):
        load_arrays(path, "thing", 1)


def test_other_kinds_and_versions_are_rejected(path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"is a thing file, not a metric file\.$"):
        load_arrays(path, "metric", 1)
    with pytest.raises(FileFormatError, match=r"has version 1 of the thing .* Write the thing ag"):
        load_arrays(path, "thing", 2)
    with pytest.raises(FileFormatError, match=r"version 1 .* reads version 0\. Upgrade boostmetr"):
        load_arrays(path, "thing", 0)


def declaring(shape: str, dtype: str = "<f8") -> bytes:
    """An array of 16 bytes whose header declares a shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(16)


@pytest.mark.parametrize(
    "data",
    [
        declaring("(1250000000000,)"),
        declaring("(3,)"),
        declaring("(1,)"),
        declaring(f"(0, {10**30})")[:-16],
        declaring("(-1, -2)"),
        declaring(f"({'9' * 5000},)"),
        declaring("(2,)", "|O"),
        declaring("(2,)", "<c8"),
        declaring("(1,)", "<f16"),
        declaring("(8,)", "<f2"),
        declaring("((2,)"),
        declaring("(2,),\n  2\n 2"),
        declaring("(__import__('os'),)"),
        declaring("(2,)").replace(b"NUMPY\x01", b"NUMPY\x02"),
        b"",
        npy(np.array([{}], dtype=object)),
    ],
)
def test_malformed_arrays_are_rejected(data: bytes, path: Path) -> None:
    zipped(path, {"header.npy": header(arrays=["a"]), "a.npy": declaring("(2,)")})
    assert load_arrays(path, "thing", 1)[1]["a"].tolist() == [0, 0]
    zipped(path, {"header.npy": header(arrays=["a"]), "a.npy": data})
    with pytest.raises(FileFormatError, match=r"thing is damaged \(.*\)\. Copy or write it again"):
        load_arrays(path, "thing", 1)


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b'"kind"', b"[" * 100_000, b"{}"])
def test_malformed_headers_are_rejected(text: bytes, path: Path) -> None:
    zipped(path, {"header.npy": npy(np.frombuffer(text, np.uint8))})
    with pytest.raises(FileFormatError, match="is damaged"):
        load_arrays(path, "thing", 1)
    zipped(path, {"header.npy": header(version="1")})
    with pytest.raises(FileFormatError, match="is damaged"):
        load_arrays(path, "thing", 1)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_bombs_are_rejected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = {"header.npy": header(arrays=["a"]), "a.npy": npy(np.zeros(1_000_000))}
    zipped(path, bomb, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    with pytest.raises(FileFormatError, match="a member is compressed"):
        load_arrays(path, "thing", 1)
    # One large member that the directory lists under several names.
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in bomb.items():
            archive.writestr(name, data)
        large = archive.filelist[-1]
        for number in range(3):
            copy = zipfile.ZipInfo(f"copy{number}.npy")
            copy.file_size = copy.compress_size = large.file_size
            copy.header_offset, copy.CRC = large.header_offset, large.CRC
            archive.filelist.append(copy)
    with pytest.raises(FileFormatError, match="the members are larger than the file"):
        load_arrays(path, "thing", 1)
    zipped(path, {"header.npy": header()})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("header.npy", header())
    with pytest.raises(FileFormatError, match="two members have the same name"):
        load_arrays(path, "thing", 1)


def test_invalid_facts_leave_the_old_file(path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_arrays(path, "thing", 1, {"x": {1, 2}}, {})
    assert has_original_contents(path)
    assert os.listdir(path.parent) == [path.name]


def test_invalid_paths_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a directory; pass a file path"):
        save_arrays(tmp_path, "thing", 1, {}, {})
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/no does not exist"):
        save_arrays(tmp_path / "no" / "where", "thing", 1, {}, {})
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=f"{tmp_path} is not writable"):
        save_arrays(tmp_path / "new", "thing", 1, {}, {})


def node(path: Path, kind: str) -> Path:
    """Make something that is not a regular file, or a link to it."""
    if kind in ("device", "linked device"):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind in ("pipe", "linked pipe"):
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    if kind.startswith("linked"):
        path.with_name("link").symlink_to(path)
        return path.with_name("link")
    return path


@pytest.mark.skipif(os.name != "posix", reason="makes devices and pipes")
@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "linked device", "linked pipe"])
def test_only_regular_files_are_replaced(kind: str) -> None:
    # The path of a socket has at most 100 characters, fewer than those of pytest's directories.
    with TemporaryDirectory() as directory:
        try:
            path = node(Path(directory, "node"), kind)
        except PermissionError:  # devices, unless root
            pytest.skip("no permission")
        before = path.lstat().st_mode, path.stat().st_mode, os.listdir(directory)
        with pytest.raises(OSError, match=f"{path} is not a regular file"):
            save_arrays(path, "thing", 1, {}, {})
        assert (path.lstat().st_mode, path.stat().st_mode, os.listdir(directory)) == before


@pytest.mark.skipif(os.name != "posix", reason="symbolic links require rights on Windows")
def test_links_stay_and_their_targets_are_replaced(path: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "first").symlink_to(Path("..") / "second")
    (tmp_path / "second").symlink_to(path)
    (tmp_path / "dangling").symlink_to("new")
    (tmp_path / "loop").symlink_to("loop")
    for link in (tmp_path / "links" / "first", tmp_path / "dangling"):
        save_arrays(link, "thing", 1, {"by": link.name}, {})
        assert link.is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert load_arrays(path, "thing", 1)[0] == {"by": "first"}
    assert not path.is_symlink()
    assert load_arrays(tmp_path / "new", "thing", 1)[0] == {"by": "dangling"}
    with pytest.raises(OSError, match="symbolic links"):
        save_arrays(tmp_path / "loop", "thing", 1, {}, {})
    assert len(os.listdir(tmp_path)) == 6
    assert os.listdir(tmp_path / "links") == ["first"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_permissions_and_owner_are_kept(
    mode: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = []
    monkeypatch.setattr(os, "chown", lambda path, *owner: owners.append(owner))
    path.chmod(mode)
    before = path.stat()
    with atomic_write(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600  # others never see the contents
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert owners == [(before.st_uid, before.st_gid)]

    def forbidden(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", forbidden)
    save_arrays(path, "thing", 1, FACTS, ARRAYS)
    assert has_original_contents(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_new_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "expected").touch()
    save_arrays(tmp_path / "new", "thing", 1, {}, {})
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "expected").stat().st_mode


def test_names_may_be_as_long_as_the_file_system_permits(tmp_path: Path) -> None:
    save_arrays(tmp_path / ("n" * 250), "thing", 1, FACTS, ARRAYS)
    assert has_original_contents(tmp_path / ("n" * 250))


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_full_disk_leaves_the_old_file(
    failing: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        save_arrays(path, "thing", 1, {"new": True}, {})
    assert has_original_contents(path)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_contents_are_flushed_before_the_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        flushed = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append("directory" if os.path.isdir(flushed) else "file")
        assert os.path.isdir(flushed) or zipfile.is_zipfile(flushed)
        sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        calls.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save_arrays(path, "thing", 1, {}, {})
    assert calls == ["file", "rename", "directory"]


KILLED = """
import os, signal, sys
import numpy as np
from boostmetric._files import save_arrays
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
save_arrays(sys.argv[1], "thing", 1, {"new": True}, {"a": np.zeros(100_000)})
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a signal")
def test_killed_process_leaves_the_old_file(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert has_original_contents(path)
