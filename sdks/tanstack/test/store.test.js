// The contract of a RunStore, for the library's own store and for this one: both must return the same.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { LogConflictError, inMemoryRunStore, runWorkflow } from '@tanstack/workflow-core'
import { OnwardError, onwardRunStore } from '../src/index.js'
import { collect, driver, end, kept, server, until } from './kit.js'
import { order } from './order.js'

let served
before(async () => (served = await server()))
after(() => end(served))

let number = 0
const fresh = () => `run ${(number += 1)}/ü?#`
const event = (n) => ({ type: 'CUSTOM', ts: n, name: 'n', value: { n, text: 'a\nb\r\u2028"\\', nothing: null, big: 2 ** 53 } })
const state = (runId, status, more) => ({ runId, status, workflowId: 'order', input: { n: 1 }, createdAt: 1, updatedAt: 2, ...more })

const STORES = { 'in memory': () => inMemoryRunStore(), 'on a server': () => onwardRunStore({ url: served.url }) }

for (const [where, make] of Object.entries(STORES)) {
  test(`${where}: an unknown run has neither state nor events`, async () => {
    const [store, runId] = [make(), fresh()]
    assert.equal(await store.getRunState(runId), undefined)
    assert.deepEqual(await store.getEvents(runId), [])
    await store.deleteRun(runId, 'aborted')
  })

  test(`${where}: the last state stands, whatever the status`, async () => {
    const [store, runId] = [make(), fresh()]
    for (const status of ['running', 'paused', 'finished', 'errored', 'aborted', 'running']) {
      const written = state(runId, status, { workflowVersion: 'v1', output: { of: status }, waitingFor: { signalName: status } })
      await store.setRunState(runId, written)
      assert.deepEqual(await store.getRunState(runId), written)
    }
  })

  test(`${where}: events are appended in order, with or without a state`, async () => {
    const [store, runId] = [make(), fresh()]
    await store.appendEvent(runId, 0, event(0))
    assert.equal(await store.getRunState(runId), undefined)
    await store.setRunState(runId, state(runId, 'finished'))
    await store.appendEvent(runId, 1, event(1))
    assert.deepEqual(await store.getEvents(runId), [event(0), event(1)])
  })

  test(`${where}: an index that is taken, or not reached, is a LogConflictError`, async () => {
    const [store, runId] = [make(), fresh()]
    await store.appendEvent(runId, 0, event(0))
    for (const [index, existing] of [[0, event(0)], [2, undefined]]) {
      await assert.rejects(store.appendEvent(runId, index, event(9)), (error) => {
        assert.ok(error instanceof LogConflictError)
        assert.deepEqual([error.runId, error.attemptedIndex, error.existing], [runId, index, existing])
        return true
      })
    }
    await assert.rejects(store.appendEvent(fresh(), 1, event(0)), LogConflictError)
    assert.deepEqual(await store.getEvents(runId), [event(0)])
  })

  test(`${where}: of appends at one index exactly one is taken`, async () => {
    const [store, runId] = [make(), fresh()]
    const outcomes = await Promise.allSettled([0, 1, 2, 3, 4].map((n) => store.appendEvent(runId, 0, event(n))))
    assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1)
    assert.equal((await store.getEvents(runId)).length, 1)
  })

  test(`${where}: a deleted run is gone and its name is free`, async () => {
    const [store, runId] = [make(), fresh()]
    await store.setRunState(runId, state(runId, 'paused'))
    await store.appendEvent(runId, 0, event(0))
    await store.deleteRun(runId, 'finished')
    assert.equal(await store.getRunState(runId), undefined)
    await store.appendEvent(runId, 0, event(1))
    assert.deepEqual(await store.getEvents(runId), [event(1)])
  })

  test(`${where}: a subscriber gets what is there from its index on and then what comes`, async () => {
    const [store, runId] = [make(), fresh()]
    for (const n of [0, 1, 2]) await store.appendEvent(runId, n, event(n))
    const seen = []
    const unsubscribe = store.subscribe(runId, 1, (received, index) => {
      seen.push([index, received])
      if (index === 1) throw new Error('a mistake of the subscriber')
    })
    await until('the events', () => seen.length === 2)
    await store.setRunState(runId, state(runId, 'finished'))
    await store.appendEvent(runId, 3, event(3))
    await until('the event behind the end', () => seen.length === 3)
    assert.deepEqual(seen, [1, 2, 3].map((n) => [n, event(n)]))
    unsubscribe()
    await store.appendEvent(runId, 4, event(4))
    assert.equal(seen.length, 3)
  })

  test(`${where}: a whole workflow leaves the same log`, async () => {
    const [store, runId] = [make(), fresh()]
    const workflow = order({ add() {} })
    await collect(runWorkflow({ workflow, runStore: store, runId, input: { item: 'x' } }))
    const signalDelivery = { signalId: 's', name: 'payment', payload: 1 }
    await collect(runWorkflow({ workflow, runStore: store, runId, signalDelivery }))
    const { approvalId } = (await store.getRunState(runId)).pendingApproval
    await collect(runWorkflow({ workflow, runStore: store, runId, approval: { approvalId, approved: true } }))
    const attached = await collect(runWorkflow({ workflow, runStore: store, runId, attach: true }))
    const log = ['UUID_RECORDED', 'STEP_FINISHED', 'SIGNAL_AWAITED', 'SIGNAL_RESOLVED', 'APPROVAL_REQUESTED']
    assert.deepEqual(kept(attached), [...log, 'APPROVAL_RESOLVED', 'STEP_FINISHED', 'RUN_FINISHED'])
    assert.deepEqual(attached.slice(1), await store.getEvents(runId))
  })
}

test('two processes race for every index of one log, and each index has one winner', async () => {
  const [runId, race] = [fresh(), 25]
  const racers = [driver({ url: served.url, runId, race }), driver({ url: served.url, runId, race })]
  const results = await Promise.all(racers.map(({ ended }) => ended))
  assert.deepEqual(results.map(({ code }) => code), [0, 0])
  const scores = results.map(({ events: [score] }) => score)
  const log = await onwardRunStore({ url: served.url }).getEvents(runId)
  assert.equal(scores[0].won + scores[1].won, log.length)
  assert.equal(log.length, race, 'the first append at an index is accepted')
})

test('a long log is read whole', async () => {
  const [store, runId] = [onwardRunStore({ url: served.url }), fresh()]
  const events = Array.from({ length: 1_234 }, (_, n) => event(n))
  const body = JSON.stringify({ expected_next_index: 0, events })
  const headers = { 'content-type': 'application/json' }
  await fetch(`${served.url}/v1/external/${encodeURIComponent(runId)}/events`, { method: 'POST', headers, body })
  assert.deepEqual(await store.getEvents(runId), events)
})

test('an append whose answer was lost is there once', async () => {
  let lost = 0
  const lossy = async (...request) => {
    const response = await fetch(...request)
    if (request[1].method === 'POST' && lost < 3) {
      lost += 1
      throw new TypeError('the connection broke')
    }
    return response
  }
  const [store, runId] = [onwardRunStore({ url: served.url, fetch: lossy }), fresh()]
  await store.appendEvent(runId, 0, event(0))
  await store.appendEvent(runId, 1, event(1))
  assert.equal(lost, 3)
  assert.deepEqual(await store.getEvents(runId), [event(0), event(1)])
})

test('a subscription that is cut goes on without a gap or a repeat, and may begin before its run', async () => {
  let cuts = 0
  const cutting = async (...request) => {
    const response = await fetch(...request)
    if (!response.ok || request[1].headers.accept !== 'text/event-stream' || cuts === 2) return response
    cuts += 1
    const reader = response.body.getReader()
    const body = new ReadableStream({
      async pull(controller) {
        const { value } = await reader.read()
        controller.enqueue(value)
        await reader.cancel()
        controller.error(new TypeError('the connection broke'))
      },
    })
    return new Response(body, { status: 200 })
  }
  const [store, runId] = [onwardRunStore({ url: served.url, fetch: cutting }), fresh()]
  const seen = []
  const unsubscribe = store.subscribe(runId, 0, (received, index) => seen.push([index, received]))
  for (const n of [0, 1, 2, 3]) {
    await store.appendEvent(runId, n, event(n))
    await until(`event ${n}`, () => seen.length > n)
  }
  unsubscribe()
  assert.equal(cuts, 2)
  assert.deepEqual(seen, [0, 1, 2, 3].map((n) => [n, event(n)]))
})

test('a refusal of the server has its error code', async () => {
  const store = onwardRunStore({ url: served.url })
  const headers = { 'content-type': 'application/json' }
  await fetch(`${served.url}/v1/runs`, { method: 'POST', headers, body: '{"kind": "x", "id": "ordinary"}' })
  const refused = (error) => error instanceof OnwardError && error.code === 'run_not_external' && error.status === 409
  await assert.rejects(store.getRunState('ordinary'), refused)
  await assert.rejects(store.appendEvent('ordinary', 0, event(0)), refused)
  const errors = []
  const failing = onwardRunStore({ url: served.url, onError: (error) => errors.push(error) })
  failing.subscribe('ordinary', 0, () => {})
  await until('the reason', () => errors.length === 1)
  assert.ok(refused(errors[0]))
})

test('a key and a namespace go with every request', async () => {
  const sent = []
  const record = (url, request) => {
    sent.push(request.headers)
    return fetch(url, request)
  }
  const options = { url: `${served.url}/`, key: 'onw_x', namespace: 'shop', fetch: record }
  const [store, runId] = [onwardRunStore(options), fresh()]
  await store.appendEvent(runId, 0, event(0))
  assert.deepEqual(await onwardRunStore({ url: served.url }).getEvents(runId), [])
  assert.equal((await store.getEvents(runId)).length, 1)
  assert.ok(sent.every((headers) => headers.authorization === 'Bearer onw_x' && headers['onward-namespace'] === 'shop'))
})
