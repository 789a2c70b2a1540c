// Shared by all parts of the page: making elements, loading data, and the page's address.
// Texts of models and environments only become text nodes: no part of the page writes HTML.
"use strict";

// el("button", {class: "small", onclick: go}, "text", child) makes an element; null children are left out.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined));
  return made;
}

// Replace the children of an element; null ones are left out.
function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter(child => child !== null && child !== undefined));
}

function svg(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const find = selector => document.querySelector(selector);

// Numbers as a page shows them.
function show(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return String(+value.toPrecision(digits)).replace("-", "−");
}

// An exported file holds the data in the page, by address; otherwise the data comes from a server.
const embedded = (() => {
  const index = find("#addresses");
  if (!index) return null;
  const addresses = JSON.parse(index.textContent);
  return new Map(addresses.map((address, number) => [address, number]));
})();
const parsed = new Map();

function readEmbedded(address) {
  if (!embedded.has(address)) throw new Error("the exported file does not contain this");
  if (!parsed.has(address)) {
    const holder = find(`script[data-address="${embedded.get(address)}"]`);
    parsed.set(address, JSON.parse(holder.textContent));
  }
  return parsed.get(address);
}

function embeddedNode(index, name) {
  const {shared, nodes} = readEmbedded(`nodes/${name}`);
  const node = {...nodes[index]};
  for (const key of ["picture", "prompt", "observation", "page"]) {
    if (typeof node[key] === "number") node[key] = shared[node[key]];
  }
  return node;
}

async function load(address) {
  if (embedded) {
    const [, index, name] = address.match(/^node\/(\d+)\/(.*)$/) ?? [];
    const data = name === undefined ? readEmbedded(address) : embeddedNode(+index, name);
    if (data.error) throw new Error(data.error);
    return data;
  }
  const answer = await fetch(`data/${address.split("/").map(encodeURIComponent).join("/")}`);
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error);
  return data;
}

// The state of the page is its address after #, so every view has a lasting link:
// #/runs?x=tokens, #/tree/NAME/NODE?only=solved&colour=advantage
const place = {page: "", name: "", node: 0, options: new Map()};

function readPlace() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/").map(decodeURIComponent);
  place.page = page === "tree" || page === "trees" ? "trees" : page === "runs" ? "runs" : "";
  const node = page === "tree" && /^\d+$/.test(rest.at(-1)) && rest.length > 1 ? +rest.pop() : 0;
  place.name = page === "tree" ? rest.join("/") : "";
  place.node = node;
  place.options = new Map(new URLSearchParams(query ?? ""));
}

function address() {
  const query = new URLSearchParams([...place.options].filter(([, value]) => value)).toString();
  const name = place.name.split("/").map(encodeURIComponent).join("/");
  const path = place.page === "trees" && place.name ? `tree/${name}/${place.node}` : place.page;
  return `#/${path}${query ? `?${query}` : ""}`;
}

function option(name, value) {
  if (value === undefined) return place.options.get(name) ?? "";
  place.options.set(name, value);
  history.replaceState(null, "", address());
  document.body.dataset.ready = location.hash;
  return value;
}

function choice(label, name, values, changed) {
  const chosen = option(name);
  const options = Object.entries(values).map(([value, text]) =>
    el("option", {value, selected: value === chosen}, text));
  return el("label", {class: "choice"}, label,
    el("select", {name, onchange: event => { option(name, event.target.value); changed(); }}, options));
}

function notify(text) { find("#notice").textContent = text; }
