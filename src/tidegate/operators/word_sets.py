"""Words as keys: texts cut and numbered at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import byte_layout, valid_mask
from tidegate.operators.grouping import Grouped

Array = np.ndarray[Any, Any]


def words_of(texts: pa.StringArray, separator: str, distinct: bool) -> tuple[pa.DictionaryArray, Array, Grouped]:
    """The words of texts, the row of each, and their slots; with ``distinct``, each word once per text.

    >>> words, rows, slots = words_of(pa.array(["to be or", None, "to to"]), " ", True)
    >>> words.to_pylist(), rows.tolist(), slots.groups.tolist()
    (['to', 'be', 'or', 'to'], [0, 0, 0, 2], [0, 1, 2, 0])
    """
    # Imported here: numba takes a while, and a query can be built without it.
    from tidegate.operators.kernels.words import gather_bytes, larger, number_words

    offsets, data = byte_layout(texts)
    low, high = int(offsets[0]), int(offsets[-1])
    blocks = np.zeros((high - low) // 8 + 2, np.uint64)
    letters = blocks.view(np.uint8)
    letters[: high - low] = data[low:high]
    most = len(texts) + int(np.count_nonzero(letters[: high - low] == ord(separator)))
    room = max(64, 1 << len(texts).bit_length())
    table, found = np.zeros((2 * room, 2), np.uint64), np.empty((4, room), np.int64)
    entries, reached = np.empty((2, most), np.int64), np.zeros(3, np.int64)
    given = offsets - low, valid_mask(texts), blocks, letters, ord(separator), distinct, entries
    while number_words(*given, table, found, reached):
        table, found = larger(table), np.concatenate([found, np.empty_like(found)], axis=1)
    _, size, count = reached.tolist()
    codes, rows = entries[:, :size]
    first, starts, stops, _ = found[:, :count]
    ends, bytes_of_words = gather_bytes(letters, starts, stops)
    vocabulary = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(bytes_of_words))
    words = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), vocabulary)
    return words, rows, Grouped(codes, np.arange(count), first)
