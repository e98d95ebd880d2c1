// The heat map by keyboard: arrows go from cell to cell, and Enter or a click shows the cell's classes below.
function cells() {
  return [...document.querySelectorAll("#r tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => cell.querySelector("a")));
}

function prepare() {
  const links = cells().flat().filter(Boolean);
  // Prepared already: the cell that has the focus must stay the one that Tab reaches.
  if (!links.length || links.some((link) => link.tabIndex < 0)) return;
  // One stop for Tab instead of a thousand: arrow keys move within the map.
  const first = links.find((link) => link.ariaCurrent === "true") ?? links[0];
  for (const link of links) link.tabIndex = link === first ? 0 : -1;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

document.addEventListener("keydown", (event) => {
  const from = event.target.closest?.("#r tbody a");
  if (!from || !STEPS[event.key]) return;
  // Arrow keys would scroll the page as well.
  event.preventDefault();
  const grid = cells();
  let row = grid.findIndex((links) => links.includes(from));
  let column = grid[row].indexOf(from);
  const [down, right] = STEPS[event.key];
  // Cells that were not measured have no link, and are passed over.
  do {
    row += down;
    column += right;
  } while (grid[row]?.[column] === null);
  const to = grid[row]?.[column];
  if (!to) return;
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("#r tbody a");
  // With such a key, a person opens the link in another tab or window.
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  await htmx.ajax("GET", link.href.split("#")[0], { target: "#cell", select: "#cell", swap: "outerHTML" });
  // Replaced, not pushed: a step back leads to the page before, not through every cell.
  history.replaceState(null, "", link.href);
  for (const one of document.querySelectorAll("#r [aria-current]")) one.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
});

prepare();
document.addEventListener("htmx:after:settle", prepare);
