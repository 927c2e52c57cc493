// Convenience for the annotation page, which works without it: keys, and a draft that is kept in this browser (localStorage)
// until the server has stored the answer. The server takes the same answer twice as one.
"use strict";

const PATIENCE = 20000; // milliseconds of waiting for a server that does not answer
const UNREACHABLE = said("The server cannot be reached. Your answer is kept here; send it again.");
const refused = (status) => said("The server says {}; send it again.", status);
const form = element("answer");
const { assignment, asked, seconds, choice, reason } = form.elements;
const send = element("send");
const key = `polyagents human_eval: ${form.getAttribute("action")} ${assignment.value} ${asked.value}`;
const opened = performance.now();
const draft = rememberedFields(key);
let sending = false;

function elapsed() {
  return (draft.seconds || 0) + (performance.now() - opened) / 1000;
}

function save() {
  if (!remember(key, JSON.stringify({ choice: choice.value, reason: reason.value, seconds: elapsed() })))
    say(said("This browser cannot store drafts (storage is full or switched off): send before you leave the page."));
}

async function submit(happening) {
  happening.preventDefault();
  if (sending) return;
  sending = send.disabled = true;
  save();
  seconds.value = elapsed().toFixed(1);
  say(said("Sending …"));
  try {
    await stored(form.getAttribute("action"), new URLSearchParams(new FormData(form)));
    remember(key, "");
    location.assign(form.getAttribute("action"));
  } catch (error) {
    say(error.message, true);
    send.textContent = said("Send again");
    sending = send.disabled = false;
  }
}

function pressed(happening) {
  if (happening.key === "Enter" && (happening.ctrlKey || happening.metaKey)) {
    happening.preventDefault();
    form.requestSubmit(send);
  }
  const side = { ArrowLeft: "left", 1: "left", ArrowRight: "right", 2: "right" }[happening.key];
  const typing = happening.target === reason || happening.ctrlKey || happening.altKey || happening.metaKey;
  if (!side || typing || sending) return;
  happening.preventDefault();
  choice.value = side;
  save();
}

if (draft.choice) choice.value = draft.choice;
if (draft.reason !== undefined) reason.value = draft.reason;
element("keys").hidden = false;
form.addEventListener("submit", submit);
form.addEventListener("input", save);
document.addEventListener("keydown", pressed);
addEventListener("pageshow", (shown) => shown.persisted && location.reload()); // it may have its answer by now
