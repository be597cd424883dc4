"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const parts = data.parts.map(([name]) => name);
const PARTS = ["input", "garbage", "computing", "waiting", "overhead", "communication", "other"];
const many = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const milliseconds = (seconds) => (1e3 * seconds).toFixed(3);
const nameOf = (rank) => `rank ${rank.rank} on ${rank.host}`;

// Makes an element; texts are set as texts, and never read as HTML.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "title", "g"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function table(heads, rows) {
  const named = (text) => make("span", { class: "name", title: text }, text);
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, named(text))));
  const body = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, named(first)),
      ...rest.map((cell) => (cell instanceof Node ? cell : make("td", {}, cell)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function showWhat() {
  const hosts = new Set(data.ranks.map((rank) => rank.host));
  const shown = data.ranks.length < data.all_ranks
    ? ` This page shows ${data.ranks.length} of the ranks: those that the others wait for longest.` : "";
  $("what").textContent =
    `tfhvd: ${many(data.steps, "step")} of ${many(data.all_ranks, "rank")} on ${many(hosts.size, "host")}.${shown}`;
  for (const [part, says] of data.parts) {
    $("legend").append(make("li", {}, make("i", { style: `background: var(--${part})` }),
      make("span", {}, make("b", {}, part), `: ${says}`)));
  }
  const notes = [];
  if (data.clock_error) notes.push(`The hosts' clocks were compared to ${(data.clock_error / 1e3).toFixed(3)} ms.`);
  if (data.clock_error === null) notes.push("The clocks of some hosts could not be compared.");
  if (data.all_ranks === 1) notes.push("One rank was recorded, so nothing is known of ranks that it waits for.");
  $("notes").textContent = notes.join(" ");
}

function showBars() {
  const longest = Math.max(...data.ranks.map((rank) => rank.whole)) || 1;
  for (const rank of data.ranks) {
    const bar = make("div", { class: "bar" });
    rank.parts.forEach((seconds, index) => {
      if (!(seconds > 0)) return;
      const says = `${parts[index]} ${milliseconds(seconds)} ms (${Math.round((100 * seconds) / rank.whole)}%)`;
      const share = seconds / longest;
      bar.append(make("div", {
        class: share < 0.09 ? "segment narrow" : "segment", title: says, "data-part": parts[index],
        style: `width: ${100 * share}%; background: var(--${parts[index]}); color: var(--on-${parts[index]})`,
      }, share < 0.22 ? parts[index] : says));
    });
    $("bars").append(make("div", { class: "row", "data-rank": rank.rank },
      make("div", { class: "name", title: nameOf(rank) }, nameOf(rank)), bar,
      make("div", { class: "seconds" }, `${milliseconds(rank.whole)} ms`)));
  }
  $("bars-table").append(table(["ms a step", "step", ...parts],
    data.ranks.map((rank) => [nameOf(rank), milliseconds(rank.whole), ...rank.parts.map(milliseconds)])));
}

function showWaits() {
  if (data.ranks.length < 2) {
    for (const id of ["waits-section", "slowest-section"]) $(id).hidden = true;
    return;
  }
  const most = Math.max(...data.waits.flat()) || 1;
  $("waits").append(table(["waits for", ...data.ranks.map((rank) => `rank ${rank.rank}`)],
    data.ranks.map((rank, row) => [nameOf(rank), ...data.waits[row].map((seconds, column) => {
      if (row === column) return make("td", {}, "");
      const style = `background: rgba(var(--accent), ${((0.55 * seconds) / most).toFixed(3)})`;
      return make("td", { style, "data-wait": `${rank.rank}-${data.ranks[column].rank}` }, milliseconds(seconds));
    })])));
  const slowest = [...data.ranks].sort((a, b) => b.keeps - a.keeps).slice(0, 10);
  $("slowest").append(table(["rank", "the others wait for it, ms a step", "of a step", "it takes more time than the others for"],
    slowest.map((rank) => {
      const more = rank.more.map(([part, seconds]) => `${part} (${milliseconds(seconds)} ms)`);
      const share = `${Math.round((100 * rank.keeps) / rank.whole)}%`;
      return [nameOf(rank), milliseconds(rank.keeps), share, make("td", { class: "text" }, more.join(", ") || "–")];
    })));
}

function showLinks() {
  const hosts = new Set(data.ranks.map((rank) => rank.host)).size;
  $("links-section").hidden = hosts < 2;
  $("links").append(data.links.length
    ? table(["from", "to", "Gbit/s while it was busy", ""], data.links.slice(0, 20).map((link) =>
      [link.from, make("td", { class: "text" }, link.to), ((8 * link.rate) / 1e9).toFixed(3),
        make("td", { class: "text" }, link.slow ? "slow" : "")]))
    : "No link was measured: too little was sent by TCP, or the recording has no profile.");
}

// Steps: columns of one rank, each an average of some steps.
function showColumns() {
  const at = Number($("rank").value);
  const columns = data.columns[at];
  const highest = Math.max(...columns.map((column) => column[parts.length])) || 1;
  const svg = make("svg", { viewBox: `0 0 ${columns.length} ${highest}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `The steps of ${nameOf(data.ranks[at])}, each as a column of its parts.` });
  columns.forEach((column, index) => {
    const group = make("g", {});
    let top = highest;
    parts.forEach((part, number) => {
      top -= column[number];
      if (column[number] > 0) {
        group.append(make("rect", { x: index + 0.04, y: top, width: 0.92, height: column[number],
          style: `fill: var(--${part})`, "data-part": part }));
      }
    });
    const longest = highest - column[parts.length];
    if (data.column > 1) group.append(make("line", { x1: index + 0.04, x2: index + 0.96, y1: longest, y2: longest }));
    const first = index * data.column;
    const last = Math.min(first + data.column, data.steps) - 1;
    const whole = parts.reduce((sum, _, number) => sum + column[number], 0) / 1e3;
    const says = first === last ? `step ${first + 1}: ${whole.toFixed(3)} ms`
      : `steps ${first + 1} to ${last + 1}: ${whole.toFixed(3)} ms on average, the longest ${(column[parts.length] / 1e3).toFixed(3)} ms`;
    const cover = make("rect", { class: "column", x: index, y: 0, width: 1, height: highest, "data-first": first }, make("title", {}, says));
    cover.addEventListener("click", () => goTo(nearest(first, last)));
    group.append(cover);
    svg.append(group);
  });
  $("columns").replaceChildren(svg, make("div", { class: "axis" }, make("span", {}, "step 1"),
    make("span", {}, `up to ${(highest / 1e3).toFixed(3)} ms`), make("span", {}, `step ${data.steps}`)));
  markColumn();
}

// The number, in `data.kept`, of the step of a column, or of the one nearest to it.
function nearest(first, last) {
  const distance = ([number]) => Math.abs(number - (first + last) / 2);
  return data.kept.indexOf(data.kept.reduce((a, b) => (distance(b) < distance(a) ? b : a)));
}

function markColumn() {
  const number = shown === null ? -1 : Math.floor(data.kept[shown][0] / data.column);
  document.querySelectorAll("#columns rect.column").forEach((rect, index) => rect.classList.toggle("shown", index === number));
}

// Time: a canvas, on which a rank has a line of parts and lines of collectives below it.
const STRIP = 16, LANE = 15, GAP = 12, TOP = 26, LANES = 5;
const PHASES = ["waiting", "overhead", "communication"];
const canvas = $("time");
let view = [0, 1]; // microseconds
let shown = null; // the number of the step in `data.kept` that the view was set to
let rows = []; // of the picture

function layOut() {
  let top = TOP;
  rows = data.over_time.map(({ moments, collectives }, index) => {
    const free = []; // by lane: when its last collective ends
    for (const one of collectives) {
      let lane = free.findIndex((end) => end <= one[1]);
      if (lane < 0) lane = Math.min(free.length, LANES - 1);
      free[lane] = Math.max(free[lane] ?? 0, one[4]);
      one.lane = lane;
    }
    const longest = collectives.reduce((most, one) => Math.max(most, one[4] - one[1]), 0);
    const row = { rank: data.ranks[index], moments, collectives, longest, top };
    top += 18 + STRIP + 3 + Math.max(1, free.length) * LANE + GAP;
    return row;
  });
  canvas.style.height = `${top}px`;
}

const lengths = data.kept.map(([, begin, end]) => end - begin);
const most = 20 * Math.max(...lengths); // that is shown at once: colours of more would run together

// Shows that much of the time, as far as there are steps.
function setView(from, to) {
  const first = data.kept[0][1], last = data.kept[data.kept.length - 1][2];
  const width = Math.min(Math.max(to - from, 2), most, last - first);
  const begin = Math.min(Math.max((from + to - width) / 2, first), last - width);
  view = [begin, begin + width];
  draw();
}

function goTo(number) {
  shown = Math.min(Math.max(number, 0), data.kept.length - 1);
  const [, begin, end] = data.kept[shown];
  setView(begin, end);
  markColumn();
}

function zoom(factor, at = (view[0] + view[1]) / 2) {
  setView(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
}

// The first index of sorted items whose time is not before `time`.
function firstAt(items, time, key) {
  let low = 0, high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle][key] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function draw() {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = Object.fromEntries([...PARTS, ...PARTS.map((part) => `on-${part}`), "text", "soft", "line", "back"].map((name) => [name, colour(name)]));
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  const x = (time) => ((time - view[0]) / (view[1] - view[0])) * width;
  let drawn = 0;
  const box = (begin, end, top, high, fill) => {
    const left = Math.max(x(begin), -1), right = Math.min(x(end), width + 1);
    pen.fillStyle = colours[fill];
    pen.fillRect(left, top, Math.max(right - left, 0.4), high);
    drawn += 1;
    return [left, right];
  };
  const label = (text, left, right, base, fill) => {
    left = Math.max(left, 0) + 3;
    if (right - left < 12) return;
    let length = text.length;
    while (length > 0 && pen.measureText(text.slice(0, length) + (length < text.length ? "…" : "")).width > right - left - 2) length = Math.ceil(length * 0.8) - 1;
    if (length < 1) return;
    pen.fillStyle = colours[fill];
    pen.fillText(text.slice(0, length) + (length < text.length ? "…" : ""), left, base);
  };
  const visible = data.kept.filter(([, begin, end]) => end - 0.2 > view[0] && begin + 0.2 < view[1]); // but for rounding
  visible.forEach(([number, begin, end]) => {
    pen.fillStyle = colours.line;
    pen.fillRect(x(begin), 0, 1, height);
    pen.fillRect(x(end), 0, 1, height);
    label(`step ${number + 1}`, x(begin), x(end), 15, "soft");
  });
  for (const row of rows) {
    const strip = row.top + 18, lanes = strip + STRIP + 3;
    for (let index = firstAt(row.moments, view[0], 1); index < row.moments.length && row.moments[index][0] < view[1]; index += 1) {
      const [begin, end, part] = row.moments[index];
      const [left, right] = box(begin, end, strip, STRIP, PARTS[part]);
      label(PARTS[part], left, right, strip + 12, `on-${PARTS[part]}`);
    }
    for (let index = firstAt(row.collectives, view[0] - row.longest, 1); index < row.collectives.length && row.collectives[index][1] < view[1]; index += 1) {
      const one = row.collectives[index];
      if (one[4] < view[0]) continue;
      const top = lanes + one.lane * LANE;
      PHASES.forEach((phase, number) => {
        if (one[number + 2] > one[number + 1]) box(one[number + 1], one[number + 2], top, LANE - 2, phase);
      });
      label(data.names[one[0]], x(one[3]), x(one[4]), top + 11, "on-communication");
    }
    pen.fillStyle = colours.text;
    pen.fillText(nameOf(row.rank), 4, row.top + 13, width - 8);
  }
  const range = view.map((time) => (time / 1e3).toFixed(3));
  const numbers = visible.map(([number]) => number + 1);
  const steps = numbers.length === 0 ? "between steps" : numbers.length === 1 ? `step ${numbers[0]}`
    : `${numbers.length} steps, from ${numbers[0]} to ${numbers[numbers.length - 1]}`;
  $("view").textContent = `Shown: ${steps}; ${range[0]} to ${range[1]} ms after the first step began.`;
  Object.assign(canvas.dataset, { from: view[0], to: view[1], drawn });
}

// What lies at a place of the canvas, in words; "" for nothing.
function wordsAt(left, top) {
  const time = view[0] + (left / canvas.clientWidth) * (view[1] - view[0]);
  const near = ((view[1] - view[0]) / canvas.clientWidth) * 2; // two pixels
  const row = [...rows].reverse().find((each) => each.top <= top);
  if (!row) return "";
  const strip = row.top + 18, lane = Math.floor((top - strip - STRIP - 3) / LANE);
  const ms = (micros) => `${(micros / 1e3).toFixed(3)} ms`;
  if (top >= strip && top < strip + STRIP) {
    const one = row.moments.find(([begin, end]) => begin - near <= time && time <= end + near);
    if (!one) return "";
    const who = one[3] >= 0 ? ` for rank ${one[3]}` : "";
    return `${nameOf(row.rank)}: ${PARTS[one[2]]}${who} for ${ms(one[1] - one[0])}.`;
  }
  const found = row.collectives.filter((one) => one.lane === lane && one[1] - near <= time && time <= one[4] + near);
  if (!found.length) return "";
  const one = found[found.length - 1];
  const more = found.length > 1 ? ` ${many(found.length - 1, "other collective")} at the same place.` : "";
  const last = one[5] === row.rank.rank ? "this rank called it last" : `waited ${ms(one[2] - one[1])} for rank ${one[5]}, which called it last`;
  return `${nameOf(row.rank)}: ${data.names[one[0]]} (${many(one[7], "tensor")}, ${many(one[6], "byte")}): ${last}; ` +
    `then ${ms(one[3] - one[2])} until it began; carried out in ${ms(one[4] - one[3])}.${more}`;
}

function listen() {
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { at: event.offsetX, view };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged) {
      const by = ((dragged.at - event.offsetX) / canvas.clientWidth) * (dragged.view[1] - dragged.view[0]);
      setView(dragged.view[0] + by, dragged.view[1] + by);
    }
    const words = wordsAt(event.offsetX, event.offsetY);
    if (words) $("picked").textContent = words;
  });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view[0] + (event.offsetX / canvas.clientWidth) * (view[1] - view[0]));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (by) setView(view[0] + by * (view[1] - view[0]), view[1] + by * (view[1] - view[0]));
    else if (factor) zoom(factor);
    else return;
    event.preventDefault();
  });
  const actions = { previous: () => goTo(shown - 1), next: () => goTo(shown + 1), in: () => zoom(0.5), out: () => zoom(2),
    "slowest-step": () => goTo(lengths.indexOf(Math.max(...lengths))) };
  for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
  $("rank").addEventListener("change", showColumns);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// The step that is usual: of middle length.
function usual() {
  return lengths.indexOf([...lengths].sort((a, b) => a - b)[lengths.length >> 1]);
}

showWhat();
showBars();
showWaits();
showLinks();
data.ranks.forEach((rank, index) => $("rank").append(make("option", { value: index }, nameOf(rank))));
$("rank").value = data.ranks.reduce((at, rank, index) => (rank.keeps > data.ranks[at].keeps ? index : at), 0);
$("columns-note").textContent = data.column > 1
  ? `Each column is the average of ${data.column} steps; the line is the longest of them.` : "Each column is a step.";
const which = data.kept.length < data.columns[0].length ? "some columns, since steps have very many collectives" : "each column";
$("kept-note").textContent = data.kept.length < data.steps
  ? `Of ${many(data.steps, "step")} this picture has ${data.kept.length}: the longest of ${which}. It is empty between them.`
  : "The picture has all steps.";
for (const id of ["columns-section", "time-section"]) $(id).hidden = data.kept.length === 0;
if (data.kept.length) {
  layOut();
  listen();
  showColumns();
  goTo(usual());
}
document.body.dataset.ready = "yes";
