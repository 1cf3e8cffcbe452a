/**
 * Owns the open approvals: one list for the page and the number in the navigation.
 * A run that asks or is answered changes its status, so the feed of runs says when to list again.
 */
import { batch, signal } from "@preact/signals";
import { api } from "../../api/client";
import { type ApiError, asApiError } from "../../api/errors";
import type { Approval } from "../../api/model";
import { can } from "../../api/session";

const LIMIT = 1000;
const PAUSE_MS = 500;

export const approvals = signal<readonly Approval[] | null>(null);
export const approvalsError = signal<ApiError | null>(null);
export const missingDatabases = signal<readonly string[]>([]);
export const openApprovals = signal(0);

let due: number | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let loading = false;
let again = false;

/** Lists again soon; several calls are one request. */
export function refreshApprovals(delay = PAUSE_MS): void {
  if (!can("read")) return;
  const at = Date.now() + delay;
  // A later call does not put the request off, so a busy feed cannot starve it.
  if (due !== null && due <= at) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(() => {
    due = null;
    void load();
  }, delay);
}

async function load(): Promise<void> {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    const answer = await api.get("/v1/approvals", { query: { limit: LIMIT } });
    batch(() => {
      approvals.value = answer.approvals;
      openApprovals.value = answer.approvals.length;
      missingDatabases.value = answer.missing_databases ?? [];
      approvalsError.value = null;
    });
  } catch (error) {
    approvalsError.value = asApiError(error);
  }
  loading = false;
  if (again) {
    again = false;
    refreshApprovals();
  }
}

/** Removes an approval that is decided, before the server's list says so. */
export function removeApproval(id: string): void {
  batch(() => {
    approvals.value = approvals.value?.filter((approval) => approval.id !== id) ?? null;
    openApprovals.value = approvals.value?.length ?? 0;
  });
}
