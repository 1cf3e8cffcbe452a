import type { AnyWorkflowDefinition, RunStore, RunWorkflowOptions, WorkflowEvent } from '@tanstack/workflow-core'

export interface OnwardRunStoreOptions {
  /** URL of the server. Default: `ONWARD_URL`, or `http://127.0.0.1:7400`. */
  url?: string
  /** API key with the scopes `read` and `work`, if the server requires one. */
  key?: string
  /** Namespace of the runs. Default: that of the server. */
  namespace?: string
  fetch?: typeof globalThis.fetch
  /** Called with the reason if a subscription ends by itself. Default: `console.error`. */
  onError?: (error: unknown) => void
}

/** Creates a run store on an Onward server. Subscriptions are pushed. */
export declare function onwardRunStore(options?: OnwardRunStoreOptions): RunStore & Required<Pick<RunStore, 'subscribe'>>

export interface RecoverRunOptions extends Omit<RunWorkflowOptions, 'input' | 'runId' | 'signalDelivery' | 'approval' | 'attach'> {
  workflow: AnyWorkflowDefinition
  runStore: RunStore
  runId: string
}

/** Resumes a run whose process died; only reads a run that waits or has ended. Works with any store. */
export declare function recoverRun(options: RecoverRunOptions): AsyncIterable<WorkflowEvent>

/** An error response of the server. */
export declare class OnwardError extends Error {
  /** Stable error code; the server's docs/errors has a page for each. */
  readonly code: string
  readonly status: number
  readonly problem: Record<string, unknown>
}
