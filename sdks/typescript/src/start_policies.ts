/** Start policies: how repeated starts of runs with one key are combined. */

import type { RunHandle, StartOptions } from "./client.js";
import { milliseconds, optionalMs, type Duration } from "./options.js";

/** At most one open run of a kind and key. */
export interface Singleton {
  key: string;
  /** While a run is open: `skip` answers with it, `cancel` cancels it first, which needs the scope `operate`. */
  onConflict?: "skip" | "cancel";
}

/** One run for starts that follow each other closely, with the last input. */
export interface Debounce {
  key: string;
  /** The time from the last start to the run. */
  window: Duration;
  /** The longest time from the first start to the run; ten windows by default. */
  maxWait?: Duration;
}

/** One run with the list of several inputs. */
export interface Batch {
  key: string;
  /** The number of inputs at which the run starts. */
  sizeMax: number;
  /** The longest time from the first start to the run. */
  window: Duration;
}

/** How a start is combined with other starts of its kind and key. */
export type StartPolicy = { singleton: Singleton } | { debounce: Debounce } | { batch: Batch };

/** Options of a start with a policy. */
export interface PolicyStartOptions extends Omit<StartOptions, "id" | "signal"> {
  /** A repeat with the same id, policy and input within a day counts once. */
  requestId?: string;
}

/** The answer to a start with a policy. */
export interface StartedWithPolicy<O> {
  /** The run of the start, or the open one that it was skipped for; `result` waits for the start, too. */
  run: RunHandle<O>;
  /** `held`: the run starts later. */
  outcome: "started" | "skipped" | "held";
  /** The time at which a held run starts, if no later start changes it; absent if it waits for the end of another run. */
  dueAt: Date | undefined;
  /** The request was accepted before; this is its first answer. */
  repeated: boolean;
}

/** @internal */
export interface PolicyAnswer {
  id: string;
  outcome: "started" | "skipped" | "held";
  due_at: string | null;
  repeated: boolean;
}

/** Returns the argument of a policy. The engine refuses more than one. */
export function policyArgument(policy: StartPolicy): object {
  const { singleton, debounce, batch } = policy as { singleton?: Singleton; debounce?: Debounce; batch?: Batch };
  return {
    ...(singleton && { singleton: { key: singleton.key, on_conflict: singleton.onConflict ?? "skip" } }),
    ...(debounce && {
      debounce: {
        key: debounce.key,
        window_ms: milliseconds(debounce.window, "window"),
        max_wait_ms: optionalMs(debounce.maxWait, "maxWait"),
      },
    }),
    ...(batch && { batch: { key: batch.key, size_max: batch.sizeMax, window_ms: milliseconds(batch.window, "window") } }),
  };
}
