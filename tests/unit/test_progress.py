"""How progress is shown."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

from tidegate.progress import Progress, ProgressLine

PROGRESS = Progress(
    batch=7,
    rows=1_000,
    rows_total=12_000,
    rows_per_second=2_500.0,
    watermark=datetime(2024, 1, 1, 9, 30, tzinfo=UTC),
    lag_seconds=90.0,
    state_rows=4_321,
    state_bytes=3_250_000,
    late_total=2,
    results_total=55,
    ended=False,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line() -> None:
    assert str(PROGRESS) == (
        "batch 7 · 12,000 rows (2,500/s) · 55 results · 2 late · up to 2024-01-01 09:30:00 +90 s · "
        "state 4,321 rows, 3.2 MB"
    )
    assert "input ended" in str(replace(PROGRESS, ended=True))
    assert "up to" not in str(replace(PROGRESS, watermark=None, lag_seconds=None))


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    out = Terminal()
    line = ProgressLine(out)
    line(PROGRESS)
    line(replace(PROGRESS, batch=8))
    line.say("by the way")
    line.close()
    # Each update erases the line, and so does the remark, below which the line is written again.
    assert out.getvalue().count("\n") == 2
    assert out.getvalue().count("\r\x1b[2K") == 3
    assert "by the way\n" in out.getvalue()


def test_a_file_gets_a_line_now_and_then_and_the_last_one() -> None:
    out, now = io.StringIO(), [0.0]
    line = ProgressLine(out, clock=lambda: now[0])
    for batch in range(10):
        now[0] = batch * 1.1
        line(replace(PROGRESS, batch=batch))
    line.close()
    assert [text.split(" · ")[0] for text in out.getvalue().splitlines()] == ["batch 0", "batch 5", "batch 9"]
