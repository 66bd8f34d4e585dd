from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runtime.spark.control import (
    STEPS,
    EndInput,
    SetInstances,
    SetMapping,
    SteeredStep,
    Steering,
    parse,
    unknown_files,
)
from tidegate.state.epochs import ADOPT, PROTOCOLS


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """The folder of a query with two stateful steps, of which one can recreate windows."""
    steps = [SteeredStep("1:hourly", "hourly", 4, PROTOCOLS), SteeredStep("2:pairs", "pairs", 4, (ADOPT,))]
    Steering(tmp_path).describe(steps)
    assert Steering(tmp_path).steps() == steps
    return tmp_path


def sent(control: Path) -> list[Any]:
    files = [path for path in control.iterdir() if path.name != STEPS]
    return [parse(json.loads(path.read_text())["message"]) for path in files]


def test_what_is_asked_for_is_one_message_each(control: Path) -> None:
    tg.set_instances(control, {0: 4, 3: 1}, step="hourly")
    tg.set_cells(control, 4)
    tg.move_shards(control, "1:hourly", {17: 3}, protocol="window recreation")
    tg.move_shards(control, None, [0, 1] * 512)
    tg.end_input(control)
    found = {type(each): 0 for each in sent(control)} | {type(each): each for each in sent(control)}
    assert set(found) == {SetInstances, SetMapping, EndInput}
    instances = found[SetInstances]
    assert isinstance(instances, SetInstances)
    assert (instances.instances, instances.step) == ({0: 4, 3: 1}, "hourly")
    mappings = sorted((each for each in sent(control) if isinstance(each, SetMapping)), key=lambda each: each.sent_ns)
    told = [(each.cells, each.mapping and len(each.mapping), each.moves, each.protocol, each.step) for each in mappings]
    assert told == [
        (4, None, {}, "adopt", None),
        (None, None, {17: 3}, "window recreation", "1:hourly"),
        (None, 1024, {}, "adopt", None),
    ]
    assert unknown_files(control, set()) == []


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (
            lambda c: tg.set_cells(c, 5),
            "step '1:hourly' was built for cells 0 to 3, and cell 4 was asked for; start the",
        ),
        (lambda c: tg.set_cells(c, 0), "a step has from 1 to 1024 cells"),
        (lambda c: tg.set_cells(c, "2"), "set_cells: cells is a number; got '2'"),
        (lambda c: tg.set_cells(c, 2, step="daily"), "no stateful step 'daily'; it has '1:hourly', '2:pairs'"),
        (lambda c: tg.set_cells(c, 2, protocol="carry"), "there is no protocol 'carry'; choose one of"),
        (
            lambda c: tg.set_cells(c, 2, protocol="window recreation"),
            "step '2:pairs' cannot hand shards over by window recreation: .* use one of 'adopt'",
        ),
        (lambda c: tg.move_shards(c, "hourly", {0: 4}), "built for cells 0 to 3, and cell 4 was asked for"),
        (lambda c: tg.move_shards(c, "hourly", {1024: 1}), "shards are from 0 to 1023 and cells from 0; 1024: 1 came"),
        (
            lambda c: tg.move_shards(c, "hourly", [0] * 1000),
            "a cell for each of the 1024 shards of a step; 1000 entries",
        ),
        (lambda c: tg.set_instances(c, {4: 1}), "built for cells 0 to 3, and cell 4 was asked for"),
        (lambda c: tg.set_instances(c, {0: 0}), "the instances of a cell are a number from 1 to 256"),
    ],
)
def test_what_the_query_cannot_do_is_refused_when_it_is_asked_for(ask: Any, told: str, control: Path) -> None:
    with pytest.raises(tg.UserError, match=told):
        ask(control)
    assert sent(control) == []
