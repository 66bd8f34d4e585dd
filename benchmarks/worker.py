"""The process of one engine: reads commands from standard input, answers on standard output, a line of JSON each.

Started as `python -m benchmarks.worker ENGINE WORKLOAD`. Commands: `run` and `collect`, as in `Engine`, `first_result`, as
in `StreamingEngine`, and `call`, for whatever else an adapter has; the end of the input ends the process. Whatever else is
written to standard output goes to standard error and cannot garble an answer.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from benchmarks.engines import StreamingEngine, load
from benchmarks.inputs import Input


def main(engine_name: str, workload_name: str) -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        engine = load(engine_name, workload_name)
    except Exception as error:
        _fail(answers, error)
        return 1
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        try:
            command = json.loads(line)
            if command["do"] == "first_result":
                _until_first_result(engine, command, answers)
                return 0
            _answer(answers, _obey(engine, command))
        except Exception as error:
            _fail(answers, error)
            return 1
    engine.close()
    return 0


def _until_first_result(engine: StreamingEngine, command: dict[str, Any], answers: TextIO) -> None:
    """Answer at the first result; what follows is of no interest, but may still come."""
    waiting = [{"seen": True}]
    paths = tuple(Path(file) for file in command["files"])

    def seen() -> None:
        if waiting:
            _answer(answers, waiting.pop())

    engine.first_result(Input(paths[0].parent, paths, command["tuples"]), Path(command["scratch"]), seen)
    if waiting:
        raise RuntimeError("the run ended without a result")


def _obey(engine: Any, command: dict[str, Any]) -> dict[str, Any]:
    match command:
        case {"do": "run", "files": files, "tuples": tuples, "scratch": scratch}:
            paths = tuple(Path(file) for file in files)
            timing = engine.run(Input(paths[0].parent, paths, tuples), Path(scratch))
            return asdict(timing)
        case {"do": "collect", "target": target}:
            engine.collect(Path(target))
            return {"target": target}
        case {"do": "call", "method": method, "arguments": arguments}:
            return {"value": getattr(engine, method)(**arguments)}
        case _:
            raise ValueError(f"unknown command {command!r}; valid are run, collect, first_result and call")


def _fail(answers: TextIO, error: Exception) -> None:
    traceback.print_exc()
    _answer(answers, {"error": f"{type(error).__name__}: {error}"})


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
