// The chat page. The conversation lives in this browser (localStorage); the server keeps nothing. Texts are only ever
// set as text, so HTML in them is shown, not run.
"use strict";

const MOST_TURNS = 200; // as in limits.py: more would be refused, and the model does not read so far back
const MOST_CHARACTERS = 20000;
const SHOWN = 6; // the reply and the next best candidates

const key = `polyagents serve: ${element("chat").dataset.model}`;
let state = load();
let asking = false;

function load() {
  return { turns: [], persona: "", draft: "", ...rememberedFields(key) };
}

function save() {
  if (!remember(key, JSON.stringify(state)))
    say("This browser cannot store anything (storage is full or switched off): a reload would lose the conversation.", true);
}

// ---- showing ----

function make(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function shownScore(score) {
  return score === null ? "no number" : score.toFixed(4);
}

function shownTurn(turn, place) {
  const item = make("li", turn.matches ? "theirs" : "mine");
  item.append(make("p", "text", turn.text));
  if (!turn.matches) return item;
  if (turn.hand_over) {
    item.classList.add("handed-over");
    item.firstChild.textContent = "A person should reply to this.";
  }
  const [best, ...rivals] = turn.hand_over ? [turn.matches[0], ...turn.matches] : turn.matches;
  const with_others = turn.together > 1 ? `, ranked with ${counted(turn.together - 1, "other")}` : "";
  const details = make("details", "facts");
  const sure = turn.probability === null || turn.probability === undefined ? "" : `${(100 * turn.probability).toFixed(0)} % sure · `;
  const facts = `${sure}score ${shownScore(best.score)} · ${turn.ms.toFixed(1)} ms${with_others} · ${counted(rivals.length, "rival")}`;
  details.open = place === state.turns.length - 1; // of the newest reply
  details.append(make("summary", "", facts));
  const table = make("table", "rivals");
  for (const rival of rivals) {
    const row = table.insertRow();
    row.insertCell().textContent = shownScore(rival.score);
    row.insertCell().textContent = rival.text;
  }
  const { name, size } = turn.candidates;
  const among = `of ${size.toLocaleString("en")} candidates (${name})` + (turn.complete ? "" : ", approximate search");
  details.append(table, make("p", "", among));
  item.append(details);
  return item;
}

function show() {
  const list = element("turns");
  list.replaceChildren(...state.turns.map(shownTurn));
  list.scrollTop = list.scrollHeight;
  element("persona").value = state.persona;
  element("message").value = state.draft;
  fit();
}

function sayUnanswered(text) {
  sayWithButton(text, "Try again", ask);
}

// ---- asking ----

function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

function request() {
  const persona = lines(state.persona);
  const history = state.turns.filter((turn) => !turn.hand_over).map((turn) => turn.text).slice(-MOST_TURNS);
  const size = () => history.reduce((sum, text) => sum + text.length, 0);
  while (history.length > 1 && size() > MOST_CHARACTERS) history.shift();
  return { history, persona, top_k: SHOWN };
}

async function ask() {
  if (asking) return;
  asking = true;
  element("send").disabled = true;
  say("sending");
  try {
    const reply = await streamed(await sent(request()));
    state.turns.push(reply);
    save();
    show();
    say("");
  } catch (error) {
    sayUnanswered(error.message);
  } finally {
    asking = false;
    element("send").disabled = false;
  }
}

async function sent(body) {
  let response;
  try {
    response = await fetch("/chat", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error("The server cannot be reached; nothing is lost.");
  }
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error || `The server says ${response.status}.`);
  return response;
}

// Server-sent events of a POST: EventSource can only GET.
async function streamed(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) throw new Error("The connection broke before the reply came; nothing is lost.");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const text of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(text);
      const reply = happened(name, JSON.parse(data));
      if (reply) return reply;
    }
  }
}

function happened(name, data) {
  if (name === "error") throw new Error(data.error);
  if (name === "reply") return data;
  if (name === "queued") say(data.ahead ? `before this one: ${counted(data.ahead, "request")}` : "queued");
  if (name === "ranking") say(`ranking ${data.candidates.size.toLocaleString("en")} candidates`);
  return null;
}

// ---- what the person does ----

function send(happening) {
  happening?.preventDefault();
  const text = element("message").value.trim();
  if (!text || asking) return;
  state.turns.push({ text });
  state.draft = "";
  save();
  show();
  ask();
}

element("composer").addEventListener("submit", send);
element("message").addEventListener("keydown", (pressed) => {
  if (pressed.key === "Enter" && !pressed.shiftKey && !pressed.isComposing) send(pressed);
});
element("message").addEventListener("input", () => {
  state.draft = element("message").value;
  save();
  fit();
});
element("persona").addEventListener("input", () => {
  state.persona = element("persona").value;
  save();
});
element("clear").addEventListener("click", () => {
  if (asking || !confirm("Forget this conversation? The persona stays.")) return;
  state.turns = [];
  save();
  show();
  say("");
});
// Another tab with the same model has changed the conversation; without this, its changes would be overwritten.
addEventListener("storage", (changed) => {
  if (changed.key !== key) return;
  state = load();
  show();
});

history.replaceState(null, "", "/"); // a token in the address has become a cookie
show();
if (state.turns.length && !state.turns.at(-1).matches) sayUnanswered("The last message has no reply yet.");
