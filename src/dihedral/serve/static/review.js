// The review queue: missing facts in a table, decided by keyboard or buttons, with their evidence one key away.

import { fetchJson, fetchText } from "./api.js";
import { PROBABILITY_NOTE, bar, el, formatProbability, number, saveFile, short } from "./dom.js";
import { entityLink, relationLink, whyPage } from "./entity.js";

const PAGE_SIZE = 100;
const NAME = "reviewer"; // in localStorage
const DONE = { accept: "accepted", reject: "rejected", skip: "skipped" };
const STATES = { open: "to decide", accept: "accepted", reject: "rejected", skip: "skipped" };
const FORMATS = { tsv: ["TSV", "reviews.tsv"], ntriples: ["RDF", "reviews.nt"] };
const ACTIONS = [
  ["a", "accept", "Accept"], ["r", "reject", "Reject"], ["s", "skip", "Skip"],
  ["u", "undo", "Undo"], ["n", "note", "Note"], ["e", "evidence", "Evidence"],
];
const KEYS = [
  ["a", "accept"], ["r", "reject"], ["s", "skip"], ["u", "undo your latest decision"], ["n", "write a note for the next decision"],
  ["e", "evidence for the fact"], ["j", "next fact, or ↓"], ["k", "previous fact, or ↑"], ["?", "this list"],
];

// What was decided, and by whom unless it is the reviewer of this page.
const verdict = ({ decision, reviewer }) => DONE[decision] + (reviewer === reviewerName() ? "" : ` by ${reviewer}`);

let shown = null; // the table on the page, which keys are for
document.addEventListener("keydown", (event) => shown?.isConnected && shown.onKey(event));

let sent = Promise.resolve(); // decisions are sent one after the other, so that undo concerns the latest
const filters = new Map(); // by model: they stay when the page is left and opened again

let reviewer = null; // also where storage is forbidden

function reviewerName() {
  try {
    reviewer ??= localStorage.getItem(NAME);
  } catch { /* the page asks for it */ }
  return reviewer ?? "";
}

function keepName(name) {
  reviewer = name.trim().replace(/\s+/g, " "); // as the server writes it
  try {
    localStorage.setItem(NAME, reviewer);
  } catch { /* it is asked for again when the page is loaded */ }
}

export async function reviewPage(_, model, info) {
  const { relations } = await fetchJson("/v1/relations", { model });
  const chosen = filters.get(model) ?? { relation: "", type: "", per_relation: "", min_probability: "", state: "open" };
  filters.set(model, chosen);
  const queue = reviewQueue(model, chosen);
  await queue.load(false);
  const calibrated = Boolean(info.calibration.judgements);
  return {
    title: "Review",
    content: [
      el("div", { class: "title" }, el("h1", {}, "Review"),
        el("p", { class: "muted" }, "Facts that are probably missing from the graph. What you decide is kept beside the model.",
          el("span", { class: "keys-hint" }, " Press ", el("kbd", {}, "?"), " for the keys."))),
      filterForm(queue, chosen, relations, calibrated), queue.element,
    ],
  };
}

function filterForm(queue, chosen, relations, calibrated) {
  const change = (name) => (event) => { chosen[name] = event.target.value; queue.load(false); };
  const select = (name, options) => {
    const list = el("select", { id: `review-${name}`, onchange: change(name) },
      options.map(([value, text]) => el("option", { value }, text)));
    list.value = chosen[name];
    return list;
  };
  const field = (name, label, control) =>
    el("div", { class: "field" }, el("label", { for: `review-${name}` }, label), control);
  let isEntered = false; // by Enter, after which keys are for the facts again
  const name = el("input", { id: "review-name", autocomplete: "name", maxlength: 100, value: reviewerName(),
    onchange: () => { keepName(name.value); queue.load(false, isEntered); },
    onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      isEntered = true;
      if (name.value.trim() === reviewerName()) queue.focus();
      else name.blur(); // which is a change
      isEntered = false;
    } });
  queue.showName = () => { name.value = reviewerName(); };
  const types = queue.types.map((type) => [type.name, `${short(type.name, 50)} (${number(type.entities)})`]);
  const fields = [
    field("relation", "Relation",
      select("relation", [["", "all"], ...relations.map((row) => [row.name, short(row.name, 60)])])),
    types.length > 0 && field("type", "Type", select("type", [["", "all"], ...types])),
    field("per_relation", "List", select("per_relation", [["", "the most probable"], ["5", "5 of each relation"], ["20", "20 of each relation"]])),
    calibrated && field("min_probability", "Minimum probability", el("input", {
      id: "review-min_probability", type: "number", min: 0, max: 1, step: 0.05,
      value: chosen.min_probability, onchange: change("min_probability"),
    })),
    field("state", "Show", select("state", Object.entries(STATES))),
  ];
  const isUsed = chosen.state !== "open" || chosen.relation || chosen.type || chosen.per_relation || chosen.min_probability;
  const folded = () =>
    el("details", { open: Boolean(isUsed) }, el("summary", {}, "Filters"), el("div", { class: "fields" }, fields));
  return el("form", {
    class: "card filters", "aria-label": "Which facts to review", onsubmit: (event) => event.preventDefault(),
  }, field("name", "Your name", name), matchMedia("(max-width: 640px)").matches ? folded() : fields);
}

// --- the queue ---------------------------------------------------------------------------------------

function reviewQueue(model, chosen) {
  const status = el("p", { class: "review-status", role: "status" });
  const alert = el("p", { class: "review-error", role: "alert" });
  const progress = el("progress", { "aria-label": "Decided facts", max: 1, value: 0 });
  const text = el("span", {});
  const body = el("tbody", {});
  const place = el("div", { class: "review-list" });
  const note = el("input", { class: "review-note", "aria-label": "Note for the next decision", placeholder: "Note", maxlength: 2000 });
  const help = el("dialog", { class: "card keys", "aria-labelledby": "review-keys" }, el("h2", { id: "review-keys" }, "Keys"),
    el("dl", { class: "pairs" }, KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
    el("button", { type: "button", onclick: () => help.close() }, "Close"));
  const element = el("section", { class: "review", "aria-label": "Facts to review" });
  const queue = { element, types: [], load, focus, showName: () => {} };
  let rows = []; // {fact, tr, waiting, failed, note}; a note that was not saved stays with its fact
  let current = 0;
  let total = 0;
  let writable = true;
  let latest = 0; // number of the newest load
  let isLoading = false; // other facts are about to be shown

  function setLoading(value) {
    isLoading = value;
    if (value) element.setAttribute("aria-busy", "true");
    else element.removeAttribute("aria-busy");
  }

  const params = () => ({ model, reviewer: reviewerName(), ...Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== "")) });

  async function load(find, thenFocus = find) {
    const mine = ++latest;
    setLoading(true);
    alert.textContent = "";
    if (find) place.replaceChildren(el("p", { class: "muted", role: "status" }, "looking for missing facts …"));
    let found;
    try {
      await sent; // or what is being decided would be listed as open
      found = await fetchJson("/v1/review", { ...params(), find, top: PAGE_SIZE });
    } catch (error) {
      if (mine !== latest) return;
      setLoading(false);
      if (error.status === 401) throw error;
      place.replaceChildren(el("p", { role: "alert" }, error.message), chosen.state === "open" && findButton("Find missing facts") || "");
      return;
    }
    if (mine !== latest) return; // the filters were changed meanwhile
    setLoading(false);
    ({ total, writable, types: queue.types } = found);
    const facts = chosen.per_relation ? [...Map.groupBy(found.facts, (fact) => fact.relation).values()].flat() : found.facts;
    rows = facts.map((fact) => ({ fact, waiting: null, failed: false, note: "" }));
    current = 0;
    draw(found);
    if (thenFocus) focus();
  }

  const findButton = (label) => el("button", { type: "button", class: "find", onclick: () => load(true) }, label);

  function draw(found) {
    status.textContent = "";
    if (!rows.length) {
      place.replaceChildren(...emptyParts(found));
      element.replaceChildren(place, exports());
      return;
    }
    const opens = (row, i) => chosen.per_relation && row.fact.relation !== rows[i - 1]?.fact.relation;
    body.replaceChildren(...rows.flatMap((row, i) => [...(opens(row, i) ? [heading(row.fact.relation)] : []), ...drawRow(row, i)]));
    const titles = [["Fact", null], ["Probability", PROBABILITY_NOTE], ["Decision", null]];
    place.replaceChildren(el("div", { class: "card table" }, el("table", {},
      el("thead", {}, el("tr", {}, titles.map(([name, title]) => el("th", { scope: "col", title }, name)))), body)));
    element.replaceChildren(el("div", { class: "review-progress" }, progress, text), place, tools(), exports(), help);
    mark();
  }

  const heading = (relation) => el("tr", { class: "heading" }, el("th", { colspan: 3, scope: "rowgroup" }, relationLink(relation)));

  function emptyParts(found) {
    const say = (what) => el("p", { class: "muted" }, what);
    const isFiltered = chosen.relation || chosen.type || chosen.min_probability;
    if (chosen.state !== "open") {
      const state = STATES[chosen.state];
      return [say(isFiltered ? `No ${state} facts match the filters.` : `No facts are ${state}.`)];
    }
    if (!found.found) {
      return [say("Finding the missing facts of a large graph may take a minute."), findButton("Find missing facts")];
    }
    if (chosen.min_probability) return [say("No fact that is left has this probability.")];
    return [say("All facts that were found are decided."), findButton("Find more")];
  }

  function exports() {
    const failure = el("span", { role: "alert" });
    const save = async (format, file) => {
      failure.textContent = "";
      try {
        saveFile(await fetchText("/v1/review/export", { model, format }), file);
      } catch (error) {
        failure.textContent = ` Not downloaded: ${error.message}`;
      }
    };
    return el("p", { class: "review-exports muted" }, "Download the decisions: ",
      Object.entries(FORMATS).map(([format, [label, file]]) =>
        [el("button", { type: "button", class: "quiet", onclick: () => save(format, file) }, label), " "]), failure);
  }

  const tools = () => el("div", { class: "review-tools", role: "group", "aria-label": "Decide about the selected fact" },
    el("div", { class: "review-messages" }, alert, status),
    ACTIONS.map(([key, action, label]) => action === "note" ? note
      : el("button", {
        type: "button", class: `act act-${action}`, "aria-keyshortcuts": key,
        disabled: !writable && action !== "evidence", onclick: () => act(action),
      }, label, " ", el("kbd", { "aria-hidden": "true" }, key))),
    el("button", { type: "button", class: "act act-keys", "aria-keyshortcuts": "?", onclick: () => help.showModal() },
      "Keys ", el("kbd", { "aria-hidden": "true" }, "?")),
    !writable && el("p", { class: "muted" }, "This server takes no decisions, because it has no API key and others can reach it."));

  function drawRow(row, i) {
    const { head, relation, tail, probability, score } = row.fact;
    row.state = el("td", { "data-label": "Decision" });
    const share = () => el("span", { class: "share" }, bar(probability, "guess"), formatProbability(probability));
    row.tr = el("tr", {
      tabindex: "-1", onfocus: () => { current = i; mark(); },
      onclick: (event) => { if (!event.target.closest("a, button")) select(i); },
    },
      el("td", { "data-label": "Fact", class: "fact" },
        entityLink(head), " ", el("span", { class: "muted" }, relationLink(relation)), " ", entityLink(tail)),
      el("td", { "data-label": "Probability" }, probability === null ? (score?.toFixed(2) ?? "–") : share()),
      row.state);
    row.cell = el("td", { colspan: 3 });
    row.evidence = el("tr", { class: "witness", hidden: true }, row.cell);
    drawState(row);
    return [row.tr, row.evidence];
  }

  function drawState(row) {
    const { decision } = row.fact;
    row.tr.dataset.state = row.waiting ?? decision?.decision ?? "open";
    const withNote = (what, kind, content) =>
      [el("span", { class: kind }, what), content && el("small", {}, ` ${content}`)];
    const parts = row.waiting ? [el("span", { class: "muted" }, "saving …")]
      : row.failed ? withNote("not saved", "review-error", row.note)
      : decision ? withNote(verdict(decision), `verdict verdict-${decision.decision}`, decision.note) : [];
    row.state.replaceChildren(...parts.filter(Boolean));
  }

  function mark() {
    rows.forEach((row, i) => {
      row.tr.tabIndex = i === current ? 0 : -1;
      if (i === current) row.tr.setAttribute("aria-current", "true");
      else row.tr.removeAttribute("aria-current");
      if (i !== current) row.evidence.hidden = true;
    });
    const decided = rows.filter((row) => row.waiting || row.fact.decision).length;
    progress.max = rows.length;
    progress.value = decided;
    const more = total > rows.length ? `, ${number(total - rows.length)} more were found` : "";
    text.textContent = `${decided} of ${rows.length} decided${more}`;
    const isDone = chosen.state === "open" && rows.every((row) => !row.waiting && row.fact.decision);
    const next = place.querySelector(".next");
    if (!isDone) next?.remove();
    else if (!next) {
      place.append(el("button", { type: "button", class: "next", onclick: () => load(true) }, "Next facts"));
      place.lastChild.focus();
    }
  }

  function select(i) {
    if (!rows.length) return;
    current = Math.max(0, Math.min(rows.length - 1, i));
    mark();
    rows[current].tr.focus();
  }

  // What is drawn above the selected row may have moved it.
  const keepInView = () => { if (document.activeElement === rows[current]?.tr) rows[current].tr.scrollIntoView({ block: "nearest" }); };

  function focus() {
    if (rows.length) select(current);
    else place.querySelector("button")?.focus();
  }

  // --- decisions ---

  const nameOf = ({ head, relation, tail }) => [head, relation, tail].map((name) => short(name)).join(" ");
  const isFact = (fact) => (row) => ["head", "relation", "tail"].every((part) => row.fact[part] === fact[part]);

  function act(action) {
    if (action === "note") return note.focus();
    if (action === "evidence") return showEvidence(rows[current]);
    if (!writable || !rows.length || isLoading) return;
    if (!reviewerName()) return askName(() => act(action));
    if (action === "undo") sent = sent.then(undo);
    else decide(rows[current], action);
  }

  // A dialog, so that keys that are pressed next are not decisions; what was decided is done once there is a name.
  function askName(then) {
    const input = el("input", { id: "review-first-name", autocomplete: "name", maxlength: 100, required: true });
    const done = () => {
      const isGiven = dialog.returnValue === "named" && input.value.trim();
      dialog.remove();
      focus();
      if (!isGiven) return;
      keepName(input.value);
      queue.showName();
      then();
    };
    const dialog = el("dialog", { class: "card ask-name", "aria-labelledby": "review-who", onclose: done },
      el("form", { method: "dialog" }, el("h2", { id: "review-who" }, "Who decides?"),
        el("label", { for: input.id }, "Your name is kept with your decisions."), input,
        el("p", { class: "row" }, el("button", { type: "submit", value: "named" }, "Continue"),
          el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
    element.append(dialog);
    dialog.showModal();
  }

  const send = (content) => fetchJson("/v1/review", { model }, { reviewer: reviewerName(), ...content });

  function decide(row, decision) {
    const { head, relation, tail } = row.fact;
    const content = { reviewer: reviewerName(), head, relation, tail, decision, note: note.value || row.note };
    note.value = "";
    row.waiting = decision;
    row.failed = false;
    drawState(row);
    const next = rows.findIndex((each, i) => i > current && !each.waiting && !each.fact.decision);
    select(next < 0 ? current : next);
    sent = sent.then(() => send(content)).then((answer) => {
      const stands = answer.fact.decision; // that of another reviewer, if this one skipped the fact
      const isMine = stands.decision === decision && stands.reviewer === content.reviewer;
      row.fact.decision = stands;
      row.note = "";
      status.textContent = `${verdict(stands)}: ${nameOf(row.fact)}${isMine ? "" : `; you ${DONE[decision]} it`}`;
      alert.textContent = "";
    }, (error) => {
      row.failed = true;
      row.note = content.note;
      alert.textContent = `Not saved: ${nameOf(row.fact)}. ${error.message}`;
    }).then(() => { row.waiting = null; drawState(row); mark(); keepInView(); });
  }

  async function undo() {
    try {
      const { fact, undone } = await send({ decision: "undo" });
      const i = rows.findIndex(isFact(fact));
      status.textContent = `undone: ${undone.decision} ${nameOf(fact)}`;
      alert.textContent = "";
      if (i < 0) return;
      rows[i].fact.decision = fact.decision;
      drawState(rows[i]);
      select(i);
    } catch (error) {
      alert.textContent = `Not undone: ${error.message}`;
    }
  }

  async function showEvidence(row) {
    if (!row) return;
    row.evidence.hidden = !row.evidence.hidden;
    if (row.evidence.hidden) return;
    row.tr.scrollIntoView({ block: "start" });
    if (row.cell.hasChildNodes()) return;
    row.cell.replaceChildren(el("p", { class: "muted", role: "status" }, "looking for evidence …"));
    const { head, relation, tail } = row.fact;
    try {
      const { content } = await whyPage([head, relation, tail], model);
      row.cell.replaceChildren(...content.slice(1).filter(Boolean)); // without the title, which is the fact
    } catch (error) {
      row.cell.replaceChildren(el("p", { class: "muted" }, error.message));
    }
  }

  // --- keys ---

  element.onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || element.querySelector("dialog[open]")) return;
    const { key, target } = event;
    if (target === note && (key === "Enter" || key === "Escape")) {
      if (key === "Escape") note.value = "";
      focus();
    } else if (target.closest?.("input, textarea, select, #found")) return;
    else if (key === "j" || key === "ArrowDown") select(current + 1);
    else if (key === "k" || key === "ArrowUp") select(current - 1);
    else if (key === "?") help.showModal();
    else if (key === "Enter" && target === rows[current]?.tr) act("evidence");
    else {
      const action = ACTIONS.find(([letter]) => letter === key.toLowerCase());
      if (!action || !rows.length) return;
      if (!event.repeat) act(action[1]); // a key that is held decides one fact
    }
    event.preventDefault();
  };
  shown = element;
  return queue;
}
