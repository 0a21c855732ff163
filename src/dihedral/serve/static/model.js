// Pages for the model: the start page, and its recipe, metrics and training curves.

import { fetchJson } from "./api.js";
import { minedRules, ruleItem } from "./algebra.js";
import { el, number, plural, soft } from "./dom.js";
import { curve } from "./pictures.js";
import { to } from "./routes.js";

const METRICS = [["mrr", "MRR"], ["hits@1", "Hits@1"], ["hits@3", "Hits@3"], ["hits@10", "Hits@10"], ["mr", "mean rank"]];

export async function homePage(_, model, info) {
  const { entities } = await fetchJson("/v1/entities", { model, top: 18 });
  const test = info.metrics.test?.both;
  const rules = el("ul", { class: "rules" });
  if (info.K) minedRules(rules, { model, kind: "composition", top: 6 },
    (found) => rules.replaceChildren(...found.map(ruleItem), ...(found.length ? [] : [el("li", { class: "muted" }, "none found")])));
  const numbers = [[number(info.entities), "entities"], [number(info.relations), "relations"], [number(info.facts), "known facts"]];
  if (test) numbers.push([test.mrr.toFixed(3), "MRR on test"], [test["hits@10"].toFixed(3), "Hits@10 on test"]);
  return {
    title: null,
    content: [
      el("div", { class: "title" }, el("h1", {}, info.name),
        el("p", { class: "lead" }, info.K ? `A model of ${info.graph} that represents each relation by ${info.dimension / 2} elements of D${info.K}. ` : `A ${info.kind} model of ${info.graph}. `,
          "To search for an entity, press ", el("kbd", {}, "/"), ".")),
      el("dl", { class: "numbers" }, numbers.map(([value, label]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
      el("div", { class: "two" },
        el("section", {}, el("h2", {}, "Entities with the most facts"),
          el("ul", { class: "chips" }, entities.map((entity) => el("li", {}, el("a", { href: to("entity", entity.name), title: `${entity.name}: ${plural(entity.facts, "fact")}` }, soft(entity.name)))))),
        info.K !== null && el("section", {}, el("h2", {}, "Mined composition rules"), rules)),
    ],
  };
}

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
