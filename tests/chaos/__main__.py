"""The command line of the chaos script."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.local_story import LocalStory
from tests.chaos.spark_story import SparkStory

STORIES = ("spark", "join", "apply")


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 if every row was right and nothing hung."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill, starve and disturb queries while they run, and compare every row. No fault strikes after the "
        "given time; what runs then is run to its end.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults strike (default: 10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: any")
    parser.add_argument("--only", choices=STORIES, action="append", help="one of the stories; may be given twice")
    chosen = parser.parse_args(words)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    say(f"seed {chosen.seed}")
    root = Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    deadline = began + 60 * chosen.minutes
    failures: list[str] = []
    faults: dict[str, int] = {}

    def play(name: str) -> None:
        folder = root / name
        folder.mkdir()
        chance = random.Random(f"{chosen.seed} {name}")
        story = SparkStory if name == "spark" else LocalStory
        try:
            faults[name] = story(folder, chance, deadline, say, name).play()
        except Exception as error:
            failures.append(name)
            say(f"{name}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=play, args=(name,), name=f"chaos {name}") for name in chosen.only or STORIES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = ", ".join(f"{count} in {name}" for name, count in faults.items())
    if failures:
        say(f"FAILED: {', '.join(failures)}; faults: {told}. What was there is in {root}")
        return 1
    shutil.rmtree(root)
    say(f"nothing lost, nothing doubled, no hang; faults: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
