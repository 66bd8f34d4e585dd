"""The line on which each key of a TOML text stands, which `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib

Key = tuple[str, ...]

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_DOTTED})\s*=")
# What may stand in a value: strings of four kinds, brackets, comments; the long strings may reach over lines.
_TOKEN = re.compile(
    r""""{3}(?:[^\\]|\\.)*?"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}]|\n""", re.DOTALL
)


def key_lines(text: str) -> dict[Key, int]:
    """For each table and each key outside inline tables, as a path from the top, its line, counted from 1.

    The text must be valid TOML. Tables of an array share one path, and the last of them counts.

    >>> key_lines("[speed]\\nleast = 1\\nmost = 4")
    {('speed',): 1, ('speed', 'least'): 2, ('speed', 'most'): 3}
    """
    found: dict[Key, int] = {}
    table: Key = ()
    position, number = 0, 1
    while position < len(text):
        end = text.find("\n", position)
        line = text[position : len(text) if end < 0 else end]
        header, setting = _HEADER.match(line), _SETTING.match(line)
        after = position + len(line) + 1
        if header:
            table = _parts(header[1])
            _note(found, table, number)
        elif setting:
            _note(found, (*table, *_parts(setting[1])), number)
            after = _end_of_value(text, position + setting.end())
        number += text.count("\n", position, after)
        position = after
    return found


def line_of(lines: dict[Key, int], key: Key) -> int:
    """The line of a key, or of the table nearest around it; 1 for what is not written at all."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key, 1)


def _note(found: dict[Key, int], key: Key, number: int) -> None:
    """Note the line of a key, and of the tables around it that have none of their own so far."""
    for length in range(1, len(key)):
        found.setdefault(key[:length], number)
    found[key] = number


def _parts(dotted: str) -> Key:
    """The parts of a dotted key, unquoted."""
    value = tomllib.loads(f"{dotted} = 0")
    parts: list[str] = []
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)


def _end_of_value(text: str, start: int) -> int:
    """Where the line after a value begins: the first newline that is in no string and no bracket."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            return token.end()
    return len(text)
