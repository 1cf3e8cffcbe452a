// Requests to an Onward server: keys, namespaces, error responses, and retries after network errors.

const TRIES = 5
const PAUSE_MS = 50

/** An error response of the server; `code` has a page in its docs/errors. */
export class OnwardError extends Error {
  name = 'OnwardError'

  constructor(problem, status) {
    super(problem.detail ?? `the server answered ${status}`)
    this.code = problem.code ?? 'unknown'
    this.status = status
    this.problem = problem
  }
}

export class Client {
  #url
  #headers
  #fetch
  onError

  constructor({ url, key, namespace, fetch = globalThis.fetch, onError = console.error } = {}) {
    const found = url ?? globalThis.process?.env?.ONWARD_URL
    this.#url = (found ?? 'http://127.0.0.1:7400').replace(/\/$/, '')
    this.#headers = {
      ...(key && { authorization: `Bearer ${key}` }),
      ...(namespace && { 'onward-namespace': namespace }),
    }
    this.#fetch = fetch
    this.onError = onError
  }

  /** Returns the resource, or `undefined` if it does not exist. */
  async get(path) {
    const response = await this.#send('GET', path)
    return response.status === 404 ? undefined : response.json()
  }

  /** Writes once: with the same id, a retry after a lost response is the same write. */
  async write(method, path, body) {
    const response = await this.#send(method, path, { ...body, append_id: globalThis.crypto.randomUUID() })
    return response.json()
  }

  /** Deletes the resource; succeeds if it does not exist. */
  async delete(path) {
    await this.#send('DELETE', path)
  }

  /** Opens a stream of server-sent events; the caller reads the body. */
  stream(path, signal) {
    const headers = { ...this.#headers, accept: 'text/event-stream' }
    return this.#fetch(this.#url + path, { headers, signal })
  }

  async #send(method, path, body) {
    const headers = { ...this.#headers, ...(body && { 'content-type': 'application/json' }) }
    const request = { method, headers, body: body && JSON.stringify(body) }
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.#fetch(this.#url + path, request).catch((error) => {
        if (attempt === TRIES) throw error
      })
      if (response && (response.ok || (response.status === 404 && method !== 'PUT' && method !== 'POST'))) return response
      if (response && (response.status !== 503 || attempt === TRIES)) throw await problem(response)
      await pause(PAUSE_MS * 2 ** (attempt - 1))
    }
  }
}

export async function problem(response) {
  return new OnwardError(await response.json().catch(() => ({})), response.status)
}

export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
