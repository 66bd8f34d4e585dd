"""A worker sends and acknowledges at once to processes of its own machine, and leaves every other connection as it was."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tidegate.runtime.spark.worker_process import OPEN_FILES, send_at_once

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="delayed acknowledgements are put right on Linux")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        near = stack.enter_context(socket.create_connection(listening.getsockname()))
        stack.enter_context(listening.accept()[0])
        yield near


def test_a_connection_to_this_machine_sends_and_acknowledges_at_once(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    send_at_once()
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_what_is_no_such_connection_is_passed_over(connection: socket.socket) -> None:
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket() as unconnected:
        send_at_once()
        assert not unconnected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        one.sendall(b"still there")
        assert other.recv(20) == b"still there"
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_no_file_stays_open(connection: socket.socket) -> None:
    before = len(list(OPEN_FILES.iterdir()))
    send_at_once()
    assert len(list(OPEN_FILES.iterdir())) == before
