// Owns a worker in JavaScript over the HTTP frames of docs/protocol.md, for runs of tests.
// Workflows are generators: `const x = yield step("name", async () => value)`.
import { randomBytes } from "node:crypto";

const WAIT = Symbol("the call has no answer: the run waits");
const CLOSED = ["completed", "failed", "canceled", "terminated"];

// --- calls ----------------------------------------------------------------------------------------------------------

export const step = (name, run) => ({
  async answer(log, call_id, fresh) {
    const done = log.find("step_completed", call_id);
    if (done) return done.output.json;
    const failed = log.findLast("step_failed", call_id);
    if (failed && !failed.retry_at) throw new Failed(failed.failure);
    const attempt = (failed?.attempt ?? 0) + 1;
    const began = Date.now();
    try {
      const output = { json: (await run(attempt)) ?? null };
      fresh.push({ type: "step_completed", call_id, name, output, attempt, took_ms: Date.now() - began });
      return output.json;
    } catch (error) {
      const failure = error.failure ?? { code: "failed", message: error.message };
      fresh.push({ type: "step_failed", call_id, name, failure, attempt, took_ms: Date.now() - began });
      throw new Failed(failure);
    }
  },
});

export const timer = (ms) => ({
  answer(log, call_id, fresh) {
    if (!log.find("timer_started", call_id)) {
      fresh.push({ type: "timer_started", call_id, due_at: new Date(Date.parse(log.at) + ms).toISOString() });
      return WAIT;
    }
    return log.find("timer_fired", call_id) ? null : WAIT;
  },
});

export const signal = (name) => ({
  answer(log, call_id, fresh) {
    const consumed = log.find("signal_consumed", call_id);
    if (consumed) return log.events[consumed.index].payload.json;
    const taken = new Set([...log.events, ...fresh].filter((event) => event.type === "signal_consumed").map((event) => event.index));
    const index = log.events.findIndex((event, at) => event.type === "signal_received" && event.name === name && !taken.has(at));
    if (index >= 0) {
      fresh.push({ type: "signal_consumed", call_id, name, index });
      return log.events[index].payload.json;
    }
    if (!log.find("signal_awaited", call_id)) fresh.push({ type: "signal_awaited", call_id, name });
    return WAIT;
  },
});

/** Options: description, show, deciders, deadline_ms, not_by_requester, answer_schema. */
export const approval = (name, title, { show, deadline_ms, answer_schema, ...more } = {}) => ({
  answer(log, call_id, fresh) {
    if (!log.find("approval_requested", call_id)) {
      const deadline = deadline_ms === undefined ? null : new Date(Date.parse(log.at) + deadline_ms).toISOString();
      fresh.push({ type: "approval_requested", call_id, name, title, ...more, show: show === undefined ? null : { json: show }, deadline, ...(answer_schema && { answer_schema: { json: answer_schema } }) });
      return WAIT;
    }
    return log.find("approval_decided", call_id) ?? (log.find("timer_fired", call_id) ? { approved: false, feedback: "expired" } : WAIT);
  },
});

export const task = (kind, input, options = {}) => ({
  answer(log, call_id, fresh) {
    if (!log.find("task_scheduled", call_id)) {
      fresh.push({ type: "task_scheduled", call_id, kind, input: { json: input }, options });
      return WAIT;
    }
    const failed = log.find("task_failed", call_id);
    if (failed) throw new Failed(failed.failure);
    const completed = log.find("task_completed", call_id);
    return completed ? completed.output.json : WAIT;
  },
});

export const child = (kind, id, input) => ({
  answer(log, call_id, fresh) {
    if (!log.find("child_started", call_id)) {
      fresh.push({ type: "child_started", call_id, child: id, kind, input: { json: input } });
      return WAIT;
    }
    const failed = log.find("child_failed", call_id);
    if (failed) throw new Failed(failed.failure);
    const completed = log.find("child_completed", call_id);
    return completed ? completed.output.json : WAIT;
  },
});

export const setState = (key, value) => ({
  answer(log, call_id, fresh) {
    if (!log.find("state_set", call_id)) fresh.push({ type: "state_set", call_id, key, value: { json: value } });
    return null;
  },
});

export const setAttribute = (name, value) => ({
  answer(log, call_id, fresh) {
    if (!log.find("attribute_set", call_id)) fresh.push({ type: "attribute_set", call_id, name, value });
    return null;
  },
});

export class Failed extends Error {
  constructor(failure) {
    super(failure.message);
    this.failure = failure;
  }
}

// --- a run ----------------------------------------------------------------------------------------------------------

class Log {
  events = [];
  at = null;
  append(record) {
    if (record.index < this.events.length) return true;
    if (record.index > this.events.length) return false;
    this.events.push(...record.events);
    this.at = record.at;
    return true;
  }
  find(type, call_id) {
    return this.events.find((event) => event.type === type && event.call_id === call_id);
  }
  findLast(type, call_id) {
    return this.events.findLast((event) => event.type === type && event.call_id === call_id);
  }
}

class Run {
  log = new Log();
  inFlight = null;
  busy = false;
  early = [];
  unread = false;
  constructor(head, code) {
    Object.assign(this, { key: head.key, generation: head.generation, epoch: head.epoch, next: head.next_commit, code });
  }

  /** Executes the code with the answers of the log. Returns new events, and whether the code waits. */
  async advance() {
    const { log } = this;
    const started = log.events[0];
    const canceled = log.events.find((event) => event.type === "cancel_requested");
    if (canceled) return [[{ type: "run_canceled", failure: { code: "canceled", message: canceled.reason || "canceled" } }], false];
    const fresh = [];
    const calls = this.code(started.input.json, { id: this.key.id });
    try {
      let turn = calls.next();
      for (let number = 0; !turn.done; number++) {
        let value;
        try {
          value = await turn.value.answer(log, String(number), fresh);
        } catch (error) {
          if (!(error instanceof Failed)) throw error;
          turn = calls.throw(error);
          continue;
        }
        if (value === WAIT) return [fresh, true];
        turn = calls.next(value);
      }
      return [[...fresh, { type: "run_completed", output: { json: turn.value ?? null } }], false];
    } catch (error) {
      const failure = error instanceof Failed ? error.failure : { code: "failed", message: String(error.message), retryable: false };
      return [[...fresh, { type: "run_failed", failure }], false];
    }
  }
}

// --- the connection -------------------------------------------------------------------------------------------------

export class TestWorker {
  /** `workflows`: name to generator; `tasks`: name to async function; `offers` adds schemas: name to `{input_schema}`. */
  constructor(url, { workflows = {}, tasks = {}, offers = {}, queues, key, name = `w-${randomBytes(4).toString("hex")}` }) {
    Object.assign(this, { url, workflows, tasks, offers, queues, key, name });
    this.runs = new Map();
    this.reading = new Map();
    this.requests = 0;
    this.connection = 0;
    this.stopped = false;
    this.wake = () => undefined;
  }

  start() {
    this.loop = this.serve();
    return this;
  }

  async stop() {
    this.stopped = true;
    this.abort?.abort();
    await this.loop;
  }

  async serve() {
    while (!this.stopped) {
      try {
        await this.connect();
      } catch {
        // The server is away: a new connection begins with nothing held.
        this.runs.clear();
        if (!this.stopped) await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  async connect() {
    const kinds = Object.keys(this.workflows).map((kind) => ({ kind, ...this.offers[kind] }));
    // A worker id is one lifetime: what an earlier connection held is given back when its lease ends.
    const id = `${this.name}-${++this.connection}`;
    const hello = { protocol: 1, worker: id, kinds, task_kinds: Object.keys(this.tasks), queues: this.queues, runs_max: 20_000, sdk: "console tests", connection: 1 };
    this.out = [{ hello }];
    this.welcomed = false;
    while (!this.stopped) {
      const frames = this.out.length > 0 ? this.out : [{ heartbeat: { request: 0 } }];
      this.out = [];
      this.polling = true;
      const received = await this.post(id, frames, this.welcomed ? 1000 : 0);
      this.polling = false;
      for (const frame of received) {
        const [[name, content]] = Object.entries(frame);
        this[`on_${name}`]?.(content);
      }
    }
  }

  /** Sends frames that become ready while a request waits. */
  flush() {
    if (!this.polling || this.out.length === 0) return;
    const frames = this.out;
    this.out = [];
    this.post(`${this.name}-${this.connection}`, frames, 0).then(
      (received) => {
        for (const frame of received) {
          const [[name, content]] = Object.entries(frame);
          this[`on_${name}`]?.(content);
        }
      },
      () => this.abort?.abort(),
    );
  }

  async post(id, frames, wait) {
    const headers = { "content-type": "application/json" };
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    this.abort = new AbortController();
    const response = await fetch(`${this.url}/v1/workers/${id}/frames?wait_ms=${wait}`, { method: "POST", headers, body: JSON.stringify({ frames }), signal: this.abort.signal });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).frames;
  }

  on_welcome() {
    this.welcomed = true;
    this.out.push({ credit: { runs: 10_000, tasks: 1000 } });
  }

  on_run({ head, log }) {
    const records = log?.records ?? [];
    const run = new Run(head, null);
    this.runs.set(run.key.id, run);
    this.out.push({ credit: { runs: 1, tasks: 0 } });
    this.add(run, records);
    if (!log || log.more) this.read(run);
    else void this.goOn(run);
  }

  read(run) {
    const request = ++this.requests;
    this.reading.set(request, run);
    this.out.push({ read_log: { request, run: run.key, generation: run.generation, from: run.log.events.length } });
    this.flush();
  }

  add(run, records) {
    for (const record of records) {
      if (!run.log.append(record)) return false;
      run.unread ||= record.commit === undefined || record.commit === null;
    }
    return true;
  }

  async goOn(run) {
    if (run.inFlight || run.busy || !this.runs.has(run.key.id)) return;
    run.busy = true;
    run.code ??= this.workflows[run.log.events[0].kind];
    const seen = run.log.events.length;
    let [events, waits] = await run.advance();
    run.busy = false;
    if (run.log.events.length > seen && events.length === 0) return void this.goOn(run);
    if (events.length === 0) {
      if (!run.unread) return;
      events = [{ type: "run_suspended", reason: "settled" }];
    }
    run.unread = false;
    const request = ++this.requests;
    const commit_id = BigInt(`0x${randomBytes(7).toString("hex")}`).toString();
    const commit = { key: run.key, generation: run.generation, epoch: run.epoch, n: run.next, commit_id, horizon: seen - 1, events, waits };
    run.inFlight = { request, commit };
    this.out.push({ commit: { request, commit } });
    this.flush();
  }

  on_input({ run: key, epoch, record }) {
    const run = this.runs.get(key.id);
    if (!run || run.epoch !== epoch) return;
    if (run.inFlight) run.early.push(record);
    else if (this.add(run, [record])) void this.goOn(run);
    else this.read(run);
  }

  on_run_lost({ run }) {
    this.runs.delete(run.id);
  }

  async on_task({ task: offered }) {
    const report = (content) => {
      this.out.push({ report: { request: ++this.requests, task: offered.id, claim: offered.claim, report: content } });
      this.out.push({ credit: { runs: 0, tasks: 1 } });
      this.flush();
    };
    const progress = (value) => {
      this.out.push({ report: { request: ++this.requests, task: offered.id, claim: offered.claim, report: { heartbeat: { progress: { json: value } } } } });
      this.flush();
    };
    try {
      const output = await this.tasks[offered.kind](offered.input.json, { attempt: offered.attempt, progress });
      report(output?.spent ? { spent: { report: { completed: { json: output.value } }, spend: { attempt: offered.attempt, began_at: offered.started_at, ledger_name: offered.kind, lines: output.spent } } } : { completed: { json: output ?? null } });
    } catch (error) {
      report({ failed: error.failure ?? { code: "failed", message: error.message } });
    }
  }

  on_question({ question }) {
    this.out.push({ answer: { question, answer: null, is_passed_on: false } });
  }

  on_reply({ request, outcome }) {
    const [[name, content]] = Object.entries(outcome);
    const run = [...this.runs.values()].find((item) => item.inFlight?.request === request);
    if (name === "committed" && run) this.committed(run, content);
    else if (name === "log") {
      const read = this.reading.get(request);
      this.reading.delete(request);
      this.add(read, content.records);
      if (content.more) this.read(read);
      else void this.goOn(read);
    } else if (name === "problem" && run) {
      run.inFlight = null;
      if (content.advice === "stop_run") this.runs.delete(run.key.id);
      else this.read(run);
    }
  }

  committed(run, { index, at, status }) {
    const { events } = run.inFlight.commit;
    run.inFlight = null;
    run.next++;
    const complete = this.add(run, [{ index, at, commit: {}, events }]) && this.add(run, run.early);
    run.early = [];
    if (CLOSED.includes(status)) this.runs.delete(run.key.id);
    else if (complete) void this.goOn(run);
    else this.read(run);
  }

  on_goodbye() {
    this.abort?.abort();
  }
}
