// What the pages of people share: texts in their language, and forms that are sent without leaving the page. The page's
// own script, which comes after this one, has PATIENCE, UNREACHABLE and refused.
"use strict";

const texts = JSON.parse(document.querySelector("[data-texts]").dataset.texts); // English -> the language of the page
const said = (text, value) => (texts[text] || text).replace(/\{0?\}/, value);

async function fetched(address, options) {
  try {
    return await fetch(address, { ...options, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Error(UNREACHABLE);
  }
}

// Returns once the server has stored what a form says: it redirects only then.
async function stored(address, body) {
  const response = await fetched(address, { method: "POST", body, redirect: "manual" });
  if (response.type !== "opaqueredirect") throw new Error(sentence(await read(response), response));
}

async function read(response) {
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

function sentence(page, response) {
  return page.getElementById("sentence")?.textContent || refused(response.status);
}
