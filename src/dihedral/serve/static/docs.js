// The API reference, built from /openapi.json.

import { fetchJson, keyForm } from "./api.js";
import { el } from "./dom.js";

const main = document.getElementById("main");

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.const) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(typeOf).filter((type) => type !== "null").join(" | ");
  return schema.type === "array" ? `list of ${typeOf(schema.items)}` : schema.type ?? "any";
}

const row = (name, schema, required, about) => el("tr", {}, el("td", { "data-label": "name" }, el("code", {}, name)),
  el("td", { "data-label": "type" }, typeOf(schema)), el("td", { "data-label": "about" }, required ? "required. " : "", about ?? schema?.description ?? ""));

function endpoint(path, method, operation, schemas) {
  const parameters = operation.parameters ?? [];
  const body = operation.requestBody?.content["application/json"]?.schema;
  const response = operation.responses["200"]?.content?.["application/json"]?.schema;
  return el("section", { class: "card endpoint" },
    el("h2", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), el("code", {}, path)),
    el("p", {}, operation.description ?? ""),
    parameters.length > 0 && el("table", {}, el("tbody", {}, parameters.map((each) => row(each.name, each.schema, each.required, each.description)))),
    (body?.oneOf ?? (body ? [body] : [])).map((part) => schemaTable("Request", part, schemas)),
    response && (response.anyOf ?? [response]).map((part) => schemaTable("Response", part, schemas)));
}

function schemaTable(title, schema, schemas) {
  const name = typeOf(schema);
  const fields = schemas[name]?.properties ?? {};
  const required = schemas[name]?.required ?? [];
  return el("details", {}, el("summary", {}, `${title} `, el("code", {}, name)),
    el("table", {}, el("tbody", {}, Object.entries(fields).map(([field, type]) => row(field, type, title === "Request" && required.includes(field))))));
}

async function show() {
  try {
    const api = await fetchJson("/openapi.json");
    main.replaceChildren(
      el("div", { class: "title" }, el("h1", {}, "API"), el("p", { class: "muted" }, api.info.description)),
      ...Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) =>
        endpoint(path, method, operation, api.components.schemas))));
  } catch (error) {
    main.replaceChildren(error.status === 401 ? keyForm(show) : el("p", {}, error.message));
  }
}

show();
