"""The keys of a tweet in the paircount workloads: ordered pairs of its words, on whole Arrow batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def pairs_within(distance: int) -> Callable[[pa.RecordBatch], pa.ListArray]:
    """A key function that gives each tweet its ordered pairs of words at most `distance` apart."""

    def word_pairs(batch: pa.RecordBatch) -> pa.ListArray:
        return pairs_of_words(batch.column("text"), distance)

    return word_pairs


def pairs_of_words(texts: pa.Array, distance: int) -> pa.ListArray:
    """For each text, the list of `{left: words[i], right: words[j]}` with `0 < j - i <= distance`, duplicates kept.

    Words are encoded once per batch and pairs are built from positions: a word's partners are the next words, up to
    `distance` of them and not past the end of its text. The result comes out in row order without a sort, and both
    fields share one dictionary. A null text has no pairs.

    >>> pairs_of_words(pa.array(["a b"]), distance=3).to_pylist()
    [[{'left': 'a', 'right': 'b'}]]
    """
    words = pc.split_pattern(pc.fill_null(texts.cast(pa.string()), ""), " ")
    offsets = words.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    encoded = words.flatten().dictionary_encode()
    codes = encoded.indices.to_numpy()

    ends = np.repeat(offsets[1:], np.diff(offsets))
    partners = np.minimum(ends - 1 - np.arange(len(codes)), distance)
    first_pair = np.concatenate(([0], np.cumsum(partners)))  # of each word, and the number of pairs at the end
    left = np.repeat(np.arange(len(codes)), partners)
    right = left + 1 + np.arange(len(left)) - np.repeat(first_pair[:-1], partners)

    def field(positions: np.ndarray) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(codes[positions]), encoded.dictionary)

    pairs = pa.StructArray.from_arrays([field(left), field(right)], names=["left", "right"])
    return pa.ListArray.from_arrays(pa.array(first_pair[offsets].astype(np.int32)), pairs)
