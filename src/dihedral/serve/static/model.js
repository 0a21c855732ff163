// Pages for the model: the start page, which says what it is good for, and its recipe, metrics and training curves.

import { fetchJson } from "./api.js";
import { minedRules, ruleItem } from "./algebra.js";
import { PROBABILITY_NOTE, bar, el, formatProbability, formatShare, number, plural, soft } from "./dom.js";
import { relationLink } from "./entity.js";
import { curve } from "./pictures.js";
import { to } from "./routes.js";

const METRICS = [["mrr", "MRR"], ["hits@1", "Hits@1"], ["hits@3", "Hits@3"], ["hits@10", "Hits@10"], ["mr", "mean rank"]];

const PER_RELATION = 5; // facts that are looked for
const NUM_SHOWN = 3; // of these
const NUM_FIRST_RELATIONS = 8;

export async function homePage(_, model, info) {
  const [{ entities }, found] = await Promise.all([fetchJson("/v1/entities", { model, top: 18 }), missingFacts(model, false)]);
  const rules = el("ul", { class: "rules" });
  if (info.K) minedRules(rules, { model, kind: "composition", top: 6 },
    (found) => rules.replaceChildren(...found.map(ruleItem), ...(found.length ? [] : [el("li", { class: "muted" }, "none found")])));
  const missing = el("div", {});
  showMissing(missing, found, model, info);
  return {
    title: null,
    content: [
      el("div", { class: "title" }, el("h1", {}, info.name),
        el("p", { class: "lead" }, `It has learned from the graph ${info.graph}, which has ${plural(info.facts, "fact")} (those of valid and test included) about ${plural(info.entities, "entity", "entities")} in ${plural(info.relations, "relation")}.`)),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "What you can do with it"), el("ul", { class: "uses" }, uses(info).map((parts) => el("li", {}, parts)))),
        el("section", { class: "accuracy" }, el("h2", {}, "How accurate it is"), accuracy(info))),
      el("section", { class: "missing" }, el("h2", {}, "Where facts are missing"), missing),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "Entities with the most facts"),
          el("ul", { class: "chips" }, entities.map((entity) => el("li", {}, el("a", { href: to("entity", entity.name), title: `${entity.name}: ${plural(entity.facts, "fact")}` }, soft(entity.name)))))),
        info.K !== null && el("section", {}, el("h2", {}, "Mined composition rules"), rules)),
    ],
  };
}

const uses = (info) => [
  ["Find ", el("a", { href: to("review") }, "facts that are missing"), info.calibration.judgements ? ", each with the probability that it holds." : ", the best first.",
    info.K !== null && " A click on one shows the known facts that speak for it."],
  ["Search for an entity (press ", el("kbd", {}, "/"), ") to see its facts, its neighbours and what probably holds too."],
  ["Answer ", el("a", { href: to("ask") }, "questions"), " that join several facts, also where some of them are missing."],
  info.K !== null && ["Read from ", el("a", { href: to("relations") }, "relations"), " which of them are inverse to each other, symmetric, or follow from two others."],
].filter(Boolean);

// What was measured, in plain words; the page Model has all metrics.
function accuracy(info) {
  const split = ["test", "valid"].find((name) => info.metrics[name]?.both);
  const [found, judged] = [info.metrics[split], info.calibration.judgements];
  if (!found) return el("p", { class: "muted" }, "Nothing was measured: the graph has no facts that were kept from training.");
  const [first, ten] = [found.both["hits@1"], found.both["hits@10"]];
  const numbers = [[formatShare(first), "first answer right"], [formatShare(ten), "among ten answers"]];
  if (judged?.triples) numbers.push([formatShare(judged.accuracy), "true or false right"]);
  const advice = first >= 0.8 ? "Its first answer is usually right." : first >= 0.5 ? "Its first answer is right more often than not." : "Look at several answers, and check them: the first is often wrong.";
  return [
    el("dl", { class: "numbers small" }, numbers.map(([value, label]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
    el("p", {}, advice),
    el("p", { class: "muted" }, `Measured on ${plural(found.triples, "known fact")} that it was not trained on: each end of a fact was asked for, given the other.`,
      judged?.triples && " Of the statements that it judged, half were true.", " ", el("a", { href: to("model") }, "All metrics")),
  ];
}

const missingFacts = (model, find) => fetchJson("/v1/review", { model, find, per_relation: PER_RELATION, top: 1000 });

// The most probable missing facts, by relation. They are looked for when asked for, because that may take long.
function showMissing(place, found, model, info) {
  if (!found.found) {
    const find = async () => {
      place.replaceChildren(el("p", { class: "muted", role: "status" }, "looking for missing facts …"));
      await missingFacts(model, true).then((more) => showMissing(place, more, model, info), (error) =>
        place.replaceChildren(el("p", { role: "alert" }, error.message, ". Choose a relation on the page ", el("a", { href: to("review") }, "Review"), ".")));
    };
    place.replaceChildren(el("p", { class: "muted" }, "The most probable ones of each relation. In a large graph, finding them may take a minute."),
      el("button", { type: "button", class: "find", onclick: find }, "Find missing facts"));
    return;
  }
  const value = (fact) => fact.probability ?? fact.score;
  const groups = [...Map.groupBy(found.facts, (fact) => fact.relation)].sort(([, a], [, b]) => value(b[0]) - value(a[0]));
  const list = el("div", { class: "groups" });
  const fill = (count) => list.replaceChildren(...groups.slice(0, count).map(([relation, facts]) => missingGroup(relation, facts.slice(0, NUM_SHOWN), info)));
  const more = el("button", { type: "button", class: "quiet more", hidden: groups.length <= NUM_FIRST_RELATIONS, onclick: () => { fill(Infinity); more.remove(); } },
    `${groups.length - NUM_FIRST_RELATIONS} more relations`);
  fill(NUM_FIRST_RELATIONS);
  place.replaceChildren(el("p", { class: "muted" }, groups.length ? ["The most probable ones of each relation, as the graph does not hold them. Decide about them on the page ", el("a", { href: to("review") }, "Review"), "."]
    : "None are left to decide about."), list, more);
}

const missingGroup = (relation, facts, info) => el("div", { class: "group" }, el("h3", {}, relationLink(relation)), el("ul", { class: "guesses" }, facts.map((fact) =>
  el("li", {}, el("a", { href: info.K !== null ? to("why", fact.head, relation, fact.tail) : to("entity", fact.head), title: `${fact.head} ${relation} ${fact.tail}` },
    el("span", { class: "name" }, soft(fact.head), " → ", soft(fact.tail)),
    fact.probability === null ? el("span", {}) : bar(fact.probability, "guess"),
    el("span", { class: "value", title: fact.probability === null ? null : PROBABILITY_NOTE }, fact.probability === null ? fact.score.toFixed(2) : formatProbability(fact.probability)))))));

export async function modelPage(_, model, info) {
  const splits = ["valid", "test"].filter((split) => info.metrics[split]?.both);
  const curves = [curve(info.curve, "loss", "Loss", "loss"), curve(info.curve, "valid_mrr", "MRR on valid", "mrr")].filter(Boolean);
  const settings = Object.entries(info.recipe).filter(([, value]) => value !== "" && value !== null);
  const run = Object.entries(info.metrics).filter(([, value]) => typeof value !== "object");
  return {
    title: "Model",
    content: [
      el("div", { class: "title" }, el("h1", {}, info.name), el("p", { class: "muted" }, info.recipe.about ?? `A model of ${info.graph}.`)),
      splits.length > 0 && el("section", { class: "card table" }, el("h2", {}, "Filtered ranking"),
        el("p", { class: "muted" }, "Other known answers are left out: those of train and valid for the split valid, of all splits for test."),
        el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Split"), METRICS.map(([, title]) => el("th", { scope: "col", class: "number" }, title)))),
          el("tbody", {}, splits.map((split) => el("tr", {}, el("td", { "data-label": "Split" }, split), METRICS.map(([key, title]) =>
            el("td", { "data-label": title, class: "number" }, info.metrics[split].both[key]?.toFixed(key === "mr" ? 1 : 4) ?? "–"))))))),
      curves.length > 0 && el("section", { class: "card" }, el("h2", {}, "Training"), el("div", { class: "curves" }, curves)),
      el("div", { class: "two" },
        settings.length > 0 && el("section", {}, el("h2", {}, "Recipe"), pairs(settings)),
        run.length > 0 && el("section", {}, el("h2", {}, "Run"), pairs(run))),
    ],
  };
}

const pairs = (rows) => el("dl", { class: "pairs" }, rows.map(([key, value]) => [el("dt", {}, key), el("dd", {}, String(value))]));
