// Pages for the group elements: the table of relations, one relation, and the composition calculator.

import { fetchJson } from "./api.js";
import { bar, el, idOf, intervalText, number, percent, plural, short, soft } from "./dom.js";
import { relationLink, relationStep } from "./entity.js";
import { carriedText, componentBars, elementBars, shareText, sizesText } from "./pictures.js";
import { to } from "./routes.js";

const NUM_FIRST_RELATIONS = 25;

const formula = (steps) => steps.map((step, i) => [i > 0 && " · ", relationStep(step)]);

// --- table of relations ------------------------------------------------------------------------

const COLUMNS = [
  { key: "name", title: "Relation", value: (row) => row.name.toLowerCase(), cell: (row) => relationLink(row.name) },
  { key: "facts", title: "Facts", value: (row) => -row.facts, cell: (row) => number(row.facts), kind: "number" },
  { key: "symmetry", title: "Symmetric", value: (row) => -rank(row.symmetry, row.mutual), cell: (row) => shareCell(row.symmetry, row.mutual) },
  { key: "skewness", title: "Skew", value: (row) => -rank(row.skewness, oneWay(row.mutual)), cell: (row) => shareCell(row.skewness, oneWay(row.mutual)) },
  { key: "inverse", title: "Inverse", value: (row) => -rank(row.inverses[0]?.agreement, row.inverses[0]?.counted), cell: inverseCell },
  { key: "composition", title: "Composition", value: (row) => -(row.composition?.confidence ?? -1), cell: compositionCell },
];

// A share is shown if it is significant and the graph has at least one pair for it, with the count in the graph.
const isShown = (share, counted) => share?.significant && counted?.support !== 0;
const rank = (share, counted) => isShown(share, counted) ? share.kappa : -1;
const oneWay = ({ support, pairs }) => ({ support: pairs - support, pairs });
const countText = (counted) => counted && `${percent(counted.support / counted.pairs)} of ${counted.interval ? "about " : ""}${number(counted.pairs)}`;

// Rules that the server has mined already; otherwise a button, because mining takes long and must not start unasked.
export function minedRules(place, params, show) {
  const ask = (mine) => fetchJson("/v1/rules", { ...params, mine }).then(
    (found) => (found.mined ? show(found.rules) : put(place, mineButton(place, () => ask(true)))),
    (error) => put(place, error.message));
  return ask(false);
}

const put = (place, content) => place.replaceChildren(place.matches("ul") ? el("li", {}, content) : content); // a list holds items only

const mineButton = (place, mine) => el("button", { type: "button", class: "quiet mine", onclick: () => { put(place, "mining rules …"); mine(); } }, "Mine rules");

const shareCell = (share, counted) => isShown(share, counted) && el("span", { class: "share", title: shareText(share) },
  bar(share.kappa), share.kappa.toFixed(2), el("small", {}, countText(counted)));

function inverseCell(row) {
  const [best] = row.inverses;
  return isShown(best?.agreement, best?.counted) && el("span", { title: shareText(best.agreement) }, relationLink(best.relation),
    el("small", {}, `${best.agreement.kappa.toFixed(2)} · ${countText(best.counted)}`));
}

function compositionCell(row) {
  if (row.symmetry === null) return null;
  const rule = row.composition;
  return rule && el("span", { title: ruleTitle(rule) }, formula(rule.body), el("small", {}, percent(rule.confidence)));
}

const ruleTitle = (rule) => `holds for ${percent(rule.confidence)} of ${rule.body_pairs} pairs${intervalText(rule)}; belief of the model ${rule.score.toFixed(2)}`;

export async function relationsPage(_, model, info) {
  const { relations, total } = await fetchJson("/v1/relations", { model });
  const readable = info.K !== null; // other models have no group elements and no rules
  const columns = readable ? COLUMNS : COLUMNS.slice(0, 2);
  let sorted = { key: "facts", down: false };
  let maxRows = NUM_FIRST_RELATIONS;
  const wanted = el("input", { type: "search", placeholder: "Filter relations", "aria-label": "Filter relations by name", oninput: () => draw() });
  const more = el("button", { type: "button", class: "quiet more", onclick: () => { maxRows = Infinity; draw(); } });
  const body = el("tbody", {});
  const head = el("tr", {});
  const draw = () => {
    const column = columns.find((each) => each.key === sorted.key);
    const order = (a, b) => (column.value(a) < column.value(b) ? -1 : column.value(a) > column.value(b) ? 1 : 0) * (sorted.down ? -1 : 1);
    head.replaceChildren(...columns.map((each) => el("th", { scope: "col", class: each.kind,
      "aria-sort": each.key !== sorted.key ? "none" : sorted.down ? "descending" : "ascending" },
      el("button", { "data-sort": each.key, onclick: () => sort(each.key) }, each.title))));
    const words = wanted.value.toLowerCase().split(/\s+/);
    const matching = relations.filter((row) => words.every((word) => `${row.name} ${short(row.name, 200)}`.toLowerCase().includes(word)));
    body.replaceChildren(...matching.toSorted(order).slice(0, maxRows).map((row) => el("tr", {}, columns.map((each) =>
      el("td", { "data-label": each.title, class: each.kind }, each.cell(row))))));
    more.hidden = matching.length <= maxRows;
    more.replaceChildren(`Show all ${plural(matching.length, "relation")}`);
  };
  const sort = (key) => {
    sorted = { key, down: sorted.key === key && !sorted.down };
    draw();
    head.querySelector(`[data-sort=${key}]`).focus();
  };
  draw();
  const mining = el("span", {});
  if (readable) minedRules(mining, { model, kind: "composition", top: 1000 }, (rules) => {
    mining.replaceChildren();
    for (const row of relations) row.composition = rules.find((rule) => rule.head === row.name) ?? null;
    draw();
  });
  return {
    title: "Relations",
    content: [
      el("div", { class: "title" }, el("h1", {}, "Relations"),
        total > relations.length && el("p", { class: "muted" }, `The first ${number(relations.length)} of ${plural(total, "relation")}.`),
        readable && el("p", { class: "muted" }, "Read off the group elements, against chance: kappa is 0 at the chance level and 1 if all components agree. A cell is blank, without a percentage, if its value is not significant. Percentages are counted in the training facts: pairs also held reversed, not held reversed, and held reversed by the inverse."),
        columns.length > 2 && !relations.some((row) => isShown(row.symmetry, row.mutual) || isShown(row.skewness, oneWay(row.mutual)) || isShown(row.inverses[0]?.agreement, row.inverses[0]?.counted))
          && el("p", { class: "muted none" }, "No relation of this model is significantly symmetric, skew or the inverse of another: these cells are all blank."),
        mining),
      relations.length > NUM_FIRST_RELATIONS && el("div", { class: "filter" }, wanted),
      el("div", { class: "card table relations" }, el("table", {}, el("thead", {}, head), body)), more,
    ],
  };
}

const noElements = (title) => el("div", { class: "title" }, el("h1", {}, title),
  el("p", { class: "muted" }, "This model has no group elements, so its relations cannot be read or multiplied."));

// --- one relation ----------------------------------------------------------------------------------

export async function relationPage([nameOrPrefixed], model) {
  const found = await fetchJson("/v1/relation", { name: nameOrPrefixed, model, mine: false });
  const name = found.name; // the full name, without a prefix
  const rules = el("ul", { class: "rules" });
  const show = (compositions) => rules.replaceChildren(...compositions.slice(0, 12).map(ruleItem),
    ...(compositions.length ? [] : [el("li", { class: "muted" }, "none found")]));
  if (found.compositions) show(found.compositions);
  else put(rules, mineButton(rules, () => fetchJson("/v1/relation", { name, model }).then((mined) => show(mined.compositions),
    (error) => put(rules, error.message))));
  if (found.K === null) return { title: name, content: [noElements(short(name, 200)), el("p", {}, plural(found.facts, "fact"))] };
  return {
    title: short(name),
    content: [
      el("div", { class: "title" }, el("h1", { title: name }, soft(name, 200), idOf(name, 200)),
        el("p", { class: "muted" }, `${plural(found.facts, "fact")} · `, el("a", { href: to("compose", name) }, "compose with others"))),
      el("dl", { class: "numbers" },
        shareNumber("symmetric", found.symmetry, found.mutual), shareNumber("skew-symmetric", found.skewness, oneWay(found.mutual)),
        found.mutual.pairs > 0 && el("div", {}, el("dt", {}, "held in both directions"), el("dd", {}, countText(found.mutual)))),
      el("div", { class: "two" },
        el("section", { class: "card" }, el("h2", {}, `Elements of D${sub(found.K)}`),
          el("p", { class: "muted" }, "Each component of the relation is a symmetry of a polygon. The bars show how often each occurs.",
            "0" in found.elements && " Paler parts are components of smaller size."), elementBars(found.elements)),
        el("section", {}, el("h2", {}, "Components that carry the relation"),
          el("p", { class: "muted" }, `${sizesText(found.components)} ${carriedText(found.carried)} The strong colour is for rotations, the weak one for reflections${"0" in found.elements ? "; smaller sizes are paler" : ""}.`),
          componentBars(found.components, found.carried),
          el("h2", {}, "Nearest to its inverse"), nearestList(found.inverses),
          el("h2", {}, "Compositions"), rules)),
    ],
  };
}

const sub = (K) => String(K).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

const shareNumber = (label, share, counted) => isShown(share, counted) && el("div", { title: shareText(share) }, el("dt", {}, label), el("dd", {}, share.kappa.toFixed(2)));

function nearestList(matches) {
  const shown = matches.filter((match) => isShown(match.agreement, match.counted));
  if (!shown.length) return el("p", { class: "muted" }, "no relation agrees beyond chance");
  return el("ul", { class: "nearest" }, shown.map((match) => el("li", { title: shareText(match.agreement) },
    el("span", { class: "name" }, relationLink(match.relation), " ", el("small", { class: "muted" }, countText(match.counted))),
    bar(match.agreement.kappa), el("span", { class: "value" }, match.agreement.kappa.toFixed(2)))));
}

export const ruleItem = (rule) => el("li", { title: ruleTitle(rule) },
  el("span", { class: "name" }, formula(rule.body), " ⇒ ", relationLink(rule.head)),
  el("span", { class: "muted" }, `holds for ${percent(rule.confidence)} of ${rule.interval ? "about " : ""}${number(rule.body_pairs)}, belief ${rule.score.toFixed(2)} `,
    rule.kind === "composition" && el("a", { href: to("compose", ...rule.body) }, "multiply")));

// --- calculator --------------------------------------------------------------------------------

export async function composePage(steps, model, info) {
  if (info.K === null) return { title: "Compose", content: [noElements("Compose relations")] };
  const { relations } = await fetchJson("/v1/relations", { model });
  const names = new Set(relations.map((row) => row.name));
  const product = steps.length ? await fetchJson("/v1/compose", { steps, top: 6, model }) : null;
  const go = (next) => { location.hash = to("compose", ...next); };
  const select = el("select", { "aria-label": "Relation to add" }, relations.map((row) => el("option", { value: row.name }, short(row.name, 60))));
  const chips = steps.map((step, i) => {
    const back = step.startsWith("~") && !names.has(step); // the name of a relation may itself start with ~
    const name = back ? step.slice(1) : step;
    const turned = steps.with(i, back ? name : `~${name}`);
    return el("li", { class: "chip" }, el("span", { title: name }, short(name)),
      el("button", { type: "button", class: "turn", "aria-pressed": String(back), "aria-label": `−1, inverse of ${name}`, title: "inverse", onclick: () => go(turned) }, "−1"),
      el("button", { type: "button", class: "drop", "aria-label": `remove ${name}`, title: "remove", onclick: () => go(steps.toSpliced(i, 1)) }, "×"));
  });
  const add = (event) => { event.preventDefault(); go([...steps, select.value]); };
  const examples = el("p", { class: "examples muted" });
  fetchJson("/v1/rules", { model, kind: "composition", top: 4 }).then(({ rules }) => {
    const links = rules.map((rule) => el("a", { href: to("compose", ...rule.body) }, rule.body.map((step) => step.startsWith("~") ? `${short(step.slice(1), 24)}⁻¹` : short(step, 24)).join(" · ")));
    if (links.length) examples.replaceChildren("Try ", ...links.flatMap((link, i) => [i ? ", " : "", link]));
  }, () => {});
  return {
    title: "Compose",
    content: [
      el("div", { class: "title" }, el("h1", {}, "Compose relations"),
        el("p", { class: "muted" }, "Follow one relation, then the next: the product of their group elements, component by component. The order matters.")),
      el("form", { class: "card calculator", onsubmit: add },
        steps.length > 0 && el("ol", { class: "factors", "aria-label": "Factors" }, chips.flatMap((chip, i) => i ? [el("li", { class: "dot", "aria-hidden": "true" }, "·"), chip] : [chip])),
        el("div", { class: "row" }, select, el("button", { type: "submit", disabled: steps.length >= 16 }, "Add"),
          steps.length > 1 && el("button", { type: "button", class: "quiet", onclick: () => go(steps.toReversed()) }, "Reverse"),
          steps.length > 0 && el("button", { type: "button", class: "quiet", onclick: () => go([]) }, "Clear")),
        examples),
      product && el("div", { class: "two" },
        el("section", { class: "card" }, el("h2", {}, "Product"), elementBars(product.elements)),
        el("section", {}, el("h2", {}, "Nearest relations"), nearestList(product.nearest),
          el("p", { class: "muted" }, "Components in which the product and the relation have the same element, as kappa: 0 is the chance level, 1 is all. Percentages are counted in the training facts."),
          el("dl", { class: "numbers small" }, shareNumber("identity", product.identity), shareNumber("symmetric", product.symmetry), shareNumber("skew-symmetric", product.skewness)))),
    ],
  };
}
