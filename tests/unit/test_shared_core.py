"""Threads of a job come together on one core while segments are small."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest

from tidegate.runtime.local.shared_core import ENOUGH, LARGE_SECONDS, RETRY_SECONDS, SharedCore

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="there is no choice of cores here"
)

SMALL = LARGE_SECONDS / 2


def on_a_thread(function: Callable[[], None]) -> None:
    """Run on a thread of its own, so that the tests' thread stays where it is."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def here() -> set[int]:
    return os.sched_getaffinity(0)


def test_small_segments_bring_threads_together_and_large_ones_let_them_go() -> None:
    everywhere, core = here(), SharedCore.of_caller()

    def follow() -> None:
        for _ in range(ENOUGH - 1):
            core.seen(SMALL)
        assert here() == everywhere
        core.seen(SMALL)
        assert len(here()) == 1
        core.seen(LARGE_SECONDS)
        assert len(here()) == 1, "one large segment is no reason to leave"
        for _ in range(3):
            core.seen(LARGE_SECONDS)
        assert here() == everywhere

    on_a_thread(follow)


def test_large_segments_alone_bring_nobody_together() -> None:
    now = 0.0
    core = SharedCore(frozenset(here()), clock=lambda: now)
    for _ in range(10):
        now += 100 * RETRY_SECONDS
        core.seen(LARGE_SECONDS)
    assert not core.together


def test_threads_that_parted_try_again_after_twice_as_long_each_time() -> None:
    now = 0.0
    core = SharedCore(frozenset(here()), clock=lambda: now)

    def part() -> None:
        for _ in range(4):
            core.seen(LARGE_SECONDS)
        assert not core.together

    def follow() -> None:
        nonlocal now
        for _ in range(ENOUGH):
            core.seen(SMALL)
        part()
        for times in (1, 2, 4):
            for _ in range(2 * ENOUGH):
                core.seen(SMALL)
            assert not core.together, "segments may be small because the threads are apart"
            now += times * RETRY_SECONDS
            core.seen(LARGE_SECONDS)
            assert core.together, "segments may be large because the threads are apart"
            part()
        now += 8 * RETRY_SECONDS
        core.seen(SMALL)
        now += 8 * RETRY_SECONDS
        part()
        now += RETRY_SECONDS
        core.seen(SMALL)
        assert core.together, "they had stayed together for long, so it is worth a try soon"

    on_a_thread(follow)


def test_a_thread_started_by_one_that_was_moved_goes_where_it_belongs() -> None:
    everywhere, core = here(), SharedCore.of_caller()

    def follow() -> None:
        for _ in range(ENOUGH):
            core.seen(SMALL)
        core.together = False  # another instance has let them go
        found: list[set[int]] = []

        def newcomer() -> None:
            found.append(here())
            core.move()
            found.append(here())

        on_a_thread(newcomer)
        assert [len(found[0]), found[1]] == [1, everywhere]

    on_a_thread(follow)


def test_without_a_choice_of_cores_nothing_is_moved() -> None:
    everywhere, core = here(), SharedCore()

    def follow() -> None:
        for _ in range(2 * ENOUGH):
            core.seen(SMALL)
        assert here() == everywhere

    on_a_thread(follow)
