"""One decision of the ledger in sentences: what was seen, what was done and why, what was rejected, what came of it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tidegate.errors import UserError
from tidegate.telemetry.schema import open_to_read

DID = {"provision": "went up", "decommission": "went down", "balance": "moved shards", "hold": "held"}
DO = {"provision": "go up", "decommission": "go down", "balance": "move shards", "hold": "hold"}
NOT_DONE = {"advised": "advised to", "opinion": "would", "refused": "tried to"}

SELECT = """
SELECT d.*, o.run, o.subquery, o.step, o.time_seconds, o.period_seconds, o.instances AS before, o.offered, o.admitted,
    o.processed, o.demand, o.backlog, o.congestion, o.utilisation, o.least_busy, o.most_busy, o.watermark_lag_seconds,
    o.latency_seconds, r.label,
    e.time_seconds AS effect_seconds, e.missed,
    e.before_utilisation, e.before_latency_seconds, e.before_processed, e.before_deviation,
    e.seen_utilisation, e.seen_latency_seconds, e.seen_processed, e.seen_deviation
FROM decisions d JOIN observations o USING (observation) JOIN runs r USING (run) LEFT JOIN effects e USING (decision)
"""


def explain(path: str | Path, number: int) -> str:
    """The decision with this number, in sentences, one paragraph for each question about it."""
    connection = open_to_read(Path(path))
    try:
        row = connection.execute(f"{SELECT} WHERE d.decision = ?", (number,)).fetchone()
        if row is None:
            raise UserError(f"ledger {path}: there is no decision {number}; {_numbers(connection)}")
        others = connection.execute(
            f"{SELECT} WHERE d.observation = ? AND d.decision <> ? ORDER BY d.decision", (row["observation"], number)
        ).fetchall()
        rejected = connection.execute(
            "SELECT instances, why_not FROM alternatives WHERE decision = ? ORDER BY rowid", (number,)
        ).fetchall()
    finally:
        connection.close()
    paragraphs = [
        _headline(row),
        _observed(row),
        _reason(row),
        *[f"Rejected, {counted(each['instances'])}: {_inner(each['why_not'])}." for each in rejected],
        _result(row),
        *_effect(row),
        *[_other(each, row) for each in others],
    ]
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def counted(instances: int) -> str:
    """A number of instances in words.

    >>> counted(1), counted(1200)
    ('1 instance', '1,200 instances')
    """
    return f"{instances:,} instance{'' if instances == 1 else 's'}"


def _headline(row: sqlite3.Row) -> str:
    label = f" '{row['label']}'" if row["label"] else ""
    shadow = ", in the shadow," if row["role"] == "shadow" else ""
    return (
        f"Decision {row['decision']} of run {row['run']}{label}: subquery '{row['subquery']}', step {row['step']}, at "
        f"{row['time_seconds']:,g} s. The controller {row['controller']}{shadow} {_did(row)}."
    )


def _did(row: sqlite3.Row) -> str:
    if row["result"] == "failed":
        return f"failed with {row['note']}"
    not_done = NOT_DONE.get(row["result"])
    verb = f"{not_done} {DO[row['action']]}" if not_done else DID[row["action"]]
    match row["action"]:
        case "hold":
            return f"{verb} at {counted(row['instances'])}"
        case "balance":
            return f"{verb} among {counted(row['instances'])}"
        case _:
            return f"{verb} from {row['before']:,} to {counted(row['instances'])}"


def _observed(row: sqlite3.Row) -> str:
    parts = [
        f"{row[name]:,.0f} {text}"
        for name, text in (
            ("offered", "tuples/s offered"),
            ("demand", "in demand"),
            ("admitted", "admitted"),
            ("processed", "processed"),
            ("backlog", "tuples waiting"),
        )
        if row[name] is not None
    ]
    if row["congestion"] is not None:
        parts.append(f"sources blocked {row['congestion']:.0%} of the time")
    if row["utilisation"] is not None:
        parts.append(f"instances busy {row['utilisation']:.0%} ({row['least_busy']:.0%} to {row['most_busy']:.0%})")
    if row["latency_seconds"] is not None:
        parts.append(f"a latency of {row['latency_seconds']:,.3g} s")
    if row["watermark_lag_seconds"] is not None:
        parts.append(f"the watermark {row['watermark_lag_seconds']:,.3g} s behind")
    seen = ", ".join(parts) or "nothing but the number of instances"
    return f"Observed over {row['period_seconds']:,g} s with {counted(row['before'])}: {seen}."


def _reason(row: sqlite3.Row) -> str:
    if row["result"] == "failed":
        return ""
    missing = f" Missing: {', '.join(json.loads(row['missing']))}." if row["missing"] else ""
    asked = "" if row["asked"] else " The controller was not asked."
    cut = ""
    if row["withheld"]:
        cut = f" It wanted {counted(row['wanted_instances'])} ({row['wanted_action']}), and the loop allowed less."
    return f"Why: {_inner(row['why'])}.{missing}{asked}{cut}"


def _result(row: sqlite3.Row) -> str:
    note = f" ({row['note']})" if row["note"] else ""
    match row["result"]:
        case "acted":
            takes = f", in force after {row['takes_seconds']:,.3g} s" if row["takes_seconds"] is not None else ""
            moved = f", {row['state_bytes_moved']:,} bytes of state moved" if row["state_bytes_moved"] else ""
            return f"It was carried out{takes}{moved}{note}."
        case "refused":
            return f"It was refused{note}; things stayed as they were."
        case "advised":
            return "It was not carried out, because this was a dry run."
        case _:
            return ""


def _effect(row: sqlite3.Row) -> list[str]:
    if row["result"] != "acted":
        return []
    if row["effect_seconds"] is None:
        return ["Its effect has not been seen yet."]
    if row["missed"]:
        return [f"Its effect was not seen: {row['missed']}."]
    after = row["effect_seconds"] - row["time_seconds"]
    parts = []
    for name, shape in (
        ("utilisation", "{:.0%}"),
        ("deviation", "{:.3f}"),
        ("processed", "{:,.0f} tuples/s"),
        ("latency_seconds", "{:,.3g} s"),
    ):
        before, expected, seen = (row[f"{when}_{name}"] for when in ("before", "expected", "seen"))
        if seen is not None:
            told = f", expected {shape.format(expected)}" if expected is not None else ""
            was = f", before {shape.format(before)}" if before is not None else ""
            parts.append(f"{name.removesuffix('_seconds')} {shape.format(seen)}{told}{was}")
        elif expected is not None:
            parts.append(f"{name.removesuffix('_seconds')} was not observed, expected {shape.format(expected)}")
    return [f"Its effect, seen {after:,g} s later: {'; '.join(parts) or 'nothing was observed of it'}."]


def _other(other: sqlite3.Row, row: sqlite3.Row) -> str:
    who = (
        f"In the shadow, {other['controller']}" if other["role"] == "shadow" else f"The driver, {other['controller']},"
    )
    if other["result"] == "failed":
        return f"{who} failed: {other['note']}."
    same = (other["action"], other["instances"]) == (row["action"], row["instances"])
    return f"{who} {'agreed' if same else _did(other)}: {_inner(other['why'])}."


def _inner(sentence: str) -> str:
    return sentence.rstrip(". ")


def _numbers(connection: sqlite3.Connection) -> str:
    first, last = connection.execute("SELECT min(decision), max(decision) FROM decisions").fetchone()
    return "it has none yet" if first is None else f"they go from {first} to {last}"
