// Owns a server with an agent for tests: the ready-made loop, a scripted model and a tool server, all from a settings file.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ScriptedModel } from "./model.mjs";
import { TestServer } from "./server.mjs";

const TOOLS = new URL("./shop-tools.mjs", import.meta.url).pathname;

export class AgentServer {
  static async start() {
    const all = new AgentServer();
    all.model = await ScriptedModel.start();
    all.folder = await mkdtemp(join(tmpdir(), "onward-agent-"));
    const settings = join(all.folder, "onward.toml");
    await writeFile(settings, `
[providers.local]
api_format = "openai"
base_url = "${all.model.url}"

[models.scripted]
provider = "local"
price = { input = "2.50", output = "10" }

[mcp.shop]
command = ${JSON.stringify(process.execPath)}
arguments = [${JSON.stringify(TOOLS)}]
needs_approval = ["order"]
classes = { stock = "pure" }

[agents.shop]
model = "scripted"
system = "You sell parts of bicycles. Be brief."
converse = true
mcp = ["shop"]

[agents.talker]
model = "scripted"
system = "You repeat what was said."
converse = true
`);
    all.server = await TestServer.start({ env: { ONWARD_CONFIG: settings } });
    return all;
  }

  async close() {
    await this.server?.close();
    this.model?.close();
    if (this.folder) await rm(this.folder, { recursive: true, force: true });
  }
}
