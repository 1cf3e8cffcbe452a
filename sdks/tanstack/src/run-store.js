// Adapter between TanStack's `RunStore` and Onward's HTTP routes.

import { LogConflictError } from '@tanstack/workflow-core'
import { Client, OnwardError } from './client.js'
import { follow } from './follow.js'

const STATUSES = { running: 'running', paused: 'waiting', finished: 'completed', errored: 'failed', aborted: 'canceled' }
const ENDS = ['RUN_FINISHED', 'RUN_ERRORED']

export function onwardRunStore(options = {}) {
  const client = new Client(options)
  const path = (runId) => `/v1/external/${encodeURIComponent(runId)}`
  // Log length of each run that this process executes: its writes are refused if another process has appended since.
  const ends = new Map()

  const read = async (runId, from, limit) =>
    (await client.get(`${path(runId)}/events?from=${from}&limit=${limit}`)) ?? { events: [], next: null }
  const conflict = async (error, runId, index) => {
    if (!(error instanceof OnwardError) || error.code !== 'log_conflict') throw error
    // This process has lost the run, unless another call here has read further.
    ends.set(runId, Math.max(ends.get(runId) ?? 0, index))
    throw new LogConflictError(runId, index, (await read(runId, index, 1)).events[0]?.event)
  }

  return {
    async getRunState(runId) {
      return (await client.get(path(runId)))?.data ?? undefined
    },

    async setRunState(runId, state) {
      const { workflowId: kind, workflowVersion: version, status } = state
      const fence = { expected_next_index: ends.get(runId) }
      await client
        .write('PUT', path(runId), { kind, version, status: STATUSES[status], data: state, ...fence })
        .catch((error) => conflict(error, runId, ends.get(runId)))
      if (status !== 'running') ends.delete(runId)
    },

    async deleteRun(runId, reason) {
      ends.delete(runId)
      await client.delete(`${path(runId)}?reason=${encodeURIComponent(reason)}`)
    },

    async appendEvent(runId, expectedNextIndex, event) {
      const body = { expected_next_index: expectedNextIndex, events: [event] }
      await client.write('POST', `${path(runId)}/events`, body).catch((error) => conflict(error, runId, expectedNextIndex))
      if (ENDS.includes(event.type)) ends.delete(runId)
      else ends.set(runId, expectedNextIndex + 1)
    },

    async getEvents(runId) {
      const log = []
      for (let next = 0; next !== null; ) {
        const page = await read(runId, next, 1000)
        log.push(...page.events.map(({ event }) => event))
        next = page.next
      }
      if (ends.has(runId)) ends.set(runId, log.length)
      return log
    },

    subscribe(runId, fromIndex, onEvent) {
      return follow(client, `${path(runId)}/events`, fromIndex, onEvent)
    },
  }
}
