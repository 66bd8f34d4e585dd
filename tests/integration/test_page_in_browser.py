"""The page in a real browser: it loads, follows a job to its end, opens decisions, and logs no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate as tg
from tests.kit.browser import MISSING, PACKAGES, Browser, chromium
from tests.kit.page_jobs import calls_query, swinging_ledger
from tidegate.page.server import PageServer

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"there is no {' and no '.join(MISSING)} here; on Debian, install {PACKAGES}"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def points(browser: Browser) -> int:
    """How many points the line of instances has."""
    path = str(browser.run("return document.querySelector('#instances .serie.a')?.getAttribute('d') ?? ''"))
    return path.count("M") + path.count("H")


def test_a_job_is_followed_to_its_end(browser: Browser) -> None:
    elastic = tg.Elastic("ds2", most=4, shadows=("thresholds",))
    job = tg.start(
        calls_query(9.0, 0.0005), to=lambda table: None, instances=1, segment_rows=20, elastic=elastic, page=0
    )
    assert job.page_url is not None
    browser.open(job.page_url)
    before = browser.wait(lambda: points(browser))
    assert browser.text("#state") == "running"
    browser.wait(lambda: points(browser) > before + 3)
    assert "/s" in browser.text("#graph .edge"), "a rate on the edge from the source"
    assert "thresholds, shadow" in browser.text("#instances .legend")
    browser.wait(lambda: "p99" in browser.text("#latency"))
    browser.wait(lambda: browser.run("return document.querySelectorAll('#instances .mark').length"))
    browser.click("tbody tr[data-decision]")
    told = browser.wait(lambda: browser.text("tr.told"))
    opened = browser.run("return document.querySelector('tr.open').dataset.decision")
    assert told.startswith(f"Decision {opened} of run 1")
    assert "Why:" in told
    browser.click("button[data-name=per_second]")
    browser.wait(lambda: browser.text("button.chosen") == "per_second")
    job.wait()
    browser.wait(lambda: "The page has ended with its run" in browser.text("#banner"))
    refused = [line for line in browser.console() if "ERR_CONNECTION_REFUSED" not in line]
    assert refused == [], "but for the page that has ended, nothing went wrong"


def test_a_ledger_is_shown_and_replayed(browser: Browser, tmp_path: Path) -> None:
    path = swinging_ledger(swinging_ledger(tmp_path / "run.ledger"), steps=3)
    with closing(PageServer(path, 0)) as server:
        browser.open(server.url)
        browser.wait(lambda: points(browser) == 3)
        assert browser.text("#state") == "ended"
        assert "2 became 1" in browser.text("#notices")
        over = (
            "document.querySelector('#instances .mark.up').dispatchEvent(new MouseEvent('mousemove', {bubbles: true}))"
        )
        browser.run(over)
        assert "1 → 2, swinging, acted" in browser.text("#tip"), "the reason is under the pointer"
        assert "busy 100%" in browser.text("#tip")
        assert browser.run("return document.querySelectorAll('#shards .heat').length") == 2
        browser.run(
            "arguments[0].split(' ').forEach(word => { const [id, value] = word.split('='); const place = "
            "document.getElementById(id); place.value = value; place.dispatchEvent(new Event('change')) })",
            "run=1 controller=thresholds",
        )
        browser.wait(lambda: points(browser) == 6)
        browser.wait(lambda: "of 6 steps" in browser.text("#replayed"))
        assert "thresholds, replayed" in browser.text("#instances .legend")
        assert browser.console() == []


def test_names_and_reasons_are_text_whatever_they_hold(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>'\"&"
    with closing(PageServer(swinging_ledger(tmp_path / "odd.ledger", name=name), 0)) as server:
        browser.open(server.url)
        browser.wait(lambda: points(browser) == 6)
        browser.click("tbody tr[data-decision]")
        assert f"subquery '{name}'" in browser.wait(lambda: browser.text("tr.told"))
        assert name in browser.text("#label")
        assert browser.run("return document.querySelectorAll('img').length") == 0
        assert browser.console() == []


def test_without_the_token_there_is_no_page(browser: Browser, tmp_path: Path) -> None:
    with closing(PageServer(swinging_ledger(tmp_path / "run.ledger"), 0)) as server:
        browser.open(server.url.partition("?")[0])
        assert "needs the token" in browser.text("body")
    browser.console()
