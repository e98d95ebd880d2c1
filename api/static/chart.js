import { colours, draw } from "./plot.js";

function show() {
  const place = document.getElementById("curves");
  const data = document.getElementById("curves-data");
  if (!place || !data || place.firstChild) return;
  place.closest("[data-needs-script]").hidden = false;
  const told = JSON.parse(data.textContent);
  const palette = colours();
  const series = told.names.map((name, index) => ({
    label: name,
    stroke: index === 0 ? palette.ink : palette.lines[(index - 1) % palette.lines.length],
    width: index === 0 ? 2.5 : 1.5,
    dash: index > palette.lines.length ? [5, 4] : undefined,
    value: (_, value) => (value == null ? "–" : `${value.toFixed(1)} %`),
  }));
  draw(place, [told.versions, ...told.values], series, "Version", (value) => `${value} %`, (low) => [Math.max(0, Math.min((low ?? 0) - 5, 90)), 100]);
}

show();
document.addEventListener("htmx:after:settle", show);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.getElementById("curves")?.replaceChildren();
  show();
});
