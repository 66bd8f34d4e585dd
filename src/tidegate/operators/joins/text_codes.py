"""Texts as numbers that are equal where the texts are, so that compiled loops can compare them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy, valid_mask
from tidegate.query.schema import contiguous

Array = np.ndarray[Any, Any]

LEAST = 65_536
"""So many texts are kept before anybody looks which of them are still in use."""


class TextCodes:
    """The codes of the texts in a join's state; may be called from any thread.

    A text that no held tuple has any more is forgotten, and gets a new code if it comes again. Between a call of `encode`
    and the moment the codes can be found among those held, nothing may be forgotten: encode under `in_use`.
    """

    def __init__(self, constants: Iterable[str | bytes] = ()) -> None:
        self._codes: dict[str | bytes, int] = {}
        self._next = 0
        self._users = 0
        self._limit = LEAST
        self._lock = threading.Lock()
        self._constants = {text: self._code(text) for text in constants}

    def constant(self, text: str | bytes) -> int:
        """The code of a text that the predicate compares with; it never changes."""
        return self._constants[text]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While it lasts no code is forgotten."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def encode(self, column: pa.Array) -> Array:
        """The code of each text; −1 where it is null."""
        encoded = contiguous(column).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        with self._lock:
            codes = np.array([self._code(text) for text in texts], np.int64)
        if len(codes) == 0:
            return np.full(len(column), -1, np.int64)
        return np.where(valid_mask(encoded.indices), codes[as_numpy(encoded.indices)], -1)

    def forget_unused(self, held: Callable[[], Iterable[Array]]) -> None:
        """If there are many texts, drop those whose codes are not held."""
        if len(self._codes) <= self._limit:
            return
        with self._lock:
            if self._users:
                return
            used = {*np.unique(np.concatenate([np.empty(0, np.int64), *held()])).tolist(), *self._constants.values()}
            self._codes = {text: code for text, code in self._codes.items() if code in used}
            self._limit = max(LEAST, 2 * len(self._codes))

    def _code(self, text: str | bytes) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = self._next
            self._next += 1
        return code
