"""Runs the code of pages of the docs as a reader would, block after block, and compares what it prints with what they show.

    python -m tests.kit.pages docs/tutorial.md

Pages are run in the current folder, in one process: relative paths mean the same to Python and to Spark's Java process, and
a session that one page has started is there for the next.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
from pathlib import Path
from typing import Any

# A comment before a block that cannot run here says why.
_BLOCK = re.compile(r"^(<!-- untested: [^\n]+ -->\n)?```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def differences(page: Path) -> list[str]:
    """Where the blocks of a page print something else than the page shows."""
    found, printed = [], ""
    names: dict[str, Any] = {}
    for number, (untested, kind, block) in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8"))):
        if untested:
            continue
        if kind == "text":
            if printed != block:
                found.append(f"{page.name}, block {number} shows\n{block}and prints\n{printed}")
            continue
        where = f"<{page.name}, block {number}>"
        linecache.cache[where] = len(block), None, block.splitlines(keepends=True), where
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, where, "exec", dont_inherit=True), names)
        printed = out.getvalue()
    return found


if __name__ == "__main__":
    different = [each for page in sys.argv[1:] for each in differences(Path(page))]
    sys.exit("\n".join(different) or 0)
