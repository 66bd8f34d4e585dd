"""Finds the Java that Spark needs, or says in one line how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tidegate.errors import EnvironmentFault

OLDEST = 17
HINT = (
    f"Install a full Java {OLDEST} or newer (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew "
    "install openjdk@17; Fedora: dnf install java-17-openjdk-headless) and set JAVA_HOME if it is not on the PATH."
)


def require_java() -> int:
    """The major version of the Java that Spark will use; raises `EnvironmentFault` if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise EnvironmentFault(f"Spark needs Java, and none was found{f' in JAVA_HOME={home}' if home else ''}. {HINT}")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        raise EnvironmentFault(f"{program} did not print its version. {HINT}")
    major = int(match[1])
    if major < OLDEST:
        raise EnvironmentFault(f"Spark needs Java {OLDEST} or newer, and {program} is Java {major}. {HINT}")
    return major


if __name__ == "__main__":
    try:
        require_java()
    except EnvironmentFault as fault:
        sys.exit(f"tidegate: {fault}")
