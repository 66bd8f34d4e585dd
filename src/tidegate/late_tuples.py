"""Late tuples in files: the folder that holds them; the same for both runtimes.

A tuple is late at a stateful step that it reaches from a source. The files of a step lie in a folder named for it, those
of its first feed as ``0-*.parquet``, those of the second as ``1-*.parquet``: feeds may differ in their columns.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class LateFolder:
    """A folder of late tuples: ``<step>/<position>-<name>.parquet``, position being that of a feed among its step's."""

    path: Path

    def write(self, step: str, position: int, name: str, table: pa.Table) -> None:
        """Write a file whole or not at all; one of the same name is replaced.

        What is written under one name may be written again, by several at once: the file is always that of one of them.
        """
        folder = self.path / _file_name(step)
        draft = folder / f".{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, draft)
            draft.replace(folder / f"{position}-{name}.parquet")
        except BaseException as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise EnvironmentFault(
                    f"late tuples of step '{step}' cannot be written to {folder}: {error}"
                ) from error
            raise


def _file_name(step: str) -> str:
    """The name of a step as that of a folder: what has a meaning in paths and globs is escaped; all names stay different.

    >>> _file_name("calls per hour"), _file_name("a/b"), _file_name("a%2Fb"), _file_name("..")
    ('calls per hour', 'a%2Fb', 'a%252Fb', '%2E.')
    """
    # Readers of folders skip names that begin with '_' or '.'.
    return re.sub(r"^[_.]|[^\w .~-]", lambda found: f"%{found[0].encode().hex('%').upper()}", step)
