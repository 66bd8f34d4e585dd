"""The page of a ledger as a picture, by Chromium without a window."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from tidegate.page.server import PageServer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = "1320,1480"
SETTLE_MS, LIMIT_SECONDS = 6_000, 60.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def page_picture(ledger: Path, to: Path) -> str:
    """Draw the page of a ledger into a PNG; returns why it could not be done, or nothing."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return "there is no Chromium on this machine"
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-browser-", ignore_cleanup_errors=True) as profile,
        closing(PageServer(ledger, 0)) as server,
    ):
        command = [
            *(browser, *FLAGS, f"--user-data-dir={profile}", f"--window-size={SIZE}"),
            *(f"--virtual-time-budget={SETTLE_MS}", f"--screenshot={to}", server.url),
        ]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"Chromium took more than {LIMIT_SECONDS:.0f} s"
    return "" if to.exists() else f"Chromium drew nothing: {told.stderr.strip()[-200:]}"
