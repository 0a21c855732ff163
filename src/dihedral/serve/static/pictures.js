// SVG figures: the elements of D_K, the paths that support a triple, the facts of an answer, and training curves.

import { el, formatProbability, formatShare, number, percent, plural, short, svg } from "./dom.js";

// --- elements of D_K -------------------------------------------------------------------------------

const SIZES = { "½": 1 / 2, "¼": 1 / 4, "⅛": 1 / 8 };

// "O4^1" is the rotation by a quarter turn, "F4^0·½" the reflection across the first axis at half size, "0" is zero.
function readElement(name) {
  if (name === "0") return { reflects: false, K: 4, m: 0, size: 0 };
  const [, letter, K, m, level] = name.match(/^([OF])(\d+)\^(\d+)(?:·(.+))?$/);
  const size = level === undefined ? 1 : SIZES[level] ?? 1 / Number(level.split("/")[1]);
  return { reflects: letter === "F", K: Number(K), m: Number(m), size };
}

export function elementTitle(name) {
  const { reflects, K, m, size } = readElement(name);
  if (size === 0) return "not concerned";
  const level = name.split("·")[1];
  const degrees = Math.round((reflects ? 180 : 360) * m / K * 10) / 10;
  const turn = m === 0 ? "identity" : `rotation by ${degrees}°`;
  return (reflects ? `reflection at ${degrees}°` : turn) + (level ? `, ${level}` : "");
}

// A polygon with the letter F in it, transformed by the element; a reflection shows its axis. A graded element has the
// area of its size, and zero is an empty outline.
export function symmetry(name, pixels = 34) {
  const { reflects, K, m, size } = readElement(name);
  const angle = 2 * Math.PI * m / K;
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  // the matrix of Eq. 1, with the y axis pointing down as on the screen
  const moved = reflects ? [c, -s, -s, -c] : [c, -s, s, c];
  const corners = Array.from({ length: Math.max(K, 3) }, (_, i) => {
    const turn = 2 * Math.PI * i / Math.max(K, 3) + (K % 4 === 0 ? Math.PI / K : Math.PI / 2);
    return `${(15 * Math.cos(turn)).toFixed(2)},${(-15 * Math.sin(turn)).toFixed(2)}`;
  });
  const half = angle / 2;
  const axis = reflects && svg("line", { class: "axis", x1: -15 * Math.cos(half), y1: 15 * Math.sin(half),
    x2: 15 * Math.cos(half), y2: -15 * Math.sin(half) });
  const frame = { class: "symmetry", viewBox: "-15.5 -15.5 31 31", width: pixels, height: pixels, role: "img",
    "aria-label": elementTitle(name) };
  const title = svg("title", {}, elementTitle(name));
  if (size === 0) return svg("svg", frame, title, svg("polygon", { class: "shape absent", points: corners.join(" ") }));
  return svg("svg", frame, title, svg("g", { transform: `scale(${Math.sqrt(size).toFixed(4)})` },
    svg("polygon", { class: "shape", points: corners.join(" ") }),
    axis,
    svg("g", { transform: `matrix(${moved.map((x) => x.toFixed(4)).join(" ")} 0 0)` },
      svg("path", { class: "flag", d: "M-4.5 7.5V-7.5H5.5M-4.5 -1H3" }))));
}

// One row per element of D_K: its symmetry, its name, a bar and the count. The graded forms of an element are parts of
// its bar that fade with their size; zero comes last.
export function elementBars(elements) {
  const rows = new Map();
  for (const [name, count] of Object.entries(elements)) {
    const element = name.split("·")[0];
    rows.set(element, [...(rows.get(element) ?? []), { name, count, size: readElement(name).size }]);
  }
  const order = [...rows].sort(([a], [b]) => (a === "0") - (b === "0"));
  const sum = (parts) => parts.reduce((total, part) => total + part.count, 0);
  const maxCount = Math.max(1, ...order.map(([, parts]) => sum(parts)));
  const total = order.reduce((all, [, parts]) => all + sum(parts), 0);
  return el("ol", { class: "elements" }, order.map(([element, parts]) => {
    const { reflects } = readElement(element);
    const used = parts.filter((part) => part.count > 0).sort((a, b) => b.size - a.size);
    const graded = used.length > 1 ? ` (${used.map((part) => `${part.count} of size ${part.size}`).join(", ")})` : "";
    let x = 0;
    const bars = used.map((part) => {
      const width = 100 * part.count / maxCount;
      x += width;
      return svg("rect", { class: element === "0" ? "zero" : reflects ? "mirror" : "turn", x: x - width, y: 0, width,
        height: 12, opacity: element === "0" ? 1 : 0.25 + 0.75 * part.size });
    });
    return el("li", { title: `${elementTitle(element)}: ${sum(parts)} of ${total} components${graded}` },
      symmetry(element),
      el("span", { class: "element-name" }, elementTitle(element), el("small", {}, element)),
      svg("svg", { class: "element-bar", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "track", x: 0, y: 0, width: 100, height: 12 }), bars),
      el("span", { class: "count" }, number(sum(parts))));
  }));
}

// How many components have which size, such as "Of 32 components, 5 zero, 7 half size, 20 full size."
export function sizesText(components) {
  const sizes = components.map((name) => readElement(name).size);
  const count = (wanted) => sizes.filter((size) => size === wanted).length;
  const [zero, half, full] = [0, 0.5, 1].map(count);
  if (full === sizes.length) return `All ${plural(full, "component")} have full size.`;
  const smaller = sizes.length - zero - half - full;
  return `Of ${plural(sizes.length, "component")}: ${number(zero)} zero, ${smaller ? `${number(smaller)} smaller than half, ` : ""}${number(half)} half size, ${number(full)} full size.`;
}

// How many of the strongest components carry most of the scores.
export function carriedText(carried, share = 0.8) {
  const sorted = carried.toSorted((a, b) => b - a);
  let sum = 0;
  const count = sorted.findIndex((value) => (sum += value) >= share - 1e-4) + 1;
  return count > 0 ? `The ${number(count)} strongest carry ${percent(share)} of the scores of its facts.` : "";
}

// One bar per component, in order: its height is what it carries, its colour the kind of its element, paler if smaller.
export function componentBars(components, carried) {
  const most = Math.max(...carried, 1e-9);
  const bars = components.map((name, i) => {
    const { reflects, size } = readElement(name);
    const height = size === 0 ? 2 : Math.max(1, 40 * carried[i] / most);
    return svg("rect", { class: size === 0 ? "zero" : reflects ? "mirror" : "turn", x: i + 0.1, y: 40 - height, width: 0.8, height,
      opacity: size === 0 ? null : 0.25 + 0.75 * size },
      svg("title", {}, `component ${i + 1}: ${elementTitle(name)}, carries ${(100 * carried[i]).toFixed(1)} %`));
  });
  return svg("svg", { class: "components", viewBox: `0 0 ${components.length} 40`, preserveAspectRatio: "none", role: "img",
    "aria-label": `What each of the ${plural(components.length, "component")} carries. ${sizesText(components)}` }, bars);
}

// --- paths that support a triple -----------------------------------------------------------------

const LANE = 84;
let graphs = 0; // for the names of markers: those of a hidden graph are not drawn

// Head on the left, tail on the right, the explained edge on top (dashed if predicted), and one lane per path below.
export function explanationGraph(found, linkOf) {
  const frame = el("div", { class: "graph" });
  const draw = () => {
    const width = Math.max(280, frame.clientWidth || 720);
    frame.replaceChildren(graphAt(found, linkOf, width));
  };
  new ResizeObserver(draw).observe(frame);
  return frame;
}

function graphAt(found, linkOf, width) {
  const height = 40 + (found.paths.length + 1) * LANE;
  const inset = Math.min(110, width * 0.15);
  const laneY = (lane) => 46 + lane * LANE;
  const { paths, level } = lanesOf(found.paths);
  const y = level > 0 ? laneY(level) : paths.length ? height / 2 : laneY(0.6);
  const [left, right, centre] = [{ x: inset, y }, { x: width - inset, y }, width / 2];
  const letters = Math.max(8, Math.floor((width - 2 * inset) / 2 / 7.2) - 2);
  const narrow = width < 560; // edges bend near their ends, so that labels lie on horizontal parts
  const id = `explanation-${++graphs}`;
  const explained = edge(left, right, laneY(0), short(found.relation, 2 * letters), found.known ? "known" : "guess", found.relation, id);
  const drawn = paths.flatMap((path, i) => {
    const steps = path.relations.length;
    const single = steps === 1;
    const y = laneY(i + 1);
    const inner = Array.from({ length: steps - 1 }, (_, n) => ({ x: left.x + (right.x - left.x) * (n + 1) / steps, y }));
    const text = path.share === null ? `holds for ${formatShare(path.confidence)}` : `adds ${path.share.toFixed(2)}`;
    const share = svg("text", { class: "share", x: centre, y: y + (single ? 18 : 38), "text-anchor": "middle" }, text);
    const places = [left, ...inner, right];
    const room = Math.max(5, Math.floor(2 * (letters + 2) / steps) - 2);
    const edges = path.relations.map((step, n) => edge(places[n], places[n + 1], single || narrow || (n > 0 && n < steps - 1) ? y : null,
      stepLabel(step, room), "fact", step, id));
    return [...edges, share, inner.map((at, n) => node(at, path.entities[n + 1], linkOf, steps === 2 ? room + 4 : Math.floor(room * 0.7), "between"))];
  });
  const description = `${plural(found.paths.length, "path")} of known facts from ${found.head} to ${found.tail}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": description },
    arrows(id), explained, drawn, node(left, found.head, linkOf, Math.floor(inset / 4.8), "end"), node(right, found.tail, linkOf, Math.floor(inset / 4.8), "end"));
}

const arrows = (id) => svg("defs", {}, ["known", "guess"].map((kind) =>
  svg("marker", { id: `${id}-${kind}`, class: kind, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7,
    orient: "auto-start-reverse" }, svg("path", { d: "M0 1 10 5 0 9z" }))));

// A path of one step is a straight line, with the others above and below it. `level` is its lane, or 0 without one.
function lanesOf(paths) {
  const [single, ...more] = paths.filter((path) => path.relations.length === 1);
  const others = paths.filter((path) => path.relations.length > 1);
  if (!single) return { paths: others, level: 0 };
  const above = Math.floor(others.length / 2);
  return { paths: [...others.slice(0, above), single, ...others.slice(above), ...more], level: above + 1 };
}

// The direction of a fact is shown beside its label, since many edges meet at the ends.
const stepLabel = (step, letters) => step.startsWith("~") ? `← ${short(step.slice(1), letters - 1)}` : `${short(step, letters - 1)} →`;

// An edge between two nodes, direct or along the height `by`.
function edge(from, to, by, label, kind, step, id) {
  const gap = 13;
  const at = { x: (from.x + to.x) / 2, y: by ?? (from.y + to.y) / 2 };
  let d;
  if (by === null) {
    const steer = (to.x - from.x) * 0.45;
    d = `M${from.x + gap} ${from.y}C${from.x + steer} ${from.y} ${to.x - steer} ${to.y} ${to.x - gap} ${to.y}`;
  } else if (kind !== "fact") { // the explained edge runs above the paths
    const steer = Math.min(120, (to.x - from.x) * 0.3);
    d = `M${from.x} ${from.y - gap}C${from.x} ${by} ${from.x + steer / 2} ${by} ${from.x + steer} ${by}` +
      `L${to.x - steer} ${by}C${to.x - steer / 2} ${by} ${to.x} ${by} ${to.x} ${to.y - gap}`;
  } else {
    const bend = Math.min(90, (to.x - from.x) * 0.2);
    const [x, end] = [from.x + gap, to.x - gap];
    d = `M${x} ${from.y}` + (from.y === by ? "" : `C${x + bend} ${from.y} ${x} ${by} ${x + bend} ${by}`) +
      (to.y === by ? `L${end} ${by}` : `L${end - bend} ${by}C${end} ${by} ${end - bend} ${to.y} ${end} ${to.y}`);
  }
  const arrow = kind === "fact" ? {} : { "marker-end": `url(#${id}-${kind})` };
  return svg("g", { class: `edge ${kind}` }, svg("title", {}, step), svg("path", { d, ...arrow }),
    svg("text", { x: at.x, y: at.y - 8, "text-anchor": "middle" }, label));
}

function node(at, name, linkOf, letters, kind) {
  return svg("a", { class: `node ${kind}`, href: linkOf(name) }, svg("title", {}, name),
    svg("rect", { class: "hit", x: at.x - 34, y: at.y - 14, width: 68, height: 44 }),
    svg("circle", { cx: at.x, cy: at.y, r: kind === "end" ? 10 : 7 }),
    svg("text", { x: at.x, y: at.y + (kind === "end" ? 27 : 23), "text-anchor": "middle" }, short(name, letters)));
}

// --- the facts of an answer -----------------------------------------------------------------------

// The answer at the end, each entity as many steps before it as there are facts between: from left to right, or from
// top to bottom where that is too narrow.
export function witnessGraph(answer, linkOf) {
  const frame = el("div", { class: "graph" });
  new ResizeObserver(() => {
    if (frame.clientWidth) frame.replaceChildren(witnessAt(answer, linkOf, frame.clientWidth));
  }).observe(frame);
  return frame;
}

const INSET = 120;

function stepsBefore(answer) {
  const steps = new Map([[answer.entity, 0]]);
  for (const [name, count] of steps) { // a map also visits what is added meanwhile
    for (const { head, tail } of answer.facts) {
      if (head === name && !steps.has(tail)) steps.set(tail, count + 1);
      if (tail === name && !steps.has(head)) steps.set(head, count + 1);
    }
  }
  for (const { head, tail } of answer.facts) for (const name of [head, tail]) if (!steps.has(name)) steps.set(name, 1);
  return steps;
}

function witnessAt(answer, linkOf, width) {
  const layers = Map.groupBy(stepsBefore(answer), ([, count]) => count);
  const [depth, most] = [Math.max(...layers.keys()), Math.max(...[...layers.values()].map((layer) => layer.length))];
  const upright = width < 200 * depth + 2 * INSET;
  const height = upright ? 70 + depth * 110 : 50 + most * 70;
  const along = (count) => upright ? 24 + (depth - count) * 110 : depth ? INSET + (depth - count) * (width - 2 * INSET) / depth : width / 2;
  const across = (i, size) => (upright ? width : height - 20) * (i + 0.5) / size;
  const places = new Map([...layers].flatMap(([count, layer]) => layer.map(([name], i) =>
    [name, upright ? { x: across(i, layer.length), y: along(count) } : { x: along(count), y: across(i, layer.length) }])));
  const letters = Math.max(8, Math.floor((upright ? width / most : (width - 2 * INSET) / Math.max(depth, 1) - 40) / 7.6));
  const nodeLetters = upright ? letters : Math.min(letters + 5, Math.floor(2 * INSET / 8));
  const pairs = Map.groupBy(answer.facts, ({ head, tail }) => [head, tail].toSorted().join("\n"));
  const id = `witness-${++graphs}`;
  const edges = [...pairs.values()].flatMap((facts) => facts.map((fact, i) => witnessEdge(fact, places, i - (facts.length - 1) / 2, letters, id)));
  const description = answer.facts.map((fact) => `${fact.head} ${fact.relation} ${fact.tail}: ${sureness(fact)}`).join("; ");
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": description },
    arrows(id), edges, [...places].map(([name, at]) => node(at, name, linkOf, nodeLetters, name === answer.entity ? "end" : "between")));
}

const sureness = (fact) => fact.known ? "known" : fact.probability === null ? "predicted" : formatProbability(fact.probability);

// An edge from head to tail; several edges between the same entities bend apart by `lane`.
function witnessEdge(fact, places, lane, letters, id) {
  const [from, to] = [places.get(fact.head), places.get(fact.tail)];
  const [x, y] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(x, y);
  const kind = fact.known ? "known" : "guess";
  const label = short(fact.relation, letters) + (fact.known ? "" : ` (${sureness(fact)})`);
  if (!length) return svg("text", { class: "edge", x: from.x, y: from.y - 16, "text-anchor": "middle" }, label); // a fact about itself
  const side = fact.head < fact.tail ? 1 : -1; // so that lanes do not depend on the direction of the fact
  const bend = { x: (from.x + to.x) / 2 - side * lane * 60 * y / length, y: (from.y + to.y) / 2 + side * lane * 60 * x / length };
  const t = 0.5 + (Math.abs(y) > Math.abs(x) ? 0.2 * side * lane : 0); // labels of steep lanes lie below each other
  const along = (axis) => (1 - t) ** 2 * from[axis] + 2 * t * (1 - t) * bend[axis] + t ** 2 * to[axis];
  const at = { x: along("x"), y: along("y") };
  const cut = (end) => { // where the edge leaves a node: below it, its name is in the way
    const distance = Math.hypot(bend.x - end.x, bend.y - end.y) || 1;
    const [dx, dy] = [(bend.x - end.x) / distance, (bend.y - end.y) / distance];
    const gap = dy > 0.5 ? 34 : 14;
    return `${end.x + gap * dx} ${end.y + gap * dy}`;
  };
  return svg("g", { class: `edge ${kind}` }, svg("title", {}, `${fact.head} ${fact.relation} ${fact.tail}: ${sureness(fact)}`),
    svg("path", { d: `M${cut(from)}Q${bend.x} ${bend.y} ${cut(to)}`, "marker-end": `url(#${id}-${kind})` }),
    svg("text", { x: at.x, y: at.y - 8, "text-anchor": "middle" }, label));
}

// --- training curves ----------------------------------------------------------------------------

export function curve(rows, key, title, kind) {
  const points = rows.filter((row) => typeof row[key] === "number" && typeof row.epoch === "number");
  if (points.length < 2) return null;
  const [width, height, pad] = [440, 190, { left: 46, right: 12, top: 14, bottom: 30 }];
  const values = points.map((row) => row[key]);
  const [low, high] = [key === "loss" ? Math.min(...values) : 0, Math.max(...values)];
  const last = points.at(-1).epoch;
  const x = (epoch) => pad.left + (width - pad.left - pad.right) * epoch / last;
  const y = (value) => height - pad.bottom - (height - pad.top - pad.bottom) * (value - low) / (high - low || 1);
  const digits = high < 2 ? 2 : 1;
  return el("figure", { class: "curve" },
    el("figcaption", {}, title, el("strong", {}, values.at(-1).toFixed(high < 2 ? 3 : 2))),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} by epoch, last value ${values.at(-1)}` },
      [low, (low + high) / 2, high].map((value) => [
        svg("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: y(value), y2: y(value) }),
        svg("text", { x: pad.left - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(digits)),
      ]),
      svg("text", { x: pad.left, y: height - 8 }, "0"),
      svg("text", { x: width - pad.right, y: height - 8, "text-anchor": "end" }, `epoch ${last}`),
      svg("polyline", { class: kind, points: points.map((row) => `${x(row.epoch).toFixed(1)},${y(row[key]).toFixed(1)}`).join(" ") }),
      points.length <= 40 && points.map((row) => svg("circle", { class: kind, cx: x(row.epoch), cy: y(row[key]), r: 2.4 },
        svg("title", {}, `epoch ${row.epoch}: ${row[key]}`)))));
}

export const shareText = (share) => `${percent(share.share)} of components, ${percent(share.chance)} by chance; kappa ${share.kappa.toFixed(2)}, p ${share.p < 0.001 ? "< 0.001" : `= ${share.p.toFixed(3)}`}`;
