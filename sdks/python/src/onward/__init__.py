"""Onward: durable workflows and agents, with or without a server.

A workflow is an async function that takes a `Ctx`. Its calls on `ctx` are recorded; after a crash it continues where it was.
"""

from ._client import Onward, RunHandle, RunView, TaskHandle
from ._ctx import (
    ApprovalCall,
    Attributes,
    ChildCall,
    Ctx,
    Decision,
    PromiseCall,
    ReceivedSignal,
    SignalPattern,
    Signals,
    Spawned,
    State,
)
from ._definitions import Memo, RetryPolicy, Task, Workflow, task, workflow
from ._errors import (
    AnswerFailed,
    ContextMisused,
    DirectoryInUse,
    Failure,
    InvalidArguments,
    OnwardError,
    RunExists,
    RunFailed,
    RunNotFound,
    ShutDown,
    Unauthorized,
    ValueInvalid,
)
from ._loop import Call
from ._native import version as _version
from ._random import RandomGenerator
from ._schedules import ScheduleHandle, ScheduleLine, ScheduleTotals, ScheduleView, Slot, Triggered
from ._start_policies import Batch, Debounce, Singleton, StartedWithPolicy, StartPolicy
from ._tasks import Attempt, TaskCtx, current_attempt

__version__ = _version()

__all__ = [
    "AnswerFailed",
    "ApprovalCall",
    "Attempt",
    "Attributes",
    "Batch",
    "Call",
    "ChildCall",
    "ContextMisused",
    "Ctx",
    "Debounce",
    "Decision",
    "DirectoryInUse",
    "Failure",
    "InvalidArguments",
    "Memo",
    "Onward",
    "OnwardError",
    "PromiseCall",
    "RandomGenerator",
    "ReceivedSignal",
    "RetryPolicy",
    "RunExists",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunView",
    "ScheduleHandle",
    "ScheduleLine",
    "ScheduleTotals",
    "ScheduleView",
    "ShutDown",
    "SignalPattern",
    "Signals",
    "Singleton",
    "Slot",
    "Spawned",
    "StartPolicy",
    "StartedWithPolicy",
    "State",
    "Task",
    "TaskCtx",
    "TaskHandle",
    "Triggered",
    "Unauthorized",
    "ValueInvalid",
    "Workflow",
    "current_attempt",
    "task",
    "workflow",
]
