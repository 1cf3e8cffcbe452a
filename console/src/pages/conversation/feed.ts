/** Owns loading of a conversation: the logs of all generations, then live events and the stream of answers. */
import { batch, signal } from "@preact/signals";
import { type ApiError, asApiError, isAborted } from "../../api/errors";
import { openStream, type Stream } from "../../api/sse";
import { readEvents } from "../run/feeds";
import type { LoggedEvent } from "../run/model";
import { addFrame, type Drafts, type StreamFrame, taskCall } from "./draft";
import { Conversation, type ModelCall } from "./fold";

/** Turns are generations: a long conversation is read from this many turns before its end first. */
const GENERATIONS_FIRST = 200;

export class ConversationFeed {
  conversation = new Conversation();
  readonly version = signal(0);
  readonly loading = signal(true);
  readonly error = signal<ApiError | null>(null);
  /** The first generation that is loaded. */
  readonly from = signal(0);
  readonly drafts: Drafts = new Map();
  readonly draftVersion = signal(0);
  private readonly abort = new AbortController();
  private stream: Stream | null = null;
  private frame: number | null = null;
  private held: LoggedEvent[] = [];
  private isHeld = false;
  private heldFrames: StreamFrame[] = [];
  private last = { generation: 0, index: 0 };

  constructor(private readonly run: string, generation: number) {
    this.from.value = Math.max(0, generation - GENERATIONS_FIRST);
    void this.load(this.from.value);
  }

  close(): void {
    this.abort.abort();
    this.stream?.close();
  }

  private async load(generation: number): Promise<void> {
    this.loading.value = true;
    try {
      for await (const events of readEvents(this.run, { generation, from: 0 }, this.abort.signal)) {
        for (const event of events) this.conversation.add(event);
        this.version.value++;
      }
      this.error.value = null;
    } catch (reason) {
      if (isAborted(reason)) return;
      this.error.value = asApiError(reason);
    }
    this.loading.value = false;
    // The fold needs each generation in order, so live events wait for the pages before them.
    for (const event of this.held.splice(0)) this.add(event);
    this.version.value++;
  }

  /** Reads the turns before the first loaded one. The events are folded again from there, because ids may repeat. */
  loadEarlier(): void {
    this.from.value = Math.max(0, this.from.value - 5 * GENERATIONS_FIRST);
    this.conversation = new Conversation();
    void this.load(this.from.value);
  }

  retry(): void {
    void this.load(this.from.value);
  }

  add(event: LoggedEvent): void {
    if (this.loading.value) {
      this.held.push(event);
      return;
    }
    this.last = { generation: event.generation, index: event.index };
    const isNew = this.conversation.add(event);
    // An answer is never on the screen twice: its draft goes with the entry that replaces it.
    batch(() => {
      if (isNew) this.version.value++;
      if (this.dropDone()) this.draftVersion.value++;
    });
  }

  /** Follows the answers as they are written, while the page is shown and the run is open. */
  follow(): void {
    if (this.stream) return;
    this.stream = openStream<{ message: StreamFrame }>("/v1/runs/{id}/stream", {
      path: { id: this.run },
      on: {
        message: (frame) => this.take(frame),
      },
    });
  }

  private take(frame: StreamFrame): void {
    if (this.isHeld) {
      this.heldFrames.push(frame);
      return;
    }
    // The log may be faster than the stream: what has its entry is not written again.
    if (typeof frame.task === "string" && this.isKept(frame.task)) this.drafts.delete(frame.task);
    else if (addFrame(this.drafts, frame)) this.drawSoon();
    if (frame.type === "end") this.unfollow();
  }

  /** Holds the answers back while the page is held. */
  hold(isHeld: boolean): void {
    this.isHeld = isHeld;
    if (!isHeld) for (const frame of this.heldFrames.splice(0)) this.take(frame);
  }

  unfollow(): void {
    this.stream?.close();
    this.stream = null;
    this.drafts.clear();
    this.draftVersion.value++;
  }

  /** Many pieces arrive between two frames of the screen. */
  private drawSoon(): void {
    if (this.frame !== null) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.dropDone();
      this.draftVersion.value++;
    });
  }

  private callOf(task: string): ModelCall | undefined {
    const at = taskCall(task);
    return at ? this.conversation.calls.find((one) => one.callId === at.callId && one.generation === at.generation) : undefined;
  }

  /** Returns whether the log has the answer of a task as an entry. */
  private isKept(task: string): boolean {
    const call = this.callOf(task);
    if (!call || call.endIndex === null) return false;
    for (const entry of this.conversation.entries.values()) if (entry.call === call) return true;
    return false;
  }

  /** A draft is over when the log has its answer, or has gone on without it, as after a summary. */
  private dropDone(): boolean {
    const before = this.drafts.size;
    for (const [task, draft] of this.drafts) {
      const call = this.callOf(task);
      const isPast = call?.endIndex != null && (this.last.generation > call.generation || this.last.index > call.endIndex + 2);
      const isLost = call !== undefined && call.status !== "open" && call.status !== "completed";
      if (this.isKept(task) || (draft.isOver && (isPast || isLost))) this.drafts.delete(task);
    }
    return this.drafts.size < before;
  }
}
