"""Errors, and failures that are recorded in logs."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar

from ._native import Stopped

__all__ = [
    "AnswerFailed",
    "ContextMisused",
    "DirectoryInUse",
    "Failure",
    "InvalidArguments",
    "OnwardError",
    "RunExists",
    "RunFailed",
    "RunNotFound",
    "ShutDown",
    "Stopped",
    "Unauthorized",
    "ValueInvalid",
]

STACK_CHARS_MAX = 16_000


class OnwardError(Exception):
    """An operation failed.

    `code` is stable; docs/errors has a page for each. `hint` says what to do, `status` is the HTTP status of the code.
    `retry_after_ms` is the time after which the same call may succeed, if it is known: a quota or a full queue has refused it.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    #: Of errors that this package raises itself.
    usual_status: ClassVar[int | None] = None

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or next(iter(self.codes), "failed")
        self.hint = hint
        self.status = status or self.usual_status
        self.retry_after_ms: int | None = None
        self.failure: Failure | None = None

    def __str__(self) -> str:
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{hint}"


class RunNotFound(OnwardError):
    """No run has this id."""

    codes = ("run_not_found",)


class RunExists(OnwardError):
    """A run with this id exists and was started with another kind or input."""

    codes = ("run_exists",)


class RunFailed(OnwardError):
    """The run failed, was canceled or was terminated; `failure` says why."""

    codes = ("run_failed",)


class AnswerFailed(OnwardError):
    """The handler of a query or update failed; `failure` says why."""

    codes = ("answer_failed",)


class DirectoryInUse(OnwardError):
    """Another `Onward` has the directory open, in this process or another one."""

    codes = ("directory_locked",)


class ContextMisused(OnwardError):
    """`ctx` was used outside of the code of its run, or an `Onward` outside of its event loop or while it was not open."""

    codes = ("context_misused",)
    usual_status = 409


class InvalidArguments(OnwardError):
    """An argument or setting is invalid."""

    codes = ("value_invalid", "config_invalid")
    usual_status = 400


class Unauthorized(OnwardError):
    """The API key is missing, invalid, or does not allow this request."""

    codes = ("unauthenticated", "not_allowed", "key_invalid")


class ShutDown(OnwardError):
    """The `Onward` was closed."""

    codes = ("shut_down",)
    usual_status = 503


class ValueInvalid(InvalidArguments, TypeError):
    """A value is not JSON, or JSON does not have the expected type; `path` is the place in the value, `$` all of it."""

    def __init__(self, problem: str, what: str = "the value") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = "$"
        self.what = what
        self.verb = "is not JSON"
        self.describe()

    def describe(self) -> ValueInvalid:
        self.message = f"{self.what} {self.verb} at {self.path}: {self.problem}"
        return self

    def inside(self, step: str) -> ValueInvalid:
        """Prepends a step of the path: `.name` or `[index]`."""
        self.path = "$" + step + self.path[1:]
        return self.describe()

    def of(self, what: str) -> ValueInvalid:
        """Names the value."""
        self.what = what
        return self.describe()


class TypeInvalid(ValueInvalid):
    """JSON does not have the annotated type."""

    def __init__(self, problem: str, what: str = "the value") -> None:
        super().__init__(problem, what)
        self.verb = "does not have the annotated type"
        self.describe()


def invalid(message: str, hint: str | None = None) -> InvalidArguments:
    return InvalidArguments(message, hint=hint)


class Failure(Exception):
    """The failure of a step, task, child, promise or run, as the log has it.

    Raise one to fail with a code of your own, without retries (`retryable=False`), or with data.
    Failures of other exceptions have the code `failed`, the name of their type in `type`, and their stack in `stack`.
    """

    # Of the class, too: the `__init__` of a subclass may not call this one.
    message = ""
    code = "failed"
    retryable = True
    data: Any = None
    retry_after_ms: int | None = None
    type: str | None = None
    stack: str | None = None
    causes: Sequence[Any] = ()
    details: Any = None

    def __init__(
        self,
        message: str,
        *,
        code: str = "failed",
        retryable: bool = True,
        data: Any = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retryable = retryable
        self.data = data
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        name = f"{self.type}: " if self.type else ""
        return name + self.message

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Failure:
        """Returns the failure that the JSON object of a log or reply describes."""
        failure = cls(
            value["message"],
            code=value.get("code") or "failed",
            retryable=value.get("retryable", True),
            retry_after_ms=value.get("retry_after_ms"),
        )
        failure.causes = value.get("causes") or []
        details = failure.details = value.get("details")
        if isinstance(details, dict):
            failure.type = details.get("type")
            failure.stack = details.get("stack")
            failure.data = details.get("data")
        return failure


BY_CODE = {
    code: error
    for error in (
        RunNotFound,
        RunExists,
        RunFailed,
        AnswerFailed,
        DirectoryInUse,
        ContextMisused,
        InvalidArguments,
        Unauthorized,
        ShutDown,
    )
    for code in error.codes
}


#: Hints that name attributes and arguments, as they are in Python.
HINTS = {
    "run_failed": "`error.failure` has the type, message, code and stack; `await run.log()` returns the log",
    "answer_failed": "`error.failure` has the type, message and code of the handler's exception; the run continues",
    "value_invalid": "pass what the type hints of this package name, and values that JSON has",
    "unknown_kind": "pass the definition in `workflows`, `tasks` or `agents` of the `Onward` that works on it",
}


def error_of(text: str) -> OnwardError:
    """Returns the exception for the JSON text of an error."""
    value = json.loads(text)
    code = value["code"]
    kind = BY_CODE.get(code, OnwardError)
    error = kind(value["message"], code=code, hint=HINTS.get(code) or value.get("hint"), status=value.get("status"))
    error.retry_after_ms = value.get("retry_after_ms")
    if value.get("failure"):
        error.failure = Failure.from_json(value["failure"])
        error.__cause__ = error.failure
    return error


def stack_of(error: BaseException) -> str:
    """Returns the stack of an exception and its causes, without the frames of this package, shortened at the front."""
    try:
        lines = traceback.TracebackException.from_exception(error)
        chain: traceback.TracebackException | None = lines
        while chain is not None:
            # The frames of a `StackSummary` are a list; those of this package say nothing about the user's code.
            chain.stack[:] = [frame for frame in chain.stack if not is_own(frame.filename)]
            chain = chain.__cause__ or chain.__context__
        text = "".join(lines.format()).rstrip()
    except Exception as failed:  # for example for a `SyntaxError` with attributes of other types
        return f"no stack: {type(failed).__name__}"
    return text if len(text) <= STACK_CHARS_MAX else "...\n" + text[-STACK_CHARS_MAX:]


OWN_FOLDER = __file__[: -len("_errors.py")]


def is_own(path: str) -> bool:
    """Tells whether a file is part of this package."""
    return path.startswith(OWN_FOLDER)


def first_line(traceback_: TracebackType | None) -> str | None:
    """Returns file and line of the innermost frame outside of this package."""
    frames = [frame for frame in traceback.extract_tb(traceback_) if not is_own(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
