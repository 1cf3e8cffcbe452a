"""Agents: runs whose code may depend on values that are not recorded, such as a prompt or a list of tools."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NoReturn, TypeVar, Union, overload

from ._ctx import Ctx, name_of
from ._definitions import Memo, Task, Workflow, is_async, memo_json, retry_json
from ._errors import ValueInvalid, invalid
from ._json import arguments, converter, encode, milliseconds, raw, type_hints
from ._loop import Call
from ._schema import schema_of_parameters

I = TypeVar("I")
O = TypeVar("O")
S = TypeVar("S")
T = TypeVar("T")


class Tool(Task[Any, O]):
    """A typed function that a model may call: what `@tool` returns."""

    __slots__ = ("_convert", "_ctx_name", "description", "options", "schema")

    def __init__(self, name: str | None, function: Callable[..., Any], description: str | None, options: dict[str, Any]) -> None:
        signature = inspect.signature(function)
        hints = type_hints(function)
        parameters = list(signature.parameters.values())
        contexts = [p.name for p in parameters if getattr(hints.get(p.name), "__name__", None) == "TaskCtx"]
        super().__init__(name, lambda value: value)
        self.name = name or function.__name__
        self.function = function
        self.is_async = is_async(function)
        self.description = description or inspect.getdoc(function) or ""
        if not self.description:
            raise invalid(f"tool `{self.name}` has no description", "write a docstring: the model reads it")
        self.options = options
        self._ctx_name = contexts[0] if contexts else None
        values = [p for p in parameters if p.name not in contexts]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in values):
            raise invalid(f"tool `{self.name}` has parameters without a name", "name each parameter and its type")
        self.schema = schema_of_parameters(values, hints)
        self._convert = {p.name: converter(hints.get(p.name, Any)) for p in values}
        self.convert_result = converter(hints.get("return", Any))

    def call(self, ctx: Any, value: Any) -> Any:
        """Calls the function with the arguments of the model."""
        if not isinstance(value, dict):
            raise ValueInvalid("the arguments of a tool are an object")
        unknown = sorted(set(value) - set(self._convert))
        if unknown:
            raise ValueInvalid(f"`{self.name}` has no parameter `{unknown[0]}`")
        fields = {}
        for name, item in value.items():
            convert = self._convert[name]
            try:
                fields[name] = item if convert is None else convert(item)
            except ValueInvalid as error:
                raise error.inside(f".{name}") from None
        if self._ctx_name is not None:
            fields[self._ctx_name] = ctx
        return self.function(**fields)

    def for_model(self) -> dict[str, Any]:
        """Returns what a model call shows of the tool; the engine takes the schema as text."""
        return {"name": self.name, "description": self.description, "input": encode(self.schema)}

    def settings(self) -> dict[str, Any]:
        return {**self.for_model(), **self.options}


class _ToolDecorator:
    def __init__(self, name: str | None, description: str | None, options: dict[str, Any]) -> None:
        self._arguments = (name, description, options)

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, O]]) -> Tool[O]: ...
    @overload
    def __call__(self, function: Callable[..., O]) -> Tool[O]: ...
    def __call__(self, function: Callable[..., Any]) -> Tool[Any]:
        name, description, options = self._arguments
        return Tool(name, function, description, options)


def tool(
    name: str | None = None,
    *,
    description: str | None = None,
    effect: str | None = None,
    retry: Any = None,
    timeout: Any = None,
    needs_approval: bool = False,
    not_by_requester: bool = False,
    result_bytes_max: int | None = None,
) -> _ToolDecorator:
    """Makes a tool of a function with type hints; its docstring is the description that the model reads.

    `effect` is `pure`, `keyed`, `at_least_once` or `at_most_once`. With `needs_approval` a person decides each call.
    """
    options = {
        "class": effect,
        "retry": retry_json(retry),
        "timeout_ms": milliseconds(timeout),
        "needs_approval": needs_approval or None,
        "not_by_requester": not_by_requester or None,
        "result_bytes_max": result_bytes_max,
    }
    return _ToolDecorator(name, description, {key: value for key, value in options.items() if value is not None})


@dataclass(frozen=True)
class Next(Generic[S]):
    """The next turn begins at once, or with the next signal of the name `wait_for`."""

    state: S
    wait_for: str | None = None


@dataclass(frozen=True)
class Done(Generic[T]):
    """The last turn: the agent ends with this value."""

    value: T


@dataclass(frozen=True)
class ModelReply:
    """The answer of a model."""

    value: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of the answer."""
        found = self.value.get("text")
        if isinstance(found, str):
            return found
        return "".join(block.get("text", "") for block in self.value.get("blocks", ()) if isinstance(block.get("text"), str))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls of the answer; pass each to `ctx.tool`."""
        if "calls" in self.value:
            return list(self.value["calls"])
        kinds = ("tool_call", "tool_use")
        return [block for block in self.value.get("blocks", ()) if block.get("type", block.get("kind")) in kinds]


class AgentCtx(Ctx):
    """The context of an agent: a `Ctx` with a conversation, models, tools and turns."""

    __slots__ = ()

    async def turns(self, state: S, turn: Callable[[S], Awaitable[Union[Next[S], Done[T]]]]) -> T:
        """Repeats a turn until it returns `Done`. Every turn ends in a checkpoint, after which the function starts again."""
        begun: S = await self._run.wait("turn_begin", arguments(state=raw(state)))
        outcome = await turn(begun)
        if isinstance(outcome, Done):
            return outcome.value
        if not isinstance(outcome, Next):
            raise invalid(f"a turn returned `{type(outcome).__name__}`", "return `Next(state)` or `Done(value)`")
        await self._run.wait("turn_end", arguments(state=raw(outcome.state), signal=outcome.wait_for))
        raise AssertionError("the turn ended")

    async def checkpoint(self, state: Any) -> NoReturn:
        """Ends the turn with a state and starts the function again."""
        await self._run.wait("checkpoint", arguments(state=raw(state)))
        raise AssertionError("the turn ended")

    def checkpointed(self) -> Any:
        """Returns the state of the last checkpoint, or `None` in the first turn."""
        found = self._run.value("checkpointed")
        return None if found is None else found["value"]

    def append(self, role: str, content: Any, *, key: str | None = None) -> Any:
        """Appends an entry to the conversation and returns its id; with a key, once."""
        if isinstance(content, ModelReply):
            content = content.value
        return self._run.value("append", arguments(role=role, content=raw(content), key=key))["entry"]

    def messages(self, *, last: int | None = None, before: str | None = None) -> Call[list[dict[str, Any]]]:
        """Returns the last summary and the entries after it, the last entries, or the page before one."""
        return self._run.wait("messages", arguments(last=last, before=before))  # type: ignore[no-any-return]

    def entry_count(self) -> int:
        """Returns the number of entries."""
        return int(self._run.value("entry_count"))

    def leaf(self) -> str | None:
        """Returns the id of the last entry."""
        found = self._run.value("leaf")
        return None if found is None else str(found)

    def take_in(self) -> list[str]:
        """Takes over entries that were appended from outside, and returns their ids."""
        return list(self._run.value("take_in"))

    def compact(self, text: str, covers: Any) -> Any:
        """Replaces old entries by a summary."""
        return self._run.value("compact", arguments(text=text, covers=covers))["entry"]

    def branch(self, entry: str | None) -> Call[None]:
        """Continues the conversation from an earlier entry."""
        return self._run.wait("branch", arguments(entry=raw(entry)))  # type: ignore[no-any-return]

    async def handoff(self, to: str | Workflow[Any, Any], input: Any = None) -> NoReturn:
        """Ends the turn; another kind of agent continues the conversation as the same run."""
        await self._run.wait("handoff", arguments(kind=name_of(to), input=raw(input)))
        raise AssertionError("the conversation was handed over")

    def llm(
        self,
        model: str,
        *,
        system: str | None = None,
        tools: Sequence[Tool[Any] | dict[str, Any]] = (),
        tool_choice: Any = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        ask: str | None = None,
        at: str | None = None,
        truncate_at: int | None = None,
        memo: Memo | timedelta | float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Call[ModelReply]:
        """Sends the conversation to a model; the attempt runs in a worker, and its text streams while it arrives.

        `memo`: for how long the answer to an equal call of another run is used again.
        """
        args = arguments(
            model=model,
            system=system,
            tools=[tool.for_model() if isinstance(tool, Tool) else tool for tool in tools],
            tool_choice=tool_choice,
            max_tokens=max_tokens,
            temperature_milli=None if temperature is None else round(temperature * 1000),
            ask=ask,
            at=at,
            truncate_at=truncate_at,
            memo=memo_json(memo),
            extra={name: encode(value) for name, value in (extra or {}).items()},
        )
        return self._run.wait("llm", args, ModelReply)  # type: ignore[no-any-return]

    def tool(self, call: dict[str, Any]) -> Call[dict[str, Any]]:
        """Executes a tool call of a model's answer; failures become results that the model reads."""
        return self._run.wait("tool", arguments(call=call))  # type: ignore[no-any-return]


class _AgentDecorator:
    def __init__(self, name: str | None, options: dict[str, Any]) -> None:
        self.name = name
        self.options = options

    @overload
    def __call__(self, function: Callable[[AgentCtx, I], Coroutine[Any, Any, O]]) -> Workflow[I, O]: ...
    @overload
    def __call__(self, function: Callable[[AgentCtx], Coroutine[Any, Any, O]]) -> Workflow[None, O]: ...
    def __call__(self, function: Callable[..., Any]) -> Workflow[Any, Any]:
        return Workflow(self.name, function, is_agent=True, **self.options)


def agent(name: str | None = None, *, version: str | None = None, internal: bool = False) -> _AgentDecorator:
    """Makes an agent of an async function that takes an `AgentCtx` and an input. Register it with the workflows."""
    return _AgentDecorator(name, {"version": version, "is_internal": internal})


@dataclass(frozen=True)
class AgentTool:
    """An agent, of the kind `kind`, that another one calls as a tool."""

    name: str
    description: str
    kind: str


class Agent:
    """The ready-made loop: it calls the model and the tools until the model answers without tool calls.

    `converse` waits for the next message instead of ending. Other options: `max_turns`, `max_tool_calls`, `max_handoffs`,
    `compact_at`, `budget`, `stop_at_budget`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str,
        system: str | None = None,
        tools: Sequence[Tool[Any]] = (),
        agent_tools: Sequence[AgentTool] = (),
        handoff_to: Sequence[str] = (),
        converse: bool = False,
        **options: Any,
    ) -> None:
        self.name = name
        self.tools = list(tools)
        self._settings = {
            "name": name,
            "model": model,
            "system": system,
            "tools": [tool.settings() for tool in tools],
            "agent_tools": [vars(tool) for tool in agent_tools],
            "handoff_to": list(handoff_to),
            "converse": converse,
            **options,
        }

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self._settings.items() if value is not None}


#: Tools by the agent that has them, `""` for code, and their name.
ToolTable = dict[tuple[str, str], Tool[Any]]


def collect(settings: dict[str, Any], workflows: list[Workflow[Any, Any]]) -> ToolTable:
    """Moves agents and tools from the options into settings and workflows, and returns the tools."""
    tools: ToolTable = {}

    def add(agent: str, tool: Any) -> None:
        if not isinstance(tool, Tool):
            raise invalid(f"{tool!r:.60} is not a tool", "decorate the function with `@tool()`")
        if tools.setdefault((agent, tool.name), tool) is not tool:
            raise invalid(f"two tools have the name `{tool.name}`")

    ready_made = []
    for found in settings.pop("agents", ()):
        if isinstance(found, Workflow):
            workflows.append(found)
        elif isinstance(found, Agent):
            ready_made.append(found.settings())
            for tool in found.tools:
                add(found.name, tool)
        else:
            raise invalid(f"{found!r:.60} is not an agent", "use `Agent(..)` or decorate the function with `@agent()`")
    of_code = settings.pop("tools", ())
    for tool in of_code:
        add("", tool)
    settings["tools"] = [tool.settings() for tool in of_code]
    settings["agents"] = ready_made
    return tools


__all__ = ["Agent", "AgentCtx", "AgentTool", "Done", "ModelReply", "Next", "Tool", "agent", "tool"]
