// Charts of several runs in the same axes, drawn by uPlot.
"use strict";

const COLOURS = ["#4a8ac9", "#d07f2e", "#4aa56f", "#a274c8", "#cc6176", "#419fad", "#a8923a", "#848c99"];
const drawn = [];

function colourOf(number) { return COLOURS[number % COLOURS.length]; }

function clearCharts() {
  while (drawn.length) drawn.pop().destroy();
}

// A chart in a box: lines are {name, colour, x, y}; lines without any value are left out.
function chart(box, title, lines, {percent = false, note = ""} = {}) {
  const filled = lines.filter(line => line.y.some(value => value !== null));
  const readout = el("span", {class: "readout soft"}, filled.length ? note : "not recorded by these runs");
  const holder = el("div", {class: "plot"});
  box.append(el("div", {class: "chart"}, el("div", {class: "heading"}, el("h3", {}, title), readout), holder));
  if (!filled.length) return;
  const [ink, line] = [getComputedStyle(readout).color, getComputedStyle(holder).borderTopColor];
  const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {show: false}, font: "11px system-ui, sans-serif"};
  const word = value => percent ? `${show(100 * value)} %` : show(value);
  const options = {
    width: holder.clientWidth || 380, height: 150, legend: {show: false}, padding: [6, 10, 0, 0],
    scales: {x: {time: false}}, cursor: {y: false, sync: {key: "runs"}, points: {size: 6}},
    series: [{}, ...filled.map(line => ({
      label: line.name, stroke: line.colour, width: 1.5, dash: line.dash, spanGaps: true,
      points: {show: line.x.length < 40, size: 4, fill: line.colour},
    }))],
    axes: [
      {...axis, size: 26, values: (_, ticks) => ticks.map(short)},
      {...axis, size: 46, values: (_, ticks) => ticks.map(tick => percent ? `${Math.round(100 * tick)} %` : short(tick))},
    ],
    hooks: {setCursor: [plot => {
      const at = plot.cursor.idx;
      const words = at == null ? [] : filled.map((line, number) => plot.data[number + 1][at])
        .map((value, number) => value == null ? null : el("span", {}, el("i", {class: "key"}), word(value)))
        .map((made, number) => { if (made) made.firstChild.style.backgroundColor = filled[number].colour; return made; });
      readout.replaceChildren(...words.filter(made => made));
      if (!readout.childNodes.length) readout.textContent = note;
    }]},
  };
  drawn.push(new uPlot(options, uPlot.join(filled.map(line => ordered(line.x, line.y))), holder));
}

function short(tick) {
  return Math.abs(tick) >= 1e4 && Math.abs(tick) < 1e6 ? `${+(tick / 1e3).toPrecision(3)}k` : show(tick);
}

// uPlot needs rising numbers on the x axis; where a number comes twice, the later value counts.
function ordered(x, y) {
  const pairs = new Map(x.map((value, number) => [value, y[number]]).filter(([value]) => value !== null));
  const points = [...pairs].sort((a, b) => a[0] - b[0]);
  return [points.map(point => point[0]), points.map(point => point[1])];
}
