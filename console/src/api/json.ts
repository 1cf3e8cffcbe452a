/**
 * Owns reading and printing of JSON without loss.
 * Payloads may have numbers that a double cannot hold; an approver must see the exact ones,
 * so such a number is kept as its text.
 */

/** A number whose text a double would change. */
export class ExactNumber {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
}

// A reviver is slow on large documents, so it is used only if a long number may be present.
const LONG_NUMBER = /[\d.]{16}|\d[eE][+-]?\d/;

/** Parses JSON; numbers that a double would change become `ExactNumber`. */
export function parseJson(text: string): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const reviver = (_: string, value: unknown, context?: { source?: string }): unknown => {
    if (typeof value !== "number" || context?.source === undefined) return value;
    return isSameNumber(context.source, value) ? value : new ExactNumber(context.source);
  };
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

function isSameNumber(source: string, value: number): boolean {
  if (!Number.isFinite(value)) return false;
  return digits(source) === digits(String(value));
}

// The digits without leading and trailing zeros, and the power of ten of the last one.
function digits(number: string): string {
  const [mantissa = "", exponent = "0"] = number.toLowerCase().split("e");
  const sign = mantissa.startsWith("-") ? "-" : "";
  const [whole = "", fraction = ""] = mantissa.replace("-", "").split(".");
  const all = (whole + fraction).replace(/^0+/, "");
  const significant = all.replace(/0+$/, "");
  if (significant === "") return "0";
  const power = Number(exponent) - fraction.length + (all.length - significant.length);
  return `${sign}${significant}e${power}`;
}

/** Prints JSON, with exact numbers unchanged. */
export function printJson(value: unknown, indent = 0): string {
  return print(value, indent, "");
}

function print(value: unknown, indent: number, margin: string): string {
  if (value instanceof ExactNumber) return value.text;
  if (value === undefined) return "null";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = margin + " ".repeat(indent);
  const parts = Array.isArray(value)
    ? value.map((item) => print(item, indent, inner))
    : Object.entries(value)
        .filter(([, item]) => item !== undefined)
        .map(([key, item]) => `${JSON.stringify(key)}:${indent ? " " : ""}${print(item, indent, inner)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (parts.length === 0) return open + close;
  if (indent === 0) return open + parts.join(",") + close;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${margin}${close}`;
}
