// The explorer: shows the page for the current URL.

import { composePage, relationPage, relationsPage } from "./algebra.js";
import { fetchJson, keyForm } from "./api.js";
import { askPage } from "./ask.js";
import { el, setPrefixes, short } from "./dom.js";
import { entityPage, whyPage } from "./entity.js";
import { mapPage } from "./map.js";
import { homePage, modelPage } from "./model.js";
import { neighbourhoodPage } from "./neighbourhood.js";
import { reviewPage } from "./review.js";
import { read, to } from "./routes.js";
import { startSearch } from "./search.js";

const PAGES = {
  "": homePage, entity: (parts, ...more) => (parts[1] === "graph" ? neighbourhoodPage : entityPage)(parts, ...more), why: whyPage, relations: relationsPage, relation: relationPage,
  compose: composePage, ask: askPage, map: mapPage, model: modelPage, review: reviewPage,
};
const MIN_PARTS = { entity: 1, why: 3, relation: 1 };

const main = document.getElementById("main");
let latest = 0; // number of the newest call of show()

let firstModel = null; // the default of the server

const infos = new Map();

async function infoOf(model) {
  if (!infos.has(model)) infos.set(model, await fetchJson("/v1/info", { model }));
  return infos.get(model);
}

async function show() {
  const mine = ++latest;
  const { page, parts, model } = read();
  selectModel();
  main.setAttribute("aria-busy", "true");
  let title = "Not found";
  let content;
  try {
    // hasOwn: #/constructor and the like are no pages, although every object has them
    if (!Object.hasOwn(PAGES, page) || parts.length < (MIN_PARTS[page] ?? 0)) throw new Error("This page does not exist.");
    const info = await infoOf(model);
    if (mine !== latest) return;
    setPrefixes(info.prefixes);
    document.querySelector("nav [data-page=compose]").hidden = info.K === null; // no group elements to multiply
    ({ title, content } = await PAGES[page](parts, model, info));
  } catch (error) {
    content = [error.status === 401 ? keyForm(start) : errorMessage(error)];
  }
  if (mine !== latest) return; // another page was opened meanwhile
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

function errorMessage(error) {
  const { page } = read();
  const linked = page === "relation" ? "relation" : "entity";
  return el("div", { class: "title" }, el("h1", {}, error.status && error.status !== 404 ? "Error" : "Not found"), el("p", {}, error.message),
    error.suggestions?.length > 0 && el("p", {}, "Did you mean ", error.suggestions.flatMap((name, i) => [i ? ", " : "", el("a", { href: to(linked, name), title: name }, short(name, 80))]), "?"),
    el("p", {}, el("a", { href: to("") }, "Back to the start page")));
}

// The selector shows the model of the address, which also changes by Back and by links.
const modelSelect = document.getElementById("models");
const selectModel = () => { modelSelect.value = read().model ?? firstModel; };

async function startModels() {
  const { models, default: first } = await fetchJson("/v1/models");
  firstModel = first;
  modelSelect.replaceChildren(...models.map((model) => el("option", { value: model.name }, model.name)));
  selectModel();
  modelSelect.hidden = models.length < 2;
  modelSelect.onchange = () => {
    location.hash = modelSelect.value === first ? "#/" : `#/?model=${encodeURIComponent(modelSelect.value)}`;
  };
}

function start() {
  startModels().catch(() => {});
  show();
}

window.addEventListener("hashchange", () => {
  const same = read().page === main.dataset.page && ["compose", "ask"].includes(main.dataset.page);
  show().then(() => {
    main.querySelector("[data-focus]")?.focus();
    if (!same) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
  });
});
startSearch();
start();
