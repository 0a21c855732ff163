// URLs of pages: #/entity/NAME?model=NAME, with every part encoded.

export function read(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  return { page: parts[0] ?? "", parts: parts.slice(1), model: new URLSearchParams(query ?? "").get("model") };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not encoded: typed by hand, with a single %
  }
}

export function to(page, ...parts) {
  const { model } = read();
  const path = [page, ...parts].map(encodeURIComponent).join("/");
  return `#/${path}${model ? `?model=${encodeURIComponent(model)}` : ""}`;
}
