function cells() {
  return [...document.querySelectorAll("#r tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => cell.querySelector("a")));
}

function prepare() {
  const links = cells().flat().filter(Boolean);
  if (!links.length || links.some((link) => link.tabIndex < 0)) return;
  const first = links.find((link) => link.ariaCurrent === "true") ?? links[0];
  for (const link of links) link.tabIndex = link === first ? 0 : -1;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

document.addEventListener("keydown", (event) => {
  const from = event.target.closest?.("#r tbody a");
  if (!from || !STEPS[event.key]) return;
  event.preventDefault();
  const grid = cells();
  let row = grid.findIndex((links) => links.includes(from));
  let column = grid[row].indexOf(from);
  const [down, right] = STEPS[event.key];
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
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  await htmx.ajax("GET", link.href.split("#")[0], { target: "#cell", select: "#cell", swap: "outerHTML" });
  history.replaceState(null, "", link.href);
  for (const one of document.querySelectorAll("#r [aria-current]")) one.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
});

prepare();
document.addEventListener("htmx:after:settle", prepare);
