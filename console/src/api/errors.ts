/** Owns the errors of requests: a problem document of the server, or no answer at all. */

/** A refusal of the server: `code`, `detail` and `hint` of its problem document. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly hint: string | null,
    /** Violations of a schema, with `input_invalid` and `answer_invalid`. */
    readonly violations: Violation[] = [],
  ) {
    super(detail);
    this.name = "Problem";
  }
}

export interface Violation {
  path: string;
  message: string;
}

/** The server cannot be reached, or is not ready. */
export class Offline extends Error {
  constructor(detail = "The server does not answer.") {
    super(detail);
    this.name = "Offline";
  }
}

export type ApiError = Problem | Offline;

/** Returns what failed as one of the two kinds of errors. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof Problem || error instanceof Offline) return error;
  return new Problem(0, "console_failed", error instanceof Error ? error.message : String(error), null);
}

/** Returns whether the request was canceled by the console itself. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Returns whether the error has one of the codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Problem && codes.includes(error.code);
}

/** Reads the problem document of a response that is not 2xx. */
export async function readProblem(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed && typeof parsed === "object") body = parsed as Record<string, unknown>;
  } catch {
    // A proxy answered: its page is not shown.
  }
  const code = typeof body.code === "string" ? body.code : `http_${response.status}`;
  if (response.status >= 502 && typeof body.code !== "string") return new Offline(`The server does not answer (${response.status}).`);
  if (code === "not_ready" || code === "store_stopped") return new Offline(textOf(body.detail, "The server is not ready."));
  return new Problem(
    response.status,
    code,
    textOf(body.detail, response.statusText || `The server answered ${response.status}.`),
    typeof body.hint === "string" ? body.hint : null,
    violations(body.violations),
  );
}

function textOf(value: unknown, otherwise: string): string {
  return typeof value === "string" && value !== "" ? value : otherwise;
}

function violations(value: unknown): Violation[] {
  if (!Array.isArray(value)) return [];
  return value.map((item: unknown) => {
    if (typeof item === "string") return { path: "", message: item };
    const fields = (item ?? {}) as Record<string, unknown>;
    const path = fields.path ?? fields.pointer ?? fields.instance_path ?? "";
    return { path: String(path), message: String(fields.message ?? fields.error ?? "is not valid") };
  });
}
