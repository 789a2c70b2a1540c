// The page of runs: their curves in the same axes, the dropped groups, and the findings of the diagnosis.
"use strict";

const hidden = new Set();

function drawRuns(overview) {
  clearCharts();
  const page = el("div", {class: "page"});
  find("#main").replaceChildren(page);
  if (!overview.runs.length) {
    page.append(el("p", {class: "soft"}, "There are no runs; the trees have a separate page."));
    return;
  }
  const again = () => drawRuns(overview);
  page.append(el("div", {class: "tools"}, choice("over", "x", {"": "updates", tokens: "sampled tokens"}, again),
    overview.runs.map((run, number) => legend(run, number, again))));
  page.append(drawFindings(overview.runs));
  const box = el("div", {class: "charts"});
  page.append(box);
  drawCharts(box, overview.runs);
  page.append(el("div", {class: "columns"}, drawCounters(overview.runs), drawSettings(overview.runs)));
}

function legend(run, number, again) {
  const key = el("i", {class: "key"});
  key.style.backgroundColor = colourOf(number);
  const toggle = () => { hidden[hidden.has(run.name) ? "delete" : "add"](run.name); again(); };
  return el("label", {class: "legend"},
    el("input", {type: "checkbox", checked: !hidden.has(run.name), onchange: toggle}), key, run.name,
    run.label === run.name ? null : el("span", {class: "soft"}, run.label));
}

function drawCharts(box, runs) {
  const x = option("x") === "tokens" ? "tokens" : "step";
  const lines = (part, name, change = values => values) => runs
    .map((run, number) => ({run, number}))
    .filter(({run}) => !hidden.has(run.name))
    .map(({run, number}) => ({name: run.name, colour: colourOf(number), x: run[part][x], y: change(run[part][name])}));
  chart(box, "Success, held out", lines("evaluations", "success"), {percent: true, note: "no search at test time"});
  chart(box, "Success, training", lines("updates", "success"), {percent: true, note: "searched and plain episodes"});
  chart(box, "Reward", lines("updates", "reward_mean"), {note: "mean return of an update"});
  chart(box, "Entropy", lines("updates", "entropy"), {note: "nats a token"});
  chart(box, "Gradient norm", lines("updates", "grad_norm"), {note: "before clipping"});
  chart(box, "Response length", lines("updates", "response_length"), {note: "tokens a trajectory"});
  chart(box, "Turns", lines("updates", "turns"), {note: "a trajectory"});
  chart(box, "Valid answers", lines("updates", "valid"), {percent: true, note: "share of turns"});
  chart(box, "Budget", lines("updates", "sampled_tokens", total), {note: "sampled tokens so far"});
  // Only runs that play first and search where that fails record these.
  const recorded = name => runs.some(run => run.updates[name].some(value => value !== null));
  if (recorded("share_search")) {
    chart(box, "Searched", lines("updates", "share_search"), {percent: true, note: "share of groups"});
  }
  if (recorded("price_play")) {
    // A price of 0 belongs to a way that was not tried yet.
    const tried = values => values.map(value => value || null);
    const price = (name, dash) => lines("updates", name, tried).map(line => ({...line, dash}));
    chart(box, "Tokens per useful group", [...price("price_play"), ...price("price_search", [7, 4])],
      {note: "- - search"});
  }
}

function total(values) {
  let sum = 0;
  return values.map(value => sum += value ?? 0);
}

function drawFindings(runs) {
  const findings = runs.flatMap((run, number) => run.findings.map(finding => ({run, number, finding})));
  const notes = runs.flatMap(run => run.notes.map(note => el("li", {}, el("b", {}, run.name), ` ${note}`)));
  const cards = findings.map(({run, number, finding}) => {
    const card = el("article", {class: "finding"}, el("h3", {}, finding.name, el("span", {class: "soft"}, ` ${run.name}`)),
      el("p", {}, finding.what), el("p", {class: "soft"}, finding.advice));
    card.style.borderLeftColor = colourOf(number);
    return card;
  });
  const young = runs.every(run => run.updates.step.length < 20);
  const none = `The diagnosis has no findings${young ? "; it needs 20 updates to see trends" : ""}.`;
  return el("section", {class: "findings", "aria-label": "Findings"},
    cards.length ? cards : el("p", {class: "soft"}, none), notes.length ? el("ul", {class: "notes"}, notes) : null);
}

function drawCounters(runs) {
  const reasons = [...new Set(runs.flatMap(run => Object.keys(run.counters.dropped)))];
  const row = (name, value) => el("tr", {}, el("th", {scope: "row"}, name), runs.map(run => {
    const count = value(run), share = run.counters.groups ? count / run.counters.groups : 0;
    const bar = el("span", {class: "share"});
    bar.style.width = `${Math.round(60 * share)}px`;
    return el("td", {}, bar, show(count), el("span", {class: "soft"}, ` ${Math.round(100 * share)} %`));
  }));
  return el("section", {}, el("h2", {}, "Groups: filter and drops"), el("table", {class: "counts"},
    el("thead", {}, el("tr", {}, el("th"), runs.map(run => el("th", {scope: "col"}, run.name)))),
    el("tbody", {}, row("sampled", run => run.counters.groups), row("learned from", run => run.counters.kept),
      reasons.map(reason => row(reason.replaceAll("_", " "), run => run.counters.dropped[reason] ?? 0)))));
}

function drawSettings(runs) {
  const names = [...new Set(runs.flatMap(run => Object.keys(run.about)))];
  const different = names.filter(name => new Set(runs.map(run => run.about[name])).size > 1);
  const shown = runs.length > 1 ? different : names;
  return el("section", {}, el("h2", {}, runs.length > 1 ? "Settings that differ" : "Settings"),
    el("table", {class: "settings"}, el("tbody", {}, shown.map(name =>
      el("tr", {}, el("th", {scope: "row"}, name), runs.map(run => el("td", {}, run.about[name] ?? "–")))))));
}
