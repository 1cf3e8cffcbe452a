// A real server, real workers, and readers beside them.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { HttpAgent } from '@ag-ui/client'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const BINARY = process.env.ONWARD_BIN ?? here('../../target/debug/onward')
const WORKER = process.env.ONWARD_CHAT_WORKER ?? here('../../target/debug/examples/chat_worker')
const DEADLINE_MS = 30_000

/** Starts `onward dev`; a worker that is silent for a second is lost. */
export async function server(test, { directory, port = 0 } = {}) {
  const place = directory ? ['--data', directory] : ['--ephemeral']
  const child = spawn(BINARY, ['dev', ...place, '--port', String(port), '--json', '--log-level', 'error'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ONWARD_SERVER__LEASE: '1s' },
  })
  test.after(() => end(child))
  const [line] = await once(createInterface(child.stdout), 'line')
  return { url: JSON.parse(line).url, child }
}

/** A process that answers; `pace` is the pause between two words. */
export async function worker(test, url, pace = 0) {
  const child = spawn(WORKER, [url, String(pace)], { stdio: ['ignore', 'pipe', 'inherit'] })
  test.after(() => end(child))
  await once(createInterface(child.stdout), 'line')
  return child
}

export async function end(child, signal = 'SIGKILL') {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

export function directory(test) {
  const path = mkdtempSync(join(tmpdir(), 'onward-ag-ui-'))
  test.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

export async function until(what, found) {
  for (const deadline = Date.now() + DEADLINE_MS; Date.now() < deadline; await sleep(5)) {
    const value = await found()
    if (value) return value
  }
  throw new Error(`${what} did not come`)
}

/** The AG-UI client of a front end, and the events it received. */
export function agent(url, threadId, { kind = 'support', ...options } = {}) {
  const agent = new HttpAgent({ url: `${url}/v1/agents/${kind}/ag-ui`, threadId, ...options })
  const events = []
  agent.subscribe({ onEvent: ({ event }) => void events.push(event) })
  const types = () => events.map((event) => event.type)
  let messages = 0
  const send = async (text, parameters = {}) => {
    agent.addMessage({ id: `${threadId}-u${++messages}`, role: 'user', content: text })
    events.length = 0
    return agent.runAgent(parameters)
  }
  return { agent, events, types, send, last: () => events.at(-1) }
}

/** The frames of a run's stream, from `offset` on, until `enough` returns true. */
export async function frames(url, run, { offset, enough, onFrame }) {
  const all = []
  const abort = new AbortController()
  const headers = { Accept: 'text/event-stream', ...(offset && { 'Last-Event-ID': offset }) }
  try {
    const answer = await fetch(`${url}/v1/runs/${encodeURIComponent(run)}/stream`, { headers, signal: abort.signal })
    let text = ''
    for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
      text += chunk
      const parts = text.split('\n\n')
      text = parts.pop()
      for (const part of parts) {
        const data = part.split('\n').find((line) => line.startsWith('data: '))
        if (!data) continue
        const frame = JSON.parse(data.slice(6))
        all.push(frame)
        onFrame?.(frame)
        if (enough(frame, all)) return all
      }
    }
  } catch (error) {
    if (!all.broken && enough(undefined, all)) return all
    return Object.assign(all, { broken: error })
  } finally {
    abort.abort()
  }
  return all
}

/** What stands on a screen that shows drafts and takes them back. */
export function shown(frames) {
  const drafts = new Map()
  for (const frame of frames) {
    if (frame.type === 'text') drafts.set(frame.task, (drafts.get(frame.task) ?? '') + frame.text)
    if (frame.type === 'attempt_reset') drafts.delete(frame.task)
    if (frame.type === 'stream_reset') drafts.clear()
  }
  return [...drafts.values()]
}
