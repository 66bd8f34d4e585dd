"""The ``tidegate`` command."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Sequence

from tidegate import __version__
from tidegate.cli import demo, explain, ledger, plan, run, simulate, top
from tidegate.errors import DataError, EnvironmentFault, InternalError, UserError

OK, FAILED, MISTAKE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = """\
exit codes:
  0    done
  1    the run failed: bad data, or Spark
  2    a mistake in the command, the query or the choice of checkpoint
  3    the machine lacks something, such as Java
  130  interrupted; where there is a checkpoint, the same command goes on from there

Set TIDEGATE_DEBUG=1 to see Python tracebacks and Spark's log.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    chosen = parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], None] = chosen.command
        command(chosen)
    except KeyboardInterrupt as interrupt:
        print(": ".join(["tidegate: interrupted", *map(str, filter(None, interrupt.args))]), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may be written to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("TIDEGATE_DEBUG") or isinstance(error, InternalError):
            raise
        print(_paragraph(error), file=sys.stderr)
        return exit_code(error)
    return OK


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    made = argparse.ArgumentParser(
        prog="tidegate",
        description="Elastic, deterministic stream processing on Spark.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"tidegate {__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for part in (run, explain, plan, demo, ledger, simulate, top):
        part.add_to(commands)
    return made


def exit_code(error: Exception) -> int:
    """The exit code for an error: who can mend it."""
    match error:
        case DataError():
            return FAILED
        case UserError():
            return MISTAKE
        case EnvironmentFault():
            return ENVIRONMENT
        case ImportError() | OSError():
            return ENVIRONMENT
        case _:
            return FAILED


def _paragraph(error: Exception) -> str:
    from tidegate.runtime.spark.failure import summary

    kind = type(error)
    if isinstance(error, UserError | EnvironmentFault):
        text = str(error)
    elif kind.__module__.split(".")[0] in ("pyspark", "py4j"):
        text = f"Spark failed: {summary(str(error))}"
    else:
        text = f"{kind.__name__}: {error}"
    notes = " ".join(getattr(error, "__notes__", ()))
    return "\n".join(
        wrapped
        for line in f"tidegate: {text}{f' ({notes})' if notes else ''}".splitlines()
        for wrapped in textwrap.wrap(line, 110, break_long_words=False, break_on_hyphens=False) or [""]
    )


if __name__ == "__main__":
    sys.exit(main())
