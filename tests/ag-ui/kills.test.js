// Processes that are killed in the middle of an answer, and the frames that readers get.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { agent, directory, end, frames, server, shown, until, worker } from './kit.js'

const MESSAGE = 'tell me everything'
const ANSWER = `You said: ${MESSAGE}. That is an answer with a few words in it.`
const RUN = 'support:kill'

test('the text of a killed worker is reset, and the next one streams everything once', async (context) => {
  const { url } = await server(context)
  const first = await worker(context, url, 150)
  const { agent: client, send } = agent(url, 'kill')
  const answered = send(MESSAGE)
  await until('the run', async () => (await fetch(`${url}/v1/runs/${RUN}`)).ok)
  let killed = false
  const reading = frames(url, RUN, {
    enough: (frame) => frame?.type === 'entry' && frame.role === 'assistant',
    onFrame: (frame) => {
      if (frame.type !== 'text' || killed) return
      killed = true
      end(first).then(() => worker(context, url, 1))
    },
  })
  const seen = await reading
  const types = seen.map((frame) => frame.type)
  const reset = types.indexOf('attempt_reset')
  assert.ok(reset > types.indexOf('text'), `the text is reset: ${types}`)
  assert.ok(types.indexOf('text', reset) > reset, 'and streamed again')
  assert.deepEqual(shown(seen), [ANSWER])
  await answered
  assert.deepEqual(client.messages.map(({ content }) => content), [MESSAGE, ANSWER])
})

test('a restarted server resets the stream, and the answer is in the log', async (context) => {
  const data = directory(context)
  const before = await server(context, { directory: data })
  const port = new URL(before.url).port
  await worker(context, before.url, 100)
  // A client sends a message and disconnects; the library would fail the test with the broken connection.
  const gone = new AbortController()
  const input = { threadId: 'kill', runId: 'r', messages: [{ id: 'kill-u1', role: 'user', content: MESSAGE }], tools: [], context: [] }
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' }
  await fetch(`${before.url}/v1/agents/support/ag-ui`, { method: 'POST', headers, body: JSON.stringify(input), signal: gone.signal })
  gone.abort()
  await until('the run', async () => (await fetch(`${before.url}/v1/runs/${RUN}`)).ok)
  const seen = await frames(before.url, RUN, { enough: (_, all) => all.filter(({ type }) => type === 'text').length > 2 })
  const offset = seen.at(-1).offset
  await end(before.child)
  const after = await server(context, { directory: data, port })
  const rest = await frames(after.url, RUN, { offset, enough: (frame) => frame?.type === 'entry' && frame.role === 'assistant' })
  assert.equal(rest[0].type, 'stream_reset', 'offsets of a previous incarnation are unknown')
  const back = agent(after.url, 'kill', { initialMessages: [{ id: 'kill-u1', role: 'user', content: MESSAGE }] })
  await back.agent.runAgent()
  assert.deepEqual(back.agent.messages.map(({ role, content }) => [role, content]), [['user', MESSAGE], ['assistant', ANSWER]])
})

test('a reader that comes back with its offset misses nothing and sees nothing twice', async (context) => {
  const { url } = await server(context)
  await worker(context, url, 30)
  const { send } = agent(url, 'kill')
  const answered = send(MESSAGE)
  await until('the run', async () => (await fetch(`${url}/v1/runs/${RUN}`)).ok)
  const seen = []
  let offset
  for (let ends = false; !ends; ) {
    const part = await frames(url, RUN, { offset, enough: () => true })
    seen.push(...part)
    offset = part.at(-1)?.offset ?? offset
    ends = part.some(({ type, role }) => type === 'entry' && role === 'assistant')
  }
  assert.equal(seen.filter(({ type }) => type === 'stream_reset').length, 1)
  assert.equal(new Set(seen.map((frame) => frame.offset)).size, seen.length - 0)
  assert.deepEqual(shown(seen), [ANSWER])
  await answered
  // The same as pages, for clients without an event stream.
  const page = await (await fetch(`${url}/v1/runs/${RUN}/stream?offset=${seen[0].offset}`)).json()
  assert.deepEqual(page.frames.slice(0, seen.length - 1).map(({ offset }) => offset), seen.slice(1).map(({ offset }) => offset))
  const none = await (await fetch(`${url}/v1/runs/${RUN}/stream?offset=${page.next}&wait_ms=10`)).json()
  assert.deepEqual(none, { frames: [], next: page.next })
})
