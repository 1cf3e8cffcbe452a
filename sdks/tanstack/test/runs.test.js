// Runs whose steps execute in separate processes, and processes that die.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { handleWorkflowWebhook, runWorkflow } from '@tanstack/workflow-core'
import { onwardRunStore, recoverRun } from '../src/index.js'
import { Effects, collect, directory, driver, end, kept, server, types, until } from './kit.js'
import { order } from './order.js'

const PAYMENT = { signalId: 'pay-1', name: 'payment', payload: { amount: 5 } }

async function site(t) {
  const path = directory(t)
  const served = await server()
  t.after(() => end(served))
  const effects = new Effects(join(path, 'effects'))
  return { url: served.url, runs: served.runs, effects, store: onwardRunStore({ url: served.url }), path: effects.path }
}

test('a run is started, signaled, approved and finished, each in a fresh process', async (t) => {
  const { url, runs, effects, store, path } = await site(t)
  const drive = async (task) => (await driver({ url, effects: path, runId: 'order-1', ...task }).ended).events

  const started = await drive({ input: { item: 'a teapot' } })
  assert.deepEqual(kept(started), ['UUID_RECORDED', 'STEP_FINISHED', 'SIGNAL_AWAITED'])
  const [listed] = await runs('?status=waiting&kind=order')
  assert.deepEqual([listed.id, listed.version, listed.external], ['order-1', 'v1', true])
  assert.equal((await store.getRunState('order-1')).waitingFor.signalName, 'payment')

  const signaled = await drive({ signalDelivery: PAYMENT })
  assert.deepEqual(kept(signaled), ['SIGNAL_RESOLVED', 'APPROVAL_REQUESTED'])
  const { pendingApproval } = await store.getRunState('order-1')
  assert.equal(pendingApproval.title, 'Ship a teapot?')

  const approved = await drive({ approval: { approvalId: pendingApproval.approvalId, approved: true } })
  assert.deepEqual(kept(approved), ['APPROVAL_RESOLVED', 'STEP_FINISHED', 'RUN_FINISHED'])
  const output = { id: 'string', charge: 'charge done', payment: { amount: 5 }, ship: 'ship done', item: 'a teapot' }
  assert.deepEqual(approved.at(-1).output, output)
  assert.deepEqual(effects.list(), ['charge', 'ship'], 'no step ran twice')
  assert.equal((await runs('?status=completed')).length, 1)
  assert.equal((await store.getRunState('order-1')).status, 'finished')
})

test('a rejected approval and a thrown error end a run as failed', async (t) => {
  const { runs, effects, store } = await site(t)
  const workflow = order(effects)
  const runId = 'order-1'
  await collect(runWorkflow({ workflow, runStore: store, runId, input: { item: 'x' } }))
  await handleWorkflowWebhook({ workflow, runStore: store, payload: { runId, signalDelivery: PAYMENT } })
  const { approvalId } = (await store.getRunState(runId)).pendingApproval
  const events = await handleWorkflowWebhook({
    workflow,
    runStore: store,
    payload: { runId, approval: { approvalId, approved: false, feedback: 'too dear' } },
  })
  assert.equal(events.at(-1).error.message, 'rejected')
  assert.equal((await runs('?status=failed')).length, 1)
})

test('a signal is taken once, and another one for the same wait has lost', async (t) => {
  const { effects, store } = await site(t)
  const workflow = order(effects)
  const runId = 'order-1'
  await collect(runWorkflow({ workflow, runStore: store, runId, input: { item: 'x' } }))
  const [one, two] = await Promise.all(
    ['a', 'b'].map((signalId) =>
      collect(runWorkflow({ workflow, runStore: store, runId, signalDelivery: { ...PAYMENT, signalId } })),
    ),
  )
  const lost = [one, two].filter((events) => events.at(-1).code === 'signal_lost')
  assert.equal(lost.length, 1)
  const resolved = (await store.getEvents(runId)).filter(({ type }) => type === 'SIGNAL_RESOLVED')
  assert.equal(resolved.length, 1)
})

for (const hang of ['charge', 'ship']) {
  test(`a process killed in the middle of ${hang} is followed by another that goes on`, async (t) => {
    const { url, effects, store, path } = await site(t)
    const runId = 'order-1'
    const workflow = order(effects)
    const dying = (task) => driver({ url, effects: path, hang, runId, ...task })
    let doomed
    if (hang === 'charge') {
      doomed = dying({ input: { item: 'x' } })
    } else {
      await collect(runWorkflow({ workflow, runStore: store, runId, input: { item: 'x' } }))
      await collect(runWorkflow({ workflow, runStore: store, runId, signalDelivery: PAYMENT }))
      const { approvalId } = (await store.getRunState(runId)).pendingApproval
      doomed = dying({ approval: { approvalId, approved: true } })
    }
    await effects.until(hang)
    doomed.child.kill('SIGKILL')
    assert.equal((await doomed.ended).signal, 'SIGKILL')
    assert.equal((await store.getRunState(runId)).status, 'running')

    const { events } = await driver({ url, effects: path, runId, recover: true }).ended
    const count = (name) => effects.list().filter((effect) => effect === name).length
    assert.equal(count(hang), 2, 'the step that was running ran again')
    if (hang === 'charge') {
      assert.equal((await store.getRunState(runId)).waitingFor.signalName, 'payment')
    } else {
      assert.equal(count('charge'), 1, 'a step that had finished did not')
      assert.equal(events.at(-1).type, 'RUN_FINISHED')
      assert.deepEqual(events.at(-1).output.payment, { amount: 5 })
    }
  })
}

test('a process that was taken for dead loses, and its writes are refused', async (t) => {
  const { url, effects, store } = await site(t)
  let release
  const held = new Promise((resolve) => (release = resolve))
  const workflow = order(effects)
  const stuck = order({ add: () => held })
  const zombie = collect(runWorkflow({ workflow: stuck, runStore: store, runId: 'order-1', input: { item: 'x' } }))
  const other = onwardRunStore({ url })
  await until('the first event', async () => (await other.getEvents('order-1')).length > 0)
  const recovered = await collect(recoverRun({ workflow, runStore: other, runId: 'order-1' }))
  assert.equal(recovered.at(-1).type, 'SIGNAL_AWAITED')
  const before = [await other.getRunState('order-1'), await other.getEvents('order-1')]
  release()
  const events = await zombie
  assert.ok(!kept(events).includes('STEP_FINISHED'), `${types(events)}`)
  assert.deepEqual([await other.getRunState('order-1'), await other.getEvents('order-1')], before)
})

test('a run outlives the server', async (t) => {
  const path = directory(t)
  const effects = new Effects(join(path, 'effects'))
  const workflow = order(effects)
  const first = await server(join(path, 'data'))
  t.after(() => end(first))
  await collect(runWorkflow({ workflow, runStore: onwardRunStore(first), runId: 'order-1', input: { item: 'x' } }))
  await end(first, 'SIGKILL')
  const second = await server(join(path, 'data'))
  t.after(() => end(second))
  const runStore = onwardRunStore(second)
  const events = await collect(runWorkflow({ workflow, runStore, runId: 'order-1', signalDelivery: PAYMENT }))
  assert.equal(events.at(-1).type, 'APPROVAL_REQUESTED')
  assert.deepEqual(effects.list(), ['charge'])
})
