/** Owns the reading of JSON Schemas for forms: references, optional values, and which control fits. */

export type Schema = Record<string, unknown>;

export type Shape =
  | { type: "text"; format: string | null; maxLength?: number; pattern?: string }
  | { type: "number"; integer: boolean; min?: number; max?: number }
  | { type: "boolean" }
  | { type: "choice"; options: { value: unknown; label: string }[] }
  | { type: "object"; fields: { name: string; schema: Schema; required: boolean }[] }
  | { type: "list"; items: Schema }
  | { type: "json" };

const DEPTH_MAX = 12;

/** Returns what a schema describes, with references followed and `null` removed. */
export function resolve(schema: unknown, root: Schema, depth = 0): { schema: Schema; nullable: boolean } {
  if (typeof schema !== "object" || schema === null || depth > DEPTH_MAX) return { schema: {}, nullable: true };
  let current = schema as Schema;
  if (typeof current.$ref === "string") {
    const { $ref, ...rest } = current;
    const target = resolve(lookup($ref as string, root), root, depth + 1);
    return { schema: { ...target.schema, ...rest }, nullable: target.nullable };
  }
  const all = current.allOf;
  if (Array.isArray(all) && all.length === 1) {
    const { allOf: _, ...rest } = current;
    const only = resolve(all[0], root, depth + 1);
    return { schema: { ...only.schema, ...rest }, nullable: only.nullable };
  }
  let nullable = false;
  const choices = current.anyOf ?? current.oneOf;
  if (Array.isArray(choices)) {
    const others = choices.filter((choice) => (choice as Schema | null)?.type !== "null");
    if (others.length === 1 && others.length < choices.length) {
      const { anyOf: _a, oneOf: _o, ...rest } = current;
      const only = resolve(others[0], root, depth + 1);
      return { schema: { ...only.schema, ...rest }, nullable: true };
    }
  }
  if (Array.isArray(current.type)) {
    const types = current.type.filter((type) => type !== "null");
    nullable = types.length < current.type.length;
    current = { ...current, type: types.length === 1 ? types[0] : types };
  }
  return { schema: current, nullable };
}

function lookup(pointer: string, root: Schema): unknown {
  if (!pointer.startsWith("#")) return {};
  let target: unknown = root;
  for (const part of pointer.slice(1).split("/").filter((item) => item !== "")) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    target = (target as Schema | undefined)?.[name];
  }
  return target;
}

/** Returns a pattern of HTML, which must match a whole value, for one of JSON Schema, which may match a part. */
function anywhere(pattern: string | null): string | undefined {
  return pattern === null ? undefined : `[\\s\\S]*(?:${pattern})[\\s\\S]*`;
}

/** Returns the control that fits a resolved schema; `json` if no other does. */
export function shapeOf(schema: Schema): Shape {
  const options = optionsOf(schema);
  if (options) return { type: "choice", options };
  switch (schema.type) {
    case "string":
      return { type: "text", format: text(schema.format), maxLength: number(schema.maxLength), pattern: anywhere(text(schema.pattern)) };
    case "integer":
    case "number":
      return { type: "number", integer: schema.type === "integer", min: number(schema.minimum), max: number(schema.maximum) };
    case "boolean":
      return { type: "boolean" };
    case "object":
      return objectShape(schema);
    case "array":
      return typeof schema.items === "object" && schema.items !== null && !Array.isArray(schema.items) ? { type: "list", items: schema.items as Schema } : { type: "json" };
    default:
      return schema.properties ? objectShape(schema) : { type: "json" };
  }
}

function objectShape(schema: Schema): Shape {
  const properties = schema.properties as Record<string, Schema> | undefined;
  if (!properties || Object.keys(properties).length === 0) return { type: "json" };
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields = Object.entries(properties).map(([name, field]) => ({ name, schema: field, required: required.includes(name) }));
  return { type: "object", fields };
}

function optionsOf(schema: Schema): { value: unknown; label: string }[] | null {
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => ({ value, label: String(value) }));
  if ("const" in schema) return [{ value: schema.const, label: String(schema.const) }];
  const choices = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(choices) || choices.length === 0) return null;
  if (!choices.every((choice) => choice && typeof choice === "object" && "const" in choice)) return null;
  return choices.map((choice: Schema) => ({ value: choice.const, label: text(choice.title) ?? String(choice.const) }));
}

/** Returns the value with which a form begins: the default, or the parts that are required. */
export function initialOf(schema: unknown, root: Schema, depth = 0): unknown {
  const resolved = resolve(schema, root).schema;
  if ("default" in resolved) return resolved.default;
  const shape = shapeOf(resolved);
  if (shape.type !== "object" || depth > DEPTH_MAX) return shape.type === "boolean" ? false : shape.type === "list" ? [] : undefined;
  const value: Record<string, unknown> = {};
  for (const field of shape.fields) {
    const initial = field.required ? initialOf(field.schema, root, depth + 1) : (field.schema as Schema | null)?.default;
    if (initial !== undefined) value[field.name] = initial;
  }
  return value;
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function number(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
