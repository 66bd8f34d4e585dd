"""The vectorised pairs of words against the obvious loop."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.pairs import pairs_of_words, pairs_within


def naive(text: str | None, distance: int) -> list[dict[str, str]]:
    words = (text or "").split(" ")
    return [
        {"left": words[i], "right": words[j]}
        for i in range(len(words))
        for j in range(i + 1, min(i + distance, len(words) - 1) + 1)
    ]


@pytest.mark.parametrize("distance", [1, 3, 10, 50])
def test_pairs_equal_the_loop(distance: int) -> None:
    random = np.random.default_rng(distance)
    texts: list[str | None] = [
        " ".join(f"w{word}" for word in random.zipf(1.5, random.integers(1, 20)) % 100) for _ in range(200)
    ]
    texts += ["", "one", "a a a", None, "two  spaces"]
    assert pairs_of_words(pa.array(texts), distance).to_pylist() == [naive(text, distance) for text in texts]


def test_pairs_of_a_slice_and_of_nothing() -> None:
    texts = pa.array(["a b c", "d e", "f g h i"])
    assert pairs_of_words(texts.slice(1), 2).to_pylist() == [naive("d e", 2), naive("f g h i", 2)]
    assert pairs_of_words(texts.slice(3), 2).to_pylist() == []


def test_key_function_gives_dictionary_encoded_structs() -> None:
    batch = pa.record_batch({"text": ["a b c"]})
    pairs = pairs_within(3)(batch)
    encoded = pa.dictionary(pa.int32(), pa.string())
    assert pairs.type.value_type == pa.struct({"left": encoded, "right": encoded})
    assert pairs.to_pylist() == [naive("a b c", 3)]
