import { follow } from "./stream.js";

const main = document.getElementById("main");
let waiting = 0;

function busy() {
  const at = document.activeElement;
  const opened = main.querySelector("details.act[open], #cell > *");
  return opened !== null || (at && main.contains(at) && at.matches("input, select"));
}

function changed() {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const line = document.getElementById("changed");
    if (busy() && line) line.hidden = false;
    else if (!busy()) document.body.dispatchEvent(new CustomEvent("perennial:changed"));
  }, 400);
}

follow(() => main.dataset.events, ["job", "version", "alias"], changed, changed);
document.addEventListener("visibilitychange", () => document.hidden || changed());
