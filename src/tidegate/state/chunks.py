"""Chunks: immutable pane tables as bytes, in Arrow's IPC format, compressed, with a version; never pickle.

Panes leave their kernels in the order of their keys, so they shrink to a quarter and less. Whatever takes a chunk on, the
exchange and the state store, costs more by the byte than the compression does.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.errors import CheckpointError

VERSION = b"1"
_KEY = b"tidegate.chunk"
_COMPRESSION = "zstd"


def encode(table: pa.Table) -> bytes:
    """The bytes of a table; dictionaries travel with it."""
    marked = table.combine_chunks().replace_schema_metadata({_KEY: VERSION})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
    with pa.ipc.new_stream(sink, marked.schema, options=options) as writer:
        writer.write_table(marked)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def decode(data: bytes | pa.Buffer) -> pa.Table:
    """The table of some bytes; a chunk of another version is refused."""
    table: pa.Table = pa.ipc.open_stream(data).read_all()
    found = (table.schema.metadata or {}).get(_KEY)
    if found != VERSION:
        raise CheckpointError(
            f"the state was written as version {found!r} and this tidegate reads {VERSION!r}; "
            "run it with the version that wrote it, or start from a new checkpoint"
        )
    return table.replace_schema_metadata(None)
