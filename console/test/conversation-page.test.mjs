// The conversation of a real agent with a scripted model and tools, in a browser.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { deflateSync } from "node:zlib";
import { AgentServer } from "./helpers/agent.mjs";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { HOSTILE, pause } from "./helpers/fixtures.mjs";
import { STORY } from "./helpers/model.mjs";

let all;
let server;

/** A small picture with a gradient, as base64 of a PNG file. */
function picture(width = 96, height = 64) {
  const rows = Buffer.concat(Array.from({ length: height }, (_, y) => Buffer.from([0, ...Array.from({ length: width }, (_, x) => [x * 2, y * 3, 160]).flat()])));
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from("89504e470d0a1a0a", "hex"), chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]).toString("base64");
}

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

before(async () => {
  all = await AgentServer.start();
  server = all.server;
  await server.start("shop", "shop-1", "Hello, what do you sell?");
  await server.until("shop-1", "waiting");
});

after(async () => {
  await closeBrowser();
  await all?.close();
});

const open = (id, query = "", options) => openPage(server.url, { hash: `#/runs/${id}/conversation${query}`, ...options });
const entries = (page) => page.locator("article.entry:not(.entry-draft):not(.entry-waiting)");
const said = (page, text) => page.getByRole("log").getByText(text);
const say = async (page, text) => {
  await page.getByLabel("Message to the agent").fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
};

test("a message is answered live, word by word, with its cost", async () => {
  const page = await open("shop-1");
  await said(page, "You said: Hello, what do you sell?").waitFor();
  await page.evaluate(() => {
    globalThis.drafts = new Set();
    new MutationObserver(() => {
      const draft = document.querySelector(".entry-draft .talk-text:last-of-type");
      if (draft) globalThis.drafts.add(draft.textContent.length);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await say(page, "Tell me a long story");
  await page.locator(".entry-draft").waitFor();
  await entries(page).filter({ hasText: STORY }).waitFor();
  await page.locator(".entry-draft").waitFor({ state: "detached" });
  const lengths = await page.evaluate(() => globalThis.drafts.size);
  console.log(`the answer was drawn in ${lengths} lengths`);
  assert.ok(lengths > 3, "the answer grows");
  assert.equal(await entries(page).filter({ hasText: STORY }).count(), 1, "once");
  assert.match(await entries(page).filter({ hasText: STORY }).locator(".entry-cost").innerText(), /in, \d+ out\s+\$0\.\d+[\s\S]*finished/);
  assert.match(await page.getByRole("complementary").innerText(), /Cost\s*\$0\.\d+/);
  assertClean(page);
  await closePage(page);
});

test("tools with their arguments, an approval, and the result", async () => {
  const page = await open("shop-1");
  await page.getByLabel("Message to the agent").waitFor();
  await say(page, "I need a bell");
  await page.getByRole("button", { name: "Decide" }).click();
  await page.getByRole("dialog").getByText("bell").first().waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
  await said(page, /The tools say: .*1 bell ordered/).first().waitFor();
  const call = page.locator(".fold-call", { hasText: "order" });
  assert.match(await call.locator("summary").innerText(), /order[\s\S]*bell[\s\S]*approved/);
  await call.locator("summary").click();
  await call.getByText("count").first().waitFor();
  await page.locator(".fold-reasoning summary").last().click();
  await page.getByText("They want a bell.").waitFor();
  await screenshot(page, "conversation");
  await assertAccessible(page, "conversation");
  assertClean(page);
  await closePage(page);
});

test("what the model saw at a call", async () => {
  const page = await open("shop-1");
  await entries(page).filter({ hasText: "Let me look at the shelf" }).getByRole("button", { name: "What it saw" }).click();
  const panel = page.getByRole("complementary", { name: "What the model saw" });
  await panel.getByText("You sell parts of bicycles. Be brief.").waitFor();
  await panel.getByText("2 tools: order, stock").waitFor();
  assert.equal(await panel.locator(".prompt").count(), 5, "hello, answer, story, answer, bell");
  await screenshot(page, "conversation-prompt", { dark: false });
  await assertAccessible(page, "what the model saw");
  assertClean(page);
  await closePage(page);
});

test("an edit branches, the old branch stays, and both are compared", async () => {
  const page = await open("shop-1");
  await said(page, /The tools say/).first().waitFor();
  await server.until("shop-1", "waiting");
  await entries(page).filter({ hasText: "I need a bell" }).getByRole("button", { name: "Edit" }).click();
  const box = page.getByLabel("First message of the branch");
  assert.equal(await box.inputValue(), "I need a bell");
  await box.fill("I need nothing, thank you");
  await page.getByText("The same from a shell").click();
  await page.getByText(/onward run branch shop-1 [0-9a-f]{32} 'I need nothing, thank you'/).waitFor();
  await page.getByRole("button", { name: "Branch", exact: true }).last().click();
  await said(page, "You said: I need nothing, thank you").waitFor();
  await page.locator(".switcher", { hasText: "2 / 2" }).waitFor();
  assert.equal(await page.locator(".branch").count(), 2);
  await screenshot(page, "conversation-branches", { dark: false });
  await page.getByRole("button", { name: "Earlier alternative" }).click();
  await said(page, /The tools say/).first().waitFor();
  await page.getByText("Another branch than the current one.").waitFor();
  await page.getByRole("button", { name: "Show the current branch" }).click();
  await page.locator(".branch").getByRole("button", { name: "Compare" }).click();
  await page.getByRole("table", { name: "Branches side by side" }).waitFor();
  assert.match(await page.locator(".compare").innerText(), /4 entries are the same/);
  assert.ok((await page.locator(".compare mark").count()) > 0);
  await screenshot(page, "conversation-compare", { dark: false });
  await assertAccessible(page, "comparison");
  assertClean(page);
  await closePage(page);
});

test("time travel has the conversation as of then", async () => {
  const page = await openPage(server.url, { hash: "#/runs/shop-1/travel?generation=0&index=1" });
  await page.getByRole("heading", { name: "Conversation" }).waitFor();
  await page.getByText("Hello, what do you sell?").first().waitFor();
  assert.equal(await page.getByText("Tell me a long story").count(), 0);
  assertClean(page);
  await closePage(page);
});

test("images are shown, anything else is not, and hostile texts stay text", async () => {
  await server.start("talker", "talker-1", "hi");
  await server.until("talker-1", "waiting");
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1"><image href="https://evil.example/x.png"/></svg>').toString("base64");
  const blocks = [
    { type: "text", text: "Look at this" },
    { type: "attachment", media_type: "image/png", source: { base64: picture() } },
    { type: "attachment", media_type: "image/svg+xml", source: { base64: svg } },
    { type: "attachment", media_type: "image/png", source: { url: "https://evil.example/track.png" } },
    { type: "attachment", media_type: "image/png", source: { hash: "0".repeat(64) } },
  ];
  await server.api("POST", "/v1/runs/talker-1/messages", { content: { blocks } });
  for (const [n, text] of HOSTILE.entries()) {
    await server.api("POST", "/v1/runs/talker-1/entries", { role: n % 2 ? "tool" : "user", content: n % 3 ? { blocks: [{ type: "tool_result", call_id: text, blocks: [{ type: "text", text }] }] } : text });
    await server.api("POST", "/v1/runs/talker-1/entries", { role: text.slice(0, 200), content: { text } });
  }
  await server.api("POST", "/v1/runs/talker-1/messages", { text: `markup ${HOSTILE.join(" ")}` });
  await pause(1500);
  const page = await open("talker-1");
  await page.getByText("Look at this").first().waitFor();
  await page.locator("img.picture").waitFor();
  assert.equal(await page.locator(".entry img").count(), 1, "one image");
  assert.match(await page.locator(".entry img").getAttribute("src"), /^blob:/);
  assert.equal(await page.locator(".entry img").evaluate((image) => image.naturalWidth), 96, "it is drawn");
  for (const summary of await page.locator("details.fold > summary").all()) await summary.click();
  await pause(300);
  assert.equal(await page.evaluate(() => window.hit), undefined);
  const links = await page.evaluate(() => [...document.querySelectorAll("a")].map((link) => link.getAttribute("href") ?? "").filter((href) => !/^(#|https?:)/.test(href)));
  assert.deepEqual(links, []);
  await page.locator("img.picture").scrollIntoViewIfNeeded();
  assertClean(page);
  await closePage(page);
});

test("a message that steers the agent while it works is shown until it is read", async () => {
  await server.start("talker", "talker-2", "Tell me a long story");
  const page = await open("talker-2");
  await page.locator(".entry-draft").waitFor();
  await say(page, "and be quick");
  await page.locator(".entry-waiting", { hasText: "and be quick" }).waitFor();
  await said(page, "You said: and be quick").waitFor();
  await page.locator(".entry-waiting").waitFor({ state: "detached" });
  assertClean(page);
  await closePage(page);
});

test("a run without a conversation says so, and one that ended reads no messages", async () => {
  await server.api("POST", "/v1/runs/talker-2/cancel", { reason: "enough" });
  await server.until("talker-2", "canceled");
  const page = await open("talker-2");
  await page.getByText("The run has ended: it reads no more messages.").waitFor();
  assertClean(page);
  await closePage(page);
});

test("a conversation is usable on a phone", async () => {
  const page = await open("shop-1", "", { viewport: PHONE });
  await page.getByText("You said: I need nothing, thank you").first().waitFor();
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 360, `${width} pixels wide`);
  await screenshot(page, "conversation-phone", { dark: false });
  assertClean(page);
  await closePage(page);
});
