// Helpers that build DOM elements. Names become text nodes and attributes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

let labels = { model: null, of: new Map() };

// Keep the labels of an answer, which are about the names of one model.
export function learnLabels({ model, labels: found }) {
  if (!found) return;
  if (labels.model !== model) labels = { model, of: new Map() };
  for (const [name, label] of Object.entries(found)) labels.of.set(name, label);
}

let namespaces = []; // [prefix, namespace], longest namespace first

export function setPrefixes(prefixes) {
  namespaces = Object.entries(prefixes).sort((a, b) => b[1].length - a[1].length);
}

function prefixed(name) {
  const found = namespaces.find(([, namespace]) => name.startsWith(namespace));
  return found ? `${found[0]}:${name.slice(found[1].length)}` : name;
}

// A name with its prefix, shortened: the last two parts of a path, or the beginning of a long name.
export function short(name, maxLength = 40) {
  const back = name.startsWith("~") ? "~" : "";
  const label = labels.of.get(name) ?? labels.of.get(name.slice(back.length));
  if (label) return (labels.of.has(name) ? "" : back) + cut(label, maxLength);
  let text = prefixed(name.slice(back.length));
  if (text.split("/").length > 3) text = "…/" + text.replaceAll("./", "/").split("/").slice(-2).join("/");
  return back + cut(text, maxLength);
}

// What turns the text after it around is shown as a mark, and what would break a line of a drawing as a blank.
// Of several blanks in a row, which a page would show as one, all are shown.
const plain = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd").replace(/[\u2028\u2029]/g, " ").replace(/ (?= )/g, "\u00a0");
const cut = (text, maxLength) => plain(text.length <= maxLength ? text : text.slice(0, maxLength - 1) + "…");

// The id beside a label; nothing for a name without one.
export const idOf = (name, maxLength = 24) => labels.of.has(name) && el("small", { class: "id" }, cut(prefixed(name), maxLength));

// A name that may wrap after underscores, slashes and dots, but not within a word.
export const soft = (name, maxLength) => short(name, maxLength).split(/(?<=[_/.])/).flatMap((part, i) => i ? [el("wbr"), part] : [part]);

export const percent = (share) => `${Math.round(100 * share)} %`;
// Probabilities are never shown as 0 % or 100 %. PROBABILITY_NOTE says what they mean.
export const formatProbability = (probability) => probability > 0.99 ? "> 99 %" : probability < 0.01 ? "< 1 %" : percent(probability);
export const formatShare = (share) => share === 0 || share === 1 ? percent(share) : formatProbability(share); // a counted one may be
export const PROBABILITY_NOTE = "the share of such proposals that are estimated to hold";
export const number = (value) => value.toLocaleString("en");
export const plural = (count, one, many = one + "s") => `${number(count)} ${count === 1 ? one : many}`;

// What a count on a sample says, for a rule, a path or a count.
export const intervalText = ({ interval }) => interval ? `; estimated from a sample of ${number(interval.sample)}: ${(100 * interval.low).toFixed(2)}% to ${(100 * interval.high).toFixed(2)}%` : "";

// Have the browser save a file.
export function saveFile(content, name, type = "text/plain") {
  const link = el("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000); // once the download has begun
}

// A thin bar for a share between 0 and 1. The Content-Security-Policy allows setting the width through the style object.
export function bar(share, kind = "") {
  const inner = el("span", { class: "bar-fill" });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: `bar-track ${kind}`, "aria-hidden": "true" }, inner);
}
