"""The machine and the versions that figures were taken on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from benchmarks import peers

PACKAGES = ("tidegate", "pyspark", "pyarrow", "duckdb", "polars", "numpy", "numba", "pandas")


def describe() -> dict[str, Any]:
    """Cores, CPU model, memory and the versions of everything that takes part."""
    versions = {"python": platform.python_version(), "java": _java_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    versions |= peers.versions()
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "versions": versions,
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _java_version() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', output)
    return found.group(1) if found else "unknown"
