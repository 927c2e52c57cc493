// The organiser's page: fresh figures every few seconds, whole links, and a button to copy each.
"use strict";

const EVERY = 5000; // milliseconds
const stage = document.getElementById("stage");

async function refresh() {
  try {
    const response = await fetch(location.pathname, { signal: AbortSignal.timeout(4 * EVERY) });
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!response.ok) throw new Error(fresh.getElementById("sentence")?.textContent || `The server says ${response.status}.`);
    if (!document.activeElement.closest("td")) show(fresh.getElementById("figures"));
    stage.textContent = "";
  } catch (error) {
    stage.textContent = error instanceof TypeError ? "The server cannot be reached; these figures are old." : error.message;
  }
  setTimeout(refresh, EVERY);
}

function show(figures) {
  document.getElementById("figures").replaceWith(figures);
  completeLinks();
}

function completeLinks() {
  document.querySelectorAll(".link input").forEach((link) => (link.value = new URL(link.value, location.href).href));
  document.querySelectorAll(".link button").forEach((button) => (button.hidden = false));
}

document.addEventListener("click", (clicked) => {
  if (!clicked.target.matches(".link button")) return;
  const link = clicked.target.previousElementSibling;
  link.focus();
  link.select();
  document.execCommand("copy"); // the newer way is for HTTPS only
  link.blur();
  clicked.target.textContent = "Copied";
});

completeLinks();
setTimeout(refresh, EVERY);
