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
    from tidegate.operators.kernels.words import gather_bytes, number_words

    offsets, data = byte_layout(texts)
    low, high = int(offsets[0]), int(offsets[-1])
    blocks = np.zeros((high - low) // 8 + 2, np.uint64)
    blocks.view(np.uint8)[: high - low] = data[low:high]
    codes, rows, first, starts, stops = number_words(offsets - low, valid_mask(texts), blocks, ord(separator), distinct)
    ends, letters = gather_bytes(blocks.view(np.uint8), starts, stops)
    distinct_words = pa.StringArray.from_buffers(len(first), pa.py_buffer(ends), pa.py_buffer(letters))
    words = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), distinct_words)
    return words, rows, Grouped(codes, np.arange(len(first)), first)
