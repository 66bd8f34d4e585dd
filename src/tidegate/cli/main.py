"""The ``tidegate`` command: its grammar, its exit codes, and how errors are reported."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate import __version__
from tidegate.cli import ledger, queries, rescale, simulate
from tidegate.errors import DataError, EnvironmentFault, InternalError, UserError

OK, FAILED, MISTAKE, ENVIRONMENT, INTERRUPTED, NOT_READ = 0, 1, 2, 3, 130, 141


class ReportingGroup(TyperGroup):
    """Runs a command and reports its errors in a sentence on standard error."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            print(": ".join(["tidegate: interrupted", *map(str, filter(None, interrupt.args))]), file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from interrupt
        except BrokenPipeError as closed:
            # What reads the output has enough, as in `tidegate run ... --to - | head -3`; nothing is left to flush at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOT_READ) from closed
        except (typer.TyperException, typer.Exit):
            raise
        except Exception as error:
            if os.environ.get("TIDEGATE_DEBUG") or isinstance(error, InternalError):
                raise
            print(_paragraph(error), file=sys.stderr)
            raise typer.Exit(exit_code(error)) from error


app = typer.Typer(cls=ReportingGroup, rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
for function in (
    *(queries.run, queries.explain, queries.plan, queries.demo, rescale.rescale),
    *(ledger.ledger, ledger.top, ledger.page),
):
    app.command()(function)
app.command(epilog=simulate.epilog())(simulate.simulate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    try:
        code = app(arguments, prog_name="tidegate", standalone_mode=False)
    except typer.TyperException as error:
        print(f"tidegate: {error.format_message().rstrip('.')}; see tidegate --help", file=sys.stderr)
        return MISTAKE
    return code or OK


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to standard error.")] = False,
) -> None:
    """Elastic, deterministic stream processing on Spark.

    exit codes:
    0    done
    1    the run failed: bad data, or Spark
    2    a mistake in the command, the query or the choice of checkpoint
    3    the machine lacks something, such as Java
    130  interrupted; with a checkpoint, the same command goes on from there
    141  what read the standard output has closed it, as head does

    Set TIDEGATE_DEBUG=1 to see Python tracebacks and Spark's log.
    """
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger("tidegate").addHandler(handler)
        logging.getLogger("tidegate").setLevel(logging.INFO)


def exit_code(error: Exception) -> int:
    """The exit code for an error: who can fix it."""
    if isinstance(error, UserError):
        return FAILED if isinstance(error, DataError) else MISTAKE
    return ENVIRONMENT if isinstance(error, EnvironmentFault | ImportError | OSError) else FAILED


def _paragraph(error: Exception) -> str:
    kind = type(error)
    if isinstance(error, UserError | EnvironmentFault):
        text = str(error)
    elif kind.__module__.split(".")[0] in ("pyspark", "py4j"):
        from tidegate.runtime.spark.failure import summary

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
