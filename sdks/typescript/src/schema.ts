/** Schemas of values: of a library such as zod, or JSON schemas. */

import { Failure } from "./errors.js";

/** A schema of zod, valibot, arktype or another library: https://standardschema.dev. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
    readonly jsonSchema?: { readonly input: (options: { target: "draft-2020-12" }) => Record<string, unknown> };
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly (PropertyKey | { key: PropertyKey })[] | undefined }[] };

/** The failure for a value that does not fit. */
export interface Problem {
  message: string;
  code?: string;
}

/** A schema of zod, valibot or arktype, or a JSON schema. */
export type Schema<T> = StandardSchema<T> | Record<string, unknown>;

/** @internal Returns the value as the schema reads it; fails with `problem` if it does not fit. A JSON schema is checked elsewhere. */
export async function validated(problem: Problem, schema: Schema<unknown>, value: unknown): Promise<unknown> {
  if (!isStandard(schema)) return value;
  const result = await schema["~standard"].validate(value);
  return valueOf(problem, result);
}

/** @internal Does the same in workflow code, which cannot wait for a schema. */
export function validatedNow(problem: Problem, schema: Schema<unknown>, value: unknown): unknown {
  if (!isStandard(schema)) return value;
  const result = schema["~standard"].validate(value);
  if (result instanceof Promise) throw new TypeError("the schema is asynchronous, and workflow code cannot wait for it");
  return valueOf(problem, result);
}

function valueOf({ message, code }: Problem, result: StandardResult<unknown>): unknown {
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map((issue) => {
    const keys = (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
    return keys.length === 0 ? issue.message : `${keys.join(".")}: ${issue.message}`;
  });
  throw new Failure(`${message}: ${issues.join("; ")}`, { retryable: false, ...(code === undefined ? {} : { code }) });
}

function isStandard(schema: object): schema is StandardSchema {
  return "~standard" in schema;
}

/** @internal Returns the JSON schema of a schema. */
export function jsonSchemaOf(what: string, schema: Schema<unknown>, jsonSchema?: Record<string, unknown>): Record<string, unknown> {
  if (jsonSchema !== undefined) return jsonSchema;
  if (!isStandard(schema)) return schema;
  const converter = schema["~standard"].jsonSchema;
  if (converter === undefined) {
    const vendor = schema["~standard"].vendor;
    throw new TypeError(`${vendor} cannot make the JSON schema of ${what}: pass it as \`jsonSchema\``);
  }
  const { $schema: _, ...made } = converter.input({ target: "draft-2020-12" });
  return made;
}
