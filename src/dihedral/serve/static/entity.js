// Pages for entities: facts and predictions of one entity, and the explanation of a prediction.

import { fetchJson } from "./api.js";
import { PROBABILITY_NOTE, bar, el, formatProbability, formatShare, idOf, intervalText, number, plural, short, soft } from "./dom.js";
import { elementTitle, explanationGraph, symmetry } from "./pictures.js";
import { to } from "./routes.js";

const MAX_QUESTIONS = 48;
const NUM_FIRST_GROUPS = 6;
const NUM_FIRST_FACTS = 12;
const HELD_OUT = { // what the tags of known facts mean
  valid: "It is known, but the model was not trained on it: it chose settings, and probabilities were fitted on it.",
  test: "It is known, but the model was not trained on it: it measures how accurate the model is.",
};

export const entityLink = (name) => el("a", { href: to("entity", name), title: name }, soft(name), idOf(name));
export const relationLink = (name) => el("a", { class: "relation", href: to("relation", name), title: name }, soft(name), idOf(name));

// The value of a prediction: its probability if the model is calibrated, otherwise its score.
const valueOf = (prediction) => prediction.probability ?? prediction.score;
const formatValue = (prediction) => prediction.probability === null ? prediction.score.toFixed(2) : formatProbability(prediction.probability);
const valueNote = (prediction) => prediction.probability === null ? null : PROBABILITY_NOTE;

// The name of an entity, what it is, and the tabs for its facts and its neighbourhood.
export const entityTitle = (name, view, ...about) => el("div", { class: "title" }, el("h1", { title: name }, soft(name, 200), idOf(name, 200)), about,
  el("nav", { class: "tabs", "aria-label": "Views of the entity" },
    el("a", { href: to("entity", name), "aria-current": view === "facts" && "page" }, "Facts"),
    el("a", { href: to("entity", name, "graph"), "aria-current": view === "graph" && "page" }, "Neighbourhood")));

export async function entityPage([nameOrPrefixed], model, info) {
  const [found, { relations }] = await Promise.all([
    fetchJson("/v1/entity", { name: nameOrPrefixed, model, top: 500 }), fetchJson("/v1/relations", { model }),
  ]);
  const name = found.name; // the full name, without a prefix
  const groups = Map.groupBy(found.facts, pairOf);
  const predicted = el("section", { class: "predicted" }, el("h2", {}, "Predicted"), el("p", { class: "muted" }, "predicting …"));
  predict(name, model, [...groups.keys()], relations, info.K !== null).then((parts) => predicted.replaceChildren(...parts),
    (error) => predicted.replaceChildren(el("h2", {}, "Predicted"), el("p", { class: "muted" }, error.message)));
  return {
    title: short(name),
    content: [
      entityTitle(name, "facts", found.about && el("p", {}, found.about),
        el("p", { class: "muted" }, `${plural(found.total, "known fact")} of ${plural(found.num_relations, "relation")}`,
          found.facts.length < found.total && `; the first ${number(found.facts.length)} are listed`)),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "Known"),
          found.facts.some((fact) => HELD_OUT[fact.split]) && el("p", { class: "muted" }, "The model was not trained on facts that are marked valid or test."), [...groups].map(([pair, facts]) => factGroup(pair, facts)),
          found.total === 0 && el("p", { class: "muted" }, "no facts"),
          el("h2", {}, "Similar"), el("ul", { class: "chips" }, found.similar.map((each) => el("li", {}, entityLink(each.entity),
            el("small", { title: "cosine similarity of the two vectors, or of the numbers of facts if the model has no vectors" }, each.similarity.toFixed(2)))))),
        predicted),
    ],
  };
}

const pairOf = (fact) => `${fact.direction} ${fact.relation}`;

// "spouse →": this entity is the head; "spouse ←": it is the tail.
function heading(pair) {
  const [direction, relation] = [pair.slice(0, pair.indexOf(" ")), pair.slice(pair.indexOf(" ") + 1)];
  const description = direction === "out" ? "from this entity" : "to this entity";
  const arrow = el("span", { class: "arrow", title: description, "aria-label": description }, direction === "out" ? "→" : "←");
  return el("h3", {}, relationLink(relation), arrow);
}

function factGroup(pair, facts) {
  const list = el("ul", { class: "chips" });
  const fill = (count) => {
    list.replaceChildren(...facts.slice(0, count).map((fact) => el("li", {}, entityLink(fact.entity),
      HELD_OUT[fact.split] && el("small", { title: HELD_OUT[fact.split] }, fact.split))));
    if (facts.length > count) {
      list.append(el("li", {}, el("button", { class: "quiet", onclick: () => fill(facts.length) }, `${facts.length - count} more`)));
    }
  };
  fill(NUM_FIRST_FACTS);
  return el("div", { class: "group" }, heading(pair), list);
}

// readable: the model has group elements, so predictions link to explanations; otherwise they link to entities.
async function predict(name, model, pairs, relations, readable) {
  const every = everyPair(relations);
  const selected = choosePairs(every, pairs);
  const groups = await predictPairs(name, model, selected);
  const list = el("div", {});
  const maxScore = Math.max(...groups.flatMap((group) => group.predictions.map((each) => each.score)), 1e-9);
  const fill = (count) => {
    list.replaceChildren(...groups.slice(0, count).map((group) => predictionGroup(group, maxScore, readable)));
    if (groups.length > count) {
      list.append(el("button", { class: "quiet", onclick: () => fill(groups.length) }, `${groups.length - count} more relations`));
    }
  };
  fill(NUM_FIRST_GROUPS);
  const others = every.filter((pair) => !selected.includes(pair));
  return [el("h2", {}, "Predicted"), el("p", { class: "muted" }, readable ? "These facts are not in the graph. Click one to see its explanation." : "These facts are not in the graph."), list,
    others.length > 0 && otherRelation(name, model, others, list, maxScore, readable)].filter(Boolean);
}

const everyPair = (relations) => relations.flatMap((relation) => [`out ${relation.name}`, `in ${relation.name}`]);
// All questions about an entity if they are few, otherwise those that its facts answer.
const choosePairs = (every, pairs) => every.length <= MAX_QUESTIONS ? every : pairs.slice(0, MAX_QUESTIONS);

export async function relationPairs(name, model) {
  const [{ facts }, { relations }] = await Promise.all([fetchJson("/v1/entity", { name, model, top: 500 }), fetchJson("/v1/relations", { model })]);
  return choosePairs(everyPair(relations), [...new Set(facts.map(pairOf))]);
}

export async function predictPairs(name, model, pairs) {
  if (!pairs.length) return [];
  const questions = pairs.map((pair) => ({
    [pair.startsWith("out ") ? "head" : "tail"]: name, relation: pair.slice(pair.indexOf(" ") + 1), top: 4, known: "exclude",
  }));
  const { answers } = await fetchJson("/v1/predict", { model }, { questions });
  return answers
    .map((predictions, i) => ({ pair: pairs[i], predictions: predictions.filter((each) => each.head !== each.tail).slice(0, 3) }))
    .filter((group) => group.predictions.length)
    .sort((a, b) => valueOf(b.predictions[0]) - valueOf(a.predictions[0]));
}

function predictionGroup({ pair, predictions }, maxScore, readable) {
  return el("div", { class: "group" }, heading(pair), el("ul", { class: "guesses" }, predictions.map((each) => {
    const other = pair.startsWith("out ") ? each.tail : each.head;
    const link = readable ? { href: to("why", each.head, each.relation, each.tail), title: `explain ${other}` } : { href: to("entity", other), title: other };
    return el("li", {}, el("a", link, el("span", { class: "name" }, soft(other), idOf(other)), bar(each.probability ?? each.score / maxScore, "guess"),
      el("span", { class: "value", title: valueNote(each) }, formatValue(each))));
  })));
}

function otherRelation(name, model, pairs, list, maxScore, readable) {
  const select = el("select", { "aria-label": "Another relation" }, pairs.map((pair) =>
    el("option", { value: pair }, `${pair.startsWith("out ") ? "→" : "←"} ${short(pair.slice(pair.indexOf(" ") + 1), 60)}`)));
  const add = async () => {
    const groups = await predictPairs(name, model, [select.value]);
    list.prepend(...groups.map((group) => predictionGroup(group, maxScore, readable)));
  };
  return el("p", { class: "row" }, select, el("button", { onclick: add }, "Predict"));
}

// --- explanation -------------------------------------------------------------------------------------------

export async function whyPage(triple, model) {
  const found = await fetchJson("/v1/explain", { head: triple[0], relation: triple[1], tail: triple[2], top: 5, model });
  const { head, relation, tail } = found;
  const numbers = [
    [formatValue(found), found.probability === null ? "score" : "probability", valueNote(found)],
    [number(found.ranks.tail), "rank among tails by score"],
    [number(found.ranks.head), "rank among heads by score"],
  ];
  const signed = Object.entries(found.elements).filter(([, value]) => Math.abs(value) > 1e-9);
  const largest = Math.max(...signed.map(([, value]) => Math.abs(value)), 1e-9);
  return {
    title: triple.map((name) => short(name)).join(" "),
    content: [
      el("div", { class: "title" },
        el("p", { class: found.known ? "badge fact" : "badge guess" }, found.known ? `known fact (${found.split})` : "predicted"),
        HELD_OUT[found.split] && el("p", { class: "muted" }, HELD_OUT[found.split]),
        el("h1", { class: "triple" }, entityLink(head), el("span", { class: found.known ? "via" : "via guess" }, relationLink(relation)), entityLink(tail))),
      el("dl", { class: "numbers" }, numbers.map(([value, label, title]) => el("div", { title }, el("dt", {}, label), el("dd", {}, value)))),
      el("section", { class: "card" },
        el("h2", {}, found.supported ? "Paths of known facts" : "No supporting path of known facts"),
        el("p", { class: "muted" }, found.supported
          ? found.added === null
            ? "Each is shown with the share of the other pairs joined in the same way for which the relation holds, counted in the training facts."
            : `Each is shown with what all paths along the same relations add to the score. All paths together add ${found.added.toFixed(2)}${others(found)}.`
          : `Looked for: paths of up to ${found.longest} known facts from ${short(head)} to ${short(tail)} that ${found.added === null ? "lead to facts of the relation elsewhere" : "add to the score"}. Result: ${found.unsupported}.`),
        found.note && el("p", {}, `${found.note[0].toUpperCase()}${found.note.slice(1)}.`),
        !found.complete && el("p", { class: "muted" }, found.added === null
          ? "The two entities have very many facts in common; not all paths between them were counted."
          : "The search ended early; other paths may add more."),
        explanationGraph(found, (name) => to("entity", name)),
        found.paths.length > 0 && el("ul", { class: "ways" }, found.paths.map((path) => el("li", {},
          el("span", {}, path.share === null ? `${heldFor(path)}: ` : `adds ${path.share.toFixed(2)}: `,
            path.relations.map((step, i) => [i > 0 && " · ", relationStep(step)])),
          path.share === null
            ? el("span", { class: "muted", title: "how similarly the elements of the path and of the relation move the two entities" }, `match of elements ${path.match.toFixed(2)}`)
            : el("span", { class: "muted", title: "the rank of the tail in the graph without these facts, and how often the path is right elsewhere" }, withoutPath(path))))),
        found.more > 0 && el("p", { class: "muted" }, `${plural(found.more, "more kind of path holds", "more kinds of paths hold")} for other pairs.`)),
      found.added === null && el("div", { class: "two" }, // a path model has no vectors, and its paths are all there is
        el("section", {}, el("h2", {}, "Similar facts"),
          found.similar_facts.length === 0 && el("p", { class: "muted" }, "Looked for: other training facts of this relation. There are none."),
          el("ul", { class: "similar-facts" }, found.similar_facts.map((each) => el("li", {},
            el("span", { class: "name" }, entityLink(each.head), el("span", { class: "muted" }, ` ${short(each.relation)} `), entityLink(each.tail)),
            bar(each.similarity), el("span", { class: "value" }, each.similarity.toFixed(2)))))),
        el("section", {}, el("h2", {}, "Contributions of elements to the score"),
          signed.length === 0 && el("p", { class: "muted" }, "Looked for: components that add to the score. The relation is zero in all of them."),
          el("ul", { class: "contributions" }, signed.map(([name, value]) => el("li", {},
            symmetry(name, 28), el("span", { class: "name" }, elementTitle(name)), bar(Math.abs(value) / largest, value < 0 ? "against" : ""),
            el("span", { class: "value" }, (value > 0 ? "+" : "−") + Math.abs(value).toFixed(2))))))),
    ],
  };
}

const heldFor = (path) => path.pairs === 0 ? "joins no other pair"
  : `holds for ${formatShare(path.confidence)} of ${path.interval ? "about " : ""}${plural(path.pairs, "other pair")}${intervalText(path)}`;

// Why the paths shown add more than all of them, if they do.
const others = ({ added, paths }) => added <= 0 ? ", because others subtract more"
  : paths.reduce((sum, path) => sum + path.share, 0) > added + 0.01 ? ", because others subtract" : "";

const returnsTo = ({ entities }) => entities.find((name, i) => entities.indexOf(name) < i);

const withoutPath = (path) => [returnsTo(path) && `a walk that returns to ${short(returnsTo(path))}`,
  `rank ${number(path.rank_without_fact)} without (${path.main_fact.map((name) => short(name)).join(", ")})`,
  path.num_paths > 1 && `rank ${number(path.rank_without)} without ${path.num_paths === 2 ? "both" : `all ${number(path.num_paths)}`} paths`, heldFor(path)].filter(Boolean).join("; ");

export function relationStep(step) {
  const back = step.startsWith("~");
  const name = back ? step.slice(1) : step;
  return el("span", { class: "step" }, el("a", { class: "relation", href: to("relation", name), title: step }, soft(name)),
    back && el("sup", { "aria-label": "inverse" }, "−1"));
}
