// The list of trees next to the page of a tree. Names appear at once and outcomes as they arrive; only visible rows are in
// the document, because a run can have thousands of trees.
"use strict";

const ROW = 30;
const summaries = new Map();
const OUTCOMES = {"": "all", solved: "solved", failed: "failed", cut: "cut by a limit", open: "open", damaged: "damaged"};

function drawList(names) {
  const count = el("span", {class: "soft"});
  const rows = el("div", {class: "rows"});
  const scroll = el("div", {class: "scroll", tabindex: 0, "aria-label": "Trees"}, rows);
  const list = {names, shown: names, rows, scroll, count, asked: false};
  const search = el("input", {type: "search", placeholder: "name", "aria-label": "Name of a tree",
    value: option("find"), oninput: event => { option("find", event.target.value); filterList(list); }});
  scroll.addEventListener("scroll", () => drawRows(list), {passive: true});
  const box = el("aside", {class: "list"},
    el("div", {class: "tools"}, choice("trees", "trees", OUTCOMES, () => filterList(list)), search, count), scroll);
  list.box = box;
  return list;
}

// Outcomes are requested in parts, one after the other, and only once while the page is open.
async function readSummaries(list, chunk) {
  list.asked = true;
  for (let first = 0; first < list.names.length; first += chunk) {
    if (!list.names.slice(first, first + chunk).every(name => summaries.has(name))) {
      const part = await load(`summaries/${first / chunk}`);
      for (const [name, summary] of Object.entries(part)) summaries.set(name, summary);
    }
    if (!list.box.isConnected) return;
    filterList(list);
  }
}

function filterList(list) {
  const outcome = option("trees"), words = option("find").toLowerCase();
  list.shown = list.names.filter(name =>
    name.toLowerCase().includes(words) && (!outcome || summaries.get(name)?.outcome === outcome));
  const read = list.names.filter(name => summaries.has(name)).length;
  const still = outcome && read < list.names.length ? `, ${read} read` : "";
  list.count.textContent = `${list.shown.length.toLocaleString("en")} of ${list.names.length.toLocaleString("en")}${still}`;
  drawRows(list);
}

function drawRows(list) {
  const {scroll, rows, shown} = list;
  rows.style.height = `${shown.length * ROW}px`;
  const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 5);
  const last = Math.min(shown.length, first + Math.ceil((scroll.clientHeight || 700) / ROW) + 10);
  rows.replaceChildren(...shown.slice(first, last).map((name, number) => drawRow(list, name, first + number)));
}

function drawRow(list, name, number) {
  const summary = summaries.get(name);
  const title = summary?.error ?? (summary && !summary.whole ? "the file is not whole" : name);
  const row = el("a", {href: linkTo(name), class: `row${name === place.name ? " here" : ""}`, title},
    el("i", {class: `dot ${summary?.outcome ?? "unread"}`}), el("span", {class: "name"}, name),
    el("span", {class: "soft"}, summary ? show(summary.nodes) : ""));
  row.style.top = `${number * ROW}px`;
  return row;
}

function linkTo(name, node = 0) {
  const query = new URLSearchParams([...place.options].filter(([, value]) => value)).toString();
  return `#/tree/${name.split("/").map(encodeURIComponent).join("/")}/${node}${query ? `?${query}` : ""}`;
}

// Scroll to the row of the current tree.
function reveal(list) {
  const number = list.shown.indexOf(place.name), {scroll} = list;
  const top = number * ROW;
  if (number >= 0 && (top < scroll.scrollTop || top + ROW > scroll.scrollTop + scroll.clientHeight)) {
    scroll.scrollTop = top - scroll.clientHeight / 2;
  }
  drawRows(list);
}
