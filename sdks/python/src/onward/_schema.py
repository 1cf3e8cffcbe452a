"""JSON Schemas from type hints, for the tools of models and the answers of people."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from typing import Any, Union

from ._errors import invalid
from ._json import encode, loads, type_hints

SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(annotation: Any) -> dict[str, Any]:
    """Returns the JSON Schema of an annotated type."""
    if annotation in SCALARS:
        return {"type": SCALARS[annotation]}
    if annotation is Any or annotation is inspect.Parameter.empty or annotation is object:
        return {}
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return annotated(args)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (Union, getattr(types, "UnionType", Union)):
        return {"anyOf": [schema_of(arg) for arg in args]}
    if isinstance(origin, type):
        if issubclass(origin, tuple) and args and args[-1] is not Ellipsis:
            items = [schema_of(arg) for arg in args]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if issubclass(origin, collections.abc.Mapping):
            return {"type": "object", "additionalProperties": schema_of(args[1]) if len(args) == 2 else {}}
        if issubclass(origin, collections.abc.Iterable):
            return {"type": "array", "items": schema_of(args[0]) if args else {}}
    if isinstance(annotation, type):
        return class_schema(annotation)
    raise invalid(f"no JSON Schema for the type {annotation!r}", "use types of JSON, dataclasses or pydantic models")


def root_schema_of(annotation: Any) -> dict[str, Any]:
    """Returns the JSON Schema of an annotated type as a document of its own: its definitions are at the top."""
    definitions: dict[str, Any] = {}
    schema = hoisted(schema_of(annotation), definitions)
    return {**schema, "$defs": definitions} if definitions else dict(schema)


def hoisted(schema: Any, definitions: dict[str, Any]) -> Any:
    """Moves the definitions of a schema and of its parts into `definitions`."""
    if isinstance(schema, list):
        return [hoisted(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    for name, definition in schema.get("$defs", {}).items():
        definitions[name] = hoisted(definition, definitions)
    return {name: hoisted(part, definitions) for name, part in schema.items() if name != "$defs"}


def annotated(args: tuple[Any, ...]) -> dict[str, Any]:
    """Describes `Annotated[T, "text"]`; pydantic's `Field(description=..)` works, too."""
    schema = schema_of(args[0])
    for note in args[1:]:
        description = note if isinstance(note, str) else getattr(note, "description", None)
        if description:
            schema["description"] = description
    return schema


def class_schema(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        return dict(kind.model_json_schema())
    if issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind):
        hints = type_hints(kind)
        fields = dataclasses.fields(kind)
        properties = {field.name: schema_of(hints.get(field.name, Any)) for field in fields}
        required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if typing.is_typeddict(kind):
        properties = {name: schema_of(hint) for name, hint in type_hints(kind).items()}
        required = sorted(kind.__required_keys__)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if kind in (list, tuple):
        return {"type": "array"}
    if kind is dict:
        return {"type": "object"}
    raise invalid(f"no JSON Schema for the type `{kind.__name__}`", "use types of JSON, dataclasses or pydantic models")


def schema_of_parameters(parameters: list[inspect.Parameter], hints: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object with the parameters of a function as its fields."""
    properties = {}
    required = []
    definitions: dict[str, Any] = {}
    for parameter in parameters:
        schema = schema_of(hints.get(parameter.name, Any))
        definitions.update(schema.pop("$defs", {}))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            schema["default"] = loads(encode(parameter.default))
        properties[parameter.name] = schema
    found = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if definitions:
        found["$defs"] = definitions
    return found
