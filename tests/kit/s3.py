"""An S3 server on this machine: moto's, in a process of its own."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def s3_options(port: int) -> dict[str, str]:
    return {
        "access_key": "user",
        "secret_key": "secret",
        "region": "us-east-1",
        "scheme": "http",
        "endpoint_override": f"127.0.0.1:{port}",
    }


def asked(port: int, method: str, path: str) -> str:
    """What an S3 server answers to a request of our own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@contextmanager
def s3_server(log: Path) -> Iterator[int]:
    """The port of a server with the bucket 'bucket'."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with log.open("wb") as written:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                asked(port, "PUT", "/bucket")
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()
