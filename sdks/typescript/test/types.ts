/** Types that a program gets; compiled, never run. */

import { Onward, agent, signal, task, workflow, type Canceled, type Child, type Failure, type RunHandle, type Workflow } from "onward";
import type { TestKit } from "onward/testing";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const is = <T extends true>(): T => true as T;

const none = workflow("none", async () => 1);
const text = workflow("text", (ctx, input: string) => ctx.step("s", async () => input.length));
const optional = workflow("optional", async (_, input?: { n: number }) => input?.n ?? "none");
const work = task("work", (input: { n: number }) => input.n);
const found = task("found", (id: number): string | undefined => (id === 0 ? undefined : "x"));
const go = signal<void>("go");
const paid = signal<{ amount: number }>("paid");
is<Equal<typeof text, Workflow<string, number>>>();

export async function program(onward: Onward): Promise<void> {
  is<Equal<Awaited<ReturnType<typeof onward.start<string, number>>>, RunHandle<number>>>();
  const run = await onward.start(text, "x", { id: "1" });
  is<Equal<Awaited<ReturnType<typeof run.result>>, number>>();
  await onward.start(none);
  await onward.start(optional);
  await onward.start(optional, { n: 1 });
  await onward.start<string, Date[]>("of another language", "x");
  await run.signal(paid, { amount: 1 });
  // @ts-expect-error the input is missing
  await onward.start(text);
  // @ts-expect-error the input has another type
  await onward.start(text, 5);
  // @ts-expect-error the payload is missing
  await run.signal(paid);
  await run.signal(go);
  await run.signal("of another language");
  await run.append("reviewer", "any role");
  const { output, failure } = await run.drive();
  is<Equal<typeof output, number | undefined>>();
  is<Equal<typeof failure, Failure | undefined>>();
  // @ts-expect-error the payload has another type
  await run.signal(paid, { amount: "1" });
  // @ts-expect-error there is no such option
  await onward.start(text, "x", { ids: "1" });
  // @ts-expect-error there is no such status
  await run.waitForStatus("done");
}

export const uses = workflow("uses", async (ctx) => {
  const child = ctx.child(text, "x");
  is<Equal<typeof child, Child<number>>>();
  const [a, b, c] = await Promise.all([child, ctx.task(work, { n: 1 }), ctx.signal(paid).recv()]);
  is<Equal<typeof c, { amount: number }>>();
  const late = await ctx.signal(paid).recv({ timeout: { seconds: 1 } });
  is<Equal<typeof late, { amount: number } | undefined>>();
  // @ts-expect-error the input has another type
  await ctx.task(work, { n: "1" });
  const user = await ctx.step("find", (): string | undefined => undefined);
  is<Equal<typeof user, string | null>>();
  const nothing = await ctx.step("nothing", async () => {});
  is<Equal<typeof nothing, void>>();
  const maybe = await ctx.task(found, 1);
  is<Equal<typeof maybe, string | null>>();
  const request = await ctx.canceled();
  is<Equal<typeof request, Canceled>>();
  child.signal(go);
  child.signal(paid, { amount: 1 });
  // @ts-expect-error the payload is missing
  child.signal(paid);
  // @ts-expect-error the payload is missing
  ctx.sendSignal("run", paid);
  // @ts-expect-error a number is no duration
  await ctx.sleep(5);
  return a + b + c.amount;
});

export const talks = agent("talks", async (ctx, question: string) => {
  ctx.append("user", question);
  ctx.append("reviewer", "any role");
  // @ts-expect-error the input has another type
  return ctx.handoff(text, 5);
});

export async function plays(kit: TestKit): Promise<void> {
  await kit.play(text, "x", { signals: [] });
  await kit.play(none);
  // @ts-expect-error the input is missing
  await kit.play(text);
}
