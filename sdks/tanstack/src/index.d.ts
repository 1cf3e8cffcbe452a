import type { AnyWorkflowDefinition, RunStore, RunWorkflowOptions, WorkflowEvent } from '@tanstack/workflow-core'

export interface OnwardRunStoreOptions {
  /** Where the server is; `ONWARD_URL` or `http://127.0.0.1:7400` otherwise. */
  url?: string
  /** An API key with the scopes `read` and `work`, where the server asks for one. */
  key?: string
  /** The namespace of the runs; the server's default one otherwise. */
  namespace?: string
  fetch?: typeof globalThis.fetch
  /** Told why a subscription ended that nobody ended; `console.error` otherwise. */
  onError?: (error: unknown) => void
}

/** A run store on an Onward server. Subscriptions are pushed. */
export declare function onwardRunStore(options?: OnwardRunStoreOptions): RunStore & Required<Pick<RunStore, 'subscribe'>>

export interface RecoverRunOptions extends Omit<RunWorkflowOptions, 'input' | 'runId' | 'signalDelivery' | 'approval' | 'attach'> {
  workflow: AnyWorkflowDefinition
  runStore: RunStore
  runId: string
}

/** Drives a run on whose process is gone, and reads one that waits or has ended. Works with any store. */
export declare function recoverRun(options: RecoverRunOptions): AsyncIterable<WorkflowEvent>

/** What the server said instead of yes. */
export declare class OnwardError extends Error {
  /** Stable; the server's docs/errors has a page for each. */
  readonly code: string
  readonly status: number
  readonly problem: Record<string, unknown>
}
