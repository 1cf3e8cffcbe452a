/**
 * Owns the requests of the console: paths and types of the OpenAPI document, the namespace,
 * the header against forged requests, and errors as `Problem` or `Offline`.
 *
 *     const run = await api.get("/v1/runs/{id}", { path: { id }, query: { wait_ms: 500 } });
 */
import { reportOffline } from "./connection";
import { Offline, Problem, asApiError, isAborted, readProblem } from "./errors";
import { parseJson, printJson } from "./json";
import { namespace, reportSignedOut } from "./identity";
import type { PendingPaths } from "./pending";
import type { paths } from "./types";

type Route<P> = P extends keyof PendingPaths ? PendingPaths[P] : P extends keyof paths ? paths[P] : never;
type AnyPath = keyof paths | keyof PendingPaths;
type With<M extends string> = { [P in AnyPath]: Route<P> extends Record<M, { responses: unknown }> ? P : never }[AnyPath];
type Operation<P, M extends string> = Route<P> extends Record<M, infer O> ? O : never;
type JsonOf<R> = R extends { content: { "application/json": infer B } } ? B : never;
type Responses<O> = O extends { responses: infer R } ? R : never;
type OrUndefined<T> = [T] extends [never] ? undefined : T;
/** The body of the 2xx responses of a route; undefined if they have none. */
export type ResponseOf<P, M extends string> = OrUndefined<Bodies<P, M>>;
type Bodies<P, M extends string> =
  { [S in keyof Responses<Operation<P, M>>]: S extends 200 | 201 | 202 ? JsonOf<Responses<Operation<P, M>>[S]> : never }[keyof Responses<Operation<P, M>>];
type BodyOf<P, M extends string> =
  Operation<P, M> extends { requestBody?: infer B } ? (NonNullable<B> extends { content: { "application/json": infer J } } ? J : undefined) : undefined;

export type QueryValue = string | number | boolean | null | undefined | readonly string[];
export type Query = Record<string, QueryValue>;

export interface RequestOptions {
  /** Values of `{name}` in the path. */
  path?: Record<string, string | number>;
  query?: Query;
  signal?: AbortSignal;
}

export const api = {
  get<P extends With<"get">>(path: P, options: RequestOptions = {}): Promise<ResponseOf<P, "get">> {
    return request("GET", path, options) as Promise<ResponseOf<P, "get">>;
  },
  post<P extends With<"post">>(path: P, body?: BodyOf<P, "post">, options: RequestOptions = {}): Promise<ResponseOf<P, "post">> {
    return request("POST", path, options, body) as Promise<ResponseOf<P, "post">>;
  },
  put<P extends With<"put">>(path: P, body: BodyOf<P, "put">, options: RequestOptions = {}): Promise<ResponseOf<P, "put">> {
    return request("PUT", path, options, body) as Promise<ResponseOf<P, "put">>;
  },
  delete<P extends With<"delete">>(path: P, options: RequestOptions = {}): Promise<ResponseOf<P, "delete">> {
    return request("DELETE", path, options) as Promise<ResponseOf<P, "delete">>;
  },
};

/** Returns the address of a route with its values and query. */
export function urlOf(path: string, options: RequestOptions = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(options.path?.[name] ?? "")));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    for (const item of Array.isArray(value) ? value : [value]) query.append(name, String(item));
  }
  const text = query.toString();
  return text === "" ? filled : `${filled}?${text}`;
}

/** Returns the headers of each request. */
export function headersOf(method: string): Headers {
  const headers = new Headers({ accept: "application/json" });
  if (namespace.value !== null) headers.set("onward-namespace", namespace.value);
  if (method !== "GET") headers.set("x-onward-console", "1");
  return headers;
}

async function request(method: string, path: string, options: RequestOptions, body?: unknown): Promise<unknown> {
  const response = await send(method, urlOf(path, options), body, options.signal);
  if (response.status === 204) return undefined;
  const text = await bodyText(response);
  if (text === "") return undefined;
  try {
    return parseJson(text);
  } catch {
    throw new Problem(response.status, "answer_unreadable", "The answer of the server is not JSON.", "reload the page: the server may have another version");
  }
}

/** Sends a request; throws a `Problem` for a refusal and `Offline` without an answer. */
export async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers = headersOf(method);
  if (body !== undefined) headers.set("content-type", "application/json");
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? null : printJson(body),
      signal: signal ?? null,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (isAborted(error)) throw error;
    reportOffline();
    throw new Offline();
  }
  if (response.ok) return response;
  const error = await readProblem(response);
  if (error instanceof Offline) reportOffline();
  if (error instanceof Problem && error.status === 401 && !url.startsWith("/v1/session")) reportSignedOut();
  throw error;
}

async function bodyText(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    if (isAborted(error)) throw error;
    reportOffline();
    throw new Offline("The connection broke while the server answered.");
  }
}

export { asApiError };
