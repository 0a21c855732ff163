// Pages of entities: facts and predictions of one, and why a prediction is made.

import { ask } from "./api.js";
import { LIKELY_AMONG, bar, el, likely, number, percent, plural, short, soft } from "./dom.js";
import { elementTitle, explanationGraph, symmetry } from "./pictures.js";
import { to } from "./routes.js";

const MOST_QUESTIONS = 48;
const FIRST_GROUPS = 6;
const FIRST_FACTS = 12;

const entityLink = (name) => el("a", { href: to("entity", name), title: name }, soft(name));
export const relationLink = (name) => el("a", { class: "relation", href: to("relation", name), title: name }, soft(name));

// What stands beside a prediction: the probability where the model is calibrated, else the score.
const worth = (prediction) => prediction.probability ?? prediction.score;
const shown = (prediction) => prediction.probability === null ? prediction.score.toFixed(2) : likely(prediction.probability);
const readAs = (prediction) => prediction.probability === null ? null : LIKELY_AMONG;

export async function entityPage([asked], model, info) {
  const [found, { relations }] = await Promise.all([
    ask("/v1/entity", { name: asked, model, top: 500 }), ask("/v1/relations", { model }),
  ]);
  const name = found.name; // in full, where it was asked for by a prefix
  const groups = Map.groupBy(found.facts, pairOf);
  const predicted = el("section", { class: "predicted" }, el("h2", {}, "Predicted"), el("p", { class: "muted" }, "asking the model …"));
  predict(name, model, [...groups.keys()], relations, info.K !== null).then((parts) => predicted.replaceChildren(...parts),
    (problem) => predicted.replaceChildren(el("h2", {}, "Predicted"), el("p", { class: "muted" }, problem.message)));
  return {
    title: name,
    content: [
      el("div", { class: "title" }, el("h1", { title: name }, soft(name, 200)),
        el("p", { class: "muted" }, `${plural(found.total, "known fact")} of ${plural(new Set(found.facts.map((fact) => fact.relation)).size, "relation")}`)),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "Known"), [...groups].map(([pair, facts]) => factGroup(pair, facts)),
          found.total === 0 && el("p", { class: "muted" }, "no facts"),
          el("h2", {}, "Similar"), el("ul", { class: "chips" }, found.similar.map((each) => el("li", {}, entityLink(each.entity),
            el("small", { title: "cosine of the two vectors" }, each.similarity.toFixed(2)))))),
        predicted),
    ],
  };
}

const pairOf = (fact) => `${fact.direction} ${fact.relation}`;

// "spouse →" leads from this entity, "→ spouse" leads to it.
function heading(pair) {
  const [direction, relation] = [pair.slice(0, pair.indexOf(" ")), pair.slice(pair.indexOf(" ") + 1)];
  const says = direction === "out" ? "from here" : "to here";
  const arrow = el("span", { class: "arrow", title: says, "aria-label": says }, direction === "out" ? "→" : "←");
  return el("h3", {}, relationLink(relation), arrow);
}

function factGroup(pair, facts) {
  const list = el("ul", { class: "chips" });
  const fill = (count) => {
    list.replaceChildren(...facts.slice(0, count).map((fact) => el("li", {}, entityLink(fact.entity),
      fact.split !== "train" && el("small", { title: "not seen in training" }, fact.split))));
    if (facts.length > count) {
      list.append(el("li", {}, el("button", { class: "quiet", onclick: () => fill(facts.length) }, `${facts.length - count} more`)));
    }
  };
  fill(FIRST_FACTS);
  return el("div", { class: "group" }, heading(pair), list);
}

// readable: a model of group elements says why; of another, a prediction leads to the entity.
async function predict(name, model, pairs, relations, readable) {
  const every = relations.flatMap((relation) => [`out ${relation.name}`, `in ${relation.name}`]);
  const asked = every.length <= MOST_QUESTIONS ? every : pairs.slice(0, MOST_QUESTIONS);
  const groups = await askPairs(name, model, asked);
  const list = el("div", {});
  const most = Math.max(...groups.flatMap((group) => group.predictions.map((each) => each.score)), 1e-9);
  const fill = (count) => {
    list.replaceChildren(...groups.slice(0, count).map((group) => predictionGroup(group, most, readable)));
    if (groups.length > count) {
      list.append(el("button", { class: "quiet", onclick: () => fill(groups.length) }, `${groups.length - count} more relations`));
    }
  };
  fill(FIRST_GROUPS);
  const others = every.filter((pair) => !asked.includes(pair));
  return [el("h2", {}, "Predicted"), el("p", { class: "muted" }, readable ? "Not in the graph; click one to see why." : "Not in the graph."), list,
    others.length > 0 && otherRelation(name, model, others, list, most, readable)].filter(Boolean);
}

async function askPairs(name, model, pairs) {
  if (!pairs.length) return [];
  const questions = pairs.map((pair) => ({
    [pair.startsWith("out ") ? "head" : "tail"]: name, relation: pair.slice(pair.indexOf(" ") + 1), top: 4, known: "exclude",
  }));
  const { answers } = await ask("/v1/predict", { model }, { questions });
  return answers
    .map((predictions, i) => ({ pair: pairs[i], predictions: predictions.filter((each) => each.head !== each.tail).slice(0, 3) }))
    .filter((group) => group.predictions.length)
    .sort((a, b) => worth(b.predictions[0]) - worth(a.predictions[0]));
}

function predictionGroup({ pair, predictions }, most, readable) {
  return el("div", { class: "group" }, heading(pair), el("ul", { class: "guesses" }, predictions.map((each) => {
    const other = pair.startsWith("out ") ? each.tail : each.head;
    const link = readable ? { href: to("why", each.head, each.relation, each.tail), title: `why ${other}?` } : { href: to("entity", other), title: other };
    return el("li", {}, el("a", link, el("span", { class: "name" }, soft(other)), bar(each.probability ?? each.score / most, "guess"),
      el("span", { class: "value", title: readAs(each) }, shown(each))));
  })));
}

function otherRelation(name, model, pairs, list, most, readable) {
  const select = el("select", { "aria-label": "Another relation" }, pairs.map((pair) =>
    el("option", { value: pair }, `${pair.startsWith("out ") ? "→" : "←"} ${short(pair.slice(pair.indexOf(" ") + 1), 60)}`)));
  const add = async () => {
    const groups = await askPairs(name, model, [select.value]);
    list.prepend(...groups.map((group) => predictionGroup(group, most, readable)));
  };
  return el("p", { class: "row" }, select, el("button", { onclick: add }, "Ask"));
}

// --- why -------------------------------------------------------------------------------------------

export async function whyPage(triple, model) {
  const found = await ask("/v1/explain", { head: triple[0], relation: triple[1], tail: triple[2], top: 5, model });
  const { head, relation, tail } = found;
  const facts = [
    [shown(found), found.probability === null ? "score" : "probability", readAs(found)],
    [number(found.ranks.tail), "rank among tails"],
    [number(found.ranks.head), "rank among heads"],
  ];
  const signed = Object.entries(found.elements).filter(([, value]) => Math.abs(value) > 1e-9);
  const largest = Math.max(...signed.map(([, value]) => Math.abs(value)), 1e-9);
  return {
    title: triple.map((name) => short(name)).join(" "),
    content: [
      el("div", { class: "title" },
        el("p", { class: found.known ? "badge fact" : "badge guess" }, found.known ? `known, ${found.split} split` : "predicted"),
        el("h1", { class: "triple" }, entityLink(head), el("span", { class: found.known ? "via" : "via guess" }, relationLink(relation)), entityLink(tail))),
      el("dl", { class: "figures" }, facts.map(([value, label, title]) => el("div", { title }, el("dt", {}, label), el("dd", {}, value)))),
      el("section", { class: "card" },
        el("h2", {}, found.supported ? "Paths of known facts that support it" : "No path of known facts supports it"),
        el("p", { class: "muted" }, found.supported
          ? "A path supports the triple as far as the product of its relations moves the two entities as the relation does."
          : "No one or two known facts join the two so that their product is near the relation."),
        explanationGraph(found, (name) => to("entity", name)),
        found.paths.length > 0 && el("ul", { class: "ways" }, found.paths.map((path) => el("li", {},
          el("span", {}, path.relations.map((step, i) => [i > 0 && " · ", relationStep(step)])),
          el("span", { class: "muted" }, `holds for ${percent(path.confidence)} of ${plural(path.pairs, "pair")} that it joins`))))),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "Alike facts"),
          found.alike.length === 0 && el("p", { class: "muted" }, "none"),
          el("ul", { class: "alike" }, found.alike.map((each) => el("li", {},
            el("span", { class: "name" }, entityLink(each.head), el("span", { class: "muted" }, ` ${short(each.relation)} `), entityLink(each.tail)),
            bar(each.likeness), el("span", { class: "value" }, each.likeness.toFixed(2)))))),
        el("section", {}, el("h2", {}, "Elements that carry the score"),
          el("ul", { class: "carried" }, signed.map(([name, value]) => el("li", {},
            symmetry(name, 28), el("span", { class: "name" }, elementTitle(name)), bar(Math.abs(value) / largest, value < 0 ? "against" : ""),
            el("span", { class: "value" }, (value > 0 ? "+" : "−") + Math.abs(value).toFixed(2))))))),
    ],
  };
}

export function relationStep(step) {
  const back = step.startsWith("~");
  const name = back ? step.slice(1) : step;
  return el("span", { class: "step" }, el("a", { class: "relation", href: to("relation", name), title: step }, soft(name)),
    back && el("sup", { "aria-label": "inverse" }, "−1"));
}
