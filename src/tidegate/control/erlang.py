"""M/M/k queues: k servers in front of one queue, Poisson arrivals, exponential service.

Everything follows from Erlang's loss formula B(k, a), the share of arrivals that find k servers busy at a load of a = λ/μ
servers, by the recurrence B(k) = a·B(k − 1)/(k + a·B(k − 1)). It has positive terms alone, so it neither cancels nor
overflows at any k; the textbook sum of a^n/n! does both. Rates are per second, loads in servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tidegate.errors import UserError


def least_stable(arrival_rate: float, service_rate: float) -> int:
    """The fewest servers whose queue does not grow without end: ⌊λ/μ⌋ + 1."""
    _check(arrival_rate, service_rate)
    servers = math.floor(arrival_rate / service_rate) + 1
    # The quotient may be rounded down to just below a whole number of servers that would be busy for ever.
    return servers if servers * service_rate > arrival_rate else servers + 1


def erlang_b(servers: int, load: float) -> float:
    """The probability that all servers are busy if nobody waits. O(servers)."""
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = _one_more(blocked, count, load)
    return blocked


def erlang_c(servers: int, load: float) -> float:
    """The probability that an arrival has to wait; 1 where the servers cannot keep up. O(servers)."""
    return _waits(erlang_b(servers, load), servers, load)


def mean_sojourn(servers: int, arrival_rate: float, service_rate: float) -> float:
    """The mean time from arrival to completion, E[T] = C(k, λ/μ)/(kμ − λ) + 1/μ; infinite where the queue grows."""
    _check(arrival_rate, service_rate)
    load = arrival_rate / service_rate
    return _sojourn(erlang_b(servers, load), servers, arrival_rate, service_rate)


def mean_sojourns(arrival_rate: float, service_rate: float) -> Iterator[float]:
    """E[T] of the least stable number of servers, then of one more each time, without end. O(1) a step."""
    first = least_stable(arrival_rate, service_rate)
    load = arrival_rate / service_rate
    blocked, servers = erlang_b(first, load), first
    while True:
        yield _sojourn(blocked, servers, arrival_rate, service_rate)
        servers += 1
        blocked = _one_more(blocked, servers, load)


def _one_more(blocked: float, servers: int, load: float) -> float:
    return load * blocked / (servers + load * blocked)


def _waits(blocked: float, servers: int, load: float) -> float:
    if load >= servers:
        return 1.0
    return servers * blocked / (servers - load * (1.0 - blocked))


def _sojourn(blocked: float, servers: int, arrival_rate: float, service_rate: float) -> float:
    spare = servers * service_rate - arrival_rate
    if spare <= 0:
        return math.inf
    return _waits(blocked, servers, arrival_rate / service_rate) / spare + 1.0 / service_rate


def _check(arrival_rate: float, service_rate: float) -> None:
    if not (0 <= arrival_rate < math.inf and 0 < service_rate < math.inf):
        raise UserError(
            f"queue: the arrival rate ({arrival_rate}) must be finite and at least 0, the service rate ({service_rate}) "
            "finite and above 0, both in tuples per second; leave out a queue whose rates are not known"
        )
