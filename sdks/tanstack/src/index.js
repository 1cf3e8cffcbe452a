// A RunStore of @tanstack/workflow-core that keeps its runs on an Onward server.

export { onwardRunStore } from './run-store.js'
export { recoverRun } from './recover.js'
export { OnwardError } from './client.js'
