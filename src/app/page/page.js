"use strict";
const auto = document.querySelector("#auto");
const box = auto.querySelector("input");
const answer = document.querySelector("#answer");
auto.hidden = false;

async function refresh() {
  // Nothing moves under a reader who marks text.
  if (!box.checked || document.hidden || !getSelection().isCollapsed) return;
  try {
    const response = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error("status " + response.status);
    // Without the head, whose nonce is not the one of this page.
    const [, main] = /(<main[^]*<\/main>)/.exec(await response.text());
    const next = new DOMParser().parseFromString(main, "text/html").querySelector("main");
    const open = document.querySelector("#config-text").open;
    const focused = document.activeElement.closest("main") ? document.activeElement.localName : "";
    document.querySelector("main").replaceWith(next);
    document.querySelector("#config-text").open = open;
    if (focused === "summary" || focused === "pre") document.querySelector("main " + focused).focus({ preventScroll: true });
    document.title = next.dataset.title;
    answer.textContent = "";
  } catch (error) {
    answer.textContent = "No answer: the page shows an earlier state (" + error.message + ")";
  }
}

setInterval(refresh, 5000);
