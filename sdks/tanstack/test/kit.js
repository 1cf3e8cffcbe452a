// A server and other processes for the tests.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const BINARY = process.env.ONWARD_BIN ?? here('../../../target/debug/onward')
const DEADLINE_MS = 20_000

/** Starts `onward dev`; without a directory, in memory. */
export async function server(directory) {
  const place = directory ? ['--data', directory] : ['--ephemeral']
  const child = spawn(BINARY, ['dev', ...place, '--port', '0', '--json', '--log-level', 'error'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [line] = await once(createInterface(child.stdout), 'line')
  const { url } = JSON.parse(line)
  return { url, child, runs: async (query = '') => (await (await fetch(`${url}/v1/runs${query}`)).json()).runs }
}

export async function end({ child }, signal = 'SIGTERM') {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

export function directory(test) {
  const path = mkdtempSync(join(tmpdir(), 'onward-tanstack-'))
  test.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Effects of the steps in all processes. */
export class Effects {
  constructor(path) {
    this.path = path
    appendFileSync(path, '')
  }

  add(name) {
    appendFileSync(this.path, `${name}\n`)
  }

  list() {
    return readFileSync(this.path, 'utf8').split('\n').filter(Boolean)
  }

  async until(name) {
    return until(`the effect ${name}`, () => this.list().includes(name))
  }
}

export async function until(what, found) {
  for (const deadline = Date.now() + DEADLINE_MS; Date.now() < deadline; await sleep(5)) {
    const value = await found()
    if (value) return value
  }
  throw new Error(`${what} did not come`)
}

/** Runs `driver.js` in a separate process; `ended` resolves to its exit and its printed events. */
export function driver(task) {
  const child = spawn(process.execPath, [here('./driver.js'), JSON.stringify(task)], { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  const ended = once(child, 'close').then(([code, signal]) => {
    return { code, signal, events: output.split('\n').filter(Boolean).map((line) => JSON.parse(line)) }
  })
  return { child, ended }
}

export async function collect(events) {
  const all = []
  for await (const event of events) all.push(event)
  return all
}

export const types = (events) => events.map((event) => event.type)

/** Types of the events that a log stores; the others are only emitted. */
export const kept = (events) =>
  types(events).filter((type) => !['RUN_STARTED', 'STEP_STARTED', 'STATE_DELTA', 'CUSTOM'].includes(type))
