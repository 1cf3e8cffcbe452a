/** Owns the picture of the entry tree; each node leads to its entry. */
import { useMemo } from "preact/hooks";
import { href } from "../../ui/router";
import { cut } from "../run/model";
import { blocksOf, gist } from "./content";
import { roleTone } from "./EntryPreview";
import type { EntryTree } from "./tree";
import { type MapNode, treeMap } from "./treeLayout";

const STEP_X = 26;
const STEP_Y = 24;
const EDGE = 14;

export function TreeMapView({ tree, run, leaf }: { tree: EntryTree; run: string; leaf: string | null }) {
  const map = useMemo(() => treeMap(tree), [tree]);
  const shown = useMemo(() => new Set(tree.path(leaf).map((entry) => entry.id)), [tree, leaf]);
  if (map.columns < 2) return null;
  const x = (node: MapNode) => EDGE + node.column * STEP_X;
  const y = (node: MapNode) => EDGE + node.row * STEP_Y;
  const width = 2 * EDGE + (map.columns - 1) * STEP_X + 40;
  const height = 2 * EDGE + (map.rows - 1) * STEP_Y;
  return (
    <div class="tree-map" role="region" aria-label="Tree of the entries" tabIndex={0}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Branches as a tree">
        {map.edges.map(({ from, to }) => (
          <path key={to.entry.id} class={shown.has(to.entry.id) ? "tree-edge tree-shown" : "tree-edge"} d={`M${x(from)} ${y(from)}C${x(from)} ${y(to)} ${x(to)} ${y(from)} ${x(to)} ${y(to)}`} />
        ))}
        {map.nodes.map((node) => (
          <a key={node.entry.id} href={href(["runs", run, "conversation"], { entry: node.entry.id, leaf: tree.leafBelow(node.entry.id) })} aria-label={`${node.count > 1 ? `${node.count} entries up to ` : ""}${node.entry.role}: ${cut(gist(blocksOf(node.entry.content)), 60)}`}>
            <title>{`${node.entry.role}: ${cut(gist(blocksOf(node.entry.content)), 120)}`}</title>
            <circle class={`tree-node said-${roleTone(node.entry.role)}${shown.has(node.entry.id) ? " tree-shown" : ""}${node.entry.isAbandoned ? " tree-abandoned" : ""}`} cx={x(node)} cy={y(node)} r={node.entry.id === tree.current ? 7 : 5} />
            {node.count > 1 && <text class="tree-count" x={x(node) + 9} y={y(node) + 4}>{node.count}</text>}
          </a>
        ))}
      </svg>
      {map.left > 0 && <p class="muted">{map.left} more branches</p>}
    </div>
  );
}
