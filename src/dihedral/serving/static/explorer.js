// The explorer: shows the page that the address names.

import { ask, keyForm } from "./api.js";
import { composePage, relationPage, relationsPage } from "./algebra.js";
import { el, setPrefixes, short } from "./dom.js";
import { entityPage, whyPage } from "./entity.js";
import { homePage, modelPage } from "./model.js";
import { read, to } from "./routes.js";
import { startSearch } from "./search.js";

const PAGES = {
  "": homePage, entity: entityPage, why: whyPage, relations: relationsPage, relation: relationPage,
  compose: composePage, model: modelPage,
};
const NEEDED = { entity: 1, why: 3, relation: 1 };

const main = document.getElementById("main");
let asked = 0;

const infos = new Map();

async function infoOf(model) {
  if (!infos.has(model)) infos.set(model, await ask("/v1/info", { model }));
  return infos.get(model);
}

async function show() {
  const mine = ++asked;
  const { page, parts, model } = read();
  main.setAttribute("aria-busy", "true");
  let title = "Not found";
  let content;
  try {
    if (!PAGES[page] || parts.length < (NEEDED[page] ?? 0)) throw new Error("There is no such page.");
    const info = await infoOf(model);
    if (mine !== asked) return;
    setPrefixes(info.prefixes);
    document.querySelector("nav [data-page=compose]").hidden = info.K === null; // nothing to multiply
    ({ title, content } = await PAGES[page](parts, model, info));
  } catch (problem) {
    content = [problem.status === 401 ? keyForm(start) : trouble(problem)];
  }
  if (mine !== asked) return; // the reader has gone on
  document.title = title ? `${short(title, 80)} – dihedral` : "dihedral explorer";
  main.replaceChildren(...content.filter(Boolean));
  main.dataset.page = page || "home";
  main.removeAttribute("aria-busy");
  for (const link of document.querySelectorAll("nav [data-page]")) {
    link.href = to(link.dataset.page);
    if (link.dataset.page === page || (page === "relation" && link.dataset.page === "relations")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector(".brand").href = to("");
}

function trouble(problem) {
  const { page } = read();
  const linked = page === "relation" ? "relation" : "entity";
  return el("div", { class: "title" }, el("h1", {}, problem.status && problem.status !== 404 ? "That did not work" : "Not found"), el("p", {}, problem.message),
    problem.suggestions?.length > 0 && el("p", {}, "Did you mean ", problem.suggestions.flatMap((name, i) => [i ? ", " : "", el("a", { href: to(linked, name), title: name }, short(name, 80))]), "?"),
    el("p", {}, el("a", { href: to("") }, "To the first page")));
}

async function startModels() {
  const select = document.getElementById("models");
  const { models, default: first } = await ask("/v1/models");
  select.replaceChildren(...models.map((model) => el("option", { value: model.name }, model.name)));
  select.value = read().model ?? first;
  select.hidden = models.length < 2;
  select.onchange = () => {
    location.hash = select.value === first ? "#/" : `#/?model=${encodeURIComponent(select.value)}`;
  };
}

function start() {
  startModels().catch(() => {});
  show();
}

window.addEventListener("hashchange", () => {
  const compose = read().page === "compose" && main.dataset.page === "compose";
  show().then(() => { if (!compose) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); } });
});
startSearch();
start();
