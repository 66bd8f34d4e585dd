"use strict";
// The page of a ledger: it asks for what is new once a second, and draws all of it again.

const TOKEN = new URLSearchParams(location.search).get("token");
const MOST_POINTS = 6000, MOST_ROWS = 200, COLOURS = ["b", "c", "d", "e"];
const page = {
  cursor: {}, run: null, figures: {}, latest: {}, shards: {}, flows: [], changes: [], shadows: [], replayed: [],
  notices: [], graph: null, chosen: null, span: 0, open: null, hover: null, controllers: [],
};
const at = (id) => document.getElementById(id);
const escaped = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function number(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)}${unit}`;
  }
  return value < 10 && value % 1 ? value.toFixed(1) : value.toFixed(0);
}
function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${Number((value * 1e3).toFixed(value < 0.1 ? 1 : 0))} ms`;
  return value < 120 ? `${Number(value.toFixed(value < 10 ? 1 : 0))} s` : value < 7200 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`;
}
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);

function clock(value) {
  const whole = Math.round(value), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

// Charts

function steps(most, count) {
  const raw = Math.max(most, 1e-12) / count, size = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((each) => each * size).find((each) => each >= raw);
}

function range() {
  const ends = Object.values(page.figures).flatMap((rows) => (rows.length ? [rows[0].time_seconds, rows.at(-1).time_seconds] : []));
  const last = Math.max(1, ...ends), first = Math.min(last, ...ends);
  return page.span ? [Math.max(first, last - page.span), Math.max(last, first + 1)] : [first, Math.max(last, first + 1)];
}

function chart(id, title, form, series, marks = []) {
  const place = at(id), width = Math.max(place.clientWidth - 30, 200), height = 150, left = 50, bottom = 20, top = 8;
  const [from, to] = range();
  const x = (time) => left + ((time - from) / (to - from)) * (width - left - 8);
  const shown = series.map((each) => ({ ...each, points: each.points.filter(([time, value]) => time >= from && value !== null) }));
  const highest = Math.max(0, ...shown.flatMap((each) => each.points.map((point) => point[1])));
  const tall = steps(highest || 1, form === number && highest < 4 ? Math.max(Math.ceil(highest), 1) : 3);
  const most = Math.max(Math.ceil((highest || 1) / tall - 1e-9), 1) * tall;
  const y = (value) => height - bottom - (value / most) * (height - bottom - top);
  const parts = [];
  for (let value = 0; value <= most * 1.0001; value += tall) {
    parts.push(`<line class="grid" x1="${left}" x2="${width - 8}" y1="${y(value)}" y2="${y(value)}"/>`,
      `<text x="${left - 6}" y="${y(value) + 4}" text-anchor="end">${form(value)}</text>`);
  }
  const wide = Math.max(steps(to - from, 6), 1);
  for (let time = Math.ceil(from / wide) * wide; time <= to; time += wide) {
    parts.push(`<text x="${x(time)}" y="${height - 5}" text-anchor="middle">${clock(time)}</text>`);
  }
  for (const each of changesShown().filter((change) => change.time_seconds >= from)) {
    parts.push(`<line class="when" x1="${x(each.time_seconds)}" x2="${x(each.time_seconds)}" y1="${top}" y2="${height - bottom}"/>`);
  }
  for (const each of [...shown].reverse()) {
    let path = "";
    each.points.forEach(([time, value], place) => {
      path += place === 0 ? `M${x(time).toFixed(1)},${y(value).toFixed(1)}`
        : each.step ? `H${x(time).toFixed(1)}V${y(value).toFixed(1)}` : `L${x(time).toFixed(1)},${y(value).toFixed(1)}`;
    });
    parts.push(`<path class="serie ${each.colour}${each.dash ? " dash" : ""}" d="${path}"/>`);
  }
  for (const change of marks.filter((each) => each.time_seconds >= from)) {
    const [cx, cy] = [x(change.time_seconds), y(change.instances)], kind = change.action === "balance" ? "balance" : change.instances < change.instances_before ? "down" : "up";
    const shape = { up: "M-6,5 L6,5 L0,-6 z", down: "M-6,-5 L6,-5 L0,6 z", balance: "M-6,0 L0,-6 L6,0 L0,6 z" }[kind];
    parts.push(`<path class="mark ${kind} ${change.result}${page.open === change.decision ? " open" : ""}" data-decision="${change.decision}"
      transform="translate(${cx.toFixed(1)},${cy.toFixed(1)})" d="${shape}"/>`);
  }
  const hover = page.hover !== null && page.hover >= from && page.hover <= to ? page.hover : null;
  if (hover !== null) parts.push(`<line class="cross" x1="${x(hover)}" x2="${x(hover)}" y1="${top}" y2="${height - bottom}"/>`);
  const legend = shown.map((each) => {
    const point = hover === null ? each.points.at(-1) : each.points.findLast(([time]) => time <= hover);
    return `<i class="${each.colour}">${each.dash ? "┅" : "━"}</i> ${escaped(each.name)} <b>${point ? form(point[1]) : "–"}</b>`;
  });
  place.innerHTML = `<h2>${title}<span class="legend">${legend.join("")}</span></h2>
    <svg width="${width}" height="${height}" data-from="${from}" data-to="${to}" data-left="${left}">${parts.join("")}</svg>`;
}

const chosenRows = () => page.figures[page.chosen] || [];
const changesShown = () => page.changes.filter((each) => each.subquery === page.chosen);
const line = (name, field, colour) => ({ name, colour, points: chosenRows().map((row) => [row.time_seconds, row[field]]) });

function others() {
  // Shadows, and the controller that was chosen, by name.
  const found = new Map();
  for (const each of [...page.shadows, ...page.replayed].filter((row) => row.subquery === page.chosen)) {
    const name = each.replayed ? `${each.controller}, replayed` : `${each.controller}, shadow`;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push([each.time_seconds, each.instances]);
  }
  return [...found].map(([name, points], place) => ({ name, points, step: true, dash: true, colour: COLOURS[place % 4] }));
}

function drawCharts() {
  chart("instances", page.graph ? "Instances" : "Instances, cells or executors", number, [{ ...line("run", "instances", "a"), step: true }, ...others()], changesShown());
  chart("rates", "Tuples per second", number, [line("offered", "offered", "b"), line("processed", "processed", "a")]);
  chart("busy", "Busy", percent, [line("instances at work", "utilisation", "a"), line("sources blocked", "congestion", "b")]);
  chart("waiting", "Tuples that wait", number, [line("waiting", "backlog", "a")]);
  const late = (name, field, colour) => ({ name, colour, points: page.flows.map((row) => [row.time_seconds, row[field]]) });
  const timed = page.flows.some((row) => row.latency_p50_seconds !== null);
  chart("latency", "Latency of results", seconds, timed
    ? [late("p50", "latency_p50_seconds", "a"), late("p99", "latency_p99_seconds", "b"), late("highest", "latency_max_seconds", "e")]
    : [line("mean", "latency_seconds", "a")]);
  chart("lag", "Watermark behind the newest tuple", seconds, [line("event time", "watermark_lag_seconds", "a")]);
}

// The graph of the query

function plainGraph() {
  // Where no plan was recorded: each subquery between its input and its results.
  const boxes = [], arrows = [];
  Object.keys(page.figures).forEach((name, row) => {
    const y = 8 + row * 86, of = (part, title, kind, x) => ({ name: part, title, text: "", kind, x, y, width: 190, height: 64 });
    boxes.push(of(`${name}<`, "input", "source", 8), of(name, name, "stateful", 368), of(`${name}>`, "completed", "output", 728));
    arrows.push({ origin: `${name}<`, target: name, text: "", points: [[198, y + 32], [368, y + 32]] },
      { origin: name, target: `${name}>`, text: "", points: [[558, y + 32], [728, y + 32]] });
  });
  return { boxes, arrows, width: 926, height: 8 + 86 * Object.keys(page.figures).length };
}

function drawGraph() {
  const graph = page.graph || plainGraph(), flow = page.flows.at(-1), parts = [];
  const rates = new Map((flow ? flow.rates : []).map(([origin, target, rate]) => [`${origin}→${target}`, rate]));
  for (const arrow of graph.arrows) {
    const into = page.latest[arrow.target], from = page.latest[arrow.origin];
    const rate = rates.get(`${arrow.origin}→${arrow.target}`) ?? (page.graph ? null : into ? into.offered : from ? from.processed : null);
    const lag = into ? into.watermark_lag_seconds : null, last = arrow.points.length - 1;
    const [tipX, tipY] = arrow.points[last], [startX, startY] = arrow.points[last - 1];
    const path = arrow.points.map(([px, py], place) => {
      const [beforeX, beforeY] = arrow.points[place - 1] || [], middle = (beforeX + px) / 2;
      return place === 0 ? `M${px},${py}` : `C${middle},${beforeY} ${middle},${py} ${px - (place === last ? 7 : 0)},${py}`;
    }).join("");
    parts.push(`<g class="edge" data-tip="${escaped(arrow.text)}"><path class="arrow" stroke-width="${rate ? Math.min(1 + Math.log10(1 + rate) / 2, 5) : 1}" d="${path}"/>
      <path class="head" d="M${tipX},${tipY} l-9,-5 v10 z"/>
      <text class="rate" text-anchor="middle" x="${(startX + tipX) / 2 - 4}" y="${(startY + tipY) / 2 - 8}">${rate === null || rate === undefined ? "" : `${number(rate)}/s`}</text>
      <text text-anchor="middle" x="${(startX + tipX) / 2 - 4}" y="${(startY + tipY) / 2 + 17}">${lag === null ? "" : `lag ${seconds(lag)}`}</text></g>`);
  }
  for (const box of graph.boxes) {
    const seen = page.latest[box.name];
    const live = seen ? `${seen.instances} inst. · busy ${percent(seen.utilisation)} · ${number(seen.backlog)} wait` : "";
    parts.push(`<g data-tip="${escaped(`${box.title}\n${box.text}`)}"><rect class="box ${box.kind}" x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" rx="6"/>
      ${seen && seen.utilisation !== null ? `<rect class="busy" x="${box.x + 1}" y="${box.y + box.height - 6}" height="5" width="${(box.width - 2) * Math.min(seen.utilisation, 1)}"/>` : ""}
      <text class="title" x="${box.x + 10}" y="${box.y + 19}">${escaped(cut(box.title, 25))}</text>
      <text x="${box.x + 10}" y="${box.y + 35}">${escaped(cut(box.text, 29))}</text><text x="${box.x + 10}" y="${box.y + 51}">${live}</text></g>`);
  }
  const scale = Math.min(1, Math.max(at("graph").clientWidth / graph.width, 0.6));
  at("graph").innerHTML = `<svg viewBox="0 0 ${graph.width} ${graph.height}" width="${graph.width * scale}" height="${graph.height * scale}">${parts.join("")}</svg>`;
}

// Shards

function drawShards() {
  const place = at("shards"), of = page.shards[page.chosen], seen = page.latest[page.chosen];
  if (!of || !of.mapping) {
    place.innerHTML = '<p class="note">Nothing is known of shards.</p>';
    return;
  }
  const loads = of.loads, details = seen ? seen.details : {}, rows = new Map();
  of.mapping.forEach((instance, shard) => rows.set(instance, [...(rows.get(instance) || []), shard]));
  const most = loads ? Math.max(...loads, 1e-9) : 1, all = loads ? loads.reduce((sum, load) => sum + load, 0) : 0;
  const longest = Math.max(...[...rows.values()].map((shards) => shards.length));
  const wide = Math.min(Math.max(place.clientWidth - 330, 200) / longest, 16), parts = [];
  [...rows.keys()].sort((one, other) => one - other).forEach((instance, row) => {
    const shards = rows.get(instance).sort((one, other) => (loads ? loads[other] - loads[one] : one - other)), y = row * 22;
    const mine = loads ? shards.reduce((sum, shard) => sum + loads[shard], 0) : null, busy = details.busy ? details.busy[instance] : null;
    parts.push(`<text x="0" y="${y + 13}">instance ${instance}</text>`);
    shards.forEach((shard, column) => parts.push(`<rect class="heat" x="${80 + column * wide}" y="${y}" width="${Math.max(wide - (wide > 4 ? 1 : 0), 0.8)}" height="18"
      fill-opacity="${loads ? 0.06 + 0.94 * (loads[shard] / most) : 0.25}" data-tip="shard ${shard} on instance ${instance}${loads ? `: ${number(loads[shard])} tuples/s` : ""}"/>`));
    parts.push(`<text x="${88 + longest * wide}" y="${y + 13}">${shards.length} shards${loads && all ? `, ${percent(mine / all)} of the load` : ""}${busy === null || busy === undefined ? "" : `, busy ${percent(busy)}`}</text>`);
  });
  const notes = [loads ? `the darkest got ${number(most)} tuples/s` : "their loads are measured where the job is elastic or balanced",
    details.hot_key ? `most frequent key of the busiest shard: ${details.hot_key[1]}, ${percent(details.hot_key[2])} of all tuples` : "",
    details.pooled ? "any instance may do the work of any shard here, so the mapping limits nothing" : ""].filter(Boolean);
  place.innerHTML = `<svg width="${Math.max(place.clientWidth - 4, 300)}" height="${rows.size * 22}">${parts.join("")}</svg><p class="note">${escaped(notes.join("; "))}.</p>`;
}

// The ledger

function drawChanges() {
  at("none").hidden = page.changes.length > 0;
  at("changes").hidden = page.changes.length === 0;
  at("changes").tBodies[0].innerHTML = page.changes.slice(0, MOST_ROWS).map((each) => `
    <tr data-decision="${each.decision}" tabindex="0"${page.open === each.decision ? ' class="open"' : ""}><td>${each.decision}<td>${clock(each.time_seconds)}
    <td>${escaped(each.subquery)}<td>${each.instances_before} → ${each.instances}<td>${escaped(each.result)}<td>${escaped(each.controller)}<td class="why">${escaped(each.why)}</tr>
    ${page.open === each.decision ? `<tr class="told"><td colspan="7">${page.told.split("\n").map((part) => `<p>${escaped(part)}</p>`).join("")}</tr>` : ""}`).join("");
  at("notices").innerHTML = page.notices.slice(-50).reverse().map((each) => `<li>${clock(each.time_seconds)} ${escaped(each.subquery)}: ${escaped(each.kind)}: ${escaped(each.text)}</li>`).join("") || '<li class="note">none</li>';
}

async function openDecision(decision) {
  page.open = page.open === decision ? null : decision;
  if (page.open !== null) page.told = await ask("explain", { decision });
  draw();
}

function drawReplayed() {
  const rows = page.replayed.filter((row) => row.subquery === page.chosen);
  if (!rows.length) {
    at("replayed").textContent = "";
    return;
  }
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const changes = rows.filter((row) => row.action !== "hold"), last = changes.at(-1);
  at("replayed").textContent = `On the observations of this run it wanted a change at ${changes.length} of ${rows.length} steps, and ${mean(rows.map((row) => row.instances)).toFixed(2)}`
    + ` instances on average; the run had ${mean(chosenRows().map((row) => row.instances)).toFixed(2)}.${last ? ` The last: ${last.instances}, because ${last.why}.` : ""}`
    + " It is told how the run went, not how it would have gone with it.";
}

// What is asked, and what is drawn of it

async function ask(what, given) {
  const asked = new URLSearchParams({ token: TOKEN, ...(page.run === null ? {} : { run: page.run }), ...given });
  const answer = await fetch(`/${what}?${asked}`, { signal: AbortSignal.timeout(9000) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

function take(told) {
  page.cursor = told.cursor;
  if ("graph" in told) page.graph = told.graph;
  if ("controllers" in told && !at("controller").length) {
    at("controller").innerHTML = ["–", ...told.controllers].map((name) => `<option>${escaped(name)}</option>`).join("");
  }
  for (const row of told.figures) (page.figures[row.subquery] ||= []).push(row);
  for (const [name, rows] of Object.entries(page.figures)) {
    if (rows.length > MOST_POINTS) page.figures[name] = rows.filter((_, place) => place % 2 || place > rows.length - 100);
  }
  page.flows.push(...told.flows);
  if (page.flows.length > MOST_POINTS) page.flows = page.flows.filter((_, place) => place % 2 || place > page.flows.length - 100);
  page.changes = [...told.changes, ...page.changes];
  page.shadows = [...page.shadows, ...told.shadows].slice(-2 * MOST_POINTS);
  page.notices.push(...told.notices);
  page.latest = told.latest;
  Object.assign(page.shards, told.shards);
  // What changed most is shown first; where nothing has changed, the first name.
  const changes = (name) => page.changes.filter((each) => each.subquery === name).length;
  page.chosen ??= [...subqueries()].sort((one, other) => changes(other) - changes(one))[0] ?? null;
  at("label").textContent = told.run.label;
  at("state").textContent = told.run.state;
  at("state").className = told.run.state === "running" ? "running" : "";
  at("runs").hidden = told.runs.length < 2;
  if (at("run").options.length !== told.runs.length) {
    at("run").innerHTML = told.runs.map((each) => `<option${each === told.run.run ? " selected" : ""}>${each}</option>`).join("");
  }
}

function subqueries() {
  // In the order of the graph; what is in no graph comes last.
  const places = page.graph ? page.graph.boxes.map((box) => box.name) : [], place = (name) => (places.indexOf(name) + 1) || places.length + 1;
  return Object.keys(page.latest).sort((one, other) => place(one) - place(other) || one.localeCompare(other));
}

function draw() {
  const names = subqueries();
  at("clock").textContent = names.length ? clock(range()[1]) : "nothing has been observed yet";
  at("subqueries").innerHTML = names.length < 2 ? "" : names.map((name) => `<button data-name="${escaped(name)}"${name === page.chosen ? ' class="chosen"' : ""}>${escaped(name)}</button>`).join("");
  drawGraph();
  drawCharts();
  drawShards();
  drawChanges();
  drawReplayed();
}

async function follow() {
  let wait = 1000;
  try {
    const run = page.run, told = await ask("data", page.cursor);
    // What was asked of another run than the one that is chosen by now is not taken.
    if (run === page.run) take(told);
    at("banner").hidden = true;
    if (at("state").textContent !== "running") wait = 5000;
    draw();
  } catch (error) {
    const gone = error instanceof TypeError || error.name === "TimeoutError";
    at("banner").textContent = gone ? "The page has ended with its run, or does not answer. With a ledger, tidegate page FILE shows it again." : error.message;
    at("banner").hidden = false;
    if (gone) at("state").className = "";
    wait = 3000;
  }
  clearTimeout(page.timer);
  page.timer = setTimeout(follow, wait);
}

function tip(event, text) {
  const shown = at("tip");
  shown.hidden = !text;
  if (!text) return;
  shown.textContent = text;
  shown.style.left = `${Math.min(event.clientX + 14, innerWidth - shown.offsetWidth - 8)}px`;
  shown.style.top = `${Math.min(event.clientY + 14, innerHeight - shown.offsetHeight - 8)}px`;
}

document.addEventListener("mousemove", (event) => {
  const mark = event.target.closest(".mark"), said = event.target.closest("[data-tip]"), svg = event.target.closest("svg[data-from]");
  const change = mark && page.changes.find((each) => each.decision === Number(mark.dataset.decision));
  tip(event, change ? `${clock(change.time_seconds)} · ${change.instances_before} → ${change.instances}, ${change.controller}, ${change.result}\n${change.why}` : said ? said.dataset.tip : "");
  const before = page.hover;
  page.hover = null;
  if (svg) {
    const { from, to, left } = svg.dataset, share = (event.clientX - svg.getBoundingClientRect().left - left) / (svg.clientWidth - left - 8);
    page.hover = Number(from) + Math.min(Math.max(share, 0), 1) * (to - from);
  }
  if (page.hover !== before && !mark) drawCharts();
});
document.addEventListener("click", (event) => {
  const decided = event.target.closest("[data-decision]"), named = event.target.closest("[data-name]");
  if (decided) openDecision(Number(decided.dataset.decision));
  if (named) {
    page.chosen = named.dataset.name;
    draw();
  }
});
document.addEventListener("keydown", (event) => {
  const decided = event.target.closest("[data-decision]");
  if (decided && event.key === "Enter") openDecision(Number(decided.dataset.decision));
});
at("span").addEventListener("change", (event) => { page.span = Number(event.target.value); draw(); });
at("run").addEventListener("change", (event) => {
  Object.assign(page, { run: event.target.value, cursor: {}, figures: {}, shards: {}, flows: [], changes: [], shadows: [], replayed: [], notices: [], chosen: null, open: null });
  follow();
});
at("controller").addEventListener("change", async (event) => {
  const controller = event.target.value;
  page.replayed = controller === "–" ? [] : (await ask("replay", { controller })).map((row) => ({ ...row, replayed: true }));
  draw();
});
follow();
