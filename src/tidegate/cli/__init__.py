"""The command line: `main` joins the commands of `queries`, `ledger` and `simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType


def option(metavar: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """An option that takes a value, named for its parameter."""
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option that takes no value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


def show(content: RenderableType, width: int = 10_000) -> None:
    """Print the output of a command: with colours on a terminal; else plain, and of at most this width."""
    from rich.console import Console

    from tidegate.tables import plain

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(content)
    else:
        print(plain(content, width))
