"""Texts cut and numbered in one loop: the same words as Arrow cuts, whatever the texts hold."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.operators.keys import words_of

LETTERS = st.text(st.sampled_from("ab é\x00\x7f😀"), max_size=40)
TEXTS = st.lists(st.none() | LETTERS | st.text(max_size=12), max_size=30)


def entries(texts: pa.StringArray, separator: str, distinct: bool) -> list[tuple[int, str]]:
    """What Arrow cuts: row and word, in order."""
    cut = [words or [] for words in pc.split_pattern(texts, separator).to_pylist()]
    return [(row, word) for row, words in enumerate(cut) for word in (dict.fromkeys(words) if distinct else words)]


@given(TEXTS, st.sampled_from([" ", "a", "\x00", "\x7f"]), st.booleans(), st.integers(0, 5))
@example(["a" * 7 + " " + "a" * 8 + " " + "a" * 9], " ", True, 0)
@example(["x" * 16 + "y " + "x" * 16 + "z"], " ", True, 0)
def test_the_words_are_those_that_arrow_cuts(
    texts: list[str | None], separator: str, distinct: bool, skipped: int
) -> None:
    column = pa.array(texts, pa.string()).slice(skipped)
    words, rows, slots = words_of(column, separator, distinct)
    assert list(zip(rows.tolist(), words.to_pylist(), strict=True)) == entries(column, separator, distinct)
    assert words.dictionary.to_pylist() == list(dict.fromkeys(words.to_pylist()))
    assert slots.groups.tolist() == words.indices.to_pylist()
    assert [words[at].as_py() for at in slots.first.tolist()] == words.dictionary.to_pylist()


@pytest.mark.parametrize("ending", ["", "-and-more"])
def test_a_text_may_have_many_more_words_than_there_are_texts(ending: str) -> None:
    text = " ".join(f"{number}{ending}" for number in range(5_000))
    words, rows, slots = words_of(pa.array(["a b", text, None, text, "b 4999" + ending]), " ", True)
    assert len(words.dictionary) == slots.size == 5_002
    assert words.to_pylist() == ["a", "b", *text.split(" "), *text.split(" "), "b", "4999" + ending]
    assert rows.tolist() == [0] * 2 + [1] * 5_000 + [3] * 5_000 + [4] * 2
