"""Serves the page: one document, and the figures it asks for, read-only and behind a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from tidegate.errors import TidegateError
from tidegate.page.view import look, would_have
from tidegate.telemetry.explain import explain
from tidegate.telemetry.loopback import LOOPBACK, LoopbackServer
from tidegate.telemetry.schema import open_to_read

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

JSON, TEXT, HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"


class PageServer(LoopbackServer):
    """The page about a ledger, at ``url`` until it is closed; of one run, or of the one that a reader chooses.

    Nothing is kept here: each answer is read from the ledger, so a page that no one looks at costs nothing.
    """

    def __init__(self, ledger: str | Path, port: int, run: int | None = None) -> None:
        # A file that is no ledger is refused now, not in the browser.
        open_to_read(ledger).close()
        self._ledger, self._run = ledger, run
        self._token = secrets.token_urlsafe(24)
        self._document, self._policy = _document()
        super().__init__("page", port, self._answer)
        self.url = f"http://{LOOPBACK}:{self.server_port}/?token={self._token}"
        print(f"tidegate page: {self.url}", file=sys.stderr)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        path, method = environ.get("PATH_INFO", "/"), environ["REQUEST_METHOD"]
        status, kind, body = "200 OK", JSON, b""
        answers: dict[str, Callable[[dict[str, str]], Any]] = {
            "/data": self._look,
            "/explain": lambda asked: explain(self._ledger, _number(asked, "decision") or 0),
            "/replay": lambda asked: would_have(self._ledger, self._of(asked), asked.get("controller", "")),
        }
        if not hmac.compare_digest(asked.get("token", "").encode(), self._token.encode()):
            status, kind, body = "403 Forbidden", TEXT, b"This page needs the token of the address that was printed.\n"
        elif method != "GET":
            status, kind, body = "405 Method Not Allowed", TEXT, b"This page is for reading.\n"
        elif path == "/":
            kind, body = HTML, self._document
        elif path in answers:
            try:
                body = json.dumps(answers[path](asked)).encode()
            except (TidegateError, sqlite3.Error) as error:
                status, body = "400 Bad Request", json.dumps({"error": str(error)}).encode()
        else:
            status, kind, body = "404 Not Found", TEXT, b"There is nothing here.\n"
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self._policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        start_response(status, list(headers.items()))
        return [body]

    def _look(self, asked: dict[str, str]) -> dict[str, Any]:
        since = {
            str(name): _number(asked, name) or 0
            for name in ("observation", "shards", "flow", "notice")
            if name in asked
        }
        return look(self._ledger, self._of(asked), since)

    def _of(self, asked: dict[str, str]) -> int | None:
        return self._run if self._run is not None else _number(asked, "run")


def _number(asked: dict[str, str], name: str) -> int | None:
    text = asked.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _document() -> tuple[bytes, str]:
    """The whole page in one document, and a policy under which the browser runs and fetches nothing else."""
    folder = files("tidegate.page")
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    page = (folder / "page.html").read_text(encoding="utf-8")
    page = page.replace("/* page.css */", style).replace("/* page.js */", script)
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    own = f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    return page.encode(), f"default-src 'none'; img-src data:; connect-src 'self'; {own}"
