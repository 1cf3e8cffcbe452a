// What a front end sees: the real client of AG-UI against a real server and a real worker.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { agent, server, until, worker } from './kit.js'

const ANSWER = (message) => `You said: ${message}. That is an answer with a few words in it.`

describe('AG-UI', () => {
  let url

  const ends = []
  const suite = { after: (end) => ends.push(end) }

  before(async () => {
    url = (await server(suite)).url
    await worker(suite, url, 2)
  })

  after(() => Promise.all(ends.map((end) => end())))

  test('a turn is streamed word by word, and ends when the agent waits', async () => {
    const { types, events, send, agent: client } = agent(url, 'text')
    await send('hello')
    assert.equal(types()[0], 'RUN_STARTED')
    assert.ok(types().filter((type) => type === 'TEXT_MESSAGE_CONTENT').length > 1, types().join())
    const text = events.filter((event) => event.type === 'TEXT_MESSAGE_CONTENT').map((event) => event.delta)
    assert.equal(text.join(''), ANSWER('hello'))
    const finished = events.at(-1)
    assert.equal(finished.type, 'RUN_FINISHED')
    assert.deepEqual(finished.outcome, { type: 'success' })
    assert.equal(finished.usage[0].outputTokens, 13)
    assert.deepEqual(client.messages.map(({ role, content }) => [role, content]), [
      ['user', 'hello'],
      ['assistant', ANSWER('hello')],
    ])
    assert.equal(client.messages[0].id, 'text-u1', 'a message of the user keeps its id')
  })

  test('a second turn goes on in the same thread', async () => {
    const { send, agent: client } = agent(url, 'two')
    await send('one')
    await send('two')
    assert.deepEqual(client.messages.map(({ role, content }) => [role, content]), [
      ['user', 'one'],
      ['assistant', ANSWER('one')],
      ['user', 'two'],
      ['assistant', ANSWER('two')],
    ])
    const run = await (await fetch(`${url}/v1/runs/support:two`)).json()
    assert.equal(run.status, 'waiting')
  })

  test('a repeated request adds nothing', async () => {
    const { send, agent: client } = agent(url, 'again')
    await send('one')
    await send('two')
    const other = agent(url, 'again', { initialMessages: client.messages.slice(0, 3) })
    await other.agent.runAgent()
    const texts = (messages) => messages.map(({ role, content }) => [role, content])
    assert.deepEqual(texts(other.agent.messages), texts(client.messages))
    const partial = agent(url, 'again', { initialMessages: client.messages.slice(0, 1) })
    await partial.agent.runAgent()
    assert.deepEqual(texts(partial.agent.messages), texts(client.messages))
    const entries = await (await fetch(`${url}/v1/runs/support:again`)).json()
    assert.equal(entries.status, 'waiting')
  })

  test('a page that is loaded anew finds the conversation', async () => {
    const { send, agent: client } = agent(url, 'anew')
    await send('hello')
    const page = agent(url, 'anew')
    await page.agent.runAgent()
    assert.deepEqual(page.agent.messages.map(({ role, content }) => [role, content]), client.messages.map(({ role, content }) => [role, content]))
    const empty = agent(url, 'unused')
    await empty.agent.runAgent()
    assert.deepEqual(empty.types(), ['RUN_STARTED', 'MESSAGES_SNAPSHOT', 'RUN_FINISHED'])
    assert.equal((await fetch(`${url}/v1/runs/support:unused`)).status, 404)
  })

  test('tool calls and their results are shown', async () => {
    const { send, types, events, agent: client } = agent(url, 'tools')
    await send('tool')
    for (const type of ['TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_END', 'TOOL_CALL_RESULT']) {
      assert.ok(types().includes(type), `${type} in ${types()}`)
    }
    const args = events.filter((event) => event.type === 'TOOL_CALL_ARGS').map((event) => event.delta)
    assert.equal(args.join(''), '{"city":"Oslo"}')
    assert.deepEqual(client.messages.map(({ role }) => role), ['user', 'assistant', 'tool', 'assistant'])
    assert.equal(client.messages[1].toolCalls[0].function.name, 'weather')
    assert.equal(client.messages[2].content, 'sunny')
    assert.equal(client.messages[2].toolCallId, 'call-1')
  })

  test('reasoning is separate from the answer', async () => {
    const { send, events } = agent(url, 'think')
    await send('think')
    const thought = events.filter((event) => event.type === 'REASONING_MESSAGE_CONTENT').map((event) => event.delta)
    assert.equal(thought.join(''), 'let me see')
    const text = events.filter((event) => event.type === 'TEXT_MESSAGE_CONTENT').map((event) => event.delta)
    assert.equal(text.join(''), ANSWER('think'))
  })

  test('an approval is an interrupt, and resume decides it', async () => {
    for (const [approved, expected] of [[true, 'refunded'], [false, 'not refunded']]) {
      const { send, last, agent: client } = agent(url, `refund-${approved}`)
      await send('refund')
      const { outcome } = last()
      assert.equal(outcome.type, 'interrupt')
      assert.equal(outcome.interrupts[0].message, 'Refund 20 EUR?')
      assert.deepEqual(outcome.interrupts[0].metadata.show, { json: { amount: 20 } })
      assert.equal(client.pendingInterrupts.length, 1)
      const resume = [{ interruptId: outcome.interrupts[0].id, status: 'resolved', payload: { approved } }]
      await client.runAgent({ resume })
      assert.deepEqual(last().outcome, { type: 'success' })
      assert.equal(client.messages.at(-1).content, expected)
      assert.equal(client.pendingInterrupts.length, 0)
    }
    const { send, last, agent: client } = agent(url, 'refund-canceled')
    await send('refund')
    await client.runAgent({ resume: [{ interruptId: last().outcome.interrupts[0].id, status: 'cancelled' }] })
    assert.equal(client.messages.at(-1).content, 'not refunded')
  })

  test('what an attempt takes back is gone from the screen', async () => {
    const { send, types, agent: client } = agent(url, 'flaky')
    const seen = []
    client.subscribe({ onMessagesChanged: ({ messages }) => void seen.push(messages.map(({ content }) => content)) })
    await send('flaky')
    assert.ok(types().filter((type) => type === 'MESSAGES_SNAPSHOT').length > 2, types().join())
    assert.deepEqual(client.messages.map(({ content }) => content), ['flaky', ANSWER('flaky')])
    assert.ok(seen.every((contents) => contents.filter((content) => content?.startsWith('You said')).length <= 1), 'one draft at a time')
  })

  test('the state of the run is the state of the agent', async () => {
    const { send, types, agent: client } = agent(url, 'state')
    await send('note remember the milk')
    assert.ok(types().includes('STATE_SNAPSHOT'))
    assert.deepEqual(client.state, { note: 'remember the milk' })
  })

  test('what the run ends with is the result, and its failure an error', async () => {
    const done = agent(url, 'bye')
    await done.send('bye')
    assert.equal(done.last().type, 'RUN_FINISHED')
    const { send, events, agent: client } = agent(url, 'fails')
    await send('fail').catch(() => {})
    const error = events.find((event) => event.type === 'RUN_ERROR')
    assert.equal(error.code, 'model_broken')
    assert.match(error.message, /the model is broken/)
    // A thread whose run has failed accepts no more messages, and returns an error.
    client.addMessage({ id: 'more', role: 'user', content: 'more' })
    await assert.rejects(client.runAgent(), /409|closed|ended/)
  })

  test('a client that goes away in the middle finds the answer when it comes back', async () => {
    const { agent: client, events } = agent(url, 'away')
    client.addMessage({ id: 'away-u1', role: 'user', content: 'wait for me' })
    const running = client.runAgent().catch(() => {})
    await until('the first words', () => events.some((event) => event.type === 'TEXT_MESSAGE_CONTENT'))
    client.abortRun()
    await running
    const back = agent(url, 'away', { initialMessages: [{ id: 'away-u1', role: 'user', content: 'wait for me' }] })
    await back.agent.runAgent()
    assert.deepEqual(back.agent.messages.map(({ role, content }) => [role, content]), [
      ['user', 'wait for me'],
      ['assistant', ANSWER('wait for me')],
    ])
  })

  test('what is no request of AG-UI is refused before anything happens', async () => {
    const post = (kind, body) => fetch(`${url}/v1/agents/${kind}/ag-ui`, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } })
    assert.equal((await post('support', '{')).status, 400)
    assert.equal((await post('support', '{"threadId":"","runId":"r","messages":[]}')).status, 400)
    const foreign = { threadId: 'text', runId: 'r', messages: [], resume: [{ interruptId: 'other~0~1', status: 'resolved' }] }
    assert.equal((await post('support', JSON.stringify(foreign))).status, 400)
  })
})
