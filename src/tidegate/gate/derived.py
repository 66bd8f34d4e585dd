"""Work derived from a segment, done once and shared by every instance that reads it.

An instance that finds segment n being derived goes on to n + 1, and waits only where it needs the outcome: `claim`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tidegate.gate.waits import waiting_for_others


class _Claim:
    """One piece of derived work: whoever gets the lock first does it, the others wait for the lock."""

    __slots__ = ("done", "error", "lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def attempt(self, compute: Callable[[], Any], wait: bool) -> bool:
        """Do the work unless it is done; False if another thread is at it and ``wait`` is off."""
        if self.done:
            return True
        if not self.lock.acquire(blocking=False):
            if not wait:
                return False
            with waiting_for_others():
                self.lock.acquire()
        try:
            if not self.done:
                try:
                    self.value = compute()
                except BaseException as error:
                    self.error = error
                self.done = True
        finally:
            self.lock.release()
        return True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Derived:
    """The derived work of one segment, by name.

    A function that raises is not tried again: its exception reaches everyone who asks for that name. A function must not
    ask for its own name (it would wait for itself); asking for another name of the same segment is fine.
    """

    __slots__ = ("_claims",)

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}

    def derive(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value under a name; computed by the first caller, waited for by the others."""
        claim = self._claim(name)
        claim.attempt(compute, wait=True)
        return claim.result()

    def claim(self, name: str, compute: Callable[[], Any]) -> bool:
        """Compute the value if nobody has begun to; whether it is there now. Never waits, never raises."""
        return self._claim(name).attempt(compute, wait=False)

    def take(self, name: str) -> bool:
        """Whether the caller is the first to ask for a name: what it does then concerns nobody else."""
        mine = _Claim()
        return self._claims.setdefault(name, mine) is mine

    def is_done(self, name: str) -> bool:
        """Whether the value (or its exception) is there."""
        return self._claim(name).done

    def _claim(self, name: str) -> _Claim:
        claim = self._claims.get(name)
        # setdefault is one step under the interpreter lock: all callers get the same claim.
        return claim if claim is not None else self._claims.setdefault(name, _Claim())
