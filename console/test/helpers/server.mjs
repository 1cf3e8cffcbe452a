// Owns servers for tests: a real `onward dev` with a directory of its own, which can be stopped and started again.
import { spawn, execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export const BIN = process.env.ONWARD_BIN ?? new URL("../../../target/debug/onward", import.meta.url).pathname;
const run = promisify(execFile);
const START_MS = 60_000;

export class TestServer {
  /** Starts a server; `keys` are `{name, scope}` that are created before. */
  static async start({ keys = [], env = {} } = {}) {
    const server = new TestServer();
    server.data = await mkdtemp(join(tmpdir(), "onward-console-"));
    server.port = await freePort();
    server.url = `http://127.0.0.1:${server.port}`;
    server.env = { ...process.env, ...env, ONWARD_URL: "" };
    server.keys = {};
    for (const key of keys) server.keys[key.name] = await server.createKey(key);
    try {
      await server.up();
    } catch (error) {
      await server.close();
      throw error;
    }
    return server;
  }

  async createKey({ name, scope, namespace, kind }) {
    const words = ["key", "create", "--name", name, "--scope", scope, "--data", this.data, "--json"];
    if (namespace) words.push("--namespace", namespace);
    if (kind) words.push("--kind", kind);
    const { stdout } = await run(BIN, words, { env: this.env, cwd: this.data });
    const created = JSON.parse(stdout);
    return { id: created.id, secret: created.key ?? created.secret ?? /onw_\S+/.exec(stdout)[0].replace(/["',].*/, "") };
  }

  async revokeKey(id) {
    await run(BIN, ["key", "revoke", id, "--data", this.data], { env: this.env, cwd: this.data });
  }

  async up() {
    this.child = spawn(BIN, ["dev", "--port", String(this.port), "--data", this.data], { env: this.env, cwd: this.data, stdio: ["ignore", "pipe", "pipe"] });
    this.output = "";
    this.child.stdout.on("data", (text) => (this.output += text));
    this.child.stderr.on("data", (text) => (this.output += text));
    const until = Date.now() + START_MS;
    while (Date.now() < until) {
      if (this.child.exitCode !== null) break;
      const ready = await fetch(`${this.url}/readyz`).then((response) => response.ok, () => false);
      if (ready) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`the server did not start: ${this.output}`);
  }

  /** Stops the process and waits for its end; the data stays. */
  async down(signal = "SIGTERM") {
    if (!this.child || this.child.exitCode !== null) return;
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill(signal);
    await ended;
  }

  async close() {
    await this.down();
    await rm(this.data, { recursive: true, force: true });
  }

  /** Sends a request and returns the JSON of its answer. */
  async api(method, path, body, key) {
    const headers = { "content-type": "application/json" };
    if (key) headers.authorization = `Bearer ${key}`;
    let response;
    try {
      response = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (error) {
      // Whether the server ended is the first question, so the error answers it.
      const state = this.child.exitCode ?? this.child.signalCode ?? "running";
      throw new Error(`${method} ${path}: ${error.cause?.message ?? error.message}; the server is ${state}: ${this.output.slice(-600)}`, { cause: error });
    }
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  start(kind, id, input = null, more = {}, key) {
    return this.api("POST", "/v1/runs", { kind, id, input, ...more }, key);
  }

  /** Waits until a run has one of the statuses. */
  async until(id, ...statuses) {
    const until = Date.now() + START_MS;
    for (;;) {
      const view = await this.api("GET", `/v1/runs/${encodeURIComponent(id)}`);
      if (statuses.includes(view.status)) return view;
      if (Date.now() > until) throw new Error(`run ${id} is ${view.status}, not ${statuses.join(" or ")}`);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  }
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}
