"""Basic text analytics of messages: how long they are, what they hold, and their key words. Each message by itself."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_LETTERS = 4
MARKS = ".,;:!?\"'()[]{}…“”‘’«»-–—*&|/"
STOP_WORDS = pc.utf8_split_whitespace(
    pa.array(
        [
            "about after again also been before being both could does doing down each even every from have having here into "
            "itself just last like made make many more most much must need only other over said same should some such take "
            "than that their them then there these they this those through today under until very want well were what when "
            "where which while will with would your you're we're it's don't can't"
        ]
    )
).values
ANALYSED = {
    "ts": pa.timestamp("us", tz="UTC"),
    "chars": pa.int64(),
    "words": pa.int64(),
    "sentences": pa.int64(),
    "hashtags": pa.int64(),
    "mentions": pa.int64(),
    "links": pa.int64(),
    "key_words": pa.list_(pa.string()),
}


def analysed(batch: pa.RecordBatch) -> pa.Table:
    """The statistics and the key words of each message."""
    text = batch.column("tweet")
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text))
    count = pc.count_substring_regex(text, r"\S+")
    ends = pc.count_substring_regex(text, r"[.!?…]+(\s|$)")
    columns = {
        "ts": batch.column("ts"),
        "chars": pc.utf8_length(text),
        "words": count,
        # Words without a mark at their end are a sentence too.
        "sentences": pc.min_element_wise(pc.max_element_wise(ends, 1), count),
        **{
            name: pc.count_substring_regex(text, pattern)
            for name, pattern in (("hashtags", r"#\w"), ("mentions", r"@\w"), ("links", r"https?://"))
        },
        "key_words": key_words(words),
    }
    return pa.table(columns).cast(pa.schema(list(ANALYSED.items())))


def key_words(words: pa.ListArray) -> pa.ListArray:
    """Of each list the words of four letters and more, in lower case, that are no stop words, mentions or links."""
    plain = pc.utf8_trim(pc.utf8_lower(words.values), MARKS)
    others = pc.or_(pc.is_in(plain, STOP_WORDS), pc.match_substring_regex(plain, r"^@|^https?:|^[^#\w]|^\d+$"))
    kept = pc.and_(pc.greater_equal(pc.utf8_length(plain), LEAST_LETTERS), pc.invert(others))
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    return pa.ListArray.from_arrays(before[words.offsets], plain.filter(kept))
