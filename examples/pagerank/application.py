"""The ranks of pages, or of people who write to each other, four weeks at a time."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.inputs.links import links, messages
from examples.pagerank.ranks import ranks_of

WEEKS = "28 days"
SPAN_SECONDS = 80 * 24 * 3_600


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """The ranks of all pages of each window."""
    return {"ranks": ranks_of(tg.stream(inputs["links"], time="ts", name="links"), WEEKS)}


def report(found: Tables) -> Report:
    """The first pages of the last window, and how many windows there are."""
    ranks = found["ranks"]
    ends = pc.unique(ranks["ts"])
    last = ranks.filter(pc.equal(ranks["ts"], pc.max(ends)))
    best = last.sort_by([("rank", "descending"), ("page", "ascending")]).slice(0, 5).select(["page", "rank"])
    return Report(
        best.set_column(1, "rank", pc.round(best["rank"], 4)),
        f"{ranks.num_rows:,} ranks in {len(ends)} windows of {WEEKS}; in the last one, of {last.num_rows:,} pages, "
        f"{best['page'][0]} is first.",
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Messages of a college: who wrote to whom is a link."""
    return {"links": messages(folder, tuples)}


pagerank = Application(
    name="pagerank",
    question="Which pages are the most important among those that link to each other?",
    generate=lambda tuples, seed: {"links": links(tuples, pages=200, seconds=SPAN_SECONDS, seed=seed)},
    read=read,
    results=results,
    report=report,
    tuples=5_000,
)
