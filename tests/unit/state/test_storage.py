"""Files put and got by name: on a disk, on an S3 server of this machine, and by fsspec."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.s3 import asked, s3_options
from tidegate.errors import EnvironmentFault, InternalError, QueryError
from tidegate.state import storage as storages
from tidegate.state.storage import ONE_REQUEST_BYTES, Storage, open_storage

LARGE = 11 * 1024**2
"""More than one part of an upload."""


@pytest.fixture(params=["local", "s3", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "local":
        return open_storage(str(tmp_path / "not" / "there" / "yet"))
    if request.param == "s3":
        port = request.getfixturevalue("s3_port")
        return open_storage(f"s3a://bucket/state/{tmp_path.name}/", s3_options(port))
    return open_storage(f"memory://{tmp_path.name}/state")


def test_what_is_put_is_got(storage: Storage) -> None:
    assert storage.get("a/b/file") is None
    storage.put("a/b/file", b"bytes")
    storage.put("a/b/buffer", pa.py_buffer(b"a buffer"))
    storage.put("top", b"")
    assert [bytes(storage.get(name) or b"none") for name in ("a/b/file", "a/b/buffer")] == [b"bytes", b"a buffer"]
    assert (got := storage.get("top")) is not None
    assert bytes(got) == b""


def test_a_put_replaces(storage: Storage) -> None:
    for data in (b"a longer one", b"short", b""):
        storage.put("a/file", data)
        assert bytes(storage.get("a/file") or b"") == data
    assert storage.names("a") == ["file"]


def test_files_and_folders_are_listed_apart(storage: Storage) -> None:
    for name in ("b/2", "b/1", "b/c/3", "b/a/4", "top"):
        storage.put(name, b"x")
    assert storage.names("b") == ["1", "2"]
    assert storage.folders("b") == ["a", "c"]
    assert (storage.names(""), storage.folders("")) == (["top"], ["b"])
    assert (storage.names("none"), storage.folders("none/at/all")) == ([], [])


def test_what_is_removed_is_gone_and_may_be_removed_again(storage: Storage) -> None:
    for number in range(20):
        storage.put(f"a/{number}", b"x")
    storage.remove(f"a/{number}" for number in range(1, 20))
    assert storage.names("a") == ["0"]
    storage.remove(["a/0", "a/7", "none/at/all"])
    assert storage.names("a") == []
    assert storage.get("a/7") is None
    storage.remove([])


def test_a_large_file(storage: Storage) -> None:
    data = os.urandom(LARGE)
    storage.put("a/large", data)
    assert bytes(storage.get("a/large") or b"") == data


def test_several_threads_use_one_storage(storage: Storage) -> None:
    def there_and_back(number: int) -> bool:
        storage.put(f"a/{number % 5}", b"the same bytes")
        return bytes(storage.get(f"a/{number % 5}") or b"") == b"the same bytes"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, range(100)))
    assert storage.names("a") == list("01234")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "a/../../b", "a//b", "a/", "./a", "a/.draft-1", ".hidden"])
def test_a_name_stays_below_the_root(storage: Storage, name: str) -> None:
    for call in (storage.get, lambda name: storage.put(name, b"x"), lambda name: storage.remove([name])):
        with pytest.raises(InternalError, match="names no file below a root"):
            call(name)
    if name:
        with pytest.raises(InternalError, match="names no file below a root"):
            storage.names(name)


def test_a_storage_is_opened_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_storage(str(tmp_path))
    assert open_storage(str(tmp_path), {}) is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_storage(str(tmp_path)) is not first, "a forked process opens its own"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file:{}", "file://localhost{}"])
def test_forms_of_a_local_path(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a b?#é"
    path = folder.as_uri().removeprefix("file://") if form.startswith("file") else str(folder)
    opened = open_storage(form.format(path))
    opened.put("file", b"x")
    assert files(tmp_path) == ["a b?#é/file"]
    assert (opened.uri, opened.is_local) == (str(folder), True)


def test_a_relative_path_holds_wherever_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("below").uri == str(tmp_path / "below")


def test_local_files_are_the_users_own(tmp_path: Path) -> None:
    open_storage(str(tmp_path)).put("file", b"x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_put_that_ends_before_the_rename_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_storage(str(tmp_path))
    opened.put("a/file", b"old")
    seen = []

    def killed(draft: str, _path: str) -> None:
        seen.extend([Path(draft).read_bytes(), opened.names("a"), opened.get("a/file")])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        opened.put("a/file", b"new")
    assert seen == [b"new", ["file"], b"old"], "the draft is complete, and no reader sees it"
    assert files(tmp_path) == ["a/file"]
    assert opened.get("a/file") == b"old"


def test_a_draft_of_a_process_that_was_killed_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / f"{storages.DRAFT}1-ab").write_bytes(b"half")
    (tmp_path / ".git").mkdir()
    opened = open_storage(str(tmp_path))
    assert (opened.names(""), opened.folders("")) == ([], [])


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_full_disk_is_told_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    opened = open_storage(str(tmp_path))
    opened.put("file", b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/file'") as told:
        opened.put("file", b"new")
    assert told.value.errno == errno.ENOSPC
    assert files(tmp_path) == ["file"]
    assert opened.get("file") == b"old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux that is always full")
def test_a_disk_that_is_full_while_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = open_storage(str(tmp_path)), os.open
    monkeypatch.setattr(os, "open", lambda _path, _flags, _mode: real("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/file'"):
        opened.put("file", b"new")
    assert files(tmp_path) == []


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    opened = open_storage(str(tmp_path / "file"))
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        opened.put("a", b"x")


def test_a_file_that_was_got_outlives_its_removal(tmp_path: Path) -> None:
    opened = open_storage(str(tmp_path))
    opened.put("file", b"x" * 100_000)
    got = opened.get("file")
    opened.put("file", b"other")
    opened.remove(["file"])
    assert bytes(got or b"") == b"x" * 100_000


def test_puts_to_s3_leave_only_files(s3_port: int) -> None:
    asked(s3_port, "PUT", "/puts-only")
    opened = open_storage("s3://puts-only/state", s3_options(s3_port))
    for size in (0, 10, ONE_REQUEST_BYTES, LARGE):
        opened.put(f"a/b/{size}", bytes(size))
    listed = asked(s3_port, "GET", "/puts-only?list-type=2")
    assert listed.count("<Key>") == 4, "and no markers of folders"
    assert (opened.uri, opened.is_local) == ("s3://puts-only/state", False)


def test_an_s3_bucket_that_is_not_there(s3_port: int) -> None:
    opened = open_storage("s3://none/state", s3_options(s3_port))
    with pytest.raises(EnvironmentFault, match=r"^s3://none/state/a/file cannot be written: .*NO_SUCH_BUCKET") as told:
        opened.put("a/file", b"x")
    assert isinstance(told.value.__cause__, OSError)


class Refusing(BaseHTTPRequestHandler):
    """Answers 403 to everything but the upload of a whole file, and keeps the names of those."""

    uploaded: list[str]

    def do_PUT(self) -> None:
        if self.headers["Transfer-Encoding"] == "chunked":  # a line with its size before each chunk, its end after it
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
        self.uploaded.append(self.path)
        self._answer(200)

    def do_POST(self) -> None:
        self._answer(403)

    do_GET = do_HEAD = do_DELETE = do_POST

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[tuple[int, list[str]]]:
    """An S3 server that refuses: its port, and the names of the files put to it."""
    Refusing.uploaded = []
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port, Refusing.uploaded
        server.shutdown()
        thread.join()


def test_s3_that_refuses_is_named_with_the_file(refusing: tuple[int, list[str]]) -> None:
    opened = open_storage("s3://bucket/state", s3_options(refusing[0]))
    with pytest.raises(EnvironmentFault, match=r"^s3://bucket/state/a/file cannot be read: .*ACCESS_DENIED"):
        opened.get("a/file")
    with pytest.raises(EnvironmentFault, match=r"^s3://bucket/state/a cannot be listed: .*ACCESS_DENIED"):
        opened.names("a")
    with pytest.raises(EnvironmentFault, match=r"^s3://bucket/state/a/file cannot be removed: .*ACCESS_DENIED"):
        opened.remove(["a/file"])


def test_a_large_file_that_s3_refuses_does_not_become_an_empty_one(refusing: tuple[int, list[str]]) -> None:
    opened = open_storage("s3://bucket/state", s3_options(refusing[0]))
    opened.put("small", b"x")
    with pytest.raises(EnvironmentFault, match=r"^s3://bucket/state/large cannot be written: .*ACCESS_DENIED"):
        opened.put("large", bytes(LARGE))
    assert refusing[1] == ["/bucket/state/small"]


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("", {}, "a state folder cannot be ''"),
        ("file://machine/path", {}, "the address of a file is file:///path, with no other machine in it"),
        ("file:relative", {}, "the address of a file is file:///path"),
        ("s3:bucket/a", {}, "an address is scheme://bucket/folder"),
        ("s3://", {}, "an address is scheme://bucket/folder"),
        ("s3:///a", {}, "an address is scheme://bucket/folder"),
        ("gs://bucket/a/../b", {}, "an address is scheme://bucket/folder"),
        (
            "hdfs://host/a",
            {},
            "'hdfs' has no storage that a file is put to all at once; give a path, or .* 'file', 's3', ",
        ),
        ("s3://bucket/a", {"acces_key": "x"}, "there is no option 'acces_key'; valid are 'access_key', 'secret_key', "),
        ("s3://bucket/a", {"access_key": "x"}, "its options do not fit: .*secret_key"),
        ("gs://bucket/a", {"anonymous": "yes"}, "the option 'anonymous' is 'true' or 'false', not 'yes'"),
        ("/path", {"region": "x"}, "there is no option 'region'; valid are none"),
    ],
)
def test_a_wrong_address_or_option_is_explained(uri: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        open_storage(uri, options)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://user:hidden@bucket/a",
        "s3://user:hid/hidden@bucket/a",
        "s3://bucket/a?secret_key=hidden",
        "ftp://user:hidden@host/a?b",
    ],
)
def test_a_password_in_an_address_is_not_repeated(uri: str) -> None:
    for options in ({}, {"unknown": "x"}):
        with pytest.raises(QueryError, match=r"state folder '.*…") as told:
            open_storage(uri, options)
        assert "hidden" not in str(told.value)


def test_google_storage_is_opened_without_a_request() -> None:
    opened = open_storage("gs://bucket/me@here:now/state", {"anonymous": "true"})
    assert (opened.uri, opened.is_local) == ("gs://bucket/me@here:now/state", False)


@pytest.mark.parametrize("uri", ["abfss://container@account.dfs.core.windows.net/state", "az://container/state"])
def test_a_missing_package_is_named(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(EnvironmentFault, match="the package 'adlfs' is missing; on each machine: pip install adlfs"):
        open_storage(uri, {"account_key": "x"})


def test_fsspec_itself_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fsspec", "fsspec.core"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentFault, match="the package 'fsspec' is missing"):
        open_storage("memory://never/opened")
