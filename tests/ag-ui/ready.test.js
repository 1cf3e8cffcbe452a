// The same front end with the built-in agent loop: a scripted model, its tools, and approvals.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { agent, end, server, worker } from './kit.js'

const KIND = { kind: 'ready' }
const BOTH = 'refund and weather, please: {"cents": 20, "city": "Oslo"}'
const REFUND = 'refund {"cents": 20}'

const texts = (messages) => messages.map(({ role, content }) => [role, content])
const roles = (messages) => messages.map(({ role }) => role)

describe('AG-UI before the ready-made loop', () => {
  let url

  const ends = []
  const suite = { after: (end) => ends.push(end) }

  before(async () => {
    url = (await server(suite)).url
    await worker(suite, url)
  })

  after(() => Promise.all(ends.map((end) => end())))

  test('turns are streamed, and end when the agent waits', async () => {
    const { send, events, last, agent: client } = agent(url, 'text', KIND)
    for (const word of ['hello', 'goodbye']) {
      await send(word)
      const text = events.filter(({ type }) => type === 'TEXT_MESSAGE_CONTENT').map(({ delta }) => delta).join('')
      assert.ok(text.startsWith(`You said: ${word}`), text)
      assert.deepEqual(last().outcome, { type: 'success' })
      assert.ok(last().usage[0].outputTokens > 0)
      assert.equal(client.messages.at(-1).content, text)
    }
    assert.deepEqual(roles(client.messages), ['user', 'assistant', 'user', 'assistant'])
    assert.deepEqual([client.messages[0].id, client.messages[2].id], ['text-u1', 'text-u2'], 'a message of the user keeps its id')
    const page = agent(url, 'text', KIND)
    await page.agent.runAgent()
    assert.deepEqual(texts(page.agent.messages), texts(client.messages))
    assert.deepEqual(page.agent.messages.map(({ id }) => id).filter((id) => id.startsWith('text-u')), ['text-u1', 'text-u2'])
  })

  test('a message in parts is one text for the model', async () => {
    const { agent: client } = agent(url, 'parts', KIND)
    const content = ['hello', ' there'].map((text) => ({ type: 'text', text }))
    for (const id of ['p1', 'p2']) {
      client.addMessage({ id, role: 'user', content })
      await client.runAgent()
      assert.ok(client.messages.at(-1).content.startsWith('You said: hello there\n'), client.messages.at(-1).content)
    }
  })

  test('an attachment stays with its message, and is sent back unchanged', async () => {
    const { agent: client, send } = agent(url, 'attached', KIND)
    const image = { type: 'image', source: { type: 'data', value: 'aGV5', mimeType: 'image/png' } }
    const kept = { type: 'audio', source: { type: 'file', provider: 'onward', value: '9f'.repeat(32), mimeType: 'audio/wav' } }
    const contents = [[{ type: 'text', text: 'see' }, image], [image], [{ type: 'text', text: 'hear' }, kept]]
    for (const [at, content] of contents.entries()) {
      client.addMessage({ id: `a${at}`, role: 'user', content })
      await client.runAgent()
    }
    client.addMessage({ id: 'a3', role: 'user', content: [{ type: 'binary', mimeType: 'application/pdf', url: 'http://x/y' }] })
    await client.runAgent()
    contents.push([{ type: 'document', source: { type: 'url', value: 'http://x/y', mimeType: 'application/pdf' } }])
    const userContents = (messages) => messages.filter(({ role }) => role === 'user').map(({ content }) => content)
    assert.deepEqual(userContents(client.messages), contents)
    const page = agent(url, 'attached', KIND)
    await page.agent.runAgent()
    assert.deepEqual(page.agent.messages.map(({ content }) => content), client.messages.map(({ content }) => content))
    await send('thanks')
    assert.deepEqual(userContents(client.messages), [...contents, 'thanks'])
    const { entries } = await (await fetch(`${url}/v1/runs/ready:attached/entries`)).json()
    assert.equal(entries.length, 10, 'no entry is duplicated')
  })

  test('tool calls and their results are shown', async () => {
    const { send, types, agent: client } = agent(url, 'tools', KIND)
    await send('weather {"city": "Oslo"}')
    for (const type of ['TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_END', 'TOOL_CALL_RESULT']) {
      assert.ok(types().includes(type), `${type} in ${types()}`)
    }
    assert.deepEqual(roles(client.messages), ['user', 'assistant', 'tool', 'assistant'])
    assert.equal(client.messages[1].toolCalls[0].function.name, 'weather')
    assert.equal(client.messages[2].content, 'sunny in Oslo')
    assert.equal(client.messages[2].toolCallId, client.messages[1].toolCalls[0].id)
  })

  test('an approval is an interrupt, and resume decides it', async () => {
    const decisions = [
      [{ status: 'resolved', payload: { approved: true } }, /^refund says: 20 cents are paid back$/],
      [{ status: 'resolved', payload: { approved: false, feedback: 'too much' } }, /^refund says: .*declined.*: too much/],
      [{ status: 'cancelled' }, /^refund says: .*declined.*: canceled/],
    ]
    for (const [number, [decision, answer]] of decisions.entries()) {
      const { send, last, agent: client } = agent(url, `refund-${number}`, KIND)
      await send(REFUND)
      assert.equal(last().outcome.type, 'interrupt')
      const [interrupt, ...others] = last().outcome.interrupts
      assert.equal(others.length, 0)
      assert.equal(interrupt.message, 'Call the tool `refund`?')
      assert.deepEqual(interrupt.metadata.show.json, { tool: 'refund', arguments: { cents: 20 } })
      assert.equal(client.pendingInterrupts.length, 1)
      assert.deepEqual(roles(client.messages), ['user', 'assistant'], 'nothing is done before the decision')
      await client.runAgent({ resume: [{ interruptId: interrupt.id, ...decision }] })
      assert.deepEqual(last().outcome, { type: 'success' })
      assert.match(client.messages.at(-1).content, answer)
      assert.deepEqual(roles(client.messages), ['user', 'assistant', 'tool', 'assistant'])
      assert.equal(client.pendingInterrupts.length, 0)
      // And the conversation goes on.
      await send('thanks')
      assert.ok(client.messages.at(-1).content.startsWith('You said: thanks'))
    }
  })

  test('the other tool of the same answer does not wait, and the model gets both results at once', async () => {
    const { send, last, types, agent: client } = agent(url, 'both', KIND)
    await send(BOTH)
    const [interrupt] = last().outcome.interrupts
    assert.deepEqual(interrupt.metadata.show.json.tool, 'refund')
    await client.runAgent({ resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approved: true } }] })
    assert.equal(types().filter((type) => type === 'TOOL_CALL_RESULT').length, 2)
    assert.deepEqual(roles(client.messages), ['user', 'assistant', 'tool', 'tool', 'assistant'])
    assert.equal(client.messages.at(-1).content, 'refund says: 20 cents are paid back\nweather says: sunny in Oslo')
  })

  test('what an agent below asks is an interrupt of the thread, and resume decides it', async () => {
    const { send, last, agent: client } = agent(url, 'below', { kind: 'boss' })
    await send('desk {"task": "refund {\\"cents\\": 20}"}')
    const [interrupt, ...others] = last().outcome.interrupts
    assert.equal(others.length, 0)
    assert.equal(interrupt.message, 'ready asks: Call the tool `refund`?')
    assert.equal(interrupt.metadata.agent, 'ready')
    assert.equal(interrupt.metadata.show_text, '{"tool":"refund","arguments":{"cents": 20}}')
    assert.equal(client.pendingInterrupts.length, 1)
    const page = agent(url, 'below', { kind: 'boss' })
    await page.agent.runAgent()
    assert.deepEqual(page.last().outcome, last().outcome, 'a page that is loaded anew finds it')
    await client.runAgent({ resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approved: true } }] })
    assert.deepEqual(last().outcome, { type: 'success' })
    assert.equal(client.messages.at(-1).content, 'desk says: refund says: 20 cents are paid back')
    assert.equal(client.pendingInterrupts.length, 0)
  })

  test('why a conversation was stopped is the result of its turn', async () => {
    const { send, last, agent: client } = agent(url, 'stopped', { kind: 'brief' })
    const { result } = await send('weather {"city": "Oslo"}')
    assert.deepEqual(result, { stop: 'max_turns' })
    assert.deepEqual(last().outcome, { type: 'success' })
    assert.deepEqual(roles(client.messages), ['user', 'assistant', 'tool'])
    assert.equal((await send('hello')).result, undefined)
  })

  test('an empty message is refused, and the next one is accepted', async () => {
    const { send, agent: client } = agent(url, 'empty', KIND)
    await assert.rejects(send(''), /message_empty/)
    await send('hello')
    assert.equal(client.messages.length, 2, JSON.stringify(client.messages))
    assert.ok(client.messages[1].content.startsWith('You said: hello'))
  })

  test('two clients on one thread see the same conversation, each with its own words under its own ids', async () => {
    const first = agent(url, 'shared', KIND)
    await first.send('hello')
    const second = agent(url, 'shared', KIND)
    second.agent.addMessage({ id: 'second-u1', role: 'user', content: 'from the other side' })
    const both = await Promise.allSettled([first.send('from here'), second.agent.runAgent()])
    assert.deepEqual(both.map(({ status }) => status), ['fulfilled', 'fulfilled'], JSON.stringify(both))
    await Promise.all([first.agent.runAgent(), second.agent.runAgent()])
    assert.deepEqual(texts(first.agent.messages), texts(second.agent.messages))
    for (const { agent: client } of [first, second]) {
      const ids = client.messages.map(({ id }) => id)
      assert.equal(new Set(ids).size, ids.length, 'no message is duplicated')
      const of = (words) => client.messages.filter(({ role, content }) => role === 'user' && content === words).map(({ id }) => id)
      assert.deepEqual(of('from here'), ['shared-u2'])
      assert.deepEqual(of('from the other side'), ['second-u1'])
    }
  })

  test('a page that is loaded anew finds the open question', async () => {
    const first = agent(url, 'anew', KIND)
    await first.send(REFUND)
    const page = agent(url, 'anew', KIND)
    await page.agent.runAgent()
    assert.deepEqual(page.last().outcome, first.last().outcome)
    assert.deepEqual(texts(page.agent.messages), texts(first.agent.messages))
    const [interrupt] = page.last().outcome.interrupts
    await page.agent.runAgent({ resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approved: true } }] })
    assert.match(page.agent.messages.at(-1).content, /paid back$/)
    // The second client gets the decision, and changes nothing.
    const no = { resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approved: false } }] }
    await assert.rejects(first.agent.runAgent(no), /signal_lost/)
    const again = agent(url, 'anew', KIND)
    await again.agent.runAgent()
    assert.deepEqual(texts(again.agent.messages), texts(page.agent.messages))
  })
})

test('a question outlives the worker that asked it', async (context) => {
  const { url } = await server(context)
  const first = await worker(context, url)
  const { send, last, agent: client } = agent(url, 'killed', KIND)
  await send(REFUND)
  const [interrupt] = last().outcome.interrupts
  await end(first)
  await worker(context, url)
  await client.runAgent({ resume: [{ interruptId: interrupt.id, status: 'resolved', payload: { approved: true } }] })
  assert.deepEqual(last().outcome, { type: 'success' })
  assert.deepEqual(roles(client.messages), ['user', 'assistant', 'tool', 'assistant'])
  assert.equal(client.messages.at(-1).content, 'refund says: 20 cents are paid back')
})
