/**
 * The model of the examples: OpenAI's if `OPENAI_API_KEY` is set, otherwise a scripted one. For the scripted one, start
 * `scripted-model` of the Onward repository and put the address that it prints into `SCRIPTED_MODEL_URL`.
 */

import type { WorkerOptions } from "onward";

export const model = "talker";

/** Returns the option `models` of `Onward`: a provider and a model of it. */
export function models(): NonNullable<WorkerOptions["models"]> {
  if (process.env["OPENAI_API_KEY"]) {
    const openai = { api_format: "openai", base_url: "https://api.openai.com/v1", key_env: "OPENAI_API_KEY" };
    return { providers: { openai }, models: { [model]: { provider: "openai", name: "gpt-4o-mini" } } };
  }
  const url = process.env["SCRIPTED_MODEL_URL"];
  if (url === undefined) throw new Error("set OPENAI_API_KEY, or SCRIPTED_MODEL_URL to the address of a scripted model");
  const local = { api_format: "openai", base_url: `${url}/v1` };
  return { providers: { local }, models: { [model]: { provider: "local", name: "scripted" } } };
}
