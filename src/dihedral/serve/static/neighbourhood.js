// The neighbourhood of an entity as a drawing that grows on click: known facts solid, predicted ones dashed.

import { fetchJson } from "./api.js";
import { PROBABILITY_NOTE, el, formatProbability, number, plural, saveFile, short, svg } from "./dom.js";
import { entityLink, entityTitle, predictPairs, relationPairs } from "./entity.js";
import { STRETCH, placesAround } from "./layout.js";
import { to } from "./routes.js";

const LIBRARY = "./vendor/cytoscape-3.34.4.min.mjs"; // loaded when a drawing is opened
const COUNTS = [25, 50, 100, 200, 500];
const NUM_FIRST = 25; // neighbours
const NUM_EXPANDED = 15; // neighbours added by a click
const MAX_BETWEEN = 60; // facts between neighbours that are drawn unasked
const MAX_NEAR = STRETCH === 1 ? 15 : 40; // facts of the selected entity that are drawn thick, with their relations
const NUM_PREDICTED = 10;
const MAX_NODES = 1000;
const MAX_SMALL = 150; // entities of a drawing with all details
const MAX_FITTED = 1.4; // zoom
const NUM_LISTED = 12; // facts of the selected entity

export async function neighbourhoodPage([nameOrPrefixed, , wanted], model, info) {
  const count = COUNTS.includes(Number(wanted)) ? Number(wanted) : NUM_FIRST;
  const [first, { default: cytoscape }] = await Promise.all([
    fetchJson("/v1/neighbourhood", { name: nameOrPrefixed, top: count, model }), import(LIBRARY),
  ]);
  const drawing = new Drawing(cytoscape, first, model, info);
  const counts = el("select", { "aria-label": "Number of neighbours", onchange: (event) => { location.hash = to("entity", first.name, "graph", event.target.value); } },
    COUNTS.map((each) => el("option", { value: each, selected: each === count }, `${each} neighbours`)));
  return {
    title: short(first.name),
    content: [
      entityTitle(first.name, "graph"),
      el("div", { class: "row controls" }, counts, drawing.filter, el("label", {}, drawing.between, " facts between neighbours"),
        el("button", { type: "button", class: "quiet", onclick: () => drawing.fit() }, "Fit"),
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom in", onclick: () => drawing.zoom(1.3) }, "+"),
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom out", onclick: () => drawing.zoom(1 / 1.3) }, "−"),
        el("button", { type: "button", class: "quiet", onclick: () => drawing.save() }, "Save as SVG")),
      el("div", { class: "neighbourhood" }, drawing.frame, drawing.side),
      el("p", { class: "muted legend" }, el("span", { class: "line known" }), "known fact ", el("span", { class: "line guess" }), "predicted fact", drawing.meaning, ". Click an entity to add its neighbours."),
    ],
  };
}

class Drawing {
  constructor(cytoscape, first, model, info) {
    Object.assign(this, { cytoscape, model, info, centre: first.name, cy: null, busy: false });
    this.nodes = new Map(); // by name: position, number of facts, and `answers` about its neighbours, by relation or ""
    this.facts = new Map(); // by key
    this.frame = el("div", { class: "drawing", role: "img", "aria-label": `Drawing of the neighbourhood of ${short(first.name)}. The list of entities has the same content.` });
    this.list = el("select", { size: 10, "aria-label": "Entities in the drawing", onchange: () => this.select(this.list.value), onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); this.expand(this.list.value); } } });
    this.status = el("p", { class: "muted", role: "status" });
    this.details = el("div", { class: "details" });
    this.meaning = el("span", {}); // of the numbers at predicted facts
    this.side = el("div", { class: "side" }, this.status, this.list, this.details);
    this.filter = el("select", { "aria-label": "Relation", onchange: () => this.applyFilter() });
    this.between = el("input", { type: "checkbox", onchange: () => this.applyFilter() });
    this.merge(this.centre, first, "");
    this.between.checked = [...this.facts.values()].filter((fact) => !this.isOwn(fact)).length <= MAX_BETWEEN;
    this.say();
    this.whenShown(() => this.start());
  }

  // Call once the frame has a size. Cytoscape follows later changes of the size itself.
  whenShown(call) {
    const observer = new ResizeObserver(() => {
      if (!this.frame.clientWidth) return;
      observer.disconnect();
      call();
    });
    observer.observe(this.frame);
  }

  start() {
    // Cytoscape adds a style element unless there is one; the Content-Security-Policy refuses it, and explorer.css has its rule.
    if (!document.getElementById("__________cytoscape_stylesheet")) document.head.append(el("meta", { id: "__________cytoscape_stylesheet" }));
    this.cy = this.cytoscape({
      container: this.frame, elements: this.elements(), style: drawingStyle(this.nodes.size > MAX_SMALL), layout: { name: "preset", fit: false }, ...this.fitted(),
      minZoom: 0.08, maxZoom: 4, boxSelectionEnabled: false, selectionType: "single",
    });
    this.cy.on("tap", "node", ({ target }) => {
      this.select(target.id());
      if (!this.counts(target.id())) this.expand(target.id());
    });
    this.cy.on("tap", "edge", ({ target }) => this.select(target.target().id()));
    this.cy.on("mouseover mouseout", "edge", ({ type, target }) => target.toggleClass("hover", type === "mouseover"));
    this.cy.on("dragfree", "node", ({ target }) => {
      Object.assign(this.nodes.get(target.id()), target.position());
      declutter(this.cy);
    });
    this.cy.one("render", () => { this.frame.dataset.drawn = "true"; });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const restyle = () => this.cy.style(drawingStyle(this.nodes.size > MAX_SMALL));
    scheme.addEventListener("change", restyle);
    window.addEventListener("hashchange", () => { scheme.removeEventListener("change", restyle); this.cy.destroy(); }, { once: true });
    this.select(this.centre, true);
  }

  // --- content ------------------------------------------------------------------------------------

  // Add an answer of the server about the neighbours of `name` through a relation, or all if it is "".
  merge(name, found, relation) {
    for (const fact of found.facts) this.facts.set(keyOf(fact), { ...fact, known: true });
    this.place(name, found.entities);
    this.nodes.get(name).answers.set(relation, { neighbours: found.neighbours, drawn: found.drawn });
    if (name === this.centre) this.relations ??= found.relations;
    this.truncated ||= found.num_facts > found.facts.length || !found.complete;
    this.update(name);
  }

  // Whether a fact is predicted, or of an entity that was expanded; others are between neighbours.
  isOwn({ head, relation, tail, known }) {
    return !known || [head, tail].some((name) => ["", relation].some((each) => this.nodes.get(name).answers.has(each)));
  }

  // The neighbours of an entity through a relation, and how many are drawn; null if the server was not asked for them.
  counts(name, relation = this.filter.value) {
    const answer = this.nodes.get(name).answers.get(relation);
    if (!answer) return null;
    const others = new Set(); // an answer about another relation or entity may have added some
    for (const fact of this.facts.values()) {
      if (!fact.known || (relation && fact.relation !== relation) || fact.head === fact.tail) continue;
      if (fact.head === name) others.add(fact.tail);
      else if (fact.tail === name) others.add(fact.head);
    }
    return { neighbours: answer.neighbours, drawn: Math.max(answer.drawn, others.size) };
  }

  // Give the new entities free places around `anchor`, those of one relation next to each other.
  place(anchor, entities) {
    const at = this.nodes.get(anchor) ?? { x: 0, y: 0 };
    const relationOf = new Map();
    for (const fact of this.facts.values()) {
      const other = fact.head === anchor ? fact.tail : fact.tail === anchor ? fact.head : null;
      if (other !== null && !relationOf.has(other)) relationOf.set(other, `${fact.relation} ${fact.head === anchor}`);
    }
    if (!this.nodes.has(anchor)) this.nodes.set(anchor, { ...at, facts: entities[0].facts, answers: new Map() });
    const added = entities.filter(({ name }) => !this.nodes.has(name));
    const group = ({ name }) => relationOf.get(name) ?? "";
    const sorted = added.toSorted((a, b) => group(a) < group(b) ? -1 : group(a) > group(b) ? 1 : 0);
    const direction = anchor === this.centre ? null : Math.atan2(at.y, at.x / STRETCH);
    const places = placesAround(at, sorted.length, [...this.nodes.values()], direction);
    sorted.forEach(({ name, facts }, i) => this.nodes.set(name, { ...places[i], facts, answers: new Map() }));
  }

  // The facts that are drawn: those between neighbours only if asked for, or next to the selected entity.
  drawnFacts() {
    const wanted = this.filter.value;
    const selected = this.list.value || this.centre;
    return [...this.facts].filter(([, fact]) => (!wanted || fact.relation === wanted) &&
      (this.between.checked || this.isOwn(fact) || fact.head === selected || fact.tail === selected));
  }

  // Known facts with the same head and tail are one edge; every predicted fact has its own.
  elements() {
    const facts = this.drawnFacts();
    const edges = Map.groupBy(facts, ([id, { head, tail, known }]) => known ? `${head}\n${tail}` : id);
    const wanted = this.filter.value;
    const used = wanted && new Set([this.centre, ...facts.flatMap(([, { head, tail }]) => [head, tail])]);
    const pairs = new Map();
    for (const [[, { head, tail }]] of edges.values()) pairs.set(`${head}\n${tail}`, (pairs.get(`${head}\n${tail}`) ?? 0) + 1);
    return [
      ...[...this.nodes].filter(([name]) => !wanted || used.has(name)).map(([name, { x, y, facts: count }]) => ({
        group: "nodes", data: { id: name, label: short(name, STRETCH === 1 ? 14 : 22), size: 12 + 5 * Math.log10(1 + count) },
        position: { x, y }, classes: name === this.centre ? "centre" : "",
      })),
      ...[...edges].map(([id, group]) => {
        const [, fact] = group[0];
        const parallel = pairs.get(`${fact.head}\n${fact.tail}`) > 1 || pairs.has(`${fact.tail}\n${fact.head}`);
        const kind = (!fact.known ? "guess" : this.isOwn(fact) ? "known" : "between") + (parallel ? " parallel" : "");
        const label = edgeLabel(fact) + (group.length > 1 ? ` +${group.length - 1}` : "");
        return { group: "edges", data: { id, source: fact.head, target: fact.tail, label, kind }, classes: kind };
      }),
    ];
  }

  // Draw what is there now. Nothing moves: every entity has its place.
  draw() {
    const elements = this.elements();
    const wanted = new Map(elements.map((element) => [element.data.id, element]));
    const drawn = new Set(this.cy.elements().map((element) => element.id()));
    this.cy.batch(() => {
      this.cy.remove(this.cy.elements().filter((element) => !wanted.has(element.id())));
      this.cy.add(elements.filter(({ data }) => !drawn.has(data.id)));
      this.cy.edges().forEach((edge) => {
        const { kind, label } = wanted.get(edge.id()).data;
        if (edge.data("kind") !== kind) edge.classes(kind);
        if (edge.data("kind") !== kind || edge.data("label") !== label) edge.data({ kind, label });
      });
    });
  }

  update(selected) {
    this.list.replaceChildren(...[...this.nodes.keys()].map((name) => el("option", { value: name }, short(name, 60))));
    this.fillFilter();
    if (this.cy) { this.select(selected); this.showAll(); }
    this.say();
  }

  say() {
    const filtered = this.counts(this.centre);
    const { neighbours, drawn } = filtered ?? this.counts(this.centre, "");
    const through = filtered && this.filter.value ? ` through ${short(this.filter.value)}` : "";
    const what = `${plural(neighbours, "neighbour")} of ${short(this.centre)}${through}`;
    const between = [...this.facts.values()].filter((fact) => !this.isOwn(fact)).length;
    const hidden = this.between.checked || !between ? "" : ", which are not drawn";
    this.status.replaceChildren(
      `${plural(this.nodes.size, "entity", "entities")}, ${plural(this.facts.size, "fact")}, `,
      `of which ${number(between)} between neighbours${hidden}. `,
      drawn < neighbours ? `${number(drawn)} of ${what}, those with the most facts. ` : `All ${what}. `,
      this.truncated ? "There are more facts between neighbours than are shown." : "");
  }

  async expand(name) {
    await this.work(async () => {
      const room = MAX_NODES - this.nodes.size;
      if (room <= 0) throw new Error(`The drawing has ${number(MAX_NODES)} entities, which is the maximum.`);
      const relation = this.filter.value; // it may change before the answer comes
      const found = await fetchJson("/v1/neighbourhood", {}, {
        name, top: Math.min(NUM_EXPANDED, room), shown: [...this.nodes.keys()], model: this.model, relation: relation || null,
      });
      this.merge(name, found, relation);
    });
  }

  async predict(name) {
    await this.work(async () => {
      const wanted = this.filter.value;
      const pairs = wanted ? [`out ${wanted}`, `in ${wanted}`] : await relationPairs(name, this.model);
      const groups = await predictPairs(name, this.model, pairs);
      const ranked = groups.flatMap(({ predictions }) => predictions.map((each, i) => ({ ...each, rank: i + 1 })));
      const best = ranked.sort((a, b) => (b.probability ?? -b.rank) - (a.probability ?? -a.rank)).slice(0, NUM_PREDICTED);
      for (const fact of best) if (!this.facts.has(keyOf(fact))) this.facts.set(keyOf(fact), fact);
      const names = new Set(best.flatMap(({ head, tail }) => [head, tail]));
      this.place(name, [...names].map((each) => ({ name: each, facts: 0 })));
      this.update(name);
      this.meaning.replaceChildren(best.some((fact) => fact.probability !== null) ? `, with its probability: ${PROBABILITY_NOTE}` : ", with its rank among the answers to its question");
      if (!best.length) throw new Error("The model has no prediction for it.");
    });
  }

  // One request at a time; an error is shown with the status.
  async work(call) {
    if (this.busy) return;
    this.busy = true;
    this.side.setAttribute("aria-busy", "true");
    try {
      await call();
    } catch (error) {
      this.status.replaceChildren(error.message);
    } finally {
      this.busy = false;
      this.side.removeAttribute("aria-busy");
    }
  }

  // --- view ---------------------------------------------------------------------------------------

  // The box of all positions with room for names. Cytoscape's own would measure every name, which takes long.
  box() {
    const places = [...this.nodes.values()];
    const [xs, ys] = [places.map(({ x }) => x), places.map(({ y }) => y)];
    return { x1: Math.min(...xs) - 80, x2: Math.max(...xs) + 80, y1: Math.min(...ys) - 25, y2: Math.max(...ys) + 40 };
  }

  // The view that shows everything.
  fitted() {
    const { x1, x2, y1, y2 } = this.box();
    const { clientWidth: width, clientHeight: height } = this.frame;
    const zoom = Math.min(MAX_FITTED, width / (x2 - x1), height / (y2 - y1));
    return { zoom, pan: { x: width / 2 - zoom * (x1 + x2) / 2, y: height / 2 - zoom * (y1 + y2) / 2 } };
  }

  fit() { this.cy.viewport(this.fitted()); }

  // Move the view, but no entity, if something was added outside of it.
  showAll() {
    const [view, all] = [this.cy.extent(), this.box()];
    if (all.x1 < view.x1 || all.x2 > view.x2 || all.y1 < view.y1 || all.y2 > view.y2) this.fit();
  }

  zoom(factor) { this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: this.frame.clientWidth / 2, y: this.frame.clientHeight / 2 } }); }

  fillFilter() {
    const counts = new Map(this.relations?.map(({ relation, facts }) => [relation, facts]));
    for (const { relation } of this.facts.values()) if (!counts.has(relation)) counts.set(relation, null);
    const chosen = this.filter.value;
    this.filter.replaceChildren(el("option", { value: "" }, "all relations"), ...[...counts].map(([relation, facts]) =>
      el("option", { value: relation, selected: relation === chosen }, short(relation, 40) + (facts ? ` (${number(facts)})` : ""))));
  }

  // Draw the facts of one relation, with their entities. Neighbours through it that are not there yet are added.
  applyFilter() {
    const wanted = this.filter.value;
    const { neighbours, drawn } = this.counts(this.centre, "");
    this.select(this.centre);
    this.say();
    if (!this.counts(this.centre) && drawn < neighbours && this.relations.some(({ relation }) => relation === wanted)) this.expand(this.centre);
  }

  select(name, isDrawn = false) {
    this.list.value = name;
    if (!isDrawn) this.draw();
    this.cy.batch(() => {
      this.cy.$(":selected").unselect();
      this.cy.$(".near").removeClass("near");
      const node = this.cy.getElementById(name);
      node.select();
      const edges = node.connectedEdges();
      if (edges.length <= MAX_NEAR) edges.addClass("near"); // more would hide each other
    });
    declutter(this.cy);
    const own = [...this.facts.values()].filter((fact) => fact.head === name || fact.tail === name);
    const { facts } = this.nodes.get(name);
    const counts = this.counts(name);
    const more = counts ? counts.neighbours - counts.drawn : 0;
    const drawn = `${plural(own.filter((fact) => fact.known).length, "known fact")} drawn`;
    this.details.replaceChildren(
      el("h2", {}, entityLink(name)),
      el("p", { class: "muted" }, drawn, facts ? ` of ${number(facts)}` : "", more ? `; ${plural(more, "neighbour")} more` : ""),
      el("p", { class: "row" },
        el("button", { type: "button", disabled: counts !== null && !more, onclick: () => this.expand(name) }, "Expand"),
        el("button", { type: "button", onclick: () => this.predict(name) }, "Predict")),
      el("ul", { class: "drawn-facts" }, own.toSorted((a, b) => Boolean(a.known) - Boolean(b.known)).slice(0, NUM_LISTED)
        .map((fact) => this.factItem(fact, name))),
      own.length > NUM_LISTED ? el("p", { class: "muted" }, `and ${number(own.length - NUM_LISTED)} more`) : "");
  }

  factItem(fact, name) {
    const other = fact.head === name ? fact.tail : fact.head;
    const arrow = fact.head === name ? "→" : "←";
    const words = `${short(fact.relation)} ${arrow} ${short(other)}`;
    const link = !fact.known && this.info.K !== null ? to("why", fact.head, fact.relation, fact.tail) : to("entity", other);
    return el("li", { class: fact.known ? null : "guess" }, el("a", { href: link }, words),
      !fact.known && el("span", { class: "value", title: fact.probability === null ? null : PROBABILITY_NOTE }, ` ${sureness(fact)}`));
  }

  save() {
    const text = new XMLSerializer().serializeToString(svgOf(this.cy, `Neighbourhood of ${short(this.centre, 200)}`));
    saveFile(text, `${this.centre.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 80)}.svg`, "image/svg+xml");
  }
}

const keyOf = ({ head, relation, tail }) => JSON.stringify([head, relation, tail]);
const sureness = (fact) => fact.probability === null ? `rank ${fact.rank}` : formatProbability(fact.probability);
const edgeLabel = (fact) => short(fact.relation, 28) + (fact.known ? "" : ` ${sureness(fact)}`);

// --- appearance -----------------------------------------------------------------------------------

// isLarge: names have no background, which would take long to measure and is not seen before zooming in.
function drawingStyle(isLarge) {
  const page = getComputedStyle(document.documentElement);
  const colour = (name) => page.getPropertyValue(`--${name}`).trim();
  const text = { "font-family": page.fontFamily, color: colour("ink") };
  const background = { "text-background-color": colour("card"), "text-background-opacity": 0.85, "text-background-padding": 2 };
  const labelled = { ...text, ...background, label: "data(label)", "font-size": 10, "text-rotation": "autorotate", "min-zoomed-font-size": 8 };
  const line = (name) => ({ "line-color": colour(name), "target-arrow-color": colour(name) });
  return [
    { selector: "node", style: { ...text, ...(isLarge ? {} : background), width: "data(size)", height: "data(size)", "background-color": colour("card"), "border-width": 2, "border-color": colour("accent"),
      label: "data(label)", "font-size": STRETCH === 1 ? 15 : 12, "text-valign": "bottom", "text-margin-y": 3, "min-zoomed-font-size": 7 } },
    { selector: "node.centre", style: { ...background, "background-color": colour("accent"), "font-weight": 600, "font-size": 14, "min-zoomed-font-size": 0 } },
    { selector: "edge", style: { width: 1.2, ...line("accent-light"), "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "straight" } },
    { selector: ".parallel", style: { "curve-style": "bezier" } },
    { selector: ".between", style: { width: 1, "line-opacity": 0.45 } },
    { selector: ".near", style: { ...labelled, ...line("accent"), width: 2 } },
    { selector: ".guess", style: { ...labelled, ...line("guess"), width: 2, "line-style": "dashed", color: colour("guess-ink") } },
    { selector: ".mute", style: { label: "" } },
    { selector: ".hover", style: { ...labelled, width: 2.5, "z-index": 3 } },
    { selector: "node:selected", style: { "border-width": 4, "font-weight": 600, "min-zoomed-font-size": 0, "z-index": 3 } },
    { selector: "core", style: { "active-bg-opacity": 0 } },
  ];
}

// Of the labels of edges that would overlap each other or a name, only the first is shown; pointing at an edge shows its own.
function declutter(cy) {
  const taken = cy.nodes().toArray().flatMap((node) => {
    const { x, y } = node.position();
    const below = y + node.height() / 2 + 9;
    return [{ x, y }, ...alongText(node.data("label"), { x, y: below }, 0, 6.5)];
  });
  cy.edges(".guess").union(cy.edges(".near")).forEach((edge) => {
    const points = alongText(edge.data("label"), edge.midpoint(), angleOf(edge), 5.5);
    const isFree = points.every((one) => taken.every((other) => Math.hypot(one.x - other.x, one.y - other.y) > LINE));
    edge.toggleClass("mute", !isFree);
    if (isFree) taken.push(...points);
  });
}

const LINE = 12; // the height of a line of text, and the distance of the points along it
const angleOf = (edge) => {
  const [from, to] = [edge.source().position(), edge.target().position()];
  return Math.atan((to.y - from.y) / (to.x - from.x || 1e-9));
};

// Points along a text around its middle.
function alongText(text, { x, y }, angle, letter) {
  const half = text.length * letter / 2;
  const count = Math.max(1, Math.ceil(2 * half / LINE));
  return Array.from({ length: count + 1 }, (_, i) => (2 * i / count - 1) * half).map((at) => ({ x: x + at * Math.cos(angle), y: y + at * Math.sin(angle) }));
}

// The drawing as it is shown, with its colours, so that the file needs no style sheet.
function svgOf(cy, title) {
  const shown = cy.elements();
  const box = shown.boundingBox();
  const pad = 20;
  const font = getComputedStyle(document.documentElement).fontFamily;
  const card = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const label = (element, { x, y }, anchor, turn = 0) => element.style("label") && svg("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": "middle", "dominant-baseline": anchor,
    transform: turn ? `rotate(${(180 * turn / Math.PI).toFixed(1)} ${at({ x, y })})` : null,
    "font-size": parseFloat(element.style("font-size")), "font-weight": element.style("font-weight"), fill: element.style("color"), stroke: card, "stroke-width": 3, "paint-order": "stroke" }, element.style("label"));
  const edges = shown.edges().map((edge) => {
    const [from, end, bend] = [edge.sourceEndpoint(), edge.targetEndpoint(), edge.controlPoints()?.[0]];
    const [colour, before] = [edge.style("line-color"), bend ?? from];
    const angle = Math.atan2(end.y - before.y, end.x - before.x);
    const corner = (turn) => at({ x: end.x - 7 * Math.cos(angle + turn), y: end.y - 7 * Math.sin(angle + turn) });
    return svg("g", {}, svg("title", {}, edge.data("label")),
      svg("path", { d: `M${at(from)}${bend ? `Q${at(bend)} ` : "L"}${at(end)}`, fill: "none", stroke: colour, "stroke-width": parseFloat(edge.style("width")), "stroke-dasharray": edge.hasClass("guess") ? "6 4" : null }),
      svg("path", { d: `M${at(end)}L${corner(0.4)}L${corner(-0.4)}z`, fill: colour }),
      label(edge, edge.midpoint(), "middle", angleOf(edge)));
  });
  const nodes = shown.nodes().map((node) => {
    const { x, y } = node.position();
    return svg("g", {}, svg("title", {}, node.id()),
      svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: (node.width() / 2).toFixed(1), fill: node.style("background-color"), stroke: node.style("border-color"), "stroke-width": parseFloat(node.style("border-width")) }),
      label(node, { x, y: y + node.height() / 2 + 5 }, "hanging"));
  });
  const [width, height] = [box.w + 2 * pad, box.h + 2 * pad];
  return svg("svg", { viewBox: `${(box.x1 - pad).toFixed(1)} ${(box.y1 - pad).toFixed(1)} ${width.toFixed(1)} ${height.toFixed(1)}`, width: width.toFixed(0), height: height.toFixed(0), "font-family": font },
    svg("title", {}, title), svg("rect", { x: (box.x1 - pad).toFixed(1), y: (box.y1 - pad).toFixed(1), width: width.toFixed(1), height: height.toFixed(1), fill: card }), edges, nodes);
}
