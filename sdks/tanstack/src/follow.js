// Follows the events of a run, and reconnects if the connection breaks.

import { pause, problem } from './client.js'

const PAUSE_MS = 100
const PAUSE_MAX_MS = 5_000

/** Calls `onEvent` with every event from `fromIndex` on, in order, each once, until the returned function is called. */
export function follow(client, path, fromIndex, onEvent) {
  const controller = new AbortController()
  tail(client, path, fromIndex, onEvent, controller.signal).catch((error) => client.onError(error))
  return () => controller.abort()
}

async function tail(client, path, from, onEvent, signal) {
  let [next, wait] = [from, PAUSE_MS]
  while (!signal.aborted) {
    try {
      const response = await client.stream(`${path}?from=${next}`, signal)
      if (response.ok) {
        for await (const { index, event } of frames(response.body)) {
          if (signal.aborted) return
          next = index + 1
          wait = PAUSE_MS
          notify(onEvent, event, index)
        }
      } else if (response.status === 404 || response.status >= 500) {
        // The run does not exist yet, or the server is unavailable.
        await response.body?.cancel()
      } else {
        throw Object.assign(await problem(response), { final: true })
      }
    } catch (error) {
      if (signal.aborted) return
      if (error.final) throw error
    }
    await pause(wait)
    wait = Math.min(wait * 2, PAUSE_MAX_MS)
  }
}

/** Calls the subscriber and ignores its errors, like the other stores of the library: they must not end the subscription. */
function notify(onEvent, event, index) {
  try {
    onEvent(event, index)
  } catch {
    // The error belongs to the subscriber.
  }
}

async function* frames(body) {
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true })
    const parts = text.split('\n\n')
    text = parts.pop()
    for (const part of parts) {
      const lines = part.split('\n')
      const data = lines.find((line) => line.startsWith('data: '))
      // Only events of the log have an id; comments and errors of the stream do not.
      if (data && lines.some((line) => line.startsWith('id: '))) yield JSON.parse(data.slice('data: '.length))
    }
  }
}
