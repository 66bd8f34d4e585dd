"""How much memory the rows of a batch take."""

from __future__ import annotations

import pyarrow as pa


class RowWidth:
    """The bytes of a row, for batches that all have one schema.

    Where all columns have a fixed width it is known from the first batch on. Asking Arrow for the size of a batch is quick,
    but gives the interpreter away, and it may take a thread long to get it back.
    """

    __slots__ = ("_fixed", "_known")

    def __init__(self) -> None:
        self._fixed: float | None = None
        self._known = False

    def of(self, batch: pa.RecordBatch) -> float:
        """The mean over a batch that is not empty; a little less than it takes where nulls are marked."""
        if not self._known:
            self._fixed, self._known = _fixed_bytes(batch.schema), True
        return batch.nbytes / batch.num_rows if self._fixed is None else self._fixed


def _fixed_bytes(schema: pa.Schema) -> float | None:
    """The bytes of a row whose columns all have a fixed width; None if one has not."""
    if not all(pa.types.is_primitive(field.type) for field in schema):
        return None
    return float(sum(field.type.bit_width for field in schema)) / 8
