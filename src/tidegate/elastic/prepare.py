"""Getting ready to scale: what can go wrong at the start, such as a ledger that cannot be opened, goes wrong here."""

from __future__ import annotations

from contextlib import ExitStack

from tidegate.control.controller import Actuator
from tidegate.control.look import Observer
from tidegate.control.loop import Record, unrecorded
from tidegate.control.rules import Rules
from tidegate.elastic.faults import Patience
from tidegate.elastic.given import Elastic
from tidegate.elastic.prometheus import MetricsServer
from tidegate.elastic.scaling import Scaling
from tidegate.telemetry.ledger import Ledger


def prepare_scaling(
    elastic: Elastic,
    rules: Rules,
    observer: Observer,
    actuator: Actuator,
    *,
    name: str,
    period_seconds: float,
    patience: Patience | None = None,
) -> Scaling:
    """Scaling that is yet to be started; what was opened for it is closed when it ends.

    ``period_seconds`` is the time between looks; whether each of them is a period is the observer's business.
    """
    with ExitStack() as stack:
        record: Record = unrecorded
        if elastic.ledger is not None:
            record = stack.enter_context(Ledger.open(elastic.ledger, name))
        made = Scaling(
            observer,
            actuator,
            rules,
            period_seconds=period_seconds,
            patience=patience,
            record=record,
            name=name,
        )
        if elastic.metrics_port is not None:
            server = MetricsServer(elastic.metrics_port, lambda: made.latest)
            stack.callback(server.close)
            made.metrics_port = server.port
        made.closing = stack.pop_all().close
    return made
