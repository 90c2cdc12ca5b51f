#!/usr/bin/env node
// Opens the page at `/` in headless Chromium and judges it:
//   judge.mjs NODE_MODULES CHROMIUM URL SHOWN LATER [FOLDER]
// Prints `open` once the page shows the text SHOWN; whoever started this then sees to it that LATER appears, which the page has
// to show by itself. Prints every problem. Screenshots go to FOLDER.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, executablePath, url, shown, later, folder] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const PHONE = { width: 360, height: 740 };
const DESKTOP = { width: 1280, height: 900 };
const PATIENCE = 60_000;

const problems = [];
const problem = (text) => problems.push(text);
const origin = new URL(url).origin;

const quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", ...quiet] });

// Opens the page; what its console says and what it loads is judged as long as it is open.
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("console", (message) => message.type() !== "log" && problem(`console: ${message.text()}`));
  page.on("pageerror", (error) => problem(`script: ${error.message}`));
  page.on("dialog", (dialog) => problem(`dialog: ${dialog.message()}`) && dialog.dismiss());
  page.on("request", (request) => {
    const to = request.url();
    if (!to.startsWith("data:") && (new URL(to).origin !== origin || new URL(to).pathname !== "/")) problem(`loads ${to}`);
  });
  await page.goto(url);
  await page.getByText(shown).first().waitFor();
  return page;
}

// It refreshes itself, and leaves alone what a reader has opened.
async function refreshes() {
  const page = await open({ viewport: DESKTOP });
  await page.locator("#config-text summary").click();
  console.log("open");
  await page.getByText(later).first().waitFor();
  if (!(await page.locator("#config-text").evaluate((details) => details.open))) problem("a refresh closed what was open");
  if (!(await page.title()).includes("out of sync")) problem(`the title is ${await page.title()}`);
  await page.getByLabel("Refresh every 5 s").uncheck();
  await page.context().close();
}

async function worksWithoutScript() {
  const page = await open({ javaScriptEnabled: false, viewport: DESKTOP });
  if (!(await page.getByText(later).first().isVisible())) problem("without JavaScript, the page does not show the state");
  if (await page.getByText("Refresh every 5 s").isVisible()) problem("without JavaScript, it offers what does not work");
  await page.getByRole("link", { name: "Refresh now" }).click();
  await page.context().close();
}

// axe-core is a script that the page's policy would refuse.
async function isAccessible(colorScheme, viewport) {
  const name = `${colorScheme}-${viewport === PHONE ? "phone" : "desktop"}`;
  const page = await open({ bypassCSP: true, colorScheme, viewport });
  await page.getByLabel("Refresh every 5 s").uncheck();
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  await page.locator("#config-text summary").click();
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
  for (const { id, help, nodes } of violations) {
    problem(`${name}: ${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
  }
  for (const id of ["color-contrast", "label"]) {
    if (!passes.some((pass) => pass.id === id)) problem(`${name}: ${id} was not judged`);
  }
  const { scrollWidth, clientWidth } = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.scrollingElement;
    return { scrollWidth, clientWidth };
  });
  if (scrollWidth > clientWidth) problem(`${name}: ${scrollWidth} wide in a window of ${clientWidth}`);
  await page.context().close();
}

try {
  await refreshes();
  await worksWithoutScript();
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [PHONE, DESKTOP]) await isAccessible(colorScheme, viewport);
  }
} catch (error) {
  problem(error.message);
}
await browser.close();
problems.forEach((text) => console.log(text));
process.exit(problems.length === 0 ? 0 : 1);
