// Questions to the server; a server with a key is asked again once the key is given.

import { el } from "./dom.js";

export class Problem extends Error {
  constructor(status, { detail, suggestions }) {
    super(detail ?? `the server answered ${status}`);
    this.status = status;
    this.suggestions = suggestions ?? [];
  }
}

export async function ask(path, params = {}, body = null) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of [value].flat()) if (each !== null && each !== undefined) query.append(name, each);
  }
  const headers = {};
  const key = sessionStorage.getItem("api-key");
  if (key) headers["X-API-Key"] = key;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(`${path}?${query}`, {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
  });
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, content);
  return content;
}

export function keyForm(again) {
  const input = el("input", { type: "password", "aria-label": "API key", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("api-key", input.value);
    again();
  };
  return el("form", { class: "key", onsubmit: submit },
    el("p", {}, "This server asks for a key."), input, el("button", { type: "submit" }, "Go on"));
}
