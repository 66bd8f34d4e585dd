"""Rows as bytes, for pipes and files: plain values by marshal, which takes a quarter of the time, others by pickle."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Iterator
from typing import IO, Any

_PLAIN, _ANY = b"m", b"p"
_MARSHAL_VERSION = 4  # every later Python reads it
_LENGTH_BYTES = 8


def encode(value: Any) -> bytes:
    """A value as bytes.

    >>> decode(encode([(1, "a", None)])), decode(encode(frozenset({Ellipsis, 2j}))) == {Ellipsis, 2j}
    ([(1, 'a', None)], True)
    """
    try:
        return _PLAIN + marshal.dumps(value, _MARSHAL_VERSION)
    except ValueError:  # something that is no plain value
        return _ANY + pickle.dumps(value, 5)


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` gave."""
    body = memoryview(data)[1:]
    return marshal.loads(body) if data[:1] == _PLAIN else pickle.loads(body)


def append(value: Any, file: IO[bytes]) -> None:
    """Write a value behind those that a file has."""
    data = encode(value)
    file.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    file.write(data)


def values_in(file: IO[bytes]) -> Iterator[Any]:
    """The values that were appended to a file."""
    while length := file.read(_LENGTH_BYTES):
        yield decode(file.read(int.from_bytes(length, "little")))
