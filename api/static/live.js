// Pages that follow events: one stream a page, closed while nobody looks. A change is shown at once, unless somebody
// is filling in a form or looks into a cell: then a line says that there is something new.
const main = document.getElementById("main");
let stream = null;
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

function open() {
  if (stream || document.hidden || !main.dataset.events) return;
  stream = new EventSource(main.dataset.events);
  for (const type of ["job", "version", "alias"]) stream.addEventListener(type, changed);
  stream.onerror = () => {
    if (stream?.readyState !== EventSource.CLOSED) return; // it comes again by itself, but not after a refusal
    close();
    setTimeout(() => (open(), changed()), 5000);
  };
}

function close() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else {
    open();
    changed(); // what happened meanwhile
  }
});
window.addEventListener("pagehide", close);
open();
