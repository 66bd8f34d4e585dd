"""A program as an entry of the report runs it: it leaves a rate in its folder, or fails, or sleeps beside a child."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path)
parser.add_argument("--rate", default="4")
parser.add_argument("--fail", default="")
parser.add_argument("--sleep", type=float, default=0.0)
asked = parser.parse_args()
if asked.fail:
    sys.exit(asked.fail)
if asked.sleep:
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({asked.sleep})"])
    (asked.out / "child").write_text(str(child.pid))
    time.sleep(asked.sleep)
(asked.out / "made.json").write_text(json.dumps({"rate": asked.rate}))
