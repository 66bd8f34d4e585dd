"""What is simulated: subqueries with their costs, what feeds them, and what is seen of them; frozen and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from tidegate.control.demand import Feed
from tidegate.control.observation import OBSERVED
from tidegate.errors import UserError, choices
from tidegate.simulate.keys import KeyDistribution
from tidegate.simulate.loads import Load


def _check(holds: bool, rule: str, came: object) -> None:
    if not holds:
        raise UserError(f"{rule}; got {came}")


class Stops(StrEnum):
    """What stands still while a reconfiguration goes on: the whole subquery, or the shards that move."""

    SUBQUERY = "subquery"
    SHARDS = "shards"


@dataclass(frozen=True, slots=True)
class ReconfigurationCost:
    """What a reconfiguration costs: a pause for the agreement, more of it per byte moved, and a wait for new instances.

    `start_seconds` is how long a new instance takes to come up; until then the old ones go on, and the change and its
    pause happen when it is there. Taking instances away needs no such wait. A subquery that shares its state, as in
    STRETCH, has `seconds_per_byte` 0; where moved shards alone stop, as in Elasticutor, say so with `stops`: they are
    held for whole ticks, so that a pause shorter than a tick costs them latency but no throughput.
    """

    pause_seconds: float = 0.0
    seconds_per_byte: float = 0.0
    start_seconds: float = 0.0
    stops: Stops = Stops.SUBQUERY

    def __post_init__(self) -> None:
        for name in ("pause_seconds", "seconds_per_byte", "start_seconds"):
            _check(getattr(self, name) >= 0, f"reconfiguration cost: {name} must be 0 or more", getattr(self, name))


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """A window join: each tuple is compared with what is held of the other input.

    `left_share` of the tuples come from the left. Comparisons per second are r_L·|W_R| + r_R·|W_L|; the windows hold what
    arrived in the last `window_seconds` of event time, so after a change of rate they take that long to fill or drain.
    """

    window_seconds: float
    seconds_per_comparison: float
    left_share: float = 0.5
    bytes_per_tuple: float = 0.0

    def __post_init__(self) -> None:
        _check(self.window_seconds > 0, "join window: window_seconds must be more than 0", self.window_seconds)
        _check(0 < self.left_share < 1, "join window: left_share must be within 0 and 1", self.left_share)
        for name in ("seconds_per_comparison", "bytes_per_tuple"):
            _check(getattr(self, name) >= 0, f"join window: {name} must be 0 or more", getattr(self, name))

    @property
    def comparisons_per_held(self) -> float:
        """Comparisons that an average tuple makes for each tuple held: 2·p·(1 − p) for a left share of p."""
        return 2 * self.left_share * (1 - self.left_share)


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery and what it costs.

    service_seconds
        one instance's time for a tuple, on average, when it is the only instance.
    keys, shards
        how tuples spread over keys and these over shards, which are mapped to instances; without `keys` any instance
        takes any tuple from one queue.
    serial_share, crosstalk
        each of n instances works at 1/(1 + serial_share·(n − 1) + crosstalk·n·(n − 1)) of its speed: Gunther's universal
        scalability law. With serial_share alone, n instances are never worth more than 1/serial_share.
    buffer_tuples
        what fits in front of each instance before whoever sends has to wait. With keys, one full buffer stops everybody.
    downstream_limit
        tuples per second of its input whose results whatever comes after accepts: congestion that more instances do not
        mend.
    state_bytes
        state of a shard, beside what windows hold.
    """

    name: str
    service_seconds: float
    keys: KeyDistribution | None = None
    shards: int = 256
    serial_share: float = 0.0
    crosstalk: float = 0.0
    buffer_tuples: float = 500.0
    window: JoinWindow | None = None
    state_bytes: int = 0
    cost: ReconfigurationCost = ReconfigurationCost()
    downstream_limit: Load | None = None

    def __post_init__(self) -> None:
        where = f"subquery '{self.name}'"
        _check(
            0 < self.service_seconds < math.inf, f"{where}: service_seconds must be more than 0", self.service_seconds
        )
        _check(self.shards >= 1, f"{where}: shards must be 1 or more", self.shards)
        _check(self.buffer_tuples > 0, f"{where}: buffer_tuples must be more than 0", self.buffer_tuples)
        for name in ("serial_share", "crosstalk", "state_bytes"):
            _check(getattr(self, name) >= 0, f"{where}: {name} must be 0 or more", getattr(self, name))

    def speed(self, instances: int) -> float:
        """What one of so many instances is worth, as a share of one that is alone."""
        others = instances - 1
        return 1.0 / (1.0 + self.serial_share * others + self.crosstalk * instances * others)


@dataclass(frozen=True, slots=True)
class Source:
    """A load that enters the network at a subquery.

    If `waits`, what cannot be taken in waits in the source, as in a log or a queue, and nothing is lost. Otherwise the
    source slows down and what it did not send is never made: Gedik's available and handled load.
    """

    into: str
    load: Load
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Noise:
    """How far what is observed is off: relative standard deviations, 0 on average; and how uneven arrivals are.

    `arrivals` is the variance of a tick's arrivals over their mean: 0 is as even as can be, 1 is Poisson. With even
    arrivals a subquery whose capacity equals its load never falls behind; with uneven ones it does, as queues do.
    `idle_congestion` is the mean share of the time in which sources appear blocked although there is room, drawn anew
    each period from an exponential distribution: transport buffers that fill for a moment.
    """

    rates: float = 0.0
    busy: float = 0.0
    congestion: float = 0.0
    latency: float = 0.0
    arrivals: float = 0.0
    idle_congestion: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rates", "busy", "congestion", "latency", "arrivals", "idle_congestion"):
            _check(getattr(self, name) >= 0, f"noise: {name} must be 0 or more", getattr(self, name))


NO_NOISE = Noise()


@dataclass(frozen=True, slots=True)
class Network:
    """Subqueries, what enters from outside, and what they send each other; `order` lists them upstream first.

    `withheld` names fields of observations that nobody is told.
    """

    subqueries: tuple[Subquery, ...]
    sources: tuple[Source, ...]
    feeds: tuple[Feed, ...] = ()
    noise: Noise = NO_NOISE
    withheld: frozenset[str] = frozenset()
    order: tuple[Subquery, ...] = field(init=False)

    def __post_init__(self) -> None:
        by_name = {subquery.name: subquery for subquery in self.subqueries}
        _check(len(by_name) == len(self.subqueries) > 0, "network: names of subqueries must differ", list(by_name))
        named = [source.into for source in self.sources]
        named += [name for feed in self.feeds for name in (feed.upstream, feed.downstream) if name is not None]
        for name in named:
            if name not in by_name:
                raise UserError(f"network: no subquery is called '{name}'; there are {choices(by_name)}")
        if not self.sources or len({source.into for source in self.sources}) < len(self.sources):
            raise UserError(
                f"network: sources enter at {named[: len(self.sources)]}; give one or more, one per subquery"
            )
        for feed in self.feeds:
            if feed.upstream is None or feed.selectivity is None:
                raise UserError(
                    f"network: feed {feed.upstream} → {feed.downstream} must name its upstream and its selectivity; "
                    "what comes from outside is a Source"
                )
        unknown = sorted(self.withheld - set(OBSERVED))
        if unknown:
            raise UserError(
                f"network: cannot withhold {choices(unknown)}; fields that may be absent: {choices(OBSERVED)}"
            )
        upstream = {name: [f.upstream for f in self.feeds if f.downstream == name] for name in by_name}
        try:
            order = tuple(TopologicalSorter(upstream).static_order())
        except CycleError as error:
            raise UserError(f"network: {' → '.join(error.args[1])} is a cycle; subqueries feed one way") from error
        reached = {source.into for source in self.sources} | {feed.downstream for feed in self.feeds}
        for name in by_name:
            _check(name in reached, f"network: nothing feeds subquery '{name}'; give it a Source or a Feed", name)
        object.__setattr__(self, "order", tuple(by_name[str(name)] for name in order))

    @property
    def all_feeds(self) -> tuple[Feed, ...]:
        """The feeds, sources among them, as the demand of each subquery is computed from."""
        return (*(Feed(None, source.into) for source in self.sources), *self.feeds)


def one(subquery: Subquery, load: Load, *, waits: bool = True, noise: Noise = NO_NOISE) -> Network:
    """The network of a single subquery."""
    return Network((subquery,), (Source(subquery.name, load, waits),), noise=noise)
