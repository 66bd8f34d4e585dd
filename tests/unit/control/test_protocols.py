"""What moves of shards cost by each protocol, where they are refused, and which one the planner takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.controller import Action, ChangeOutcome, Decision, Limits, MoveCost, hold, resize
from tidegate.control.events import Event, MoveMeasured, Stepped
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.protocols import PROTOCOLS
from tidegate.control.protocols.adopt import ENTRY_BYTES, Adopt
from tidegate.control.protocols.donate_collect import DonateCollect
from tidegate.control.protocols.epoch_switch import SWITCH_SECONDS, EpochSwitch
from tidegate.control.protocols.move import ShardMove, move_of, queued_seconds
from tidegate.control.protocols.planner import MovePlanner
from tidegate.control.protocols.window_recreation import WindowRecreation
from tidegate.control.rules import Rule
from tidegate.errors import UserError
from tidegate.telemetry.explain import explain
from tidegate.telemetry.ledger import Ledger
from tidegate.telemetry.read import decisions

# 128 shards of 400 MB in batches of a second, windows of a minute every ten seconds; 1,000/s of them at 0.1 ms each.
MOVE = ShardMove(
    shards=128,
    state_bytes=400_000_000,
    tuples_per_second=1_000.0,
    donors=1,
    receivers=2,
    seconds_per_tuple=0.0001,
    window_seconds=60.0,
    advance_seconds=10.0,
    batch_seconds=1.0,
    shared_files=True,
    read_bytes_per_second=200e6,
    write_bytes_per_second=100e6,
)


def test_adopting_reads_what_is_gained_and_writes_a_list() -> None:
    """200 MB a receiver at 200 MB/s: a second, in the batch after the one that hears of it."""
    cost = Adopt().estimate(MOVE)
    assert cost == MoveCost(1.0, 2.0 + 1.0, 400_000_000, 128 * ENTRY_BYTES)
    assert Adopt().refused(replace(MOVE, shared_files=False)) == "state does not lie in files that every owner can read"


def test_recreating_windows_takes_as_long_as_a_window_and_doubles_what_lies_in_two() -> None:
    """1,000/s for 60 - 10 s go to both owners: 50,000 tuples of 0.1 ms are 5 s of work for the one that had them."""
    cost = WindowRecreation().estimate(MOVE)
    assert cost == MoveCost(5.0, 62.0, tuples_doubled=50_000)
    tumbling = WindowRecreation().estimate(replace(MOVE, advance_seconds=60.0))
    assert (tumbling.tuples_doubled, tumbling.delay_seconds) == (0, 0.0)
    pairs = replace(MOVE, window_seconds=30.0, advance_seconds=0.0)
    assert WindowRecreation().estimate(pairs).tuples_doubled == 30_000, (
        "pairs of an old and a new tuple are the old owner's"
    )


@pytest.mark.parametrize("factor", [1, 10, 1_000])
def test_recreating_windows_does_not_depend_on_state(factor: int) -> None:
    """StreamCloud, figure 19: only the length of windows counts."""
    assert WindowRecreation().estimate(replace(MOVE, state_bytes=factor)) == WindowRecreation().estimate(MOVE)


def test_windows_without_a_fixed_start_cannot_be_recreated() -> None:
    unbounded = replace(MOVE, window_seconds=None, advance_seconds=None)
    assert WindowRecreation().refused(unbounded) == "its windows have no fixed start"


def test_donating_writes_then_reads_while_everybody_waits() -> None:
    """400 MB by one donor at 100 MB/s are 4 s; 200 MB by each of two receivers at 200 MB/s another one."""
    assert DonateCollect().estimate(MOVE) == MoveCost(5.0, 7.0, 400_000_000, 400_000_000)


def test_a_switch_takes_what_waits_in_front_of_the_slowest() -> None:
    shared = replace(MOVE, shared_memory=True, shared_files=False, queued_seconds=0.25)
    assert EpochSwitch().estimate(shared) == MoveCost(0.0, 0.25 + SWITCH_SECONDS)
    assert EpochSwitch().refused(MOVE) == "the owners do not share memory"
    assert DonateCollect().refused(shared) is not None


@given(owners=st.integers(2, 64))
def test_one_owner_more_among_n_moves_about_one_shard_in_n_and_none_between_those_that_stay(owners: int) -> None:
    ring, shards = DonateCollect(), 4_096
    before = ring.ring.first(shards, owners)
    more = ring.remapped(before, owners + 1)
    share = len(more.moved) / shards
    assert 0.4 / (owners + 1) <= share <= 2.2 / (owners + 1)
    assert {more.mapping[shard] for shard in more.moved} == {owners}
    back = ring.remapped(more.mapping, owners)
    assert back.mapping == before


def test_the_least_delay_is_taken_and_the_others_are_told_why_not() -> None:
    plan = MovePlanner(tuple(PROTOCOLS.values())).plan(MOVE)
    assert (plan.protocol, plan.estimate) == ("adopt", Adopt().estimate(MOVE))
    assert dict(plan.rejected) == {
        "epoch switch": "the owners do not share memory",
        "window recreation": "a delay of 5 s instead of 1 s",
        "donate and collect": "a delay of 5 s instead of 1 s",
    }


def test_windows_are_recreated_where_state_is_large_and_they_do_not_overlap() -> None:
    planner = MovePlanner(tuple(PROTOCOLS.values()))
    tumbling = replace(MOVE, advance_seconds=60.0)
    assert planner.plan(tumbling).protocol == "window recreation", "it delays nothing"
    in_time = replace(planner, deadline_seconds=10.0).plan(tumbling)
    assert (in_time.protocol, dict(in_time.rejected)["window recreation"]) == (
        "adopt",
        "in force after 62 s, later than 10 s",
    )


def test_where_none_is_in_time_the_soonest_is_taken_and_says_so() -> None:
    plan = MovePlanner((WindowRecreation(), DonateCollect()), deadline_seconds=0.5).plan(MOVE)
    assert (plan.protocol, plan.why) == ("donate and collect", "none is in force within 0.5 s, this one soonest")


def test_a_protocol_may_be_forced_and_is_refused_where_it_cannot_be_had() -> None:
    every = tuple(PROTOCOLS.values())
    forced = MovePlanner(every, protocol="donate and collect").plan(MOVE)
    assert (forced.protocol, forced.why) == ("donate and collect", "asked for")
    assert dict(forced.rejected)["adopt"] == "donate and collect was asked for"
    with pytest.raises(
        UserError, match="'window recreation' cannot carry out this move: its windows have no fixed start"
    ):
        MovePlanner(every, protocol="window recreation").plan(replace(MOVE, window_seconds=None, advance_seconds=None))
    with pytest.raises(UserError, match="'adpot' cannot be had here; choose one of 'epoch switch'"):
        MovePlanner(every, protocol="adpot")
    with pytest.raises(UserError, match="no protocol can carry out this move of 128 shards: epoch switch: the owners"):
        MovePlanner((EpochSwitch(),)).plan(MOVE)


def test_what_moves_took_corrects_the_next_estimate() -> None:
    """Half of the way, as ratios go: 4 times as long makes the next estimate twice as long, then about 2.8 times."""
    planner = MovePlanner((Adopt(),))
    plan = planner.plan(MOVE)
    planner = planner.learned(plan, MoveCost(4.0, 12.0))
    second = planner.plan(MOVE)
    assert (second.estimate.delay_seconds, second.estimate.in_force_seconds) == (pytest.approx(2.0), pytest.approx(6.0))
    planner = planner.learned(second, MoveCost(4.0, 12.0))
    assert planner.plan(MOVE).estimate.delay_seconds == pytest.approx(2 * 2**0.5)
    for _ in range(20):
        planner = planner.learned(planner.plan(MOVE), MoveCost(4.0, 12.0))
    assert planner.plan(MOVE).estimate.in_force_seconds == pytest.approx(12.0, rel=0.01)
    assert planner.learned(plan, MoveCost(0.0, 0.0)).corrections[0][0] == "adopt", "nothing is learned of no time"


def observed(**figures: object) -> Observation:
    """Four shards on two instances that complete 1,000/s each."""
    known = Observation(
        "q",
        1.0,
        1.0,
        2,
        mapping=(0, 0, 1, 1),
        processed=1_000.0,
        busy=(0.8, 0.2),
        queued=500.0,
        shard_loads=(500.0, 300.0, 100.0, 100.0),
        shard_state_bytes=(10, 20, 30, 40),
    )
    return replace(known, **figures)  # type: ignore[arg-type]


def test_a_move_is_what_changes_between_two_mappings() -> None:
    decision = Decision("q", Action.BALANCE, 2, "", (1, 0, 1, 0))
    move = move_of(observed(), decision, ShardMove(0, shared_memory=True))
    assert move is not None
    assert (move.shards, move.state_bytes, move.tuples_per_second) == (2, 10 + 40, 500.0 + 100.0)
    assert (move.donors, move.receivers, move.shared_memory) == (2, 2, True)
    assert (move.seconds_per_tuple, move.queued_seconds) == (pytest.approx(0.001), pytest.approx(0.4))
    assert move_of(observed(), hold(observed(), "as it is"), MOVE) is None
    every = move_of(observed(), resize(observed(), 3, "more"), ShardMove(0))
    assert every is not None
    assert (every.shards, every.state_bytes, every.receivers) == (4, 100, 3), "any shard may go anywhere"


def test_what_waits_is_done_when_the_owner_of_most_of_it_has_done_its_part() -> None:
    """500 tuples of 1 ms, of which the first instance gets four fifths; where any may take any, each gets half."""
    assert queued_seconds(observed()) == pytest.approx(0.4)
    assert queued_seconds(observed(pooled=True)) == pytest.approx(0.25)
    assert queued_seconds(observed(busy=None)) == 0.0


@dataclass(frozen=True)
class Mover:
    """A controller that swaps the shards of two instances each time."""

    name: str = "mover"

    def start(self, limits: Limits) -> Mover:
        return self

    def decide(self, observation: Observation) -> Decision:
        mapping = tuple(1 - owner for owner in observation.mapping or ())
        return Decision("q", Action.BALANCE, 2, "swap", mapping)


@dataclass
class Swapping:
    """An actuator that says at once what a move cost, or not."""

    measured: MoveCost | None
    calls: list[object] = field(default_factory=list)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.calls.append(mapping)
        return ChangeOutcome(True, "", 0.5, 0, self.measured)


def test_the_ledger_has_the_estimate_and_what_it_took(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    planner = MovePlanner((EpochSwitch(), Adopt()), ShardMove(0, shared_memory=True))
    with Ledger.open(path) as ledger:
        loop = ControlLoop(Rule(Mover(), Limits(1, 4)), Swapping(MoveCost(0.01, 0.8)), ledger, planner)
        for time in (1.0, 2.0):
            loop.step(observed(time_seconds=time))
    first, second = decisions(path).to_pylist()
    assert (first["protocol"], first["moved_shards"], first["moved_bytes"]) == ("epoch switch", 4, 100)
    assert first["planned_in_force_seconds"] == pytest.approx(0.401)
    assert (first["took_in_force_seconds"], first["took_delay_seconds"]) == (0.8, 0.01)
    assert second["planned_in_force_seconds"] == pytest.approx(0.401 * (0.8 / 0.401) ** 0.5), "it has learned"
    told = explain(path, 1)
    assert "By epoch switch (the least delay), 4 shards with 100 bytes: in force after 0.401 s estimated" in told
    assert "in force after 0.8 s seen" in told
    assert "adopt: state does not lie in files" in told


def test_what_a_move_took_may_be_known_later(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    planner = MovePlanner((Adopt(),), ShardMove(0, shared_files=True, batch_seconds=1.0))
    with Ledger.open(path) as ledger:
        ControlLoop(Rule(Mover(), Limits(1, 4)), Swapping(None), ledger, planner).step(observed())
        assert decisions(path).to_pylist()[0]["took_in_force_seconds"] is None
        ledger(MoveMeasured("q", 0, 3.0, MoveCost(0.1, 2.5, 90, 12)))
    (row,) = decisions(path).to_pylist()
    assert (row["planned_bytes_read"], row["took_bytes_read"], row["took_in_force_seconds"]) == (100, 90, 2.5)


def test_a_move_that_no_protocol_can_carry_out_is_refused_and_nothing_happens() -> None:
    events: list[Event] = []
    actuator = Swapping(None)
    ControlLoop(Rule(Mover(), Limits(1, 4)), actuator, events.append, MovePlanner((Adopt(),))).step(observed())
    (step,) = events
    assert isinstance(step, Stepped)
    assert step.result == "refused"
    assert step.outcome is not None
    assert "adopt: state does not lie in files" in step.outcome.note
    assert not actuator.calls


def test_moves_are_checked() -> None:
    with pytest.raises(UserError, match="must not be negative"):
        ShardMove(-1)
    with pytest.raises(UserError, match="or neither"):
        ShardMove(1, window_seconds=1.0)
    with pytest.raises(UserError, match="deadline_seconds is above 0"):
        MovePlanner((Adopt(),), deadline_seconds=0.0)
    assert np.isfinite(Adopt().estimate(ShardMove(0)).delay_seconds)


def test_delays_too_short_to_notice_are_none_and_then_the_soonest_is_taken() -> None:
    """2 MB are read in 5 ms by two receivers; recreating the windows of a minute delays nothing, and takes a minute."""
    small = replace(MOVE, state_bytes=2_000_000, advance_seconds=60.0)
    planner = MovePlanner((Adopt(), WindowRecreation()))
    assert planner.plan(small).protocol == "window recreation"
    plan = replace(planner, negligible_seconds=0.1).plan(small)
    assert (plan.protocol, plan.rejected) == (
        "adopt",
        (("window recreation", "in force after 62 s instead of 2 s"),),
    )


class ByProtocol:
    """An actuator that is told the protocol."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str]] = []

    def move(self, subquery: str, mapping: tuple[int, ...], protocol: str) -> ChangeOutcome:
        self.moves.append((subquery, protocol))
        return ChangeOutcome(True)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        raise AssertionError("the protocol would be lost")


class Swap:
    """Decides that two shards change places."""

    name = "swap"

    def start(self, limits: Limits) -> Swap:
        return self

    def decide(self, observation: Observation) -> Decision:
        return Decision(observation.subquery, Action.BALANCE, 2, "for a test", (1, 0))


def test_each_subquery_has_its_own_windows_and_the_actuator_is_told_the_protocol() -> None:
    """400 MB take a second or two to read; windows of 20 s are recreated in time, those of an hour are not."""
    windows = {"short": 20.0, "long": 3_600.0, "none": None}
    places = tuple(
        (name, replace(MOVE, window_seconds=length, advance_seconds=length)) for name, length in windows.items()
    )
    planner = MovePlanner((Adopt(), WindowRecreation()), MOVE, deadline_seconds=30.0, places=places)
    actuator = ByProtocol()
    for name in windows:
        seen = Observation(
            name, 1.0, 1.0, 2, mapping=(0, 1), shard_loads=(1.0, 1.0), shard_state_bytes=(200_000_000,) * 2
        )
        ControlLoop(Rule(Swap()), actuator, planner=planner).step(seen)
    assert actuator.moves == [("short", "window recreation"), ("long", "adopt"), ("none", "adopt")]
