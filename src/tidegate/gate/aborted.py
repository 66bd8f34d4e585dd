"""The error that reaches everyone at a gate whose run has failed."""

from __future__ import annotations

from tidegate.errors import TidegateError


class GateAborted(TidegateError):
    """The run failed elsewhere; the cause is what failed. Raised in every thread that waits at the gate or comes to it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the run was aborted: {type(cause).__name__}: {cause}")
        self.__cause__ = cause
