"""Where a stateful step keeps its state: chunks, and a directory for each cell and batch, as whole files of a storage.

::

    <root>/<query>/<step>/chunks/<batch>-<digest>             what cells hold, immutable
    <root>/<query>/<step>/cell-<cell>/<batch>-<run>           the directory of a cell after a batch

State after batch N is a function of state after N−1 and of the rows of N, so a batch that is run again writes the same
again and nothing is ever undone. A run reads the directories that it wrote itself; its first batch reads those of the run
that began last. As many batches are kept as Spark keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tidegate.errors import CheckpointError
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import Chunk, Data, Directory, altered_chunk, missing_chunk
from tidegate.state.storage import Storage

SWEEP_EVERY = 16
PUTS_AT_ONCE = 8
CHUNKS, CELL = "chunks", "cell-"
BEFORE_FIRST = -1
"""The batch before the first one, after which another run's state is there if this one goes on from that."""
CONTINUED = "continued"
"""The run of that batch."""


@dataclass(frozen=True, slots=True)
class StepFolder:
    """The state of one step of one query, as one run sees it.

    ``step`` names it in messages. ``retain`` is how many batches are kept. ``cache`` holds files of a remote storage.
    ``continues`` says that the state before the first batch is that of another run, in a directory of the first cell.
    """

    storage: Storage
    folder: str
    step: str
    run: str
    retain: int
    cache: ChunkCache | None = None
    continues: bool = False

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return f"{self.storage.uri}/{self.folder}"

    def before(self, cell: int, batch: int) -> Directory | None:
        """The directory of a cell after the batch before; None before the first batch.

        One that is missing is an error: Spark runs every step in every batch, so the state of a batch would be lost.
        """
        if batch == 0:
            return self._continued(cell) if self.continues else None
        own = self._read(cell, self._name(batch - 1, self.run))
        if own is not None:
            return own
        # The run before may have had another number of cells, but it had the first one.
        first = self._read(0, self._name(batch - 1, self.run)) if cell else None
        first = first or self._of_last_run(batch - 1)
        return first if cell == 0 else self.beside(first, cell, batch - 1)

    def _continued(self, cell: int) -> Directory:
        """What a cell begins with: the first one with all that there is."""
        first = self._read(0, self._name(BEFORE_FIRST, CONTINUED))
        if first is None:
            raise CheckpointError(
                f"step '{self.step}': the state with which the run began is missing from {self.where}. Restore it, or start "
                "from a new checkpoint"
            )
        return first if cell == 0 else first.without_state()

    def beside(self, directory: Directory, cell: int, batch: int) -> Directory:
        """The directory of another cell from the run that wrote one for a batch; that of a cell it did not have is empty."""
        if cell >= directory.cells[1]:
            return directory.without_state()
        found = self._read(cell, self._name(batch, directory.run))
        if found is None:
            raise self._missing(cell, batch)
        return found

    def _of_last_run(self, batch: int) -> Directory:
        """The directory of the first cell after a batch, by the run that began last."""
        found = self.of_other_runs(0, batch)
        if not found:
            raise self._missing(0, batch)
        builds = {directory.run for directory in found if _group(directory.run) == _group(found[-1].run)}
        if len(builds) > 1:
            raise CheckpointError(
                f"step '{self.step}': {self.where} holds the state of two parts of one query, both of which are called so; "
                "give each its own folder: to_spark(state=...)"
            )
        return found[-1]

    def _missing(self, cell: int, batch: int) -> CheckpointError:
        return CheckpointError(
            f"step '{self.step}': the state of cell {cell} after batch {batch} is missing from "
            f"{self.where}. Either the folder was removed or is another one on this machine, or batch {batch} was "
            "committed without its results being computed (a foreachBatch that does not evaluate all of its DataFrame). "
            f"To run that batch again, remove commits/{batch} and offsets/{batch + 1}, if they are there, from the "
            "query's checkpoint; or start from a new checkpoint"
        )

    def written(self, cell: int, batch: int) -> Directory | None:
        """The directory that an attempt of this run has written for a batch, if there is one."""
        return self._read(cell, self._name(batch, self.run))

    def put_directory(self, cell: int, batch: int, directory: Directory) -> None:
        """Write the directory of a cell after a batch, whose chunks are written."""
        self.storage.put(f"{self._cell(cell)}/{self._name(batch, self.run)}", directory.encode())

    def put_chunks(self, chunks: Mapping[str, Data]) -> None:
        """Write chunks by their names."""
        if len(chunks) > 1 and not self.storage.is_local:
            with ThreadPoolExecutor(min(len(chunks), PUTS_AT_ONCE)) as pool:
                list(pool.map(self._put_chunk, chunks, chunks.values()))
        else:
            for name, data in chunks.items():
                self._put_chunk(name, data)

    def get_chunk(self, chunk: Chunk) -> Data:
        """The bytes of a chunk, compared with what the directory says of them."""
        cached = self.cache.get(chunk.name) if self.cache is not None else None
        if cached is not None and chunk.is_made_of(cached):
            return cached
        stored = self.storage.get(f"{self.folder}/{CHUNKS}/{chunk.name}")
        if stored is None:
            raise missing_chunk(chunk.name, self.where)
        if not chunk.is_made_of(stored):
            raise altered_chunk(chunk, len(stored), self.where)
        if self.cache is not None:
            self.cache.put(chunk.name, stored)
        return stored

    def sweep(self, batch: int) -> None:
        """Remove the directories of batches that are no longer kept, and chunks that none of those kept lists.

        A chunk is listed from the batch that wrote it on until it is dropped for good; a cell lists what another wrote only
        if that one listed it in the batch before. So of the chunks from before the first batch that is kept, those in use
        are listed by the directories of that batch.
        """
        first = batch - self.retain
        if first <= 0:
            return
        folders = [name for name in self.storage.folders(self.folder) if name.startswith(CELL)]
        listed = {folder: self.storage.names(f"{self.folder}/{folder}") for folder in folders}
        used: set[str] = set()
        found: dict[str, list[Directory]] = {}
        for folder, names in listed.items():
            oldest = [self._read_at(f"{self.folder}/{folder}/{name}") for name in names if _batch(name) == first]
            found[folder] = [directory for directory in oldest if directory is not None]
            used |= {chunk.name for directory in found[folder] for chunk in directory.chunks}
        # Cells may be gone since; those that the batch had must all be known.
        cells = max((directory.cells[1] for each in found.values() for directory in each), default=0)
        if cells == 0 or not all(found.get(f"{CELL}{cell}") for cell in range(cells)):
            return
        chunks = self.storage.names(f"{self.folder}/{CHUNKS}")
        gone = [
            f"{self.folder}/{cell}/{name}" for cell, names in listed.items() for name in names if _batch(name) < first
        ]
        gone += [f"{self.folder}/{CHUNKS}/{name}" for name in chunks if _batch(name) < first and name not in used]
        self.storage.remove(gone)

    def of_other_runs(self, cell: int, batch: int) -> list[Directory]:
        """The directories that other runs wrote for a batch, that of the run which began last at the end."""
        own = self._name(batch, self.run)
        names = [name for name in self.storage.names(self._cell(cell)) if _batch(name) == batch and name != own]
        found = [self._read(cell, name) for name in names]
        return sorted((each for each in found if each is not None), key=lambda each: (each.began_ns, each.run))

    def _put_chunk(self, name: str, data: Data) -> None:
        self.storage.put(f"{self.folder}/{CHUNKS}/{name}", data)
        if self.cache is not None:
            self.cache.put(name, bytes(data))

    def _read(self, cell: int, name: str) -> Directory | None:
        return self._read_at(f"{self._cell(cell)}/{name}")

    def _read_at(self, name: str) -> Directory | None:
        data = self.storage.get(name)
        return None if data is None else Directory.decode(bytes(data), f"{self.storage.uri}/{name}")

    def _cell(self, cell: int) -> str:
        return f"{self.folder}/{CELL}{cell}"

    @staticmethod
    def _name(batch: int, run: str) -> str:
        return f"{batch:010}-{run}"


def _batch(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else -1


def _group(run: str) -> str:
    """What parts of one running query have in common in the names of their runs."""
    return run.partition("-")[2]
