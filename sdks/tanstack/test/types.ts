// Compiled, never executed: the adapter implements all of `RunStore`, with the types of the library.

import { createWorkflow, runWorkflow } from '@tanstack/workflow-core'
import type { RunStore, WorkflowEvent } from '@tanstack/workflow-core'
import { OnwardError, onwardRunStore, recoverRun } from '../src/index.js'

const workflow = createWorkflow({ id: 'order' }).handler(async (ctx) => ctx.step('charge', () => 1))

export const whole: Required<RunStore> = onwardRunStore({ url: 'http://127.0.0.1:7400', key: 'onw_…', namespace: 'shop' })

export function started(): AsyncIterable<WorkflowEvent> {
  return runWorkflow({ workflow, runStore: onwardRunStore(), input: {} })
}

export function recovered(): AsyncIterable<WorkflowEvent> {
  return recoverRun({ workflow, runStore: whole, runId: 'order-1' })
}

export function code(error: unknown): string | undefined {
  return error instanceof OnwardError ? error.code : undefined
}

// @ts-expect-error: a run is recovered by its id
recoverRun({ workflow, runStore: whole })
