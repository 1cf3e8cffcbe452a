/** Owns the comparison of two branches: what they share, and the rest side by side. */
import type { EntryNode } from "./fold";
import { blocksOf, gist, textOf } from "./content";
import { diffWords, type TextDiff } from "../run/wordDiff";

export interface Pair {
  left: EntryNode | null;
  right: EntryNode | null;
  /** The difference of their texts, if both are there. */
  text: TextDiff | null;
}

export interface Comparison {
  shared: EntryNode[];
  pairs: Pair[];
}

const ENTRIES_MAX = 600;

/** What makes two entries comparable: the role, and for calls the tools that are called. */
function sort(entry: EntryNode): string {
  const calls = blocksOf(entry.content).flatMap((block) => (block.type === "tool_call" ? [block.name] : []));
  return `${entry.role}:${calls.join(",")}`;
}

export function compareBranches(left: readonly EntryNode[], right: readonly EntryNode[]): Comparison {
  let common = 0;
  while (common < left.length && common < right.length && left[common]!.id === right[common]!.id) common++;
  const a = left.slice(common);
  const b = right.slice(common);
  return { shared: left.slice(0, common), pairs: pair(a, b).map(withText) };
}

function withText(pair: { left: EntryNode | null; right: EntryNode | null }): Pair {
  if (!pair.left || !pair.right) return { ...pair, text: null };
  return { ...pair, text: diffWords(words(pair.left), words(pair.right)) };
}

function words(entry: EntryNode): string {
  const blocks = blocksOf(entry.content);
  return textOf(blocks) || gist(blocks);
}

/** Pairs entries of the same sort in order; the rest stands alone. */
function pair(a: EntryNode[], b: EntryNode[]): { left: EntryNode | null; right: EntryNode | null }[] {
  const out: { left: EntryNode | null; right: EntryNode | null }[] = [];
  if (a.length > ENTRIES_MAX || b.length > ENTRIES_MAX) {
    for (let at = 0; at < Math.max(a.length, b.length); at++) out.push({ left: a[at] ?? null, right: b[at] ?? null });
    return out;
  }
  const [sortsA, sortsB] = [a.map(sort), b.map(sort)];
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = sortsA[i] === sortsB[j]
        ? (table[(i + 1) * width + j + 1] ?? 0) + 1
        : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && sortsA[i] === sortsB[j]) out.push({ left: a[i++]!, right: b[j++]! });
    else if (j >= b.length || (i < a.length && (table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0))) out.push({ left: a[i++]!, right: null });
    else out.push({ left: null, right: b[j++]! });
  }
  return out;
}
