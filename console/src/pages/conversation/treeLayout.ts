/** Owns the drawing of the entry tree: one column per branch, one row per step, and long stretches without a choice as one node. */
import type { EntryNode } from "./fold";
import type { EntryTree } from "./tree";

export interface MapNode {
  /** The entry; of a stretch, its last one. */
  entry: EntryNode;
  /** The number of entries that the node stands for. */
  count: number;
  column: number;
  row: number;
  isCurrent: boolean;
}

export interface MapEdge {
  from: MapNode;
  to: MapNode;
}

export interface TreeMap {
  nodes: MapNode[];
  edges: MapEdge[];
  columns: number;
  rows: number;
  /** Branches that are not drawn. */
  left: number;
}

const COLUMNS_MAX = 10;

/** Returns the map of all branches, the current one in the first column. */
export function treeMap(tree: EntryTree): TreeMap {
  const branches = tree.branches();
  const drawn = branches.slice(0, COLUMNS_MAX);
  const nodes = new Map<string, MapNode>();
  const edges: MapEdge[] = [];
  drawn.forEach((branch, column) => {
    let before: MapNode | null = null;
    let count = 0;
    const path = tree.path(branch.leaf);
    path.forEach((entry, at) => {
      count++;
      const isEnd = at === path.length - 1 || entry.id === tree.current;
      if (!isEnd && !isChoice(tree, entry) && !isChoice(tree, path[at + 1]!)) return;
      let node = nodes.get(entry.id);
      if (!node) {
        node = { entry, count, column, row: before === null ? 0 : before.row + 1, isCurrent: branch.isCurrent };
        nodes.set(entry.id, node);
        if (before !== null) edges.push({ from: before, to: node });
      }
      before = node;
      count = 0;
    });
  });
  const all = [...nodes.values()];
  return {
    nodes: all, edges, columns: drawn.length, rows: Math.max(0, ...all.map((node) => node.row + 1)), left: branches.length - drawn.length,
  };
}

/** Entries where branches part, and the first ones after that, are nodes of their own. */
function isChoice(tree: EntryTree, entry: EntryNode): boolean {
  return tree.childrenOf(entry.id).length > 1 || tree.siblingsOf(entry).length > 1;
}
