"""Standard input as JSON lines, read as they come."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.json_lines import json_parser
from tidegate.sources.lines import BLOCK_BYTES, blocks_from, read_lines

NAME = "<stdin>"
WAIT_SECONDS = 0.1
"""How long it may take until a run that is stopped no longer waits for input."""


@dataclass(slots=True, eq=False)
class StandardInput:
    """The origin of a stream that reads JSON lines from a ``descriptor`` to its end, once; ``schema`` is declared."""

    schema: pa.Schema
    descriptor: int = 0
    is_read: bool = False

    @property
    def name(self) -> str:
        return "stdin"

    def arriving(
        self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None, pause: Callable[[float], object]
    ) -> Iterator[PlacedBatch]:
        """The records of all lines, as soon as a line is complete; see `ArrivingOrigin`."""
        self.is_read = True
        parse = json_parser(self.schema, time)
        for block in blocks_from(NAME, self._chunks(pause)):
            if pause(0.0):  # the last line may be cut short
                return
            yield from read_lines([(block, parse)], schema.names, rows, rejects)

    def _chunks(self, pause: Callable[[float], object]) -> Iterator[bytes]:
        """What has come, until the end of input or until no more is wanted.

        Read by its descriptor: a thread that waits inside Python's own buffer would hold up the end of the process.
        """
        while not pause(0.0):
            if not self._is_ready(WAIT_SECONDS):
                continue
            parts, size = [], 0
            while True:
                part = os.read(self.descriptor, BLOCK_BYTES)
                parts.append(part)
                size += len(part)
                if not part or size >= BLOCK_BYTES or not self._is_ready(0.0):
                    break
            yield b"".join(parts)
            if not parts[-1]:
                return

    def _is_ready(self, seconds: float) -> bool:
        if sys.platform == "win32":  # where only sockets can be waited for
            return True
        return bool(select.select([self.descriptor], [], [], seconds)[0])
