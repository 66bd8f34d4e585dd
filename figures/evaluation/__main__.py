"""The command line: `python -m figures.evaluation`, which is `make report`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.machine import describe
from figures.evaluation.catalogue import ENTRIES, WITHOUT_ENTRY
from figures.evaluation.document import section, write_document
from figures.evaluation.entry import Entry
from figures.evaluation.run import PROJECT, kept, run_entry

CACHE = PROJECT / "build" / "evaluation"
DOCUMENT = PROJECT / "docs" / "evaluation.md"
DESCRIPTION = """\
Run what the papers' figures and tables can be compared with, and write one document.

Entries are run one after the other, each in a process of its own and within its time. What has ended well is kept, so an
interrupted report goes on where it was; an entry that fails is named in the document and run again the next time.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is wanted and write the document; 1 if an entry has no figures."""
    asked = _parse(arguments)
    chosen = wanted(asked.only)
    if asked.list:
        for entry in ENTRIES:
            told = f"{entry.paper.value.split(' (')[0]}, {entry.covers}; at most {entry.limit_seconds:.0f} s"
            print(f"{entry.name:<24} {told}{', by name only' if entry.apart else ''}")
        return 0
    if not chosen:
        print(f"no entry has {asked.only!r} in its name; --list names them", file=sys.stderr)
        return 2
    if not asked.write_only:
        # What asks the report to end ends the entry that runs, as Ctrl-C does.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _run(chosen, asked.cache, asked.again, asked.patience)
        except KeyboardInterrupt:
            print("interrupted; the same command goes on from here", file=sys.stderr)
            return 130
        finally:
            signal.signal(signal.SIGTERM, before)
    sections = [section(entry, asked.cache / entry.name) for entry in ENTRIES]
    write_document(sections, WITHOUT_ENTRY, asked.cache, asked.to, describe())
    print(asked.to)
    missing = [each for each in sections if each.entry in chosen and not each.rows]
    for each in missing:
        print(f"  {each.entry.name}: no figures, {each.missing}", file=sys.stderr)
    return int(bool(missing))


def wanted(only: str | None) -> list[Entry]:
    """The entries whose name has a pattern, `*` standing for anything; without one, all but those that are run apart."""
    if only is None:
        return [entry for entry in ENTRIES if not entry.apart]
    return [entry for entry in ENTRIES if fnmatchcase(entry.name, f"*{only}*")]


def _run(chosen: Sequence[Entry], cache: Path, again: bool, patience: float) -> None:
    for number, entry in enumerate(chosen, 1):
        folder = cache / entry.name
        before = kept(entry, folder)
        about = f"[{number}/{len(chosen)}] {entry.name}: {entry.paper.value.split(' (')[0]}, {entry.covers}"
        if before is not None and not before.failure and not again:
            print(f"{about}: there already, from {before.when}", file=sys.stderr, flush=True)
            continue
        print(about, file=sys.stderr, flush=True)
        record = run_entry(entry, folder, patience * entry.limit_seconds)
        ended = f"failed: {record.failure}" if record.failure else "done"
        print(f"  {ended}, {record.seconds:.0f} s; {record.business}", file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m figures.evaluation",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="PATTERN", help="entries whose name has this, * standing for anything")
    parser.add_argument("--again", action="store_true", help="run them also if their results are there")
    parser.add_argument("--list", action="store_true", help="print the entries and stop")
    parser.add_argument("--write-only", action="store_true", help="run nothing, write what is there")
    parser.add_argument("--patience", type=float, default=1.0, metavar="X", help="times the limit of each entry")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="FOLDER", help="results (default: build/evaluation)"
    )
    parser.add_argument("--to", type=Path, default=DOCUMENT, metavar="FILE", help="default: docs/evaluation.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
