/** Owns the versions of one flow while its page is open: documents are loaded again only after another one was stored. */
import type { components } from "../../api/types";

type FlowVersion = components["schemas"]["FlowVersion"];
type VersionCount = components["schemas"]["VersionCount"];

/** The requests of the page. */
export interface FlowRequests {
  /** The current versions of all flows, without documents. */
  flows(): Promise<{ flows: FlowVersion[] }>;
  /** The open runs of each version. */
  versions(): Promise<{ versions: VersionCount[] }>;
  /** All versions of the flow, with documents. */
  documents(): Promise<{ flows: FlowVersion[] }>;
}

export class FlowVersions {
  #flows: FlowVersion[] = [];

  constructor(readonly name: string) {}

  /** Returns all versions, newest first. */
  async load(requests: FlowRequests): Promise<{ flows: FlowVersion[] }> {
    const [newest] = this.#flows;
    if (newest === undefined) return this.#read(requests);
    const [{ flows }, { versions }] = await Promise.all([requests.flows(), requests.versions()]);
    const current = flows.find(({ flow }) => flow === this.name);
    // An equal version that was stored again may have other comments. If the flow is gone, the answer is the error of the page.
    if (current?.version !== newest.version || current.applied_at !== newest.applied_at) return this.#read(requests);
    const open = new Map(versions.filter(({ kind }) => kind === this.name).map((count) => [count.version, count.open]));
    return { flows: this.#flows.map((flow) => ({ ...flow, open_runs: open.get(flow.version) ?? 0 })) };
  }

  async #read(requests: FlowRequests): Promise<{ flows: FlowVersion[] }> {
    const { flows } = await requests.documents();
    this.#flows = flows;
    return { flows };
  }
}
