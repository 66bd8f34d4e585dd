"""What is the highest rate that a query in process sustains, and how late are its results at half of that?

The tuples of a workload are due at every tick, whether or not the query keeps up. A first guess comes from running as fast
as it goes; from there rates are tried until the highest sustained one is known to 5 %. Every rate that was tried is in
the picture beside the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loads import Pool
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import Options
from benchmarks.report import write_json
from benchmarks.sustain import LIMIT_MS, MOST_PROBES, PRECISION, Probe, capacity, highest, next_rate, probe
from benchmarks.workloads import WINDOWED

SPAN_SECONDS = 60.0
INSTANCES = 2
FIRST_GUESS = 0.8  # of the rate when nothing is scheduled
USUAL = ("keyed",)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the highest rate at which latency is looked at, and what its 99th percentile must be there."""

    share: float
    must_ms: float
    aim_ms: float | None

    @property
    def marks(self) -> str:
        return f"p99 must be ≤ {self.must_ms:g} ms" + ("" if self.aim_ms is None else f", aim ≤ {self.aim_ms:g} ms")


HALF = Part(0.5, 10, 5)


def run(options: Options) -> int:
    """Sweep each chosen workload; 1 if one of them sustained no rate at all."""
    swept = [sweep(name, options) for name in options.of or USUAL]
    content = {"workload": "sweep", "input": {"seed": options.seed, "span_s": options.span_seconds or SPAN_SECONDS}}
    path = options.out / "sweep.json"
    write_json(path, {**content, "machine": describe(), "rows": swept, "ratios": {}})
    print(f"\nwritten to {path}")
    return 0 if all(row["tuples_per_second"] is not None for row in swept) else 1


def sweep(name: str, options: Options) -> dict[str, Any]:
    """The highest sustainable rate of a workload, the latency at half of it, and all that was tried."""
    return {"workload": name, **sweep_pool(name, Pool.of(WINDOWED[name], options.seed), INSTANCES, options)}


def sweep_pool(
    name: str,
    pool: Pool,
    instances: int,
    options: Options,
    part: Part = HALF,
    guess: float | None = None,
    search_seconds: float = SPAN_SECONDS,
) -> dict[str, Any]:
    """The same of any query, with a picture of its name; at another part, and with a guess of the rate if there is one.

    Rates are searched in spans of ``search_seconds``; if that is less than the whole span, the highest has to last for
    the whole span too, or a lower one.
    """
    ticks_per_second = round(1_000 / options.tick_ms)
    span_seconds = options.span_seconds or SPAN_SECONDS
    guess = guess or capacity(pool, ticks_per_second, instances)
    say(f"{name}: {guess:,.0f} tuples/s when nothing is scheduled; a tick every {options.tick_ms:g} ms")
    probes: list[Probe] = []

    def offer(rate: float, seconds: float) -> bool:
        # Latency that grows slowly has less time to show in a short span, so less of it is let pass.
        limit_ms = LIMIT_MS * seconds / span_seconds
        probes.append(probe(pool, rate, ticks_per_second, instances, seconds, limit_ms))
        say(f"  {_line(probes[-1])}{f', for {seconds:g} s' if seconds < span_seconds else ''}")
        return probes[-1].sustained

    search_seconds = min(search_seconds, span_seconds)
    while (rate := next_rate(tried(probes), FIRST_GUESS * guess)) is not None:
        offer(rate, search_seconds)
    found = highest(tried(probes))
    while found is not None and search_seconds < span_seconds and not offer(found, span_seconds):
        found = found / (1 + PRECISION) if len(probes) < 2 * MOST_PROBES else None
    below = None
    if found is not None:
        below = probe(pool, part.share * found, ticks_per_second, instances, span_seconds)
        print(f"{name}: {found:,.0f} tuples/s sustained, p99 under {LIMIT_MS:,.0f} ms")
        print(f"at {part.share:.0%} of it: {_line(below)}; {part.marks}")
    else:
        print(
            f"{name}: no rate was sustained; the lowest tried is {min(rate for rate, _ in tried(probes)):,.0f} tuples/s"
        )
    picture = options.out / f"sweep-{name}.png"
    draw(f"{name}, {instances} instances in process", probes, below, found, picture)
    return {
        "engine": f"tidegate-local-{instances}" if instances != INSTANCES else "tidegate-local",
        "tick_ms": options.tick_ms,
        "tuples_per_second": None if found is None else round(found),
        "share": part.share,
        "at_share": None if below is None else below.as_json(),
        "probes": [each.as_json() for each in probes],
        "picture": picture.name,
    }


def tried(probes: list[Probe]) -> list[tuple[float, bool]]:
    return [(each.tuples_per_second, each.sustained) for each in probes]


def draw(title: str, probes: list[Probe], below: Probe | None, found: float | None, path: Path) -> None:
    """Latency and growth of the backlog over the offered rate."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = sorted([*probes, *([below] if below else [])], key=lambda each: each.tuples_per_second)
    rates = [each.tuples_per_second for each in shown]
    colours = ["#2e8b57" if each.sustained else "#d1495b" for each in shown]
    figure, (latency, backlog) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    for label, marker, values in (
        ("p50", "v", [each.p50_ms for each in shown]),
        ("p99", "o", [each.p99_ms for each in shown]),
        ("max", "^", [each.max_ms for each in shown]),
    ):
        known = [(rate, value, colour) for rate, value, colour in zip(rates, values, colours, strict=True) if value]
        if known:
            x, y, c = zip(*known, strict=True)
            latency.scatter(x, y, c=c, marker=marker, label=label, s=28)
    latency.axhline(LIMIT_MS, color="#8c8c8c", linestyle="--", linewidth=1)
    latency.set(yscale="log", ylabel="latency, ms", title=f"{title}: green is sustained")
    for handle in latency.legend().legend_handles:
        handle.set_color("#8c8c8c")  # the colour says whether a rate was sustained, not which curve it is
    backlog.scatter(rates, [100 * each.backlog_growth for each in shown], c=colours, s=28)
    backlog.set(ylabel="growth of the backlog, % of the offered", xlabel="offered tuples/s")
    if found is not None:
        for axes in (latency, backlog):
            axes.axvline(found, color="#1f6f8b", linewidth=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _line(seen: Probe) -> str:
    latency = "no result in the span"
    if seen.p50_ms is not None:
        latency = f"latency p50 {seen.p50_ms:.1f}, p99 {seen.p99_ms:.1f}, max {seen.max_ms:.1f} ms"
    verdict = "sustained" if seen.sustained else "not sustained"
    return (
        f"{seen.tuples_per_second:,.0f} tuples/s offered, {seen.read_per_second:,.0f} read, backlog grows by "
        f"{seen.backlog_growth:.1%}, {latency}: {verdict}"
    )
