"""``tidegate simulate``: a controller against a load, without anything running."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import flag, option
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.errors import UserError, choices
from tidegate.simulate.loads import NAMED

if TYPE_CHECKING:
    from tidegate.control.controller import Controller, Limits
    from tidegate.simulate.run import RunSummary

NONE = "none"


def epilog() -> str:
    """The controllers and the loads that there are."""
    meanings = {name: (kind.__doc__ or "").strip().splitlines()[0].rstrip(".") for name, kind in CONTROLLERS.items()}
    meanings[NONE] = "Leaves the instances as they are"
    controllers = "\n".join(f"{name:<17} {meaning}" for name, meaning in meanings.items())
    loads = "\n".join(f"{name:<17} {meaning}" for name, (_, meaning) in NAMED.items())
    return f"controllers:\n{controllers}\n\nloads:\n{loads}"


def above_zero(text: str | float) -> float:
    """A number that is more than 0, from an option."""
    try:
        number = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not a number") from error
    if not 0 < number < math.inf:
        raise typer.BadParameter(f"{text} is not more than 0 and finite")
    return number


_control = partial(option, panel="Control")
_model = partial(option, panel="What is simulated")
_output = partial(option, panel="Output")


def simulate(
    controller: Annotated[str | None, _control("NAME", f"default: {RECOMMENDED}; see below")] = None,
    rules: Annotated[str | None, _control("FILE", "a TOML file of rules; options here go before it")] = None,
    print_rules: Annotated[bool, flag("--print-rules", "print these options as such a file", "Control")] = False,
    subquery: Annotated[str, _control("NAME", "whose rule in FILE is tried")] = "subquery",
    shadow: Annotated[list[str] | None, _control("NAME", "decides, but is not heeded; may be repeated")] = None,
    instances: Annotated[str | None, _control("LEAST:MOST", "default: 1:32")] = None,
    start: Annotated[int | None, _control("N", "instances at the start (default: LEAST)", min=1)] = None,
    period: Annotated[float, _control("SECONDS", "between decisions", parser=above_zero)] = 5.0,
    cooldown: Annotated[float | None, _control("SECONDS", "without decisions after a change")] = None,
    max_step: Annotated[int | None, _control("N", "most instances that change at a time", min=1)] = None,
    load: Annotated[str, _model("NAME|FILE", "see below; a .csv or .parquet is replayed")] = "gedik-step",
    times: Annotated[float, _model("FACTOR", "multiply the load")] = 1.0,
    seconds: Annotated[float, _model("N", "how long", parser=above_zero)] = 1_000.0,
    service_ms: Annotated[float, _model("MS", "per tuple and instance", parser=above_zero)] = 2.0,
    zipf: Annotated[float | None, _model("EXPONENT", "10,000 keys, so frequent (default: no keys)")] = None,
    shards: Annotated[int, _model("N", "that keys belong to", min=1)] = 256,
    window_seconds: Annotated[
        float | None, _model("N", "make it a join with a window of that size", parser=above_zero)
    ] = None,
    comparison_ns: Annotated[float, _model("NS", "of that join")] = 10.0,
    pause: Annotated[float, _model("SECONDS", "that a reconfiguration takes")] = 0.0,
    late: Annotated[float, _model("SECONDS", "that new instances take to start")] = 0.0,
    noise: Annotated[float, _model("SHARE", "by which observations are off")] = 0.0,
    slowing: Annotated[bool, flag("--slowing", "sources slow down instead of queueing", "What is simulated")] = False,
    seed: Annotated[int, _model("N", "of noise and keys")] = 1,
    target_ms: Annotated[float, _output("MS", "latency to keep", parser=above_zero)] = 500.0,
    plot: Annotated[str | None, _output("FILE", "draw the run: .png, .svg or .pdf")] = None,
    ledger: Annotated[str | None, _output("FILE", "record every decision; see tidegate ledger")] = None,
    quiet: Annotated[bool, flag("--quiet", "no progress", "Output")] = False,
) -> None:
    """Try a controller against a load, in simulation.

    Simulates a subquery under a load, with a controller that decides every few
    seconds how many instances it has; prints how it went, and draws it. The
    same command gives the same run.

    Examples:
    tidegate simulate --load gedik-step --plot steady.png
    tidegate simulate --controller thresholds --load day --instances 1:64
    tidegate simulate --controller predictive --window-seconds 60
    tidegate simulate --load trace.csv --shadow ds2 --ledger run.ledger
    """
    from tidegate.control.loop import Record, unrecorded
    from tidegate.control.rules import Rule, Rules
    from tidegate.control.rules_file import read_rules, rules_text
    from tidegate.progress import ProgressLine
    from tidegate.simulate import run as simulation
    from tidegate.simulate.loads import SumOfLoads, load_named
    from tidegate.simulate.model import JoinWindow, Noise, ReconfigurationCost, SimulatedQuery, SubqueryModel, ZipfKeys
    from tidegate.simulate.plot import check_plot_path, save_plot
    from tidegate.telemetry.ledger import Ledger

    steered = controller != NONE
    if not steered and (print_rules or rules or shadow or ledger):
        raise UserError(
            f"simulate: with --controller {NONE} nothing is decided, so --rules, --print-rules, --shadow and --ledger "
            "have nothing to go by; leave them out, or name a controller"
        )
    target_seconds = target_ms / 1000
    rule = read_rules(rules).of(subquery) if rules else Rule(_controller(RECOMMENDED, target_seconds))
    options = {
        "controller": _controller(controller, target_seconds) if controller and steered else None,
        "limits": instance_range(instances) if instances is not None else None,
        "cooldown_seconds": cooldown,
        "max_step": max_step,
        "shadows": (*rule.shadows, *(_controller(name, target_seconds) for name in shadow or ())),
    }
    rule = replace(rule, **{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]
    if print_rules:
        print(rules_text(Rules(rule)), end="")
        return
    if plot:
        check_plot_path(plot)
    model = SubqueryModel(
        subquery,
        service_ms / 1000,
        keys=None if zipf is None else ZipfKeys(exponent=zipf, seed=seed),
        shards=shards,
        window=None if window_seconds is None else JoinWindow(window_seconds, comparison_ns * 1e-9),
        cost=ReconfigurationCost(pause, start_seconds=late),
    )
    query = SimulatedQuery(
        model, SumOfLoads((load_named(load),), times), waits=not slowing, noise=Noise(noise, noise, noise, noise)
    )
    settings = simulation.SimulationSettings(seconds, start, period_seconds=period, seed=seed)
    with ExitStack() as opened:
        record: Record = unrecorded
        if ledger:
            label = f"simulate {rule.controller.name} under {load}, seed {seed}"
            record = opened.enter_context(Ledger.open(ledger, label))
        line = None if quiet else ProgressLine()
        if line is not None:
            opened.callback(line.close)
        run = simulation.simulate(query, rule if steered else None, settings, record=record, progress=line)
    print(show_summary(run.summary(target_seconds), target_ms))
    if plot:
        save_plot(run, plot, target_seconds)
        print(f"drawn: {plot}", file=sys.stderr)


def show_summary(found: RunSummary, target_ms: float) -> str:
    """The figures of a run, a line each."""
    lines = {
        "changes": f"{found.changes:,}, {found.reversals:,} of them back",
        "instance-seconds": f"{found.instance_seconds:,.0f}",
        f"time above {target_ms:g} ms": f"{found.late_time:.2%}",
        f"tuples above {target_ms:g} ms": f"{found.late_tuples:.2%}",
    }
    if found.refused > 0:
        lines["offered, but not taken in"] = f"{found.refused:.2%}"
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def instance_range(text: str) -> Limits:
    """Limits from LEAST:MOST."""
    from tidegate.control.controller import Limits

    least, colon, most = text.partition(":")
    try:
        return Limits(int(least), int(most if colon else least))
    except (ValueError, UserError) as error:
        raise UserError(f"--instances: '{text}' is not a range such as 1:32, from 1 up") from error


def _controller(name: str, target_seconds: float) -> Controller:
    """A controller with its default settings, and the latency target if it takes one."""
    if name not in CONTROLLERS:
        raise UserError(f"simulate: there is no controller {name!r}; choose one of {choices((*CONTROLLERS, NONE))}")
    kind = CONTROLLERS[name]
    takes_target = any(field.name == "target_seconds" for field in fields(kind))
    controller: Controller = kind(target_seconds=target_seconds) if takes_target else kind()
    return controller
