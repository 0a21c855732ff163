// The map: entities in two dimensions, drawn as pixels, so that 50,000 of them move smoothly.

import { fetchJson } from "./api.js";
import { el, idOf, number, plural, short } from "./dom.js";
import { to } from "./routes.js";

const MAX_FOUND = 12; // matches that are listed
const MAX_ZOOM = 200;
const METHODS = { pca: "PCA", umap: "UMAP" };
// distinct in light and dark mode, also with weak colour vision (Okabe and Ito); the last is for all other types
const TYPE_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f6fc7", "#a3a31d"];
const OTHER = "#8a949c";
const DEGREE_COLOURS = { light: ["#b9d3e8", "#86b3d8", "#4f8fc4", "#2b6ca3", "#123f66"], dark: ["#274a66", "#3d6f98", "#5b97c7", "#8cc0e8", "#d3eafc"] };

export async function mapPage([method], model) {
  const found = await fetchJson("/v1/map", { model, method: method ?? "pca" });
  const map = new EntityMap(found);
  const methods = found.methods.length > 1 && el("select", { "aria-label": "Method", onchange: (event) => { location.hash = to("map", event.target.value); } },
    found.methods.map((each) => el("option", { value: each, selected: each === found.method }, METHODS[each])));
  return {
    title: "Map",
    content: [
      el("div", { class: "title" }, el("h1", {}, "Map of entities"), el("p", { class: "muted" }, meaning(found))),
      el("div", { class: "row controls" }, map.search, map.colours, methods,
        el("button", { type: "button", class: "quiet", onclick: () => map.reset() }, "Show all"),
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom in", onclick: () => map.zoom(1.5) }, "+"),
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom out", onclick: () => map.zoom(1 / 1.5) }, "−")),
      el("div", { class: "neighbourhood" }, map.frame, el("div", { class: "side" }, map.status, map.list, map.legend)),
    ],
  };
}

function meaning({ names, total, variance, method }) {
  const all = plural(total, "entity", "entities");
  const which = names.length < total ? `The ${number(names.length)} of ${all} with the most facts. ` : `${all}. `;
  if (method === "umap") {
    return `${which}UMAP keeps near entities together; distances between groups, directions and axes mean nothing.`;
  }
  const [x, y] = variance.map((share) => Math.round(100 * share));
  return `${which}The two axes hold ${x} % and ${y} % of the variance between entities (PCA). ` +
    `The other ${100 - x - y} % is not shown, so entities that look close on the map may be far apart.`;
}

class EntityMap {
  constructor(found) {
    Object.assign(this, { found, view: { x: 0, y: 0, scale: 1 }, matches: [], hovered: -1, pointers: new Map(), frameAsked: false });
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `Map of ${plural(found.names.length, "entity", "entities")}. Arrow keys move it, plus and minus zoom. Search to list entities.` });
    this.tip = el("div", { class: "tip", hidden: true });
    this.frame = el("div", { class: "drawing map" }, this.canvas, this.tip);
    this.search = el("input", { type: "search", placeholder: "Find on the map", "aria-label": "Find entities on the map", autocomplete: "off", oninput: () => this.find(this.search.value) });
    this.colours = el("select", { "aria-label": "Colour", onchange: () => this.colour() },
      found.types.length > 0 && el("option", { value: "type" }, "colour: type"), el("option", { value: "degree" }, "colour: facts"));
    this.status = el("p", { class: "muted", role: "status" }, "Search, or point at the map. A click opens the entity.");
    this.list = el("ul", { class: "found" });
    this.legend = el("ul", { class: "map-legend" });
    this.texts = null; // made by the first search
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.listen();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); this.pointers.set(event.pointerId, at(event)); this.moved = 0; });
    canvas.addEventListener("pointermove", (event) => this.pointerMoved(event));
    canvas.addEventListener("pointerup", (event) => {
      const isClick = this.pointers.size === 1 && this.moved < 6;
      this.pointers.delete(event.pointerId);
      const index = isClick ? this.nearest(at(event)) : -1;
      if (index >= 0) location.hash = to("entity", this.found.names[index]);
    });
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(1.0015 ** -event.deltaY, at(event)); }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
      if (steps[event.key]) this.move(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.5);
      else if (event.key === "-") this.zoom(1 / 1.5);
      else if (event.key === "0") this.reset();
      else return;
      event.preventDefault();
    });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => this.colour();
    scheme.addEventListener("change", recolour);
    window.addEventListener("hashchange", () => scheme.removeEventListener("change", recolour), { once: true });
  }

  // One pointer moves the map, two zoom it.
  pointerMoved(event) {
    const now = at(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(this.nearest(now));
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.moved += Math.hypot(now.x - before.x, now.y - before.y);
    if (other) this.zoom(Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y)), other);
    else this.move(now.x - before.x, now.y - before.y);
  }

  // --- view ---------------------------------------------------------------------------------------

  resize() {
    const { clientWidth: width, clientHeight: height } = this.frame;
    if (!width) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    Object.assign(this, { width, height, ratio });
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    if (!this.colourOf) this.colour();
    this.draw();
  }

  // Pixels of the page from coordinates, and the other way round.
  get unit() { return 0.47 * Math.min(this.width, this.height) * this.view.scale; }

  place(index) {
    const { x, y } = this.found;
    return { x: this.width / 2 + (x[index] - this.view.x) * this.unit, y: this.height / 2 - (y[index] - this.view.y) * this.unit };
  }

  move(dx, dy) {
    this.view.x -= dx / this.unit;
    this.view.y += dy / this.unit;
    this.redraw();
  }

  zoom(factor, around = { x: this.width / 2, y: this.height / 2 }) {
    const scale = Math.min(MAX_ZOOM, Math.max(0.5, this.view.scale * factor));
    const [dx, dy] = [around.x - this.width / 2, around.y - this.height / 2];
    const change = 1 / this.unit - this.view.scale / scale / this.unit;
    Object.assign(this.view, { x: this.view.x + dx * change, y: this.view.y - dy * change, scale });
    this.redraw();
  }

  reset() {
    Object.assign(this.view, { x: 0, y: 0, scale: 1 });
    this.redraw();
  }

  // --- colours ------------------------------------------------------------------------------------

  colour() {
    const { found } = this;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const page = getComputedStyle(document.documentElement);
    Object.assign(this, { ink: page.getPropertyValue("--ink").trim(), card: page.getPropertyValue("--card").trim(), accent: page.getPropertyValue("--guess").trim(), font: page.fontFamily });
    let entries;
    if (this.colours.value === "type") {
      entries = found.types.map(({ name, entities }, i) => [TYPE_COLOURS[i], short(name, 30), entities]);
      const others = found.type.filter((place) => place < 0).length;
      this.classes = found.type.map((place) => place < 0 ? found.types.length : place);
      entries.push([OTHER, "other or none", others]);
    } else {
      const levels = DEGREE_COLOURS[dark ? "dark" : "light"];
      const bounds = degreeBounds(found.facts, levels.length);
      this.classes = found.facts.map((count) => bounds.findLastIndex((bound) => count >= bound));
      entries = bounds.map((_, i) => [levels[i + levels.length - bounds.length], i + 1 < bounds.length ? `${number(bounds[i])} to ${number(bounds[i + 1] - 1)} facts` : `${number(bounds[i])} facts and more`, this.classes.filter((place) => place === i).length]);
    }
    this.colourOf = Uint32Array.from(entries, ([colour]) => pixel(colour));
    // entities with few facts first, so that those with many are on top
    this.order = Uint32Array.from(found.names, (_, i) => found.names.length - 1 - i);
    this.legend.replaceChildren(...entries.filter(([, , count]) => count).map(([colour, label, count]) => {
      const dot = el("span", { class: "dot-colour" });
      dot.style.background = colour;
      return el("li", {}, dot, el("span", { class: "name" }, label), el("span", { class: "count" }, number(count)));
    }));
    this.redraw();
  }

  // --- drawing ------------------------------------------------------------------------------------

  redraw() {
    if (this.frameAsked || !this.pixels) return;
    this.frameAsked = true;
    requestAnimationFrame(() => { this.frameAsked = false; this.draw(); });
  }

  draw() {
    const { pixels, found, ratio, view } = this;
    const [columns, rows] = [this.canvas.width, this.canvas.height];
    const size = Math.max(1, Math.round(ratio * Math.min(7, (found.names.length > 5000 ? 1.6 : 5) * view.scale ** 0.35)));
    const corner = size >= 4 ? Math.round(size / 4) : 0;
    const unit = this.unit * ratio;
    const [left, top] = [columns / 2 - view.x * unit - size / 2, rows / 2 + view.y * unit - size / 2];
    pixels.fill(0);
    for (const i of this.order) {
      const [x, y] = [Math.round(left + found.x[i] * unit), Math.round(top - found.y[i] * unit)];
      if (x < 0 || y < 0 || x + size > columns || y + size > rows) continue;
      const colour = this.colourOf[this.classes[i]];
      for (let row = 0; row < size; row++) {
        const cut = row === 0 || row === size - 1 ? corner : 0; // round corners
        const start = (y + row) * columns + x;
        pixels.fill(colour, start + cut, start + size - cut);
      }
    }
    this.context.putImageData(this.image, 0, 0);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.mark();
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.frame.dataset.drawn = "true";
  }

  // Rings around what was found, with the names of the first.
  mark() {
    const { context } = this;
    context.lineWidth = 2;
    context.strokeStyle = this.accent;
    this.matches.slice(0, 500).forEach((index, i) => {
      const { x, y } = this.place(index);
      context.beginPath();
      context.arc(x, y, 6, 0, 7);
      context.stroke();
      if (i < MAX_FOUND) this.write(short(this.found.names[index], 30), x + 9, y + 4);
    });
  }

  write(text, x, y) {
    const { context } = this;
    context.font = `12px ${this.font}`;
    context.lineWidth = 4;
    context.strokeStyle = this.card;
    context.strokeText(text, x, y);
    context.fillStyle = this.ink;
    context.fillText(text, x, y);
    context.lineWidth = 2;
    context.strokeStyle = this.accent;
  }

  // --- entities -----------------------------------------------------------------------------------

  nearest(point) {
    const reach = 10 / this.unit;
    const [x, y] = [this.view.x + (point.x - this.width / 2) / this.unit, this.view.y - (point.y - this.height / 2) / this.unit];
    let [best, distance] = [-1, reach ** 2];
    for (let i = 0; i < this.found.x.length; i++) {
      const [dx, dy] = [this.found.x[i] - x, this.found.y[i] - y];
      const here = dx * dx + dy * dy;
      if (here < distance) [best, distance] = [i, here];
    }
    return best;
  }

  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    this.tip.hidden = index < 0;
    this.canvas.style.cursor = index < 0 ? "" : "pointer";
    if (index < 0) return;
    const { x, y } = this.place(index);
    const name = this.found.names[index];
    this.tip.replaceChildren(short(name, 60), idOf(name) || "", el("small", {}, ` ${plural(this.found.facts[index], "fact")}`));
    this.tip.style.left = `${Math.min(x + 12, Math.max(0, this.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${Math.max(4, y - 34)}px`;
  }

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.texts ??= this.found.names.map((name) => `${name} ${short(name, 500)}`.toLowerCase());
    this.matches = [];
    if (words.length) this.texts.forEach((each, i) => { if (words.every((word) => each.includes(word))) this.matches.push(i); });
    this.status.replaceChildren(words.length ? `${plural(this.matches.length, "entity", "entities")} found${this.matches.length > MAX_FOUND ? `, the first ${MAX_FOUND} are listed` : ""}.` : "Search, or point at the map. A click opens the entity.");
    this.list.replaceChildren(...this.matches.slice(0, MAX_FOUND).map((index) => el("li", {},
      el("a", { href: to("entity", this.found.names[index]) }, short(this.found.names[index], 60), idOf(this.found.names[index])))));
    this.redraw();
  }
}

const at = ({ offsetX: x, offsetY: y }) => ({ x, y });

// "#rrggbb" as a pixel of an image, opaque.
function pixel(colour) {
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

// Lower bounds of classes by number of facts, which grow by a constant factor.
function degreeBounds(facts, count) {
  const most = facts.reduce((a, b) => Math.max(a, b), 1);
  const bounds = Array.from({ length: count }, (_, i) => Math.round(most ** (i / count)));
  return [...new Set([0, ...bounds.slice(1)])];
}
