// The search box: suggests entities and relations while typing, for mouse and keyboard.

import { fetchJson } from "./api.js";
import { el, idOf, plural, short } from "./dom.js";
import { read, to } from "./routes.js";

export function startSearch() {
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  let active = -1;
  let latest = 0; // number of the newest request
  let timer = 0;
  let matches = [];

  const options = () => [...list.querySelectorAll("[role=option]")];

  function show(open) {
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    if (!open) choose(-1);
  }

  function choose(index) {
    const all = options();
    active = all.length ? (index + all.length) % all.length : -1;
    if (index < 0) active = -1;
    all.forEach((option, i) => option.setAttribute("aria-selected", String(i === active)));
    if (active < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", all[active].id);
    all[active].scrollIntoView({ block: "nearest" });
  }

  function open({ kind, name }) {
    input.value = "";
    show(false);
    input.blur();
    location.hash = to(kind, name);
  }

  async function look() {
    const mine = ++latest;
    const text = input.value.trim();
    if (!text) return show(false);
    const found = await fetchJson("/v1/search", { text, top: 12, model: read().model }).catch(() => null);
    if (mine !== latest || !found) return; // a newer request was sent meanwhile
    matches = found.matches;
    list.replaceChildren(...matches.map((match, i) =>
      el("li", { role: "option", id: `found-${i}`, "data-name": match.name, "aria-selected": "false",
        onmousedown: (event) => { event.preventDefault(); open(match); } },
        el("span", { class: "name", title: match.about || match.name }, short(match.name, 200), idOf(match.name)),
        el("small", {}, `${match.kind === "relation" ? "relation, " : ""}${plural(match.facts, "fact")}`))));
    if (!matches.length) list.replaceChildren(el("li", { class: "nothing" }, "nothing found"));
    show(true);
    choose(matches.length ? 0 : -1);
  }

  window.addEventListener("hashchange", () => { // another page, by a link or by Back
    latest++;
    clearTimeout(timer);
    input.value = "";
    show(false);
  });
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 60); });
  input.addEventListener("focus", look);
  input.addEventListener("blur", () => show(false));
  input.addEventListener("keydown", (event) => {
    const all = options();
    if (event.key === "ArrowDown") choose(active + 1);
    else if (event.key === "ArrowUp") choose(active <= 0 ? all.length - 1 : active - 1);
    else if (event.key === "Enter" && active >= 0 && !list.hidden) open(matches[active]);
    else if (event.key === "Escape") { show(false); input.blur(); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    }
  });
}
