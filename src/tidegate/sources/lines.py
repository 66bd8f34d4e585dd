"""Text files as blocks of whole lines, and what is done to find the lines that spoil a block.

A parser turns many lines at once into columns. If it fails, the lines are halved until those that it fails
on stand alone: a good file costs one call per block, a bad line a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.sources import Malformed, Numbers, PlacedBatch, Rejects, RowPlace

BLOCK_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines of a file, each with its end; ``first`` is the number of the first one, from 1."""

    file: str
    first: int
    data: bytes


class NotARecord(Exception):
    """A parser was given lines of which at least one holds no record; for a single line it says why."""


Parser: TypeAlias = Callable[[bytes, int], pa.Table]
"""Makes columns of so many lines, none of them blank; raises `NotARecord` unless each of them is one record."""


def blocks_of(file: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The lines of a file in blocks of about a size; a byte-order mark and carriage returns are left out."""
    with Path(file).open("rb") as opened:
        yield from blocks_from(file, iter(lambda: opened.read(block_bytes), b""))


def blocks_from(file: str, chunks: Iterable[bytes]) -> Iterator[Block]:
    """The lines of what is read piece by piece, in blocks, each as soon as a line in it is complete."""
    first, held = 1, b""
    for chunk in chunks:
        held += chunk
        end = held.rfind(b"\n") + 1
        if end:
            block = Block(file, first, _plain(held[:end], first))
            yield block
            first, held = first + block.data.count(b"\n"), held[end:]
    if held:
        yield Block(file, first, _plain(held + b"\n", first))


def read_lines(
    blocks: Iterable[tuple[Block, Parser]], names: list[str], rows: int, rejects: Rejects
) -> Iterator[PlacedBatch]:
    """Some columns of the records of blocks, each block read by its parser, in batches of at most ``rows``."""
    for block, parse in blocks:
        tables, numbers = parse_block(block, parse, rejects.add)
        if tables:
            place = RowPlace(block.file, "line", block.first, numbers)
            for batch in pa.concat_tables(tables).select(names).combine_chunks().to_batches(max_chunksize=rows):
                yield PlacedBatch(batch, place)
                place = place.after(batch.num_rows)


def parse_block(
    block: Block, parse: Parser, reject: Callable[[Malformed], None]
) -> tuple[list[pa.Table], Numbers | None]:
    """The records of a block; with them the number of each one's line, None if all lines of the block are records."""
    count = block.data.count(b"\n")
    if not count:
        return [], None
    try:
        return [parse(block.data, count)], None
    except NotARecord:
        pass
    lines = [
        (number, line)
        for number, line in enumerate(block.data.split(b"\n")[:-1], block.first)
        if line and not line.isspace()
    ]
    tables: list[pa.Table] = []
    numbers: list[int] = []
    for part, table in _records(block.file, lines, parse, reject):
        tables.append(table)
        numbers.extend(number for number, _ in part)
    return tables, np.array(numbers, np.int64)


def _records(
    file: str, lines: Sequence[tuple[int, bytes]], parse: Parser, reject: Callable[[Malformed], None]
) -> Iterator[tuple[Sequence[tuple[int, bytes]], pa.Table]]:
    """The lines that are records, in their order, and what they hold."""
    if not lines:
        return
    try:
        yield lines, parse(b"".join(line + b"\n" for _, line in lines), len(lines))
    except NotARecord as error:
        if len(lines) == 1:
            number, line = lines[0]
            reject(Malformed(file, number, str(error), line.decode("utf-8", "backslashreplace")))
        else:
            middle = len(lines) // 2
            yield from _records(file, lines[:middle], parse, reject)
            yield from _records(file, lines[middle:], parse, reject)


def check_utf8(lines: bytes) -> None:
    """Refuse bytes that are no text."""
    try:
        lines.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotARecord(f"not UTF-8: {error.reason} at byte {error.start + 1}") from error


def check_rows(table: pa.Table, lines: int, time: str | None) -> pa.Table:
    """Refuse a table that does not have one row per line, or a row without event time."""
    if table.num_rows != lines:
        raise NotARecord(f"{table.num_rows} records on {lines} lines; a record is one line")
    if time is not None and table.column(time).null_count:
        raise NotARecord(f"no event time in '{time}'")
    return table


def _plain(lines: bytes, first: int) -> bytes:
    lines = lines.removeprefix(_MARK) if first == 1 else lines
    return lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
