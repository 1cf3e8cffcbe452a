// Owns steps of tests that are reported when they start, or fail before they succeed.
import { pause } from "./fixtures.mjs";
import { TestWorker, step, timer } from "./worker.mjs";

/** What a call returns that has no answer yet. */
const WAITS = timer(0).answer({ find: (type) => type === "timer_started" }, "", []);

/** A worker that reports steps when they start, to the readers of the run. */
export class StepWorker extends TestWorker {
  post(id, frames, wait) {
    for (const frame of frames) if (frame.hello) frame.hello.reports_steps = true;
    return super.post(id, frames, wait);
  }

  on_watch({ run, on }) {
    if (on) this.report(run.id, true, []);
  }

  report(id, is_complete, steps) {
    const run = this.runs.get(id);
    if (!run) return;
    this.out.push({ steps: { run: run.key, generation: run.generation, is_complete, steps } });
    this.flush();
  }
}

/** A step that is reported when it starts; `onBegin` is called before that. */
export const announced = (worker, id, name, onBegin, run) => ({
  answer(log, call_id, fresh) {
    const begin = () => {
      onBegin();
      worker.report(id, false, [{ call_id, name, attempt: 1, started_at: new Date().toISOString() }]);
      return run();
    };
    return step(name, begin).answer(log, call_id, fresh);
  },
});

/** A step that fails before its last attempt, with a delay after each. */
export const unsteady = (name, attempts) => ({
  async answer(log, call_id, fresh) {
    const done = log.find("step_completed", call_id);
    if (done) return done.output.json;
    const failed = log.findLast("step_failed", call_id);
    const fired = log.events.filter((event) => event.type === "timer_fired" && event.call_id === call_id).length;
    const attempt = (failed?.attempt ?? 0) + 1;
    if (fired < attempt - 1) return WAITS;
    await pause(80);
    if (attempt < attempts) {
      fresh.push({ type: "step_failed", call_id, name, attempt, took_ms: 80, failure: { code: "hung_up", message: "the other side hung up" }, retry_at: new Date(Date.now() + 300).toISOString() });
      return WAITS;
    }
    fresh.push({ type: "step_completed", call_id, name, attempt, took_ms: 80, output: { json: null } });
    return null;
  },
});
