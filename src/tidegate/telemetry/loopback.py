"""A small HTTP server on the loopback address, inside the process of a query, that no client can hold up."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tidegate.errors import EnvironmentFault

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

LOOPBACK = "127.0.0.1"
CLIENTS = 8
"""So many are served at a time: a scraper or a browser, a spare, and people who inspect."""
WAITING_CLIENTS = 8 * CLIENTS
PATIENCE_SECONDS = 10.0
"""How long a client has to ask and to take the answer; scrapers wait as long."""
POLL_SECONDS = 0.1


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing: the query's own output is on this screen."""


class LoopbackServer(WSGIServer):
    """Serves an application on the loopback address until it is closed; port 0 takes a free one.

    ``what`` names it in errors and threads. A client is dropped ``patience_seconds`` after it has connected. So clients
    that send nothing, or read nothing, hold no more than `CLIENTS` threads, and none of them for long.
    """

    request_queue_size = WAITING_CLIENTS

    def __init__(
        self, what: str, port: int, application: WSGIApplication, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        try:
            super().__init__((LOOPBACK, port), _SilentHandler)
        except (OSError, OverflowError) as error:
            raise EnvironmentFault(
                f"{what}: port {port} of {LOOPBACK} cannot be served: {error}; choose another, or 0 for a free one"
            ) from error
        self.set_app(application)
        self.connected: dict[socket.socket, float] = {}
        self._patience_seconds = patience_seconds
        self._pool = ThreadPoolExecutor(CLIENTS, f"tidegate-{what}-client")
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), daemon=True, name=f"tidegate-{what}"
        )
        self._thread.start()

    def close(self) -> None:
        """Hang up and stop serving."""
        self.shutdown()
        self._thread.join()
        self._hang_up(float("inf"))
        self._pool.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self.connected) < WAITING_CLIENTS

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connected[request] = time.monotonic()
        self._pool.submit(self._serve, request, client_address)

    def service_actions(self) -> None:
        self._hang_up(time.monotonic() - self._patience_seconds)

    def _serve(self, request: Any, client_address: Any) -> None:
        # A client that is gone, or was too slow, is no error of the query, whose output is on this screen.
        with suppress(OSError):
            self.finish_request(request, client_address)
        del self.connected[request]
        self.shutdown_request(request)

    def _hang_up(self, connected_before: float) -> None:
        for connection, since in tuple(self.connected.items()):
            if since <= connected_before:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
