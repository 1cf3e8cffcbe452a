// A run whose process died during a step stays marked as running, and the library cannot resume it.

import { runWorkflow } from '@tanstack/workflow-core'

const RECOVERED = '__recovered'
const WAITS = ['SIGNAL_AWAITED', 'APPROVAL_REQUESTED']

/**
 * Resumes a run whose process died, during a step or after an input was recorded. Completed steps are not executed again; the
 * interrupted step is.
 *
 * The run waits for an internal signal, which is then delivered: the log records the recovery, and another process that still
 * executes the run fails at its next append. A waiting or ended run is only read.
 */
export async function* recoverRun({ workflow, runStore, runId, ...options }) {
  const events = await runStore.getEvents(runId)
  const state = await runStore.getRunState(runId)
  const waits = state?.status === 'paused' && WAITS.includes(events.at(-1)?.type)
  if (state?.status === 'running' || (state?.status === 'paused' && !waits)) {
    const waiting = { status: 'paused', waitingFor: { signalName: RECOVERED }, pendingApproval: undefined }
    await runStore.setRunState(runId, { ...state, ...waiting, updatedAt: Date.now() })
    const signalDelivery = { signalId: globalThis.crypto.randomUUID(), name: RECOVERED, payload: null }
    yield* runWorkflow({ ...options, workflow, runStore, runId, signalDelivery })
  } else {
    yield* runWorkflow({ ...options, workflow, runStore, runId, attach: true })
  }
}
