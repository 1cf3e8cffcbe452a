// A separate process: executes a run to its next pause, or races another process for the same log.

import { LogConflictError, runWorkflow } from '@tanstack/workflow-core'
import { onwardRunStore, recoverRun } from '../src/index.js'
import { Effects } from './kit.js'
import { order } from './order.js'

const { url, effects, hang, recover, race, ...options } = JSON.parse(process.argv[2])
const runStore = onwardRunStore({ url })
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)

if (race) {
  let [won, lost] = [0, 0]
  for (let index = 0; index < race; index += 1) {
    try {
      await runStore.appendEvent(options.runId, index, { type: 'CUSTOM', ts: 0, name: 'race', value: { by: process.pid } })
      won += 1
    } catch (error) {
      if (!(error instanceof LogConflictError) || !error.existing) throw error
      lost += 1
    }
  }
  print({ won, lost })
} else {
  const workflow = order(new Effects(effects), hang)
  const drive = recover ? recoverRun : runWorkflow
  for await (const event of drive({ workflow, runStore, ...options })) print(event)
}
