"""Whole files by name, on a local disk or in an object store: what the state folder of a Spark query is written to.

::

    storage = open_storage("s3://bucket/state", {"region": "eu-north-1"})
    storage.put("step/chunks/7-0", data)
    storage.get("step/chunks/7-0")

A put takes effect at once or not at all. On a disk it is a draft, a sync and a rename; an object store does it by itself.
So stores without an atomic put, such as hdfs and sftp, are refused, and Azure is reached by fsspec: `pyarrow.fs` first puts
an empty file there. Options are given, not found, as Python workers see none of Hadoop's credentials.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import unquote

import pyarrow as pa

from tidegate.errors import EnvironmentFault, InternalError, QueryError, choices

DRAFT = ".draft-"
MOST_OPEN = 32
REMOVALS_AT_ONCE = 8
ONE_REQUEST_BYTES = 8 * 1024**2
"""The largest file put to S3 with one request instead of three. Must be less than a part of Arrow's uploads, 10 MiB."""
_NEW_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_SECRET = re.compile(r"(?<=//)[^/@:]*:.*@|[?#].*", re.DOTALL)
"""What may hold a password in an address. None of it is valid, so it is missing from messages only."""


class Storage(Protocol):
    """Whole files by name, below one root. A reader sees all of a file or none of it.

    Names are relative, with '/', and no part of one begins with a dot. A file is written once, or again with the same bytes:
    Arrow asks S3 for a file's size before its bytes, so one replaced by others in between is read wrong.
    """

    @property
    def uri(self) -> str:
        """The root, for messages; opens the same storage again."""

    @property
    def is_local(self) -> bool:
        """Whether the files are on a disk of this machine."""

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        """Writes a file in place of any there was; folders are created as needed."""

    def get(self, name: str) -> bytes | pa.Buffer | None:
        """A file's bytes; None if there is no such file."""

    def names(self, folder: str) -> list[str]:
        """The names of the files directly in a folder, without it, sorted; none if there is no such folder. No drafts."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders directly in a folder, likewise; one whose files were all removed may be among them."""

    def remove(self, names: Iterable[str]) -> None:
        """Removes files; those that are gone already are no error."""


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """Opens the storage below a path or an address. Cheap to call again: a process keeps its connections.

    Nothing is connected before the first call, and a forked process has connections of its own.
    """
    return _opened(os.getpid(), uri, tuple(sorted((options or {}).items())))


@functools.lru_cache(maxsize=MOST_OPEN)
def _opened(_process: int, uri: str, options: tuple[tuple[str, str], ...]) -> Storage:
    address = _ADDRESS.fullmatch(uri)
    scheme, rest = (address[1].lower(), address[2]) if address else ("", uri)
    uri = _SECRET.sub("…", uri) if address else uri
    if scheme not in _STORES:
        raise QueryError(
            f"state folder '{uri}': '{scheme}' has no storage that a file is put to all at once; give a path, or an address "
            f"that begins with one of {choices(name for name in _STORES if name)}"
        )
    build, known = _STORES[scheme]
    for option, value in options:
        if option not in known:
            raise QueryError(f"state folder '{uri}': there is no option '{option}'; valid are {choices(known)}")
        if option == "anonymous" and value not in ("true", "false"):
            raise QueryError(f"state folder '{uri}': the option 'anonymous' is 'true' or 'false', not '{value}'")
    try:
        return build(uri, rest, {name: value == "true" if name == "anonymous" else value for name, value in options})
    except (TypeError, ValueError) as error:
        raise QueryError(f"state folder '{uri}': its options do not fit: {error}") from error
    except OSError as error:
        raise EnvironmentFault(f"state folder '{uri}' cannot be opened: {error}") from error


@dataclass(frozen=True, slots=True)
class _LocalDisk:
    """Files below a folder. Folders are not synced: after a power failure the last files may be missing, none is torn."""

    is_local: ClassVar[bool] = True
    uri: str

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        path = f"{self.uri}/{_checked(name)}"
        folder = path.rpartition("/")[0]
        draft = f"{folder}/{DRAFT}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            descriptor = os.open(draft, _NEW_DRAFT, 0o600)
        except FileNotFoundError:
            Path(folder).mkdir(parents=True, exist_ok=True)
            descriptor = os.open(draft, _NEW_DRAFT, 0o600)
        try:
            with io.FileIO(descriptor, "wb") as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(descriptor)
            os.rename(draft, path)  # noqa: PTH104 - a Path would cost more than the call
        except BaseException as error:
            with suppress(OSError):
                os.unlink(draft)  # noqa: PTH108 - as above
            if isinstance(error, OSError) and error.filename is None:
                error.filename = path  # tells which disk is full
            raise

    def get(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError), io.FileIO(f"{self.uri}/{_checked(name)}") as file:
            return file.readall()
        return None

    def names(self, folder: str) -> list[str]:
        return self._listed(folder, os.DirEntry.is_file)

    def folders(self, folder: str) -> list[str]:
        return self._listed(folder, os.DirEntry.is_dir)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.uri}/{_checked(name)}")  # noqa: PTH108 - as above

    def _listed(self, folder: str, kind: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with suppress(FileNotFoundError), os.scandir(f"{self.uri}/{folder and _checked(folder)}") as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and kind(entry))
        return []


@dataclass(frozen=True, slots=True)
class _ObjectStore:
    """Objects below a bucket's folder. What the store refuses is an `EnvironmentFault` that names the file and the cause."""

    is_local: ClassVar[bool] = False
    uri: str
    root: str
    client: _Arrow | _Fsspec

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        with self._faults_named(name, "written") as path:
            self.client.write(path, data)

    def get(self, name: str) -> bytes | pa.Buffer | None:
        with self._faults_named(name, "read") as path, suppress(FileNotFoundError):
            return self.client.read(path)
        return None

    def names(self, folder: str) -> list[str]:
        return sorted(name for name, is_file in self._listed(folder) if is_file)

    def folders(self, folder: str) -> list[str]:
        return sorted(name for name, is_file in self._listed(folder) if not is_file)

    def remove(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(REMOVALS_AT_ONCE, "tidegate-removal") as pool:
            list(pool.map(self._remove, names))

    def _remove(self, name: str) -> None:
        with self._faults_named(name, "removed") as path, suppress(FileNotFoundError):
            self.client.delete(path)

    def _listed(self, folder: str) -> list[tuple[str, bool]]:
        with self._faults_named(folder, "listed") as path, suppress(FileNotFoundError):
            return self.client.entries(path)
        return []

    @contextmanager
    def _faults_named(self, name: str, done: str) -> Iterator[str]:
        path = f"{self.root}/{_checked(name)}" if name or done != "listed" else self.root
        try:
            yield path
        except self.client.failures as error:
            raise EnvironmentFault(f"{self.uri}/{name} cannot be {done}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Arrow:
    """Clients of `pyarrow.fs`: one for small files, which S3 then takes with one request, and one for the others.

    The first delays the opening of a stream. For a large file that would do harm: if its first request fails, closing the
    stream puts an empty file. Of S3, Arrow reads with two requests and removes with three, of which the last leaves an
    empty object named as the folder.
    """

    failures: ClassVar[type[Exception]] = OSError
    client: Any
    small: Any

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        client = self.small if len(data) <= ONE_REQUEST_BYTES else self.client
        with client.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, path: str) -> pa.Buffer:
        with self.client.open_input_file(path) as file:  # of an input stream Arrow would read 16 KB with each request
            return file.read_buffer()

    def delete(self, path: str) -> None:
        self.client.delete_file(path)

    def entries(self, path: str) -> list[tuple[str, bool]]:
        from pyarrow.fs import FileSelector

        return [(found.base_name, found.is_file) for found in self.client.get_file_info(FileSelector(path))]


@dataclass(frozen=True, slots=True)
class _Fsspec:
    """A client of `fsspec`, whose packages raise errors of many kinds."""

    failures: ClassVar[type[Exception]] = Exception
    client: Any

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        self.client.pipe_file(path, bytes(data))

    def read(self, path: str) -> bytes:
        return bytes(self.client.cat_file(path))

    def delete(self, path: str) -> None:
        self.client.rm_file(path)

    def entries(self, path: str) -> list[tuple[str, bool]]:
        self.client.invalidate_cache()
        found = self.client.ls(path, detail=True)
        return [(each["name"].rstrip("/").rpartition("/")[2], each["type"] == "file") for each in found]


def _checked(name: str) -> str:
    """A name, if it stays below the root and is no draft's."""
    if any(part[:1] in ("", ".") for part in name.split("/")):
        raise InternalError(f"'{name}' names no file below a root: one of its parts is empty or begins with a dot")
    return name


def _folder(_uri: str, path: str, _options: dict[str, Any]) -> Storage:
    if not path:
        raise QueryError("a state folder cannot be ''; give a path, or an address such as s3://bucket/folder")
    return _LocalDisk(str(Path(path).absolute()))


def _file(uri: str, rest: str, options: dict[str, Any]) -> Storage:
    path = re.sub("^//(localhost)?(?=/)", "", rest)
    if not re.match("/(?!/)", path):
        raise QueryError(f"state folder '{uri}': the address of a file is file:///path, with no other machine in it")
    return _folder(uri, unquote(path), options)


def _place(uri: str, rest: str) -> str:
    """The bucket, and the folder in it, that an address names."""
    place = rest.removeprefix("//").rstrip("/")
    bucket, *folders = place.split("/")
    if (
        not rest.startswith("//")
        or {"", ".", ".."} & {bucket, *folders}
        or set("@:") & set(bucket)
        or set("?#") & set(place)
    ):
        raise QueryError(
            f"state folder '{uri}': an address is scheme://bucket/folder; credentials and settings are given as options"
        )
    return place


def _arrow(name: str, uri: str, rest: str, options: dict[str, Any]) -> Storage:
    place = _place(uri, rest)
    try:
        build = getattr(importlib.import_module("pyarrow.fs"), name)
    except ImportError as error:
        raise EnvironmentFault(
            f"state folder '{uri}': this pyarrow has no {name}; pip install pyarrow has it"
        ) from error
    client = small = build(**options)
    if name == "S3FileSystem" and int(pa.__version__.partition(".")[0]) >= 21:  # the first that can delay
        small = build(**options, allow_delayed_open=True)
    return _ObjectStore(uri.rstrip("/"), place, _Arrow(client, small))


def _fsspec(protocol: str, package: str, uri: str, rest: str, options: dict[str, Any]) -> Storage:
    _place(uri, rest.replace("@", "-", 1) if package == "adlfs" else rest)  # Azure has container@account for a bucket
    try:
        client, root = importlib.import_module("fsspec.core").url_to_fs(f"{protocol}:{rest.rstrip('/')}", **options)
    except ImportError as error:
        raise EnvironmentFault(
            f"state folder '{uri}': the package '{package}' is missing; on each machine: pip install {package}"
        ) from error
    return _ObjectStore(uri.rstrip("/"), root, _Fsspec(client))


_NETWORK = ("scheme", "endpoint_override", "anonymous")
_S3_SECRETS = ("access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id")
_AZURE_SECRETS = ("account_key", "connection_string", "sas_token", "tenant_id", "client_id", "client_secret")
_S3 = (
    functools.partial(_arrow, "S3FileSystem"),
    (*_S3_SECRETS, "region", "proxy_options", "tls_ca_file_path", *_NETWORK),
)
_GCS = (functools.partial(_arrow, "GcsFileSystem"), ("target_service_account", "project_id", *_NETWORK))
_AZURE = (functools.partial(_fsspec, "abfs", "adlfs"), ("account_name", *_AZURE_SECRETS))
_STORES: dict[str, tuple[Callable[[str, str, dict[str, Any]], Storage], tuple[str, ...]]] = {
    "": (_folder, ()),
    "file": (_file, ()),
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "az": _AZURE,
    "memory": (functools.partial(_fsspec, "memory", "fsspec"), ()),
}
"""By the scheme of an address: how its storage is opened, and with which options."""
