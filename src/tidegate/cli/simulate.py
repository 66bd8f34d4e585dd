"""``tidegate simulate``: a controller against a load, without anything running."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tidegate.cli.run import positive
from tidegate.control.controllers.registry import CONTROLLERS, RECOMMENDED
from tidegate.errors import UserError
from tidegate.progress import ProgressLine
from tidegate.simulate.loads import NAMED

if TYPE_CHECKING:
    from tidegate.control.controller import Controller, Limits
    from tidegate.control.events import Event
    from tidegate.control.rules import Rule
    from tidegate.simulate.model import SimulatedQuery
    from tidegate.simulate.run import RunSummary

DESCRIPTION = """\
Simulate a subquery under a load, with a controller that decides every few seconds how many instances it has; print how
it went, and draw it. The same command gives the same run.
"""
EXAMPLES = """\
examples:
  tidegate simulate --load gedik-step --plot steady.png
  tidegate simulate --controller thresholds --load day --seconds 86400 --instances 1:64
  tidegate simulate --controller predictive --load stretch-q5 --window-seconds 60 --seconds 1200
  tidegate simulate --load trace.csv --shadow ds2 --shadow thresholds --ledger run.ledger
"""
NONE = "none"


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    loads = "\n".join(f"  {name:<17} {meaning}" for name, (_, meaning) in NAMED.items())
    meanings = {name: _meaning(kind) for name, kind in CONTROLLERS.items()} | {NONE: "Leaves the instances as they are"}
    controllers = "\n".join(f"  {name:<17} {meaning}" for name, meaning in meanings.items())
    made = commands.add_parser(
        "simulate",
        help="try a controller against a load, in simulation",
        description=DESCRIPTION,
        epilog=f"controllers:\n{controllers}\n\nloads:\n{loads}\n\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steering = made.add_argument_group("control")
    known = (*CONTROLLERS, NONE)
    steering.add_argument("--controller", choices=known, metavar="NAME", help=f"default: {RECOMMENDED}; see below")
    steering.add_argument("--rules", metavar="FILE", help="a TOML file of rules; options here go before it")
    steering.add_argument(
        "--print-rules", action="store_true", help="print what these options amount to as such a file"
    )
    steering.add_argument("--subquery", metavar="NAME", default="subquery", help="whose rule in FILE is tried")
    steering.add_argument(
        "--shadow",
        choices=tuple(CONTROLLERS),
        metavar="NAME",
        action="append",
        default=[],
        help="decides, but is not heeded",
    )
    steering.add_argument("--instances", metavar="LEAST:MOST", type=instance_range, help="default: 1:32")
    steering.add_argument("--start", metavar="N", type=positive, help="instances at the start (default: LEAST)")
    steering.add_argument(
        "--period", metavar="SECONDS", type=above_zero, default=5.0, help="between decisions (default: 5)"
    )
    steering.add_argument("--cooldown", metavar="SECONDS", type=float, help="without decisions after a change")
    steering.add_argument("--max-step", metavar="N", type=positive, help="most instances that change at a time")
    world = made.add_argument_group("what is simulated")
    world.add_argument(
        "--load", metavar="NAME|FILE", default="gedik-step", help="see below; a .csv or .parquet is replayed"
    )
    world.add_argument("--times", metavar="FACTOR", type=float, default=1.0, help="multiply the load")
    world.add_argument("--seconds", metavar="N", type=above_zero, default=1_000.0, help="how long (default: 1000)")
    world.add_argument(
        "--service-ms", metavar="MS", type=above_zero, default=2.0, help="per tuple and instance (default: 2)"
    )
    world.add_argument("--zipf", metavar="EXPONENT", type=float, help="10,000 keys, so frequent (default: no keys)")
    world.add_argument("--shards", metavar="N", type=positive, default=256, help="that keys belong to (default: 256)")
    world.add_argument(
        "--window-seconds", metavar="N", type=above_zero, help="make it a join with a window of that size"
    )
    world.add_argument("--comparison-ns", metavar="NS", type=float, default=10.0, help="of that join (default: 10)")
    world.add_argument("--pause", metavar="SECONDS", type=float, default=0.0, help="that a reconfiguration takes")
    world.add_argument("--late", metavar="SECONDS", type=float, default=0.0, help="that new instances take to start")
    world.add_argument("--noise", metavar="SHARE", type=float, default=0.0, help="by which observations are off")
    world.add_argument("--slowing", action="store_true", help="sources slow down instead of queueing what is not taken")
    world.add_argument("--seed", metavar="N", type=int, default=1, help="of noise and keys (default: 1)")
    telling = made.add_argument_group("what is told")
    telling.add_argument(
        "--target-ms", metavar="MS", type=above_zero, default=500.0, help="latency to keep (default: 500)"
    )
    telling.add_argument("--plot", metavar="FILE", help="draw the run: .png, .svg or .pdf")
    telling.add_argument("--ledger", metavar="FILE", help="record every decision; see tidegate ledger")
    telling.add_argument("--quiet", action="store_true", help="no progress")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    from tidegate.control.loop import unrecorded
    from tidegate.control.rules import Rules
    from tidegate.control.rules_text import rules_text
    from tidegate.simulate.plot import check_plot_path, save_plot
    from tidegate.simulate.run import SimulationSettings, simulate

    if chosen.controller == NONE and (chosen.print_rules or chosen.rules or chosen.shadow or chosen.ledger):
        raise UserError(
            f"simulate: with --controller {NONE} nobody decides, so --rules, --print-rules, --shadow and --ledger have "
            "nothing to go by; leave them out, or name a controller"
        )
    rule = _rule(chosen)
    if chosen.print_rules:
        print(rules_text(Rules(rule)), end="")
        return
    if chosen.plot:
        check_plot_path(chosen.plot)
    settings = SimulationSettings(chosen.seconds, chosen.start, period_seconds=chosen.period, seed=chosen.seed)
    steered = None if chosen.controller == NONE else rule
    line = ProgressLine()
    with ExitStack() as opened:
        record: Callable[[Event], None] = unrecorded
        if chosen.ledger:
            from tidegate.telemetry.ledger import Ledger

            label = f"simulate {rule.controller.name} under {chosen.load}, seed {chosen.seed}"
            record = opened.enter_context(Ledger.open(chosen.ledger, label))
        progress = None if chosen.quiet else line
        run = simulate(_query(chosen), steered, settings, record=record, progress=progress)
    if not chosen.quiet:
        line.close()
    print(show_summary(run.summary(chosen.target_ms / 1000), chosen.target_ms))
    if chosen.plot:
        save_plot(run, chosen.plot, chosen.target_ms / 1000)
        print(f"drawn: {chosen.plot}", file=sys.stderr)


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
    """Limits from LEAST:MOST, for argparse."""
    from tidegate.control.controller import Limits

    least, colon, most = text.partition(":")
    try:
        return Limits(int(least), int(most if colon else least))
    except (ValueError, UserError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a range such as 1:32, from 1 up") from error


def above_zero(text: str) -> float:
    """A number that is more than 0, for argparse."""
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from error
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and finite")
    return number


def _query(chosen: argparse.Namespace) -> SimulatedQuery:
    from tidegate.simulate.loads import SumOfLoads, load_named
    from tidegate.simulate.model import JoinWindow, Noise, ReconfigurationCost, SimulatedQuery, SubqueryModel, ZipfKeys

    window = None
    if chosen.window_seconds is not None:
        window = JoinWindow(chosen.window_seconds, chosen.comparison_ns * 1e-9)
    subquery = SubqueryModel(
        chosen.subquery,
        chosen.service_ms / 1000,
        keys=None if chosen.zipf is None else ZipfKeys(exponent=chosen.zipf, seed=chosen.seed),
        shards=chosen.shards,
        window=window,
        cost=ReconfigurationCost(chosen.pause, start_seconds=chosen.late),
    )
    noise = Noise(chosen.noise, chosen.noise, chosen.noise, chosen.noise)
    load = SumOfLoads((load_named(chosen.load),), chosen.times)
    return SimulatedQuery(subquery, load, waits=not chosen.slowing, noise=noise)


def _rule(chosen: argparse.Namespace) -> Rule:
    """The rule that is tried: from the file of rules, if there is one, with what the options say instead."""
    from tidegate.control.rules import Rule

    if chosen.rules:
        from tidegate.control.read_rules import read_rules

        rule = read_rules(chosen.rules).of(chosen.subquery)
    else:
        rule = Rule(_made(RECOMMENDED, chosen.target_ms))
    said: dict[str, Any] = {}
    if chosen.controller not in (None, NONE):
        said["controller"] = _made(chosen.controller, chosen.target_ms)
    if chosen.instances is not None:
        said["limits"] = chosen.instances
    if chosen.cooldown is not None:
        said["cooldown_seconds"] = chosen.cooldown
    if chosen.max_step is not None:
        said["max_step"] = chosen.max_step
    said["shadows"] = (*rule.shadows, *(_made(name, chosen.target_ms) for name in chosen.shadow))
    return replace(rule, **said)


def _made(name: str, target_ms: float) -> Controller:
    """A controller with its own settings, and the latency target if it takes one."""
    kind = CONTROLLERS[name]
    takes_target = any(field.name == "target_seconds" for field in fields(kind))
    made: Controller = kind(target_seconds=target_ms / 1000) if takes_target else kind()
    return made


def _meaning(kind: type) -> str:
    """The first line of a controller's docstring, without its full stop."""
    return (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
