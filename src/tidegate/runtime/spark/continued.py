"""A run on Spark that goes on where a run in process was stopped: what it begins with, in its checkpoint.

::

    continued/sources.json    whose run it goes on from, and how far each source was read by that
    continued/<n>.arrow       results of that run that were not out yet, of the nth result of the query

Its state is in the state folder, as that of the batch before the first one. All of it is there before the checkpoint says
what the run is, so one that is not complete is begun anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.results import has_log
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo
from tidegate.runtime.spark.part_log import is_logged
from tidegate.sources.files import Files
from tidegate.sources.positions import ReadPosition, position_from
from tidegate.state import chunks

SOURCES = "sources.json"


@dataclass(frozen=True, slots=True)
class Continued:
    """The run that is gone on from, how far it had read each source, by name, and results that were not out.

    Of a source the ``files`` of its position are left, of which one may have been begun, and ``done`` ones are not.
    """

    of: str
    positions: Mapping[str, ReadPosition] = field(default_factory=dict)
    held: tuple[tuple[int, pa.Table], ...] = ()

    @property
    def rows(self) -> int:
        """How many results were not out."""
        return sum(int(table.num_rows) for _, table in self.held)

    def write(self, checkpoint: Checkpoint) -> None:
        """Leave it in a checkpoint."""
        checkpoint.continued.mkdir(parents=True, exist_ok=True)
        for number, (output, table) in enumerate(self.held):
            (checkpoint.continued / f"{output}-{number}.arrow").write_bytes(chunks.encode(table).to_pybytes())
        positions = {name: asdict(position) for name, position in self.positions.items()}
        text = json.dumps({"of": self.of, "sources": positions})
        (checkpoint.continued / SOURCES).write_text(text, encoding="utf-8")

    @staticmethod
    def read(checkpoint: Checkpoint) -> Continued:
        """What a checkpoint begins with."""
        folder = checkpoint.continued
        try:
            found = json.loads((folder / SOURCES).read_text(encoding="utf-8"))
            parts = [(int(path.name.partition("-")[0]), path) for path in sorted(folder.glob("*.arrow"))]
            held = tuple((output, chunks.decode(path.read_bytes())) for output, path in parts)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise CheckpointError(
                f"{folder} does not say any more where the run began: {error}. Restore it, or start from a new checkpoint"
            ) from error
        return Continued(found["of"], {name: position_from(each) for name, each in found["sources"].items()}, held)


def unread(files: Files, position: ReadPosition) -> Files:
    """The files that are left to a run that goes on from a position: those that it knows of first, then new ones."""
    before = {*position.files, *position.done}
    known = [path for path in position.files if Path(path).is_file()]
    new = [path for path in files.paths if str(Path(path).absolute()) not in before]
    return replace(files, paths=(*known, *([] if position.ended else new)))


def new_query(checkpoint: Checkpoint) -> str:
    """Gives Spark's checkpoint, which is new, the identity of its query; returns it."""
    query = str(uuid.uuid4())
    checkpoint.spark.mkdir(parents=True, exist_ok=True)
    (checkpoint.spark / "metadata").write_text(json.dumps({"id": query}), encoding="utf-8")
    return query


def query_id(checkpoint: Checkpoint) -> str:
    """The identity of the query of a checkpoint."""
    try:
        return str(json.loads((checkpoint.spark / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{checkpoint.spark} does not say which query it is of: {error}; restore it") from error


def last_batch(checkpoint: Checkpoint, info: CheckpointInfo) -> int:
    """The newest batch whose results are out: one that Spark has committed, or that is in the log of the results.

    The log comes first, so a run that was killed between the two has results of a batch that Spark knows nothing of.
    """
    commits = [int(entry.name) for entry in (checkpoint.spark / "commits").glob("*") if entry.name.isdigit()]
    last = max(commits, default=-1)
    following = last + 1
    if info.results and (checkpoint.spark / "offsets" / str(following)).exists():
        folders = [Path(folder) for folder in info.results]
        if last >= 0 and (gone := [folder for folder in folders if not has_log(folder)]):
            raise CheckpointError(
                f"{checkpoint.folder} writes results to {gone[0]}, which is gone, so whether those of batch {following} are "
                "out is not known; restore it"
            )
        out = [is_logged(folder, following) for folder in folders]
        if any(out) and not all(out):
            raise CheckpointError(
                f"{checkpoint.folder}: the run was killed when it had committed batch {following} to some of its results "
                "and not to others; start it once more with the same call, and stop it again"
            )
        last = following if all(out) else last
    if last < 0:
        raise CheckpointError(
            f"{checkpoint.folder}: no batch was completed yet, so there is nothing to go on from; leave continue_from out"
        )
    return last


def read_links(checkpoint: Checkpoint, batch: int) -> set[tuple[int, str]]:
    """What Spark has read up to a batch: the numbers of sources, and names of links in their folders."""
    where = checkpoint.spark / "offsets" / str(batch)
    found: set[tuple[int, str]] = set()
    try:
        for number, text in enumerate(where.read_text(encoding="utf-8").splitlines()[2:]):
            reached = json.loads(text)["logOffset"] if text != "-" else -1
            log = checkpoint.spark / "sources" / str(number)
            entries = [entry for entry in log.glob("*") if entry.name[0] != "."] if reached >= 0 else []
            for line in (line for entry in entries for line in entry.read_text(encoding="utf-8").splitlines()[1:]):
                told = json.loads(line)
                link = Path(told["path"])
                if told["batchId"] <= reached and link.parent.parent.name == "inputs":
                    found.add((int(link.parent.name), link.name))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{where}: how far sources were read cannot be told: {error}; restore it") from error
    return found
