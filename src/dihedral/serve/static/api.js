// Requests to the server, and the form for its API key.

import { el, learnLabels } from "./dom.js";

export class ApiError extends Error {
  constructor(status, { detail, suggestions }) {
    super(detail ?? `the server returned status ${status}`);
    this.status = status;
    this.suggestions = suggestions ?? [];
  }
}

const NAME = "api-key"; // in sessionStorage
let kept = null; // also where storage is forbidden

function apiKey() {
  try {
    kept ??= sessionStorage.getItem(NAME);
  } catch { /* the page asks for it */ }
  return kept;
}

function keepKey(key) {
  kept = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch { /* it is asked for again when the page is loaded */ }
}

async function send(path, params, body) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined) query.append(name, each);
  }
  const headers = {};
  const key = apiKey();
  if (key) headers["X-API-Key"] = key;
  if (body) headers["Content-Type"] = "application/json";
  return fetch(`${path}?${query}`, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
}

export async function fetchJson(path, params = {}, body = null) {
  const response = await send(path, params, body);
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, content);
  learnLabels(content);
  return content;
}

export async function fetchText(path, params = {}) {
  const response = await send(path, params);
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => ({})));
  return response.text();
}

export function keyForm(retry) {
  const input = el("input", { type: "password", "aria-label": "API key", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    keepKey(input.value);
    retry();
  };
  return el("form", { class: "key", onsubmit: submit },
    el("p", {}, "This server requires an API key."), input, el("button", { type: "submit" }, "Continue"));
}
