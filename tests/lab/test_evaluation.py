"""The report runs entries, keeps what ended well, and says in the document what did not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks.options import APPLICATIONS
from benchmarks.registry import BENCHMARKS
from figures.__main__ import FIGURES
from figures.evaluation import __main__ as command
from figures.evaluation.catalogue import ENTRIES, WITHOUT_ENTRY
from figures.evaluation.document import MOST_BYTES, section, shrink, write_document
from figures.evaluation.entry import OUT, Comparison, Entry, Kind, Paper
from figures.evaluation.machine_watch import Business, MachineWatch
from figures.evaluation.reading import claims, count, times
from figures.evaluation.run import LOG, Record, kept, run_entry
from figures.report import Page, Table, read_tables, write_page

QUIET = Business(cores=2, load_before=0.1, load_after=0.2, others_share=0.02)
MACHINE = {"cores": 2, "cpu": "a CPU", "memory_gb": 4.0, "versions": {"python": "3.11"}}


def entry(
    name: str = "one",
    module: str = "tests.kit.report_program",
    words: Sequence[str] = (),
    compare: Callable[[Path], Sequence[Comparison]] = lambda folder: [
        Comparison("7", "rate", "5", json.loads((folder / "made.json").read_text())["rate"])
    ],
) -> Entry:
    return Entry(
        name,
        Paper.GEDIK,
        "figure 7",
        "a rate",
        Kind.MEASURED,
        (module, "--out", OUT, *words),
        compare,
        "It differs.",
        30.0,
    )


def record(of: Entry, **changes: object) -> Record:
    made = Record(of.command, "", 3.0, QUIET, "2026-01-01 00:00 UTC", "abc", "3.11")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_an_entry_is_run_and_kept(tmp_path: Path) -> None:
    made = run_entry(entry(), tmp_path / "one", 30.0)
    assert made.failure == ""
    assert kept(entry(), tmp_path / "one") == made
    assert kept(entry(words=["--rate", "6"]), tmp_path / "one") is None, "its command is another one now"
    assert section(entry(), tmp_path / "one").rows == [Comparison("7", "rate", "5", "4")]


def test_what_fails_says_how(tmp_path: Path) -> None:
    made = run_entry(entry(words=["--fail", "no rate was found"]), tmp_path / "one", 30.0)
    assert made.failure.startswith("exit code 1: ")
    assert "no rate was found" in made.failure


def test_what_is_too_slow_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    made = run_entry(entry(words=["--sleep", "60"]), tmp_path / "one", 3.0)
    assert made.failure == "not done in its 3 s"
    child = int((tmp_path / "one" / "child").read_text())
    until = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_report_ends_what_it_started(tmp_path: Path, sent: signal.Signals) -> None:
    words = ["--cache", str(tmp_path), "--to", str(tmp_path / "evaluation.md")]
    # A process that a shell started in the background, and what that starts, ignores interrupts.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from figures.evaluation import __main__ as command; from tests.lab.test_evaluation import entry; "
        f"command.ENTRIES = (entry(words=['--sleep', '60']),); sys.exit(command.main({words}))"
    )
    running = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (child := tmp_path / "one" / "child").exists() or not child.read_text():
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)
    running.send_signal(sent)
    _, told = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "goes on from here" in told
    assert not psutil.pid_exists(int(child.read_text())) or is_zombie(int(child.read_text()))
    assert kept(entry(words=["--sleep", "60"]), tmp_path / "one") is None


def is_zombie(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_interrupted_entry_leaves_no_record(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    run_entry(entry(), folder, 30.0)
    (folder / "record.json").write_text('{"words": ["half of it')
    assert kept(entry(), folder) is None


def test_others_are_told_from_ours() -> None:
    burns = "import time; end = time.process_time() + 1.2\nwhile time.process_time() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", burns], start_new_session=True)
    watch = MachineWatch(process.pid).start()
    process.wait()
    ended = watch.stop()
    share_of_one_core = 1 / (os.cpu_count() or 1)
    assert 0.0 <= ended.others_share <= 1.0
    # Alone on the machine it is all there is; the rest is what tests beside this one do.
    assert ended.others_share < 1 - 0.1 * share_of_one_core


@pytest.mark.parametrize(("share", "said"), [(0.02, "other processes took 2%"), (0.4, "**other work was running**")])
def test_other_work_is_said(share: float, said: str) -> None:
    assert str(replace(QUIET, others_share=share)).startswith(said)


def test_the_document_names_what_has_no_figures(tmp_path: Path) -> None:
    good, failed, never, unread = entry("good"), entry("failed"), entry("never"), entry("unread")
    busy = replace(QUIET, others_share=0.5)
    for each, made in (
        (good, record(good, business=busy)),
        (failed, record(failed, failure="exit code 1: no Java")),
        (unread, record(unread)),
    ):
        (tmp_path / each.name).mkdir()
        made.write(tmp_path / each.name)
    (tmp_path / "good" / "made.json").write_text('{"rate": "4"}')
    sections = [section(each, tmp_path / each.name) for each in (good, failed, never, unread)]
    write_document(sections, WITHOUT_ENTRY, tmp_path, tmp_path / "docs" / "evaluation.md", MACHINE)
    text = (tmp_path / "docs" / "evaluation.md").read_text()
    assert "| 7 | rate | 5 | 4 |" in text
    assert "*Where we differ:* It differs." in text
    assert "1 of 4 entries were run" in text
    assert "in 1 of the 1 that depend on it" in text
    assert "its run failed, exit code 1: no Java" in text
    assert "**No figures of ours:** not run" in text
    assert "could not be read: FileNotFoundError" in text
    assert "`python -m tests.kit.report_program --out OUT`" in text


def test_the_command_runs_what_is_missing_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ENTRIES", (entry("one"), entry("other", words=["--fail", "no"])))
    words = ["--cache", str(tmp_path / "cache"), "--to", str(tmp_path / "docs" / "evaluation.md")]
    assert command.main([*words, "--only", "one"]) == 0
    first = kept(entry("one"), tmp_path / "cache" / "one")
    log = (tmp_path / "cache" / "one" / LOG).stat().st_mtime_ns
    assert command.main(words) == 1, "the other one fails"
    assert kept(entry("one"), tmp_path / "cache" / "one") == first
    assert (tmp_path / "cache" / "one" / LOG).stat().st_mtime_ns == log
    assert command.main([*words, "--only", "nothing"]) == 2
    assert command.main([*words, "--only", "one", "--again"]) == 0
    assert (tmp_path / "cache" / "one" / LOG).stat().st_mtime_ns != log


def test_entries_name_commands_that_exist_and_fit_into_45_minutes() -> None:
    assert len({each.name for each in ENTRIES}) == len(ENTRIES)
    assert sum(each.limit_seconds for each in ENTRIES if not each.apart) <= 45 * 60
    for each in ENTRIES:
        module, name = each.command[:2]
        assert name in {"benchmarks": BENCHMARKS, "figures": FIGURES}[module]
        if name == "applications":
            assert set(each.command[3].split(",")) <= set(APPLICATIONS)
    with pytest.raises(ValueError, match="leaves its results in"):
        replace(ENTRIES[0], command=("figures", "gedik"))


def test_tables_of_pages_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [("step load", "“handles | all”", "99 %"), ("sine load", "follows", "98 %")]
    tables = [
        Table("Ours beside the paper's text, live", ("what", "the paper's text", "ours"), rows),
        Table("More", "ab", [(1, 2)]),
    ]
    page = write_page(Page("Title", "About.", (), tables, ("how | so",)), tmp_path / "page.md")
    assert read_tables(page) == {"Ours beside the paper's text, live": rows, "More": [("1", "2")]}
    assert claims(page, {"sine": "13"}) == [Comparison("13", "sine load", "follows", "98 %")]


def test_a_large_picture_is_made_small(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(1).integers(0, 255, (700, 1_400, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((1_400, 700)).save(tmp_path / "large.png")
    shrink(tmp_path / "large.png", tmp_path / "small.png", most_bytes=3 * MOST_BYTES)
    assert (tmp_path / "small.png").stat().st_size <= 3 * MOST_BYTES
    with Image.open(tmp_path / "small.png") as small:
        assert small.width < 1_400


def test_a_small_picture_keeps_the_colours_of_thin_lines(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    colours = [(31, 111, 139), (209, 73, 91), (46, 139, 87), (224, 142, 43)]
    drawn = np.tile(np.linspace(235, 255, 1_400).astype(np.uint8)[None, :, None], (700, 1, 3))
    for number, colour in enumerate(colours):
        drawn[100 * number + 50 : 100 * number + 54] = colour
    Image.fromarray(drawn).save(tmp_path / "large.png")
    shrink(tmp_path / "large.png", tmp_path / "small.png")
    with Image.open(tmp_path / "small.png") as small:
        there = np.asarray(small.convert("RGB"), dtype=int).reshape(-1, 3)
    for colour in colours:
        assert np.abs(there - colour).sum(axis=1).min() < 60


def test_numbers_are_short() -> None:
    assert [count(each) for each in (12_345.0, 4.56e9, 70.0)] == ["12.3 k", "4.56 G", "70"]
    assert [times(each) for each in (0.617, 45.7)] == ["0.62×", "46×"]
