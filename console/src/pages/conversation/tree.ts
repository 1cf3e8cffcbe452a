/** Owns the tree of entries: paths, branches and the places where they part. */
import type { EntryNode } from "./fold";

export interface Branch {
  /** Its last entry. */
  leaf: string;
  length: number;
  /** The last entry that it shares with the current branch; `null` if it shares none, or is the current one. */
  partsAfter: string | null;
  isCurrent: boolean;
  isAbandoned: boolean;
  lastAt: string;
}

export class EntryTree {
  private readonly children = new Map<string | null, EntryNode[]>();

  constructor(readonly entries: ReadonlyMap<string, EntryNode>, readonly current: string | null) {
    for (const entry of entries.values()) {
      // An entry whose parent is not loaded begins what is known.
      const parent = entry.parent !== null && entries.has(entry.parent) ? entry.parent : null;
      const siblings = this.children.get(parent);
      if (siblings) siblings.push(entry);
      else this.children.set(parent, [entry]);
    }
    for (const siblings of this.children.values()) siblings.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.index - b.index));
  }

  childrenOf(id: string | null): readonly EntryNode[] {
    return this.children.get(id) ?? [];
  }

  /** Returns the entries that can stand in place of this one, itself included, oldest first. */
  siblingsOf(entry: EntryNode): readonly EntryNode[] {
    const parent = entry.parent !== null && this.entries.has(entry.parent) ? entry.parent : null;
    return this.childrenOf(parent);
  }

  /** Returns the entries from the first one to this one. */
  path(leaf: string | null): EntryNode[] {
    const out: EntryNode[] = [];
    const seen = new Set<string>();
    for (let id = leaf; id !== null && !seen.has(id); ) {
      const entry = this.entries.get(id);
      if (!entry) break;
      seen.add(id);
      out.push(entry);
      id = entry.parent;
    }
    return out.reverse();
  }

  /** Returns the latest leaf below an entry: where a branch that goes through it ends. */
  leafBelow(id: string): string {
    const inCurrent = new Set(this.path(this.current).map((entry) => entry.id));
    if (inCurrent.has(id) && this.current !== null) return this.current;
    let at = id;
    for (let next = this.childrenOf(at).at(-1); next; next = this.childrenOf(at).at(-1)) at = next.id;
    return at;
  }

  /** Returns all branches: the current one first, then the others, latest first. */
  branches(): Branch[] {
    const current = this.path(this.current);
    const inCurrent = new Set(current.map((entry) => entry.id));
    const leaves = [...this.entries.values()].filter((entry) => this.childrenOf(entry.id).length === 0 && entry.id !== this.current);
    const others = leaves.filter((leaf) => !inCurrent.has(leaf.id)).map((leaf): Branch => {
      const path = this.path(leaf.id);
      const shared = path.findLast((entry) => inCurrent.has(entry.id));
      return {
        leaf: leaf.id, length: path.length, partsAfter: shared?.id ?? null, isCurrent: false,
        isAbandoned: leaf.isAbandoned, lastAt: leaf.at,
      };
    });
    others.sort((a, b) => (a.lastAt < b.lastAt ? 1 : a.lastAt > b.lastAt ? -1 : 0));
    const last = current.at(-1);
    if (!last) return others;
    return [{ leaf: last.id, length: current.length, partsAfter: null, isCurrent: true, isAbandoned: false, lastAt: last.at }, ...others];
  }
}
