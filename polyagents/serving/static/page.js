// What the chat and the pages of human evaluation share.
"use strict";

const element = (id) => document.getElementById(id);

// ---- what this browser keeps (localStorage), which may be full, switched off, or written by others ----

function remembered(key) {
  try {
    return localStorage.getItem(key) || "";
  } catch {
    return "";
  }
}

function rememberedFields(key) {
  try {
    return JSON.parse(remembered(key)) || {};
  } catch {
    return {};
  }
}

// Returns whether the text is kept; nothing is kept of an empty one.
function remember(key, text) {
  try {
    if (text) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
    return true;
  } catch {
    return false;
  }
}

// ---- the line that says what happens, and the box of a message ----

function say(text, wrong = false) {
  element("stage").textContent = text;
  element("stage").classList.toggle("wrong", wrong);
}

function sayWithButton(text, label, act) {
  say(text, true);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.addEventListener("click", act);
  element("stage").append(button);
}

function fit() {
  const box = element("message");
  if (!box) return;
  box.style.height = "auto"; // by the object model, which the page's policy allows, unlike style attributes
  box.style.height = `${Math.min(box.scrollHeight + 2, 160)}px`;
}
