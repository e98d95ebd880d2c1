import { colours, draw } from "./plot.js";
import { follow } from "./stream.js";

const TYPES = ["state", "progress", "metric", "log"];
const MOST = 5000; // points of the loss, and a tenth of it lines of the log
let chart = null;
let points = [];
let after = 0;
let due = 0;

const job = () => document.getElementById("job");

function drawLoss() {
  due = 0;
  const place = document.getElementById("loss");
  if (!place || points.length < 2) return;
  document.getElementById("loss-section").hidden = false;
  const data = [points.map((one) => one[0]), points.map((one) => one[1])];
  if (chart && place.firstChild) chart.setData(data);
  else {
    const line = { label: "Loss", stroke: colours().accent, width: 1.75, value: (_, value) => value?.toPrecision(4) ?? "–" };
    chart = draw(place, data, [line], "Report", (value) => `${value}`);
  }
}

function redraw() {
  if (!due) due = requestAnimationFrame(drawLoss);
}

function span(seconds) {
  if (seconds >= 7200) return `${Math.round(seconds / 3600)} h`;
  return seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`;
}

function progressed(told) {
  const bar = document.getElementById("bar");
  if (bar && typeof told.done === "number") bar.value = told.done;
  const said = [told.phase];
  if (told.epoch) said.push(`epoch ${told.epoch}`);
  if (told.total_steps) said.push(`step ${told.step ?? 0} of ${told.total_steps}`);
  if (bar && bar.value) said.push(`${Math.round(100 * bar.value)} % of the job`);
  if (typeof told.left_s === "number") said.push(`about ${span(told.left_s)} left`);
  const line = document.getElementById("said");
  if (line) line.textContent = said.filter(Boolean).join(", ");
  if (typeof told.loss === "number") {
    points.push([points.length ? points.at(-1)[0] + 1 : 0, told.loss]);
    if (points.length > MOST) points = points.filter((_, index) => index % 2 === 0);
    redraw();
  }
}

function improved(told) {
  const said = document.getElementById("best");
  if (!said) return;
  said.textContent = `step ${told.step}, ${(100 * told.value).toFixed(1)} % of the validation images right`;
  document.getElementById("best-file").hidden = false;
}

function logged(at, told) {
  const log = document.getElementById("log");
  const line = document.createElement("li");
  const time = document.createElement("time");
  const text = document.createElement("span");
  line.className = "info";
  time.textContent = at.slice(11, 19);
  text.textContent = told.message;
  line.append(time, " ", text);
  document.getElementById("silent")?.remove();
  const low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(line);
  while (log.children.length > MOST / 10) log.firstElementChild.remove();
  if (low) log.scrollTop = log.scrollHeight;
}

function heard(event) {
  after = Number(event.lastEventId) || after;
  const { at, data } = JSON.parse(event.data);
  if (event.type === "progress") progressed(data);
  // Other lines may name requests, which the page shows in words.
  else if (event.type === "log" && data.level === "info" && !/[`?]|\/v1\//.test(data.message)) logged(at, data);
  else if (event.type === "metric" && data.name === "anytime") improved(data);
  else if (event.type === "state" || event.type === "log") {
    stream.close();
    reload();
  }
}

function address() {
  const place = job();
  if (!place?.dataset.begun || place.dataset.terminal === "yes") return null;
  const cursor = btoa(`[${after}]`).replace(/=+$/, "").replaceAll("+", "-").replaceAll("/", "_");
  return `${place.dataset.events}?cursor=${cursor}&type=${TYPES}`;
}

const reload = () => document.body.dispatchEvent(new CustomEvent("perennial:changed"));

function begin() {
  const place = job();
  if (!place || place.dataset.begun) return;
  place.dataset.begun = "yes";
  stream.close();
  after = Number(place.dataset.after);
  points = JSON.parse(document.getElementById("loss-data").textContent);
  chart = null;
  drawLoss();
  const log = document.getElementById("log");
  log.scrollTop = log.scrollHeight;
  stream.open();
}

const stream = follow(address, TYPES, heard, reload);
document.addEventListener("htmx:after:settle", begin);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.getElementById("loss")?.replaceChildren();
  redraw();
});
begin();
