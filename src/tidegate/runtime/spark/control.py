"""Control in band: messages of a small file stream that travel with the data.

There are two: the end of the input, by which every window expires, and the number of instances of each cell. They reach
every cell of every stateful step, in the batch that reads them. Spark's offset log makes them replay-safe.

What a file holds that is no message is left out and reported. It must not stop the query: the file is in the offsets of the
batch that read it, so it would stop every restart as well.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.operators.cells import MOST_INSTANCES

END = "end"
PULSE = "tidegate_control"
_INSTANCES = "instances"
_KNOWN = _INSTANCES + " [1-9][0-9]{0,3} [0-9]{1,19}"
ADVICE = "write to a control stream with tg.set_instances and tg.end_input, of the version that runs the query"
LOG = logging.getLogger("tidegate.spark")


@dataclass(frozen=True, slots=True, order=True)
class SetInstances:
    """The message that sets the number of instances of cells; of two in one batch the one sent later counts."""

    sent_ns: int
    number: int

    def __str__(self) -> str:
        return f"{_INSTANCES} {self.number} {self.sent_ns}"

    @classmethod
    def parse(cls, message: str) -> SetInstances | None:
        """Parses a text; None if it is no such message."""
        if not re.fullmatch(_KNOWN, message):
            return None
        _, number, sent_ns = message.split()
        return cls(int(sent_ns), int(number)) if int(number) <= MOST_INSTANCES else None


def for_cells(messages: Iterable[str]) -> SetInstances | None:
    """The last message to cells in a batch, if any. What is no message is left out and logged."""
    known = []
    for message in messages:
        wanted = SetInstances.parse(message)
        if wanted is not None:
            known.append(wanted)
        elif message != END:
            LOG.warning("%s: left out; %s", message, ADVICE)
    return max(known, default=None)


def control_rows(spark: SparkSession, folder: str, build: str) -> DataFrame:
    """The messages of a control stream, and remarks on what is in the place of some, as texts.

    Spark prunes a branch that brings nothing in a batch; one that is observed stays, so what reads it runs in every batch.
    A Spark query may hold several queries of ours; what is observed of each has a name of its own, by its ``build``.
    """
    rows = spark.readStream.schema("message string").json(folder)
    rows = rows.select("message", F.col("_metadata.file_path").alias("file"))
    unknown = F.concat(F.lit("control file "), F.col("file"), F.lit(" holds something that is no message"))
    told = rows.select(F.when(_is_known(), F.col("message")).otherwise(unknown).alias("text"))
    return told.observe(f"{PULSE}_{build}", F.count(F.lit(1)).alias("messages"))


def unknown_files(folder: Path, seen: set[Path]) -> list[str]:
    """Notes on files of a control stream that hold something else than messages; those ``seen`` are left out."""
    new = sorted(set(folder.glob("[!._]*")) - seen)
    seen.update(new)
    return [
        f"control file {path} holds something that is no message of tidegate, and was left out; {ADVICE}"
        for path in new
        if not _holds_messages(path)
    ]


def send_instances(folder: Path, number: int) -> None:
    """Asks every cell for a number of instances."""
    send(folder, str(SetInstances(time.time_ns(), number)))


def send(folder: Path, message: str) -> None:
    """Puts a control row into the stream, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_text(json.dumps({"message": message}) + "\n")
    draft.rename(folder / f"{uuid.uuid4().hex}.json")


def _is_known() -> Column:
    message = F.coalesce(F.col("message"), F.lit(""))
    return (message == END) | message.rlike(f"^{_KNOWN}$")


def _holds_messages(path: Path) -> bool:
    try:
        messages = [
            json.loads(line)["message"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return all(isinstance(each, str) and (each == END or SetInstances.parse(each)) for each in messages)
