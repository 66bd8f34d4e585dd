"""The log of a server that many try to log into (Gedik et al., Network monitoring): generated, or a real one of OpenSSH."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

HOSTS = 400
USERS = ("root", "admin", "test", "oracle", "git", "ann", "bob")
FIRST_SECOND = 1_704_096_000  # 2024-01-01 08:00 UTC
LOGS = "logs_loghub"
LINE = re.compile(r"(\w{3}) +(\d+) (\d\d:\d\d:\d\d) \S+ (.*)")
YEAR = 2015
"""Lines of a log do not say their year."""
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("line", pa.int64()), ("message", pa.string())])


def log_lines(rows: int, seed: int = 1) -> pa.Table:
    """So many lines of an hour, numbered: a few hosts try again and again, and nearly always fail."""
    random = np.random.default_rng(seed)
    host = (HOSTS * random.random(rows) ** 3).astype(np.int64).tolist()
    moments = FIRST_SECOND * 1_000_000 + np.sort(random.integers(0, 3_600_000_000, rows))
    accepted = (random.random(rows) < np.where(np.array(host) < HOSTS // 20, 0.01, 0.5)).tolist()
    users, port, other = (random.integers(0, most, rows).tolist() for most in (len(USERS), 60_000, 10))
    messages = []
    for number in range(rows):
        address = f"10.0.{host[number] // 256}.{host[number] % 256}"
        told = f"{USERS[users[number]]} from {address} port {port[number]} ssh2"
        if other[number] == 0:
            message = f"Connection closed by {address} [preauth]"
        elif accepted[number]:
            message = f"Accepted password for {told}"
        elif other[number] == 1:
            message = f"message repeated 3 times: [ Failed password for {told}]"
        else:
            message = f"Failed password for {'invalid user ' if other[number] == 2 else ''}{told}"
        messages.append(f"sshd[{24_000 + number}]: {message}")
    return pa.table([pa.array(moments, SCHEMA.types[0]), np.arange(rows), messages], schema=SCHEMA)


def real_log(folder: Path, rows: int) -> pa.Table:
    """The first lines of `folder/logs_loghub/*.log`, by file, with their times."""
    paths = sorted((folder / LOGS).glob("*.log"))
    if not paths:
        raise FileNotFoundError(f"--data {folder}: no file matches {LOGS}/*.log in it")
    lines = [line for path in paths for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    found = [found for found in map(LINE.match, lines) if found]
    moments = [
        datetime.strptime(f"{YEAR} {month} {day} {time} +0000", "%Y %b %d %H:%M:%S %z").astimezone(UTC)
        for month, day, time, _ in (each.groups() for each in found)
    ]
    read = pa.table([moments, np.arange(len(found)), [each[4] for each in found]], schema=SCHEMA)
    return read.sort_by([("ts", "ascending"), ("line", "ascending")]).slice(0, rows).combine_chunks()
