"""A graph as a picture: boxes in levels, each after those it reads, and arrows that pass between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

MARGIN = 8
_STYLES = {
    "source": ("#e8f1fa", "#4a86b8"),
    "output": ("#edf6ec", "#5a9a57"),
    "stateful": ("#fdf3e1", "#c98a1b"),
    "": ("#ffffff", "#9aa3ad"),
}
"""Fill and border of each kind of box."""

Place = tuple[int, int]
Member = str | tuple[int, int]
"""A box by its name, or where an arrow passes a level: the number of the arrow, and the level."""


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box: what it is called in arrows, and what is written in it. Kinds are 'source', 'stateful', 'output' and ''."""

    name: str
    title: str
    text: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class DrawnArrow:
    """An arrow between two boxes, and what is said of it under the pointer."""

    origin: str
    target: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows without a cycle, from left to right, or with ``down`` from top to bottom.

    >>> chain = Drawing((DrawnBox("a", "calls"), DrawnBox("b", "count")), (DrawnArrow("a", "b"),))
    >>> [box["x"] for box in chain.placed()["boxes"]]
    [8, 338]
    """

    boxes: tuple[DrawnBox, ...]
    arrows: tuple[DrawnArrow, ...]
    down: bool = False

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        """The width and the height of a box, and the gaps to the right of it and below."""
        return (420, 46, 24, 26) if self.down else (190, 64, 140, 22)

    def placed(self) -> dict[str, Any]:
        """The picture as plain values: boxes with places, arrows with points, and the size of it all."""
        rows = self._rows()
        width, height, right, below = self._shape
        deepest = max((len(level) for level in rows), default=1)
        places: dict[Member, Place] = {}
        for depth, level in enumerate(rows):
            for row, member in enumerate(level):
                along, across = depth, row + (deepest - len(level)) / 2
                x, y = (across, along) if self.down else (along, across)
                places[member] = (round(x * (width + right)) + MARGIN, round(y * (height + below)) + MARGIN)
        boxes: list[dict[str, Any]] = [
            {"name": box.name, "title": box.title, "text": box.text, "kind": box.kind}
            | {"x": places[box.name][0], "y": places[box.name][1], "width": width, "height": height}
            for box in self.boxes
        ]
        arrows = [
            {"origin": arrow.origin, "target": arrow.target, "text": arrow.text}
            | {"points": list(self._points(number, arrow, places))}
            for number, arrow in enumerate(self.arrows)
        ]
        size = [max((box[side] for box in boxes), default=0) for side in ("x", "y")]
        return {
            "boxes": boxes,
            "arrows": arrows,
            "width": size[0] + width + MARGIN,
            "height": size[1] + height + MARGIN,
        }

    def svg(self) -> str:
        """The picture as SVG, which needs nothing else."""
        placed = self.placed()
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{placed["width"]}" height="{placed["height"]}" '
            'font-family="system-ui, sans-serif" font-size="12"><defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#78828c"/></marker></defs>'
        ]
        for arrow in placed["arrows"]:
            line = " ".join(f"{x},{y}" for x, y in arrow["points"])
            parts.append(f'<polyline points="{line}" fill="none" stroke="#78828c" marker-end="url(#tip)"/>')
        for box in placed["boxes"]:
            fill, border = _STYLES[box["kind"]]
            x, y = box["x"], box["y"]
            parts.append(
                f'<g><title>{escape(box["title"])}: {escape(box["text"])}</title><rect x="{x}" y="{y}" rx="5" '
                f'width="{box["width"]}" height="{box["height"]}" fill="{fill}" stroke="{border}"/>'
                f'<text x="{x + 10}" y="{y + 18}" font-weight="600" fill="#1d2733">{escape(cut(box["title"], 50))}</text>'
                f'<text x="{x + 10}" y="{y + 35}" font-size="11" fill="#55606b">{escape(cut(box["text"], 66))}</text></g>'
            )
        return "".join([*parts, "</svg>"])

    def _rows(self) -> list[list[Member]]:
        """The members of each level in order: boxes, and for arrows past a level their number and the level."""
        depth = {box.name: 0 for box in self.boxes}
        for _ in self.boxes:
            for arrow in self.arrows:
                depth[arrow.target] = max(depth[arrow.target], depth[arrow.origin] + 1)
        levels: list[list[Member]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
        for box in self.boxes:
            levels[depth[box.name]].append(box.name)
        before: dict[Member, list[Member]] = {}
        for number, arrow in enumerate(self.arrows):
            passed: list[Member] = [(number, level) for level in range(depth[arrow.origin] + 1, depth[arrow.target])]
            for level, member in enumerate(passed, depth[arrow.origin] + 1):
                levels[level].append(member)
            path: list[Member] = [arrow.origin, *passed, arrow.target]
            for upstream, downstream in pairwise(path):
                before.setdefault(downstream, []).append(upstream)
        # Each level in the order of the middle of what its members read: few arrows cross.
        for upper, lower in pairwise(levels):
            at = {member: place for place, member in enumerate(upper)}
            lower.sort(key=lambda member, at=at: _mean([at[each] for each in before.get(member, ()) if each in at]))  # type: ignore[misc]
        return levels

    def _points(self, number: int, arrow: DrawnArrow, places: dict[Member, Place]) -> Iterator[Place]:
        """The corners of an arrow: out of one box, past others, into the next."""
        width, height, _, _ = self._shape
        passed = [place for member, place in places.items() if isinstance(member, tuple) and member[0] == number]
        (x, y), (to_x, to_y) = places[arrow.origin], places[arrow.target]
        yield (x + width // 2, y + height) if self.down else (x + width, y + height // 2)
        for at_x, at_y in passed:
            if self.down:
                yield from ((at_x + width // 2, at_y), (at_x + width // 2, at_y + height))
            else:
                yield from ((at_x, at_y + height // 2), (at_x + width, at_y + height // 2))
        yield (to_x + width // 2, to_y) if self.down else (to_x, to_y + height // 2)


def cut(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
