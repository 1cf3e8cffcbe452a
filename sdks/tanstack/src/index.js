// A `RunStore` of @tanstack/workflow-core on an Onward server.

export { onwardRunStore } from './run-store.js'
export { recoverRun } from './recover.js'
export { OnwardError } from './client.js'
