/** Owns the difference of two documents by lines. */
import { commonParts } from "../../ui/common";

export interface LineChange {
  change: "same" | "removed" | "added";
  text: string;
}

// Beyond this, all lines between the common beginning and end are shown as changed.
const PAIRS_MAX = 4_000_000;

/** Compares two documents; removed lines come before added ones. */
export function diffLines(left: string, right: string): LineChange[] {
  const a = left.split("\n");
  const b = right.split("\n");
  const [inA, inB] = commonParts(a, b, PAIRS_MAX);
  const out: LineChange[] = [];
  let j = 0;
  const add = (isNext: (at: number) => boolean) => {
    for (; j < b.length && isNext(j); j++) out.push({ change: "added", text: b[j] ?? "" });
  };
  a.forEach((text, i) => {
    if (!inA.has(i)) {
      out.push({ change: "removed", text });
      return;
    }
    add((at) => !inB.has(at));
    out.push({ change: "same", text });
    j++;
  });
  add(() => true);
  return out;
}
