"""The process of a Python worker, made fit for batches at the beginning of every task."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from tidegate.operators.cells import keep_memory

OPEN_FILES = Path("/proc/self/fd")


def prepare_worker() -> None:
    """Lets the process keep its memory, and not wait for acknowledgements."""
    keep_memory()
    send_at_once()


def send_at_once() -> None:
    """Sets the connections of this process to others on its machine to send and acknowledge at once.

    Spark and its Python workers talk by TCP. Either side holds a small message back until the one before is acknowledged,
    and Linux delays that by 40 ms in the hope of something to send along: so much of every task was spent waiting. Both are
    put right from this side. Acknowledging at once does not last, so it is asked for in every task.
    """
    quick_ack: int | None = getattr(socket, "TCP_QUICKACK", None)
    if quick_ack is None or not OPEN_FILES.is_dir():
        return
    for descriptor in [int(entry.name) for entry in OPEN_FILES.iterdir()]:
        with suppress(OSError):  # such as of the list itself, which is closed by now
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if _is_to_this_machine(connection):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        connection.setsockopt(socket.IPPROTO_TCP, quick_ack, 1)


def _is_to_this_machine(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    return ip_address(connection.getpeername()[0].removeprefix("::ffff:")).is_loopback
