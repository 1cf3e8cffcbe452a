// A run whose process died in the middle of a step is marked as running, and the library offers no way to drive it on.

import { runWorkflow } from '@tanstack/workflow-core'

const RECOVERED = '__recovered'
const WAITS = ['SIGNAL_AWAITED', 'APPROVAL_REQUESTED']

/**
 * Drives a run on whose process is gone, in the middle of a step or between an answer and what it leads to. Steps that finished are not
 * run again; the one that was running is.
 *
 * The run is made to wait for a signal of its own, which is then delivered: the log says that it was recovered, and whoever else still
 * drives the run loses at its next append. A run that waits or has ended is only read.
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
