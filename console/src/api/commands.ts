/** Owns the lines that do the same as a button: `onward …` and `curl …`. */
import { type RequestOptions, urlOf } from "./client";
import { namespace } from "./identity";
import { printJson } from "./json";

export interface Lines {
  cli: string | null;
  curl: string;
}

/** Returns a word for a POSIX shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./~-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Returns the words of an `onward` command as one line; absent words are left out. */
export function cliLine(...words: (string | number | null | undefined | false)[]): string {
  const given = words.filter((word) => word !== null && word !== undefined && word !== false);
  if (namespace.value !== null) given.push("--namespace", namespace.value);
  return ["onward", ...given].map((word) => shellWord(String(word))).join(" ");
}

/** Returns the `curl` line of a request. */
export function curlLine(method: string, path: string, options: RequestOptions = {}, body?: unknown): string {
  const words = ["curl"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) words.push("-X", method);
  words.push(shellWord(location.origin + urlOf(path, options)));
  if (namespace.value !== null) words.push("-H", shellWord(`onward-namespace: ${namespace.value}`));
  if (body !== undefined) words.push("-H", "'content-type: application/json'", "-d", shellWord(printJson(body)));
  return words.join(" ");
}
