"""Durable runs of Pydantic AI.

An agent with `OnwardDurability` records every model request and every tool call as a step when it runs in workflow code. Elsewhere
it does what it did.

    from onward import Ctx, workflow
    from onward.contrib.pydantic_ai import OnwardDurability
    from pydantic_ai import Agent

    guide = Agent("openai:gpt-5", name="guide", capabilities=[OnwardDurability()])

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> str:
        return (await guide.run(question)).output
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal, cast

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import ModelResponseStreamEvent, PartDeltaEvent, PartStartEvent
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, RunContext
from typing_extensions import TypedDict

from .. import _guards
from .._errors import ContextMisused, Failure
from .._run import Run
from ._framework import RETRY, Deltas, Retry, Span, current_run, run_step

__all__ = ["OnwardDurability", "StepConfig"]


class StepConfig(TypedDict, total=False):
    """Options of steps."""

    retry: Retry
    timeout: Span


#: The run of the step whose function is running.
RUN: contextvars.ContextVar[Run | None] = contextvars.ContextVar("onward_run", default=None)


@dataclass(init=False)
class OnwardDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes the runs of an agent durable in workflow code.

    The agent needs a `name`, which is part of the names of steps. Tools run in steps; one with `metadata={"onward": False}` runs
    in workflow code and may use `ctx`; with `metadata={"onward": {"retry": 5}}` it has options of its own.
    `emit` is the name under which watchers of a run receive the parts of an answer; with `None` answers are not streamed.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Onward",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        serialization_failure=lambda error: Failure(f"{type(error).__name__}: {error}", retryable=False),
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-never", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="onward",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: StepConfig | None = None,
        tool: StepConfig | None = None,
        emit: str | None = "model",
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self.model_config: StepConfig = {"retry": RETRY, **(model or {})}
        self.tool_config: StepConfig = tool or {}
        self.emit = emit
        _guards.stand_in_for("pydantic_ai", "pydantic_graph")

    @property
    def in_durable_context(self) -> bool:
        return current_run() is not None

    def get_default_run_id(self) -> str | None:
        run = current_run()
        return None if run is None else str(run.value("uuid"))

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        run = current_run()
        return None if run is None else datetime.fromtimestamp(run.now_ms / 1000, timezone.utc)

    def get_durable_operation_backend(self) -> Backend:
        def tool(operation_id: DurableOperationId, tool: object | None, tool_name: str) -> StepConfig | Literal[False]:
            resolve = self._build_resolve_tool_config(self.tool_config)
            return cast("StepConfig | Literal[False]", resolve(cast(Any, tool), tool_name))

        config = RoleBasedOperationConfig[StepConfig](
            model=self.model_config, event={}, capability={}, tool=self.tool_config, resolve_tool=tool
        )
        return Backend(agent_name=self.name, default_model_id=self.default_model_id, config=config)

    def _toolset_base_config(self, kind: Any) -> StepConfig:
        return self.tool_config

    # ---- streams ----

    @property
    def has_wrap_run_event_stream(self) -> bool:
        return self.emit is not None or super().has_wrap_run_event_stream

    def _model_stream_event_handler(self) -> EventStreamHandler[AgentDepsT] | None:
        """Returns what receives the events of a model in its step."""
        handler = self._effective_event_stream_handler()
        run = RUN.get()
        if self.emit is None or run is None:
            return handler
        deltas = Deltas(run, self.emit)

        async def emitting(ctx: RunContext[AgentDepsT], events: AsyncIterable[Any]) -> None:
            async def passing() -> AsyncIterable[Any]:
                async for event in events:
                    send(deltas, event)
                    yield event

            if handler is not None:
                await handler(ctx, passing())
            async for _ in passing():
                pass

        return emitting


class Backend(JournalCallableOperationBackend[StepConfig]):
    """Executes the operations of the framework as steps."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepConfig,
    ) -> object:
        run = current_run()
        if run is None:
            raise ContextMisused(f"`{name}` was called outside of workflow code")

        async def call() -> object:
            RUN.set(run)
            return await body()

        return await run_step(run, name, call, config.get("retry"), config.get("timeout"))


def send(deltas: Deltas, event: ModelResponseStreamEvent) -> None:
    """Sends what an event of a stream adds to the answer."""
    if isinstance(event, PartStartEvent):
        part = event.part
        if part.part_kind == "text":
            deltas.text(part.content)
        elif part.part_kind == "thinking":
            deltas.reasoning(part.content)
        elif part.part_kind == "tool-call":
            deltas.tool_call_begin(part.tool_call_id, part.tool_name)
            deltas.tool_call_arguments(part.tool_call_id, part.args if isinstance(part.args, str) else "")
    elif isinstance(event, PartDeltaEvent):
        delta = event.delta
        if delta.part_delta_kind == "text":
            deltas.text(delta.content_delta)
        elif delta.part_delta_kind == "thinking":
            deltas.reasoning(delta.content_delta or "")
        elif delta.part_delta_kind == "tool_call" and isinstance(delta.args_delta, str):
            deltas.tool_call_arguments(delta.tool_call_id, delta.args_delta)
