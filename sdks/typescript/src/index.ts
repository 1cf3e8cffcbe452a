/**
 * Durable execution: async functions that survive crashes.
 *
 * A workflow is an ordinary async function. Onward records the results of its steps, tasks, timers and signals in a log. After a
 * crash, or when a run that waited for weeks is woken, the function resumes from that log.
 *
 * @packageDocumentation
 */

export { Agent, AgentCtx, ModelReply, agent, tool } from "./agent.js";
export type { AgentOptions, AgentOutcome, Block, ModelOptions, Role, Tool, ToolCall, ToolOptions, ToolOutcome, Turn } from "./agent.js";
export { Onward, RunHandle, TaskHandle } from "./client.js";
export type {
  AnyTask,
  AnyWorkflow,
  ConnectOptions,
  DecideOptions,
  Driven,
  ForkOptions,
  RequestOptions,
  RunFilter,
  StartOptions,
  WorkerOptions,
} from "./client.js";
export { Ctx, Mailbox, PatternMailbox, Spawned, State } from "./ctx.js";
export type {
  AnswerOptions,
  Answered,
  ApprovalOptions,
  Cancelable,
  Child,
  ChildOptions,
  Decision,
  Effect,
  Identified,
  Named,
  Selected,
  StepOptions,
  TaskOptions,
} from "./ctx.js";
export type { Wait, Entry, EntryPage, LiveFrame, LogRecord, Receipt, RunStatus, RunSummary, RunView, TaskView } from "./documents.js";
export { Canceled, Failure, OnwardError, RunFailed, WorkflowMisuse } from "./errors.js";
export type { FailureDocument, FailureOptions } from "./errors.js";
export { StepCtx, TaskCtx, fatal } from "./jobs.js";
export type { Spend } from "./jobs.js";
export { ValueRefused } from "./json.js";
export { rateLimit, redaction, timing } from "./middleware.js";
export type { AttemptCall, Middleware, Next, RateLimitOptions, RedactionOptions, RunCall, Timed } from "./middleware.js";
export { signal, task, workflow } from "./names.js";
export type {
  Input,
  Recorded,
  Signal,
  SignalName,
  Task,
  TaskDefaults,
  TaskFunction,
  TaskKindOptions,
  TaskName,
  Workflow,
  WorkflowFunction,
  WorkflowName,
  WorkflowOptions,
} from "./names.js";
export { version } from "./native.js";
export { ScheduleHandle } from "./schedules.js";
export type {
  Overlap,
  ScheduleLine,
  ScheduleOptions,
  ScheduleTimes,
  ScheduleTotals,
  ScheduleView,
  Slot,
  TriggerOptions,
  Triggered,
} from "./schedules.js";
export type { Schema, StandardSchema } from "./schema.js";
export type { Batch, Debounce, PolicyStartOptions, Singleton, StartPolicy, StartedWithPolicy } from "./start_policies.js";
export type { AttributeValue, Budget, BudgetUse, Duration, Memo, Retry } from "./options.js";
export { RandomGenerator } from "./random.js";
