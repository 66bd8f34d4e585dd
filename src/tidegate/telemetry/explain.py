"""One decision of the ledger in sentences: what was observed, what was done and why, what was rejected, what came of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tidegate.errors import UserError
from tidegate.telemetry.schema import open_to_read

DID = {"provision": "went up", "decommission": "went down", "balance": "moved shards", "hold": "held"}
DO = {"provision": "go up", "decommission": "go down", "balance": "move shards", "hold": "hold"}
NOT_DONE = {"advised": "advised to", "opinion": "would", "refused": "tried to"}
OBSERVED = {
    "offered": "{:,.0f} tuples/s offered",
    "demand": "{:,.0f} in demand",
    "admitted": "{:,.0f} admitted",
    "processed": "{:,.0f} processed",
    "backlog": "{:,.0f} tuples waiting",
    "congestion": "sources blocked {:.0%} of the time",
    "utilisation": "instances busy {:.0%} ({least_busy:.0%} to {most_busy:.0%})",
    "latency_seconds": "a latency of {:,.3g} s",
    "watermark_lag_seconds": "the watermark {:,.3g} s behind",
}
EFFECTS = {
    "utilisation": "{:.0%}",
    "deviation": "{:.3f}",
    "processed": "{:,.0f} tuples/s",
    "latency_seconds": "{:,.3g} s",
}

COSTS = {
    "in_force_seconds": "in force after {:,.3g} s",
    "delay_seconds": "results delayed by {:,.3g} s",
    "bytes_read": "{:,} bytes read",
    "bytes_written": "{:,} bytes written",
    "tuples_doubled": "{:,} tuples doubled",
}


def explain(path: str | Path, number: int) -> str:
    """The decision with this number, in sentences, one paragraph for each question about it."""
    with closing(open_to_read(path)) as connection:
        row = connection.execute("SELECT * FROM explained WHERE decision = ?", (number,)).fetchone()
        if row is None:
            first, last = connection.execute("SELECT min(decision), max(decision) FROM decisions").fetchone()
            there = "it has none yet" if first is None else f"they go from {first} to {last}"
            raise UserError(f"ledger {path}: there is no decision {number}; {there}")
        others = connection.execute(
            "SELECT * FROM explained WHERE run = ? AND subquery = ? AND step = ? AND decision <> ? ORDER BY decision",
            (row["run"], row["subquery"], row["step"], number),
        ).fetchall()
    paragraphs = [
        _headline(row),
        _observed(row),
        _reason(row),
        *[f"Rejected, {counted(count)}: {_inner(why_not)}." for count, why_not in json.loads(row["rejected"])],
        _result(row),
        _move(row),
        _effect(row),
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
    action, not_done = row["action"], NOT_DONE.get(row["result"])
    verb = f"{not_done} {DO[action]}" if not_done else DID[action]
    where = {"hold": "at", "balance": "among"}.get(action, f"from {row['instances_before']:,} to")
    return f"{verb} {where} {counted(row['instances'])}"


def _observed(row: sqlite3.Row) -> str:
    parts = [form.format(row[name], **dict(row)) for name, form in OBSERVED.items() if row[name] is not None]
    seen = ", ".join(parts) or "nothing but the number of instances"
    return f"Observed over {row['period_seconds']:,g} s with {counted(row['instances_before'])}: {seen}."


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


def _move(row: sqlite3.Row) -> str:
    """How shards changed owners, what that should have cost and what it did."""
    if row["protocol"] is None:
        return ""
    told = f"{row['moved_shards']:,} shards with {row['moved_bytes']:,} bytes"
    parts = []
    for name, form in COSTS.items():
        planned, took = row[f"planned_{name}"], row[f"took_{name}"]
        if planned or took:
            parts.append(f"{form.format(planned)} estimated" + ("" if took is None else f", {form.format(took)} seen"))
    rejected = "; ".join(f"{name}: {why}" for name, why in json.loads(row["protocols_rejected"] or "[]"))
    others = f" Not taken: {rejected}." if rejected else ""
    return f"By {row['protocol']} ({row['protocol_why']}), {told}: {'; '.join(parts) or 'at no cost'}.{others}"


def _effect(row: sqlite3.Row) -> str:
    if row["result"] != "acted":
        return ""
    if row["effect_time_seconds"] is None:
        return "Its effect has not been seen yet."
    if row["effect_missed"]:
        return f"Its effect was not seen: {row['effect_missed']}."
    parts = []
    for name, form in EFFECTS.items():
        label = name.removesuffix("_seconds")
        before, expected, seen = (row[f"{when}_{name}"] for when in ("before", "expected", "seen"))
        more = f", expected {form.format(expected)}" if expected is not None else ""
        if seen is not None:
            was = f", before {form.format(before)}" if before is not None else ""
            parts.append(f"{label} {form.format(seen)}{more}{was}")
        elif more:
            parts.append(f"{label} was not observed{more}")
    after = row["effect_time_seconds"] - row["time_seconds"]
    return f"Its effect, seen {after:,g} s later: {'; '.join(parts) or 'nothing was observed of it'}."


def _other(other: sqlite3.Row, row: sqlite3.Row) -> str:
    shadow, name = other["role"] == "shadow", other["controller"]
    subject = f"In the shadow, {name}" if shadow else f"The driver, {name},"
    if other["result"] == "failed":
        return f"{subject} failed: {other['note']}."
    same = (other["action"], other["instances"]) == (row["action"], row["instances"])
    return f"{subject} {'agreed' if same else _did(other)}: {_inner(other['why'])}."


def _inner(sentence: str) -> str:
    return sentence.rstrip(". ")
