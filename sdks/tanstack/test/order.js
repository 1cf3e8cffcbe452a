// The workflow of these tests: it charges, waits for a payment, requests an approval, and ships.

import { createWorkflow } from '@tanstack/workflow-core'

/** `hang` names a step that begins and never ends. */
export function order(effects, hang) {
  const act = (name) => async () => {
    await effects.add(name)
    if (name === hang) await new Promise((resolve) => setTimeout(resolve, 3_600_000))
    return `${name} done`
  }
  return createWorkflow({ id: 'order', version: 'v1' }).handler(async (ctx) => {
    const id = await ctx.uuid()
    const charge = await ctx.step('charge', act('charge'))
    const payment = await ctx.waitForEvent('payment')
    const decision = await ctx.approve({ title: `Ship ${ctx.input.item}?` })
    if (!decision.approved) throw new Error('rejected')
    const ship = await ctx.step('ship', act('ship'))
    return { id: typeof id, charge, payment, ship, item: ctx.input.item }
  })
}
