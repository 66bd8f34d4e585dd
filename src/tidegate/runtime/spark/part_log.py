"""The log of the parts that workers wrote to a folder of results: which of them count.

It is the log that Spark's own file sink keeps, in its format, so Spark reads the folder as it reads any other that a
streaming query has written: a file for each batch, every tenth of which repeats all before it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidegate.results import SPARK_LOG, Part

VERSION = "v1"
COMPACT_EVERY = 10
COMPACT = ".compact"
KEPT_SECONDS = 600
"""How long Spark keeps files whose entries a later one repeats, for those who are reading them."""
BLOCK_BYTES = 32 * 1024**2


def is_logged(folder: Path, batch: int) -> bool:
    """Whether a batch was committed to a folder, by this log or that of Spark's own sink."""
    return any((folder / SPARK_LOG / f"{batch}{suffix}").exists() for suffix in ("", COMPACT))


@dataclass(frozen=True, slots=True)
class PartLog:
    """The parts of a folder that were committed, batch by batch."""

    folder: Path

    def begin(self) -> None:
        """Starts a log, if there is none: from now on parts that it does not list are those of attempts that failed."""
        (self.folder / SPARK_LOG).mkdir(parents=True, exist_ok=True)

    def add(self, batch: int, parts: Iterable[Part]) -> None:
        """Commits the parts of a batch. One that was committed before stays as it was: it is being run again."""
        log = self.folder / SPARK_LOG
        if is_logged(self.folder, batch):
            return
        entries, name = [self._entry(part) for part in parts], str(batch)
        if (batch + 1) % COMPACT_EVERY == 0:
            entries, name = [*self._entries(batch), *entries], f"{batch}{COMPACT}"
        draft = log / f".{name}.tmp"
        draft.write_text("\n".join([VERSION, *entries]), encoding="utf-8")
        draft.rename(log / name)
        if name.endswith(COMPACT):
            self._clean(batch - COMPACT_EVERY)

    def _entry(self, part: Part) -> str:
        """A part as Spark describes it."""
        path = self.folder / part.name
        return json.dumps(
            {
                "path": path.absolute().as_uri(),
                "size": part.bytes,
                "isDir": False,
                "modificationTime": int(1000 * path.stat().st_mtime),
                "blockReplication": 1,
                "blockSize": BLOCK_BYTES,
                "action": "add",
            },
            separators=(",", ":"),
        )

    def _entries(self, before: int) -> list[str]:
        """The entries of all batches before one."""
        log = self.folder / SPARK_LOG
        repeated = before - COMPACT_EVERY
        names = [f"{repeated}{COMPACT}"] if repeated >= 0 else []
        names += [str(batch) for batch in range(max(repeated + 1, 0), before)]
        texts = [(log / name).read_text(encoding="utf-8") for name in names]
        return [line for text in texts for line in text.splitlines()[1:]]

    def _clean(self, repeated: int) -> None:
        """Removes files of batches before one that repeats them, if nobody can be reading them any more."""
        for file in (self.folder / SPARK_LOG).iterdir():
            number = file.name.removesuffix(COMPACT)
            if number.isdigit() and int(number) < repeated and time.time() - file.stat().st_mtime > KEPT_SECONDS:
                file.unlink(missing_ok=True)
