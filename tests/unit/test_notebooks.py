"""What notebooks and consoles show of queries, results and jobs: short, well-formed, and whatever names hold is text."""

from __future__ import annotations

import sys
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pytest
import rich.console

import tidegate as tg
from tidegate.drawing import Drawing, DrawnArrow, DrawnBox
from tidegate.progress import ProgressLine

ROWS = pa.table({"ts": pa.array([0, 1, 2_000_000], pa.timestamp("us")), "k": ["a", "<b>", "a"]})


def query() -> tg.Stream:
    calls = tg.stream(ROWS, time="ts", name="calls")
    return (
        calls.filter(nw.col("k") != "c", name="some").key_by("k").window("1 second").aggregate(n=tg.count(), name="<n>")
    )


def parsed(html: str) -> ElementTree.Element:
    """The elements of a fragment, which must be well-formed; none may be a script."""
    tree = ElementTree.fromstring(f"<all>{html}</all>")
    assert not [each for each in tree.iter() if each.tag.endswith("script")]
    return tree


def texts(tree: ElementTree.Element, tag: str) -> list[str]:
    return [each.text or "" for each in tree.iter() if each.tag.rpartition("}")[2] == tag]


def test_a_query_is_one_short_line() -> None:
    wide = tg.stream(ROWS, time="ts", name="calls")
    for number in range(300):
        wide = wide.with_columns(**{f"column_{number}": nw.col("k")})
    assert len(repr(wide)) < 250
    assert "\n" not in repr(wide)
    assert repr(query()) == "<Stream <n>: 3 steps over calls; ts, k, window_start, window_end, n>"
    keyed = repr(tg.stream(ROWS, time="ts", name="calls").key_by("k").window("1 second"))
    assert "\n" not in keyed and len(keyed) < 300


def test_a_query_is_a_picture_of_its_steps() -> None:
    both = tg.stream(ROWS, time="ts", name="calls")
    joined = both.join(both.filter(nw.col("k") == "a", name="some"), on="k", within="1 second", name="pairs")
    tree = parsed(joined._repr_html_())
    bold = [title.partition(":")[0] for title in texts(tree, "text")[::2]]
    assert sorted(bold) == ["calls", "pairs", "some"]
    assert len(texts(tree, "polyline")) == 3, "the stream is read twice, and filtered once"
    assert "<n>: aggregate" in texts(parsed(query()._repr_html_()), "text")


def test_a_picture_puts_each_box_after_what_it_reads_and_arrows_beside_boxes() -> None:
    boxes = tuple(DrawnBox(name, name) for name in "abcd")
    arrows = tuple(DrawnArrow(*ends) for ends in ("ab", "bc", "cd", "ad"))
    placed = Drawing(boxes, arrows).placed()
    at = {box["name"]: (box["x"], box["y"]) for box in placed["boxes"]}
    assert [at[name][0] for name in "abcd"] == sorted(at[name][0] for name in "abcd")
    assert len({x for x, _ in at.values()}) == 4
    past = placed["arrows"][3]["points"]
    assert len(past) == 6, "from a, past b, past c, into d"
    for name, points in (("b", past[1:3]), ("c", past[3:5])):
        top = at[name][1]
        assert all(not top <= y <= top + 64 for _, y in points), f"the arrow from a to d does not cross {name}"


def test_a_result_shows_what_was_done_and_its_first_rows(tmp_path: Path) -> None:
    result = tg.run(query(), on="local", to=tmp_path / "out", progress=False)
    assert repr(result) == f"<RunResult: {result}>"
    assert str(result).startswith("3 rows read, 0 late; 3 results written to ")
    tree = parsed(result._repr_html_())
    assert texts(tree, "th") == ["ts", "k", "window_start", "window_end", "n"]
    assert "<b>" in texts(tree, "td"), "a value that looks like a tag is text"
    alone = tg.run(query(), on="local", to=lambda table: None, progress=False)
    assert texts(parsed(alone._repr_html_()), "table") == []
    counted = query()
    results = {"one": counted, "two": counted.filter(nw.col("n") > 9, name="many")}
    several = tg.run(results, on="local", to=tmp_path / "both", progress=False)
    assert texts(parsed(several._repr_html_()), "b") == ["one", "two"]
    assert texts(parsed(several._repr_html_()), "div")[-1] == "no rows"


def test_a_job_says_how_far_it_is_and_links_to_its_page() -> None:
    job = tg.start(query(), to=lambda table: None, instances=1, page=0)
    links = [each.attrib["href"] for each in parsed(job._repr_html_()).iter("a")]
    assert links == [job.page_url]
    job.wait()
    assert repr(job) == "<LocalJob, ended: 3 rows read, 3 results, 0 late; <n> × 1>"


def test_progress_below_a_cell_is_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, line: object) -> None:
            shown.append(repr(line))

    module = types.ModuleType("IPython.display")
    module.display = lambda line, display_id: Handle()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    line = ProgressLine()
    for batch in range(3):
        line(f"batch {batch}")
    line.close()
    assert shown == ["batch 0", "batch 1", "batch 2"]
