// The page for queries of several facts: built by clicking or written in SPARQL; answers with the facts they rest on.

import { fetchJson } from "./api.js";
import { PROBABILITY_NOTE, bar, el, formatProbability, plural, short } from "./dom.js";
import { entityLink } from "./entity.js";
import { witnessGraph } from "./pictures.js";
import { to } from "./routes.js";

const VALUE_NOTE = "orders the answers of this question; it was not checked how many answers of a value hold";
const NAMES = ["x", "y", "z", "u", "v", "w"];
const TITLES = { and: "All of", or: "At least one of", not: "Not" };

// --- queries in their JSON form -------------------------------------------------------------------

const kindOf = (pattern) => Object.keys(pattern)[0];
const termText = (term) => typeof term === "string" ? term : `?${term.variable}`;
const readTerm = (text) => text.startsWith("?") ? { variable: text.slice(1) } : text;

function variablesOf(pattern) {
  const inside = pattern[kindOf(pattern)];
  if (kindOf(pattern) === "fact") return [inside[0], inside[2]].filter((term) => typeof term !== "string").map((term) => term.variable);
  if (kindOf(pattern) === "one_of") return [inside.variable];
  return [...new Set([inside].flat().flatMap(variablesOf))];
}

function freshVariable(query) {
  const used = new Set([query.select, ...variablesOf(query.where)]);
  return [...NAMES, ...Array.from({ length: 40 }, (_, i) => `v${i + 1}`)].find((name) => !used.has(name));
}

// A group at the top and inside of every "not", so that facts can be added there.
function asGroups(pattern, isTop = true) {
  const kind = kindOf(pattern);
  if (kind === "not") return wrap({ not: wrap(asGroups(pattern.not, false), "and") }, isTop && "and");
  if (kind === "and" || kind === "or") return wrap({ [kind]: pattern[kind].map((part) => asGroups(part, false)) }, isTop && kind === "or" && "and");
  return wrap(pattern, isTop && "and");
}

const wrap = (pattern, kind) => kind && kindOf(pattern) !== kind ? { [kind]: [pattern] } : pattern;

const quoted = (name) => /^[^<>"{}|^`\\\s\p{Cc}]+$/u.test(name) ? `<${name}>` : JSON.stringify(name);
const sparqlTerm = (term) => typeof term === "string" ? quoted(term) : `?${term.variable}`;

function sparqlPattern(pattern) {
  const [kind, inside] = Object.entries(pattern)[0];
  if (kind === "fact") return `${sparqlTerm(inside[0])} ${quoted(inside[1])} ${sparqlTerm(inside[2])} .`;
  if (kind === "one_of") return `VALUES ?${inside.variable} { ${inside.entities.map(quoted).join(" ")} }`;
  if (kind === "not") return `MINUS { ${sparqlPattern(inside)} }`;
  const parts = inside.map(sparqlPattern);
  return kind === "and" ? parts.join("\n  ") : parts.map((part) => `{ ${part} }`).join(" UNION ");
}

const asSparql = (query) => `SELECT ?${query.select} WHERE {\n  ${sparqlPattern(query.where)}\n}${query.limit ? ` LIMIT ${query.limit}` : ""}`;

// --- the builder ----------------------------------------------------------------------------------

// A form whose fields change `query` in place.
function builder(query, relations, model, busiest, ask) {
  const first = relations[0]?.name ?? "";
  const groups = el("div", {});
  const select = el("select", { "aria-label": "Answer variable", onchange: () => { query.select = select.value; } });
  const onNew = el("input", { type: "checkbox", id: "only-new", checked: query.onlyNew });
  let facts = 0;

  const showVariables = () => {
    const names = [...new Set([query.select, ...variablesOf(query.where)])];
    select.replaceChildren(...names.map((name) => el("option", { value: name }, `?${name}`)));
    select.value = query.select;
  };
  const draw = (focus) => {
    facts = 0;
    groups.replaceChildren(groupEditor(query.where, null, "div"));
    showVariables();
    if (focus) groups.querySelector(`[data-fact="${focus}"] input`)?.focus();
  };
  const newFact = () => ({ fact: [{ variable: query.select }, first, ""] });

  function termInput(fact, place, name) {
    const list = el("datalist", { id: `terms-${facts}-${place}` });
    let latest = 0;
    const suggest = async () => {
      const mine = ++latest;
      const text = input.value.trim();
      const variables = [...new Set([query.select, ...variablesOf(query.where), freshVariable(query)])].map((each) => `?${each}`);
      const entities = text && !text.startsWith("?")
        ? await fetchJson("/v1/entities", { search: text, top: 8, model }).then((found) => found.entities, () => []) : busiest;
      if (mine !== latest) return;
      list.replaceChildren(...[...variables, ...entities.map((entity) => entity.name)].map((value) => el("option", { value })));
    };
    const input = el("input", { "aria-label": `${name} of fact ${facts}`, value: termText(fact[place]), list: list.id, required: true,
      placeholder: "entity or ?variable", autocomplete: "off", spellcheck: "false", onfocus: suggest,
      oninput: () => { fact[place] = readTerm(input.value.trim()); suggest(); }, onchange: showVariables });
    return el("span", { class: "term" }, input, list);
  }

  function factEditor({ fact }, remove) {
    facts += 1;
    const choice = el("select", { "aria-label": `Relation of fact ${facts}`, onchange: () => { fact[1] = choice.value; } },
      relations.map((row) => el("option", { value: row.name, title: row.name }, short(row.name, 60))));
    if (!relations.some((row) => row.name === fact[1])) choice.append(el("option", { value: fact[1] }, short(fact[1], 60)));
    choice.value = fact[1];
    const turn = () => { [fact[0], fact[2]] = [fact[2], fact[0]]; draw(); };
    return el("li", { class: "ask-fact", "data-fact": facts }, termInput(fact, 0, "Subject"), choice, termInput(fact, 2, "Object"),
      el("span", { class: "ask-tools" },
        el("button", { type: "button", class: "quiet", "aria-label": `Turn fact ${facts} around`, title: "turn around", onclick: turn }, "⇄"),
        remove && el("button", { type: "button", class: "quiet", "aria-label": `Remove fact ${facts}`, title: "remove", onclick: remove }, "×")));
  }

  function choiceEditor({ one_of: choice }, remove) {
    return el("li", { class: "ask-fact" }, el("span", {}, `?${choice.variable} is one of ${choice.entities.map((name) => short(name)).join(", ")}`),
      remove && el("button", { type: "button", class: "quiet", "aria-label": `Remove the choice of ?${choice.variable}`, onclick: remove }, "×"));
  }

  function patternEditor(pattern, remove) {
    const kind = kindOf(pattern);
    return kind === "fact" ? factEditor(pattern, remove) : kind === "one_of" ? choiceEditor(pattern, remove) : groupEditor(pattern, remove);
  }

  // A group of patterns; `remove` is null for what must stay.
  function groupEditor(pattern, remove, tag = "li") {
    const kind = kindOf(pattern);
    const owner = kind === "not" ? pattern.not : pattern; // what holds the parts of a negation is its group
    const parts = owner[kindOf(owner)];
    const add = (part) => {
      parts.push(part);
      draw();
      [...groups.querySelectorAll("li")].find((item) => item.part === part)?.querySelector("select").focus();
    };
    const items = parts.map((part, i) => {
      const drop = parts.length > 1 ? () => { parts.splice(i, 1); draw(1); } : remove;
      const item = patternEditor(part, drop);
      item.part = part;
      return item;
    });
    const button = (label, title, part) => el("button", { type: "button", class: "quiet", title, onclick: () => add(part()) }, label);
    const inOr = kind === "or";
    return el(tag, { class: `ask-group ${kind}` }, el("fieldset", {}, el("legend", {}, TITLES[kind]),
      el("ul", {}, items),
      el("div", { class: "row" },
        button(inOr ? "+ or" : "+ and", "another fact", newFact),
        inOr ? button("+ or all of", "several facts together", () => ({ and: [newFact(), newFact()] }))
          : button("+ either … or", "facts of which one must hold", () => ({ or: [newFact(), newFact()] })),
        kind === "and" && button("+ not", "a fact that must not hold", () => ({ not: { and: [newFact()] } })),
        remove && el("button", { type: "button", class: "quiet", onclick: remove }, "Remove group"))));
  }

  const goOn = () => { // from the answer along another relation, to a new answer
    const next = freshVariable(query);
    query.where.and.push({ fact: [{ variable: query.select }, first, { variable: next }] });
    query.select = next;
    draw();
    [...groups.querySelectorAll(".ask-fact select")].at(-1)?.focus();
  };
  draw();
  const submit = (event) => { event.preventDefault(); ask(query, onNew.checked); };
  return el("form", { class: "card ask", onsubmit: submit },
    el("div", { class: "row" }, el("label", {}, "Find ", select, " such that")),
    groups,
    el("div", { class: "row" }, el("button", { type: "submit" }, "Ask"),
      el("button", { type: "button", class: "quiet", onclick: goOn }, "Continue from the answer"),
      el("label", { for: "only-new" }, onNew, " only answers that are not known")));
}

function sparqlForm(text, onlyNew, ask) {
  const area = el("textarea", { id: "sparql", rows: 6, spellcheck: "false", required: true }, text);
  const onNew = el("input", { type: "checkbox", id: "only-new", checked: onlyNew });
  const submit = (event) => { event.preventDefault(); ask(area.value, onNew.checked); };
  return el("form", { class: "card ask", onsubmit: submit }, el("label", { for: "sparql" }, "SPARQL"), area,
    el("div", { class: "row" }, el("button", { type: "submit" }, "Ask"), el("label", { for: "only-new" }, onNew, " only answers that are not known")));
}

// --- answers --------------------------------------------------------------------------------------

function answerTable(found) {
  const fitted = found.answers.some((answer) => answer.probability !== null);
  const variables = [...new Set(found.answers.flatMap((answer) => Object.keys(answer.variables)))];
  const sure = fitted ? "Probability" : "Value";
  const columns = ["Answer", sure, ...variables.map((name) => `?${name}`), "Rests on"];
  return el("div", { class: "card table answers" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col", title: name === sure ? (fitted ? PROBABILITY_NOTE : VALUE_NOTE) : null }, name)))),
    found.answers.map((answer, i) => answerRows(answer, i, fitted, variables, columns.length))));
}

function answerRows(answer, i, fitted, variables, width) {
  const guessed = answer.facts.filter((fact) => !fact.known).length;
  const shown = answer.known ? el("span", { class: "badge fact" }, "known")
    : el("span", { class: "share" }, bar(fitted ? answer.probability : answer.value, "guess"), fitted ? formatProbability(answer.probability) : answer.value.toFixed(3));
  const witness = el("tr", { class: "witness", id: `witness-${i}`, hidden: i > 0 });
  const cell = el("td", { colspan: width });
  witness.append(cell);
  const open = (isOpen) => {
    witness.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && !cell.hasChildNodes()) cell.append(witnessGraph(answer, (name) => to("entity", name)));
  };
  const summary = guessed ? `${plural(answer.facts.length, "fact")}, ${guessed} predicted` : plural(answer.facts.length, "known fact");
  const toggle = el("button", { type: "button", class: "quiet", "aria-controls": witness.id, "aria-label": `${summary} of ${answer.entity}`,
    onclick: () => open(witness.hidden) }, summary);
  open(i === 0);
  return el("tbody", {}, el("tr", {},
    el("td", { "data-label": "Answer" }, entityLink(answer.entity)),
    el("td", { "data-label": fitted ? "Probability" : "Value" }, shown),
    variables.map((name) => el("td", { "data-label": `?${name}` }, answer.variables[name] && entityLink(answer.variables[name]))),
    el("td", { "data-label": "Rests on" }, toggle)), witness);
}

const answersSection = (found) => el("section", {}, el("h2", { tabindex: "-1", "data-focus": true }, found.answers.length ? plural(found.answers.length, "answer") : "No answers"),
  el("p", { class: "muted" }, found.exact ? "Exact. " : "Predictions were followed from the most probable entities of each variable. ",
    "Known facts are solid, predicted ones dashed. ", el("a", { href: location.hash }, "Link to this question")),
  found.answers.length > 0 && answerTable(found),
  el("details", { class: "plan" }, el("summary", {}, "Plan"), el("pre", {}, found.plan.join("\n"))));

const refusal = (error) => el("section", { class: "refusal", role: "alert" }, el("h2", { tabindex: "-1", "data-focus": true }, "Not answered"), el("p", {}, error.message),
  error.suggestions?.length > 0 && el("p", { class: "muted" }, `Did you mean ${error.suggestions.map((name) => short(name, 80)).join(", ")}?`));

// --- page -----------------------------------------------------------------------------------------

const NEW = "new"; // the last part of the address: only answers that are not known

// The query of the address: #/ask/json/QUERY or #/ask/sparql/QUERY, then `new` if wanted.
function readQuery([form, text]) {
  if (text === undefined) return { form: form === "sparql" ? "sparql" : "json", query: null };
  if (form === "sparql") return { form, query: text };
  try {
    return { form: "json", query: JSON.parse(text) };
  } catch {
    return { form: "sparql", query: text }; // it was edited by hand: show it, and what the server says about it
  }
}

export async function askPage(parts, model) {
  const { form, query } = readQuery(parts);
  const onlyNew = parts[2] === NEW;
  const [{ relations }, { entities }] = await Promise.all([fetchJson("/v1/relations", { model }), fetchJson("/v1/entities", { model, top: 8 })]);
  let found = null;
  let result = null;
  if (query) {
    try {
      found = await fetchJson("/v1/ask", {}, { query, model, known: onlyNew ? "exclude" : "include" });
      result = answersSection(found);
    } catch (error) {
      if (error.status === 401) throw error;
      result = refusal(error);
    }
  }
  const go = (text, isNew) => { location.hash = to("ask", typeof text === "string" ? "sparql" : "json", typeof text === "string" ? text : JSON.stringify(text), ...(isNew ? [NEW] : [])); };
  const tree = found?.query ?? (form === "json" ? query : null); // as the server read it
  const start = { select: "x", where: { and: [{ fact: ["", relations[0]?.name ?? "", { variable: "x" }] }] } };
  const isTree = tree?.select && tree.where && kindOf(tree.where);
  const editor = form === "json"
    ? builder({ ...(isTree ? { ...tree, where: asGroups(tree.where) } : start), onlyNew }, relations, model, entities, ({ onlyNew: _, ...edited }, isNew) => go(edited, isNew))
    : sparqlForm(query ?? "", onlyNew, go);
  const tab = (name, label, content) => el("a", { href: to("ask", name, ...(content ? [content, ...(onlyNew ? [NEW] : [])] : [])), "aria-current": form === name && "page" }, label);
  return {
    title: "Ask",
    content: [
      el("div", { class: "title" }, el("h1", {}, "Ask"),
        el("p", { class: "muted" }, "A question of several facts, also where some of them are not in the graph. A name that starts with ? is a variable.")),
      el("nav", { class: "tabs", "aria-label": "Form of the question" },
        tab("json", "Build", tree && JSON.stringify(tree)), tab("sparql", "SPARQL", form === "sparql" ? query : isTree && asSparql(tree))),
      editor, result,
    ],
  };
}
