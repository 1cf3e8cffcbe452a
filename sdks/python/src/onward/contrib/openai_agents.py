"""Durable runs of the OpenAI Agents SDK.

After `install()`, `Runner.run` and `Runner.run_streamed` in workflow code record every model call and every tool call as a step.
Elsewhere they do what they did.

    from agents import Agent, Runner
    from onward import Ctx, workflow
    from onward.contrib import openai_agents

    openai_agents.install()

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> str:
        result = await Runner.run(Agent(name="guide", tools=[weather]), question)
        return result.final_output
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from agents import Agent, FunctionTool, Handoff, Model, ModelProvider, ModelResponse, ModelTracing, RunConfig
from agents.mcp import MCPServer
from agents.run import AgentRunner, set_default_agent_runner
from openai.types.responses import ResponseCompletedEvent, ResponseFailedEvent, ResponseIncompleteEvent
from pydantic import BaseModel, TypeAdapter

from .. import _guards
from .._errors import ContextMisused, Failure, ValueInvalid
from .._json import encode
from .._run import Run
from ._framework import RETRY, Deltas, Retry, Span, current_run, run_step

__all__ = ["in_workflow", "install"]

T = TypeVar("T")

RESPONSE = TypeAdapter(ModelResponse)
#: The last events of a stream, which have the whole answer.
LAST_EVENTS = {
    "response.completed": ResponseCompletedEvent,
    "response.incomplete": ResponseIncompleteEvent,
    "response.failed": ResponseFailedEvent,
}

IN_WORKFLOW = "_onward_in_workflow"


@dataclasses.dataclass(frozen=True)
class Options:
    model_retry: Retry
    model_timeout: Span
    tool_retry: Retry
    emit: str | None


def install(
    *, model_retry: Retry = RETRY, model_timeout: Span = None, tool_retry: Retry = None, emit: str | None = "model"
) -> None:
    """Makes `Runner.run` and `Runner.run_streamed` durable in workflow code, in this process.

    `emit` is the name under which watchers of a run receive the parts of an answer of `Runner.run_streamed`.
    """
    _guards.stand_in_for("agents")
    set_default_agent_runner(DurableRunner(Options(model_retry, model_timeout, tool_retry, emit)))


def in_workflow(tool: FunctionTool) -> FunctionTool:
    """Returns a tool whose function runs in workflow code instead of a step, so it may use `ctx`."""
    copy = dataclasses.replace(tool)
    setattr(copy, IN_WORKFLOW, True)
    return copy


class DurableRunner(AgentRunner):
    """The runner of the framework, whose agents are replaced in workflow code."""

    def __init__(self, options: Options) -> None:
        self.options = options

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        run = current_run()
        if run is not None:
            starting_agent = self.prepare(run, starting_agent, options)
        return await super().run(starting_agent, input, **options)

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        run = current_run()
        if run is not None:
            starting_agent = self.prepare(run, starting_agent, options)
        return super().run_streamed(starting_agent, input, **options)

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> Any:
        if current_run() is not None:
            message = "`Runner.run_sync` blocks the code of a workflow"
            raise ContextMisused(message, hint="use `await Runner.run(..)`")
        return super().run_sync(starting_agent, input, **options)

    def prepare(self, run: Run, agent: Agent[Any], options: dict[str, Any]) -> Agent[Any]:
        """Returns the agent with durable models and tools, and puts them into the options, too."""
        if options.get("session") is not None:
            hint = "pass the conversation as input: `result.to_input_list()`"
            raise ContextMisused("a session does I/O in the code of a workflow", hint=hint)
        config = options.get("run_config") or RunConfig()
        if isinstance(config, dict):
            config = RunConfig(**config)
        durable = Durable(run, self.options)
        options["run_config"] = dataclasses.replace(
            config,
            # Exporters of traces would get the spans of every replay again.
            tracing_disabled=True,
            model=durable.model(config.model),
            model_provider=durable.provider(config.model_provider),
        )
        return durable.agent(agent)


class Durable:
    """Replaces models, tools and MCP servers by ones whose calls are steps."""

    def __init__(self, run: Run, options: Options) -> None:
        self.run = run
        self.options = options
        #: By the identity of the original, which is kept alive with it: hand-offs make cycles.
        self.agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        found = self.agents.get(id(agent))
        if found is not None:
            return found[1]
        copy = agent.clone()
        self.agents[id(agent)] = (agent, copy)
        self.agents[id(copy)] = (copy, copy)
        copy.model = self.model(agent.model)
        copy.tools = [self.tool(tool) for tool in agent.tools]
        copy.mcp_servers = [DurableServer(self, server) for server in agent.mcp_servers]
        copy.handoffs = [
            self.handoff(handoff) if isinstance(handoff, Handoff) else self.agent(handoff) for handoff in agent.handoffs
        ]
        return copy

    def handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        async def invoke(context: Any, input: str) -> Any:
            return self.agent(await handoff.on_invoke_handoff(context, input))

        return dataclasses.replace(handoff, on_invoke_handoff=invoke)

    def model(self, model: Any) -> Any:
        return DurableModel(self, model) if isinstance(model, Model) and not isinstance(model, DurableModel) else model

    def provider(self, provider: ModelProvider) -> ModelProvider:
        return provider if isinstance(provider, DurableProvider) else DurableProvider(self, provider)

    def tool(self, tool: Any) -> Any:
        # The agent of an agent tool runs in workflow code, so its own calls are steps.
        if not isinstance(tool, FunctionTool) or tool._is_agent_tool or getattr(tool, IN_WORKFLOW, False):
            return tool
        function = tool.on_invoke_tool

        async def invoke(context: Any, arguments: str) -> Any:
            async def call() -> Any:
                return tool_output(await function(context, arguments))

            return await run_step(self.run, f"tool {tool.name}", call, self.options.tool_retry, None)

        return dataclasses.replace(tool, on_invoke_tool=invoke)

    async def step(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        return await run_step(self.run, name, function, self.options.model_retry, self.options.model_timeout)


def tool_output(output: Any) -> Any:
    """Returns what a tool returned as JSON; the framework passes other values to the model as text."""
    try:
        encode(output)
    except ValueInvalid:
        return str(output)
    return output


class DurableProvider(ModelProvider):
    def __init__(self, durable: Durable, provider: ModelProvider) -> None:
        self.durable = durable
        self.wrapped = provider

    def get_model(self, model_name: str | None) -> Model:
        return DurableModel(self.durable, self.wrapped, model_name)  # type: ignore[no-any-return]


class DurableModel(Model):
    """A model whose calls are steps."""

    def __init__(self, durable: Durable, source: Any, name: str | None = None) -> None:
        self.durable = durable
        self.source = source
        self.name = name if isinstance(source, ModelProvider) else getattr(source, "model", None)

    @property
    def step_name(self) -> str:
        return f"model {self.name}" if self.name else "model"

    def wrapped(self) -> Model:
        """Returns the model itself. Providers create clients, which read clocks and files: not in workflow code."""
        return self.source.get_model(self.name) if isinstance(self.source, ModelProvider) else self.source

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        args, options = without_tracing(args, options)

        async def call() -> Any:
            response = await self.wrapped().get_response(*args, **options)
            return RESPONSE.dump_python(response, mode="json")

        return RESPONSE.validate_python(await self.durable.step(self.step_name, call))

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        args, options = without_tracing(args, options)
        emit = self.durable.options.emit
        deltas = Deltas(self.durable.run, emit) if emit else None

        async def call() -> Any:
            last = None
            async for event in self.wrapped().stream_response(*args, **options):
                if deltas is not None:
                    send(deltas, event)
                if event.type in LAST_EVENTS:
                    last = event
            if last is None:
                raise Failure("the stream of the model ended without an answer")
            return last.model_dump(mode="json")

        last = await self.durable.step(self.step_name, call)
        yield LAST_EVENTS[last["type"]].model_validate(last)


def without_tracing(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a model call with tracing off: spans of the step have no trace to belong to."""
    disabled = ModelTracing.DISABLED
    args = tuple(disabled if isinstance(value, ModelTracing) else value for value in args)
    return args, {name: disabled if isinstance(value, ModelTracing) else value for name, value in options.items()}


def send(deltas: Deltas, event: Any) -> None:
    """Sends what an event of a stream adds to the answer."""
    if event.type in ("response.output_text.delta", "response.refusal.delta"):
        deltas.text(event.delta)
    elif event.type in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        deltas.reasoning(event.delta)
    elif event.type == "response.output_item.added" and event.item.type == "function_call":
        deltas.tool_call_begin(event.item.call_id, event.item.name)
    elif event.type == "response.function_call_arguments.delta":
        deltas.tool_call_arguments(None, event.delta)


class DurableServer(MCPServer):
    """An MCP server whose tools are listed and called in steps. It must be connected outside of the workflow."""

    def __init__(self, durable: Durable, wrapped: MCPServer) -> None:
        super().__init__()
        for name, value in vars(wrapped).items():
            setattr(self, name, value)
        self.durable = durable
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        return self.wrapped.name

    async def connect(self) -> None:
        raise ContextMisused("an MCP server is connected outside of workflow code")

    async def cleanup(self) -> None:
        raise ContextMisused("an MCP server is closed outside of workflow code")

    async def recorded(self, what: str, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        async def call() -> Any:
            found = await function(*args)
            if isinstance(found, list):
                return [dump(item) for item in found]
            return dump(found)

        return await self.durable.step(f"mcp {self.name} {what}", call)

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        from mcp.types import Tool

        tools = await self.recorded("tools", self.wrapped.list_tools, run_context, agent)
        return [Tool.model_validate(tool) for tool in tools]

    async def call_tool(self, tool_name: str, arguments: Any, *options: Any, **named: Any) -> Any:
        from mcp.types import CallToolResult

        async def call(*args: Any) -> Any:
            return await self.wrapped.call_tool(*args, **named)

        return CallToolResult.model_validate(await self.recorded(tool_name, call, tool_name, arguments, *options))

    async def list_prompts(self) -> Any:
        from mcp.types import ListPromptsResult

        return ListPromptsResult.model_validate(await self.recorded("prompts", self.wrapped.list_prompts))

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        from mcp.types import GetPromptResult

        return GetPromptResult.model_validate(await self.recorded(f"prompt {name}", self.wrapped.get_prompt, name, arguments))


def dump(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True)
