/** The native part: the engine, compiled from Rust. */

import { createRequire } from "node:module";

/** @internal A bridge; its texts are JSON, see `onward-node/src/batch.rs`. */
export interface NativeBridge {
  take(max: number): string;
  call(run: number, verb: string, args: string): string;
  handBack(activations: string): void;
  finish(jobs: string): void;
  task(job: number, verb: string, args: string): string;
  answerQuery(query: number, ok: boolean, answer: string | null): void;
  request(verb: string, args: string): number;
  abandon(request: number): void;
  shutDown(timeoutMs: number): void;
  /** The numbers of runs, jobs, requests and queued pieces of work. */
  stats(): number[];
  close(): void;
}

interface Native {
  version(): string;
  start(settings: string, wake: () => void): Promise<NativeBridge>;
}

let loaded: Native | undefined;

/** @internal Loads the native part at its first use. */
export function native(): Native {
  if (loaded === undefined) {
    try {
      loaded = createRequire(import.meta.url)("../onward.node") as Native;
    } catch (error) {
      const platform = `${process.platform}-${process.arch}`;
      throw new Error(`the native part of onward (onward.node) cannot be loaded on ${platform}: make the package on this platform, with \`cargo xtask dist\``, { cause: error });
    }
  }
  return loaded;
}

/** Returns the version of the engine. */
export function version(): string {
  return native().version();
}
