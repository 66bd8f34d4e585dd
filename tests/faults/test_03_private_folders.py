"""What tidegate keeps in the temporary folder of a machine: for this user alone, and not for longer than needed."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.demo import demo_folder
from tidegate.errors import EnvironmentFault
from tidegate.runtime.spark.session import JavaFolder
from tidegate.state import cache as cache_module
from tidegate.state.cache import ChunkCache, cache_of
from tidegate.state.own_folder import hold, own_folder, sweep
from tidegate.telemetry.ledger import Ledger


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of our own, and files that everybody may write unless a mode is asked for."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cache_module, "_HELD", {})
    before = os.umask(0)
    yield tmp_path / f"tidegate-{os.getuid()}"
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_private(elsewhere: Path) -> None:
    ChunkCache(Path("run-1")).put("5", b"bytes")
    java = JavaFolder(elsewhere / "spark-1", hold(elsewhere / "spark-1"))
    java.open_log().close()
    assert (mode(elsewhere), mode(elsewhere / "run-1"), mode(elsewhere / "run-1" / "5")) == (0o700, 0o700, 0o600)
    assert (mode(java.path), mode(java.log)) == (0o700, 0o600)


def test_a_folder_of_another_user_is_refused(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getuid() + 1
    (elsewhere.parent / f"tidegate-{other}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(
        EnvironmentFault, match=rf"belongs to user {other - 1}, .*or set TMPDIR to a folder of your own"
    ):
        own_folder()


@pytest.mark.parametrize("others", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(elsewhere: Path, others: int) -> None:
    elsewhere.mkdir()
    elsewhere.chmod(others)
    with pytest.raises(EnvironmentFault, match=r"may be written by others \(mode \d+\), .*; remove /"):
        own_folder()


def test_inputs_of_a_demo_are_not_taken_from_others(tmp_path: Path) -> None:
    planted = tmp_path / f"tidegate-demo-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(EnvironmentFault, match=f"{planted} may be written by others"):
        demo_folder("usage")


def test_a_folder_that_others_may_read_is_closed_to_them(elsewhere: Path) -> None:
    elsewhere.mkdir(mode=0o755)
    assert mode(own_folder()) == 0o700


@pytest.mark.parametrize("kind", ["link to a folder", "link to nothing", "file"])
def test_what_is_no_folder_is_refused(elsewhere: Path, tmp_path: Path, kind: str) -> None:
    if kind == "file":
        elsewhere.write_text("in the way")
    else:
        (tmp_path / "target").mkdir()
        elsewhere.symlink_to(tmp_path / ("target" if kind == "link to a folder" else "nowhere"))
    with pytest.raises(EnvironmentFault, match="is not a folder"):
        own_folder()


def test_links_in_the_place_of_files_are_not_followed(elsewhere: Path, tmp_path: Path) -> None:
    """They are planted by hand here; in a folder that passed the checks nobody else can."""
    precious = tmp_path / "precious"
    precious.write_text("do not lose me")
    java = JavaFolder(own_folder() / "spark-1", hold(own_folder() / "spark-1"))
    java.log.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        java.open_log()
    java.empty_log()
    cache = ChunkCache(Path("run-1"))
    cache.put("1", b"1")
    (elsewhere / "run-1" / "2").symlink_to(precious)
    (elsewhere / "run-1" / f".2.{os.getpid()}").symlink_to(precious)
    assert cache.get("2") is None
    cache.put("2", b"two")
    assert precious.read_text() == "do not lose me"


def test_a_cache_is_swept_although_every_task_makes_its_own(elsewhere: Path) -> None:
    shipped = pickle.dumps(ChunkCache(Path("run-1"), limit_bytes=1_000))
    for number in range(100):
        pickle.loads(shipped).put(str(number), b"x" * 100)
    files = list((elsewhere / "run-1").iterdir())
    assert 5 <= len(files) <= 11
    assert (elsewhere / "run-1" / "99").exists(), "the oldest go first"


def test_a_worker_that_begins_sweeps_what_others_left(elsewhere: Path) -> None:
    ChunkCache(Path("run-1"), limit_bytes=10**9).put("1", b"x" * 5_000)
    cache_module._HELD.clear()  # as in another process
    ChunkCache(Path("run-1"), limit_bytes=1_000).put("2", b"x")
    assert [path.name for path in (elsewhere / "run-1").iterdir()] == ["2"]


def test_a_process_that_was_killed_leaves_nothing_for_long(elsewhere: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tidegate.state.cache import ChunkCache\n"
        "ChunkCache(Path(sys.argv[1])).put('1', b'x')\n"
        "print('there', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code]
    env = os.environ | {"TMPDIR": str(elsewhere.parent)}
    with (
        subprocess.Popen([*command, "dead-1"], env=env, stdout=subprocess.PIPE) as dead,
        subprocess.Popen([*command, "alive-1"], env=env, stdout=subprocess.PIPE) as alive,
    ):
        try:
            assert dead.stdout is not None
            assert alive.stdout is not None
            assert (dead.stdout.readline(), alive.stdout.readline()) == (b"there\n", b"there\n")
            dead.send_signal(signal.SIGKILL)
            dead.wait()
            sweep(own_folder())
            assert [path.name for path in elsewhere.iterdir()] == ["alive-1"]
        finally:
            dead.kill()
            alive.kill()


def test_a_cache_whose_folder_went_is_made_again(elsewhere: Path) -> None:
    cache_of("mine", 1).put("1", b"x")
    (folder,) = elsewhere.iterdir()
    shutil.rmtree(folder)
    cache_of("mine", 1).put("2", b"x")
    assert cache_of("mine", 1).get("2") == b"x"


def test_files_of_an_earlier_version_are_swept(elsewhere: Path) -> None:
    (own_folder() / "spark-1.log").write_text("left by a process that was killed")
    sweep(own_folder())
    assert not list(elsewhere.iterdir())


def test_a_ledger_is_private_and_so_is_what_sqlite_puts_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path):
        beside = sorted(each.name for each in tmp_path.glob("ledger.sqlite*"))
        assert beside == ["ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal"]
        assert [mode(tmp_path / name) for name in beside] == [0o600] * 3
    path.chmod(0o640)
    with Ledger.open(path):
        assert mode(path) == 0o640, "a mode that somebody chose is kept"


def test_a_full_disk_leaves_no_draft(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ChunkCache(Path("run-1"))
    cache.put("1", b"x")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    cache.put("2", b"y")
    assert [path.name for path in (elsewhere / "run-1").iterdir()] == ["1"]
    shutil.rmtree(elsewhere)
