// The tree itself, laid out by d3-hierarchy; only the visible nodes are in the document.
"use strict";

// Widths and heights of a node with a picture, which stands below its parent, and of a node as a line, which stands to the
// right of its parent.
const CARD = {width: 80, height: 126};
const LINE = {width: 230, height: 26};
const MANY = 300;

// The page's state of a tree: its columns, children, and folded nodes.
function makeTree(name, shape) {
  const children = shape.parent.map(() => []);
  shape.parent.forEach((parent, node) => { if (parent !== null) children[parent].push(node); });
  return {name, shape, children, folded: new Set(), nodes: new Map(), size: shape.parent.length};
}

function pathTo(tree, node) {
  const path = [];
  for (let here = node; here !== null; here = tree.shape.parent[here]) path.unshift(here);
  return path;
}

// The end of the best path through a node: a path that the search chose, else the solved or best one below the node.
function endBelow(tree, node) {
  const chosen = tree.shape.chosen.find(end => pathTo(tree, end).includes(node));
  if (chosen !== undefined) return chosen;
  const ends = leavesBelow(tree, node);
  const worth = end => (tree.shape.outcome[end] === "solved" ? 1e9 : 0) + tree.shape.return[end];
  return ends.reduce((best, end) => worth(end) > worth(best) ? end : best, ends[0]);
}

function leavesBelow(tree, node) {
  const leaves = [], open = [node];
  while (open.length) {
    const here = open.pop();
    if (tree.children[here].length) open.push(...tree.children[here].toReversed());
    else leaves.push(here);
  }
  return leaves;
}

function drawTree(tree, canvas) {
  const pictured = option("draw") ? option("draw") === "cards" : tree.size <= MANY && tree.pictured;
  const size = pictured ? CARD : LINE;
  const root = d3.hierarchy(0, node => tree.folded.has(node) ? null : tree.children[node]);
  d3.tree().nodeSize(pictured ? [size.width, size.height] : [size.height, size.width])
    .separation((a, b) => a.parent === b.parent ? 1 : 1.12)(root);
  const all = root.descendants();
  let low = Infinity, high = -Infinity;
  for (const point of all) { low = Math.min(low, point.x); high = Math.max(high, point.x); }
  // d3 lays trees out downwards; lines grow to the right, so their axes are swapped.
  const places = new Map(all.map(point => {
    const across = point.x - low + 16, along = point.y + 16;
    return [point.data, pictured ? {x: across, y: along} : {x: along, y: across}];
  }));
  const breadth = high - low + (pictured ? size.width : size.height) + 32;
  const length = (root.height + 1) * (pictured ? size.height : size.width) + 32;
  const [width, height] = pictured ? [breadth, length] : [length, breadth];
  const links = svg("svg", {class: "links", width, height, "aria-hidden": "true"});
  const field = el("div", {class: `field ${pictured ? "cards" : "lines"}`}, links);
  field.style.width = `${width}px`;
  field.style.height = `${height}px`;
  canvas.replaceChildren(field);
  const drawing = {tree, canvas, field, links, size, places, pictured, shown: new Map()};
  canvas.onscroll = () => requestAnimationFrame(() => drawVisible(drawing));
  drawVisible(drawing);
  return drawing;
}

function drawVisible(drawing) {
  const {tree, canvas, field, links, size, places, shown} = drawing;
  if (!field.isConnected) return;
  const margin = 200;
  const left = canvas.scrollLeft - margin - size.width, right = canvas.scrollLeft + canvas.clientWidth + margin;
  const top = canvas.scrollTop - margin - size.height, bottom = canvas.scrollTop + canvas.clientHeight + margin;
  const visible = new Set(), lines = [];
  const kept = new Set(tree.trajectory);
  for (const [node, {x, y}] of places) {
    if (x > left && x < right && y > top && y < bottom) visible.add(node);
    const above = places.get(tree.shape.parent[node]);
    if (above && Math.max(x, above.x) > left && Math.min(x, above.x) < right && Math.max(y, above.y) > top
      && Math.min(y, above.y) < bottom) lines.push(link(drawing, node, above, {x, y}, kept.has(node)));
  }
  for (const [node, made] of shown) if (!visible.has(node)) { made.remove(); shown.delete(node); }
  for (const node of visible) if (!shown.has(node)) {
    const made = drawing.pictured ? card(drawing, node) : line(drawing, node);
    made.style.left = `${places.get(node).x}px`;
    made.style.top = `${places.get(node).y}px`;
    shown.set(node, made);
    field.append(made);
  }
  links.replaceChildren(...lines);
  markPlace(drawing);
}

function link(drawing, node, from, to, stressed) {
  const {size, pictured, tree} = drawing;
  const shape = pictured
    ? bend(from.x + size.width / 2 - 3, from.y + size.height - 22, to.x + size.width / 2 - 3, to.y, true)
    : bend(from.x + size.width - 26, from.y + 11, to.x, to.y + 11, false);
  return svg("path", {d: shape, class: `${tree.shape.fate[node]}${stressed ? " stressed" : ""}${dim(tree, node)}`});
}

function bend(x, y, x2, y2, down) {
  return down ? `M${x},${y}C${x},${(y + y2) / 2} ${x2},${(y + y2) / 2} ${x2},${y2}`
    : `M${x},${y}C${(x + x2) / 2},${y} ${(x + x2) / 2},${y2} ${x2},${y2}`;
}

// With a filter by outcome, only the paths to nodes with that outcome keep their full colour.
function dim(tree, node) {
  return tree.lit && !tree.lit.has(node) ? " dim" : "";
}

function light(tree, only) {
  if (!only) { tree.lit = null; return; }
  tree.lit = new Set();
  const matches = node => only === "kept" ? tree.shape.fate[node] === "kept" : tree.shape.outcome[node] === only;
  for (let node = 0; node < tree.size; node++) if (matches(node)) for (const above of pathTo(tree, node)) tree.lit.add(above);
}

const SYMBOLS = {solved: "✓", failed: "✕", cut: "⊣", "dead end": "⊘"};

function outline(tree, node) {
  const {shape} = tree;
  return `node ${shape.fate[node]} ${shape.outcome[node].replace(" ", "-")}${dim(tree, node)}`;
}

function shade(tree, node, element) {
  const colour = option("colour") || "score";
  if (colour === "none" || node === 0) return;
  const column = tree.shape[colour], value = column[node];
  if (value === null) return;
  tree.scale ??= {};
  tree.scale[colour] ??= usual(column);
  element.style.backgroundColor = signed(value, tree.scale[colour]);
}

// The size that nine in ten values do not exceed, so that an outlier does not wash out the colours of the others.
function usual(column) {
  const sizes = column.filter(value => value !== null).map(Math.abs).sort((a, b) => a - b);
  return sizes[Math.floor(0.9 * (sizes.length - 1))] || sizes.at(-1);
}

function number(tree, node) {
  const colour = option("colour") || "score";
  return node === 0 || colour === "none" ? "" : show(tree.shape[colour][node], 2);
}

function card(drawing, node) {
  const {tree} = drawing, {shape} = tree;
  const face = el("div", {class: "face"});
  const foot = el("div", {class: "foot"}, el("span", {}, `${SYMBOLS[shape.outcome[node]] ?? ""}`), number(tree, node));
  shade(tree, node, foot);
  const made = el("a", {href: linkTo(tree.name, node), class: outline(tree, node), "data-node": node,
    title: `${shape.label[node]}\nreward ${show(shape.reward[node])}, score ${show(shape.score[node])}`},
    face, el("div", {class: "label"}, shape.label[node]), foot, fold(drawing, node));
  nodeData(tree, node).then(data => face.replaceChildren(hasPicture(data)
    ? drawObservation(data) : el("div", {class: "small"}, data.observation.slice(0, 160)))).catch(refuse);
  return made;
}

function line(drawing, node) {
  const {tree} = drawing, {shape} = tree;
  const value = el("span", {class: "value"}, number(tree, node));
  shade(tree, node, value);
  return el("a", {href: linkTo(tree.name, node), class: outline(tree, node), "data-node": node, title: shape.label[node]},
    value, el("span", {class: "label"}, shape.label[node]), el("span", {}, SYMBOLS[shape.outcome[node]] ?? ""),
    fold(drawing, node));
}

function fold(drawing, node) {
  const {tree} = drawing;
  if (!tree.children[node].length) return null;
  const closed = tree.folded.has(node);
  const words = closed ? `Unfold ${leavesBelow(tree, node).length} ends` : "Fold";
  return el("button", {type: "button", class: "fold", title: words, "aria-label": words, tabindex: -1, onclick: event => {
    event.preventDefault();
    event.stopPropagation();
    toggleFold(tree, node);
  }}, closed ? "+" : "−");
}

function markPlace(drawing) {
  for (const [node, made] of drawing.shown) made.classList.toggle("here", node === place.node);
}

// Scroll only as far as needed to make a node visible.
function bringIntoView(drawing, node, smooth) {
  const {canvas, places, size} = drawing, at = places.get(node);
  if (!at) return;
  const behavior = smooth ? "smooth" : "instant";
  const outside = (low, high, from, length) => low < from + 8 ? low - length / 3 : high > from + length - 8 ? high - length * 2 / 3 : null;
  const left = outside(at.x, at.x + size.width, canvas.scrollLeft, canvas.clientWidth);
  const top = outside(at.y, at.y + size.height, canvas.scrollTop, canvas.clientHeight);
  if (left !== null || top !== null) canvas.scrollTo({left: left ?? canvas.scrollLeft, top: top ?? canvas.scrollTop, behavior});
}
