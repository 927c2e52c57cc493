// Convenience for the page of a chat, which works without it: forms are sent without leaving the page, what is sent shows at
// once, Enter sends, and a draft is kept in this browser until the server has stored it. The server takes the same
// message twice as one.
"use strict";

const PATIENCE = 60000; // milliseconds of waiting for a server that does not answer; a model may be slow
const UNREACHABLE = said("The server cannot be reached; nothing is lost. Try again.");
const refused = (status) => said("The server says {}; try again.", status);
const { link, chat } = document.getElementById("chat").dataset;
const key = `polyagents human_eval: ${link} ${chat}`;
let busy = false;
let ticks = Promise.resolve(); // what was ticked below replies is sent in order

// ---- sending ----

async function submit(happening) {
  happening.preventDefault();
  if (busy) return;
  const form = happening.target;
  const body = new URLSearchParams(new FormData(form, happening.submitter));
  const text = body.get("text")?.trim();
  if (text === "") return;
  busy = true;
  if (text) showSent(text);
  try {
    await ticks;
    await stored(form.getAttribute("action"), body);
    remember(key, form.id === "finish" ? "" : element("message")?.value); // what was written since
    await show();
  } catch (error) {
    if (text) takeBack(text);
    say(error.message, true);
  } finally {
    busy = false;
  }
}

// A tick below a reply is stored at once; the page stays as it is.
function ticked(happening) {
  if (happening.target.type !== "checkbox") return;
  const form = happening.target.form;
  const body = new URLSearchParams(new FormData(form));
  ticks = ticks.then(() => stored(form.getAttribute("action"), body)).catch((error) => say(error.message, true));
}

function showSent(text) {
  const item = document.createElement("li");
  const bubble = document.createElement("p");
  item.className = "mine sending";
  bubble.className = "text";
  bubble.textContent = text;
  item.append(bubble);
  element("turns").append(item);
  element("message").value = "";
  fit();
  toEnd();
  say("…");
}

// What was not stored goes back to where it was written.
function takeBack(text) {
  document.querySelector(".sending").remove();
  const box = element("message");
  box.value = [text, box.value].filter(Boolean).join("\n");
  remember(key, box.value);
  fit();
}

// The chat as it stands now; where that fails nothing is lost, and there is a button.
async function show() {
  try {
    await refresh();
  } catch (error) {
    sayWithButton(error.message, said("Try again"), tryAgain);
  }
}

async function tryAgain() {
  if (busy) return;
  busy = true;
  say("…");
  await show();
  busy = false;
}

// Show the chat as the server has it, which asks the model first where a reply is missing.
async function refresh() {
  const response = await fetched(link, {});
  const fresh = await read(response);
  if (!response.ok) throw new Error(sentence(fresh, response));
  const main = fresh.getElementById("chat");
  if (main?.dataset.chat !== chat) return location.assign(link); // the next one, or thanks
  const old = { focused: document.activeElement?.id, draft: element("message")?.value, top: element("turns").scrollTop };
  const folded = document.querySelector("details")?.open === false;
  const isLonger = main.querySelectorAll("#turns > li").length > document.querySelectorAll("#turns > :not(.sending)").length;
  element("chat").replaceWith(main);
  if (old.draft && element("message")) element("message").value = old.draft;
  if (folded) document.querySelector("details").open = false;
  ready();
  if (!isLonger) element("turns").scrollTop = old.top;
  element(old.focused)?.focus({ preventScroll: true });
}

// ---- the page ----

function toEnd() {
  element("turns").scrollTop = element("turns").scrollHeight;
}

function pressed(happening) {
  if (happening.target.id !== "message" || happening.key !== "Enter") return;
  if (happening.shiftKey || happening.isComposing) return;
  happening.preventDefault();
  element("composer").requestSubmit();
}

function typed(happening) {
  if (happening.target.id !== "message") return;
  remember(key, happening.target.value);
  fit();
}

function ready() {
  element("chat").dataset.ready = "";
  if (element("message")) element("message").placeholder = said("Message (Enter sends)");
  fit();
  toEnd();
}

if (element("message")) element("message").value = remembered(key);
document.addEventListener("submit", submit);
document.addEventListener("input", typed);
document.addEventListener("change", ticked);
document.addEventListener("keydown", pressed);
addEventListener("pageshow", (shown) => shown.persisted && location.reload()); // it may have changed by now
ready();
