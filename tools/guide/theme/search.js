// Search of the guide: every section that has all words of the query, best first. The index is a
// script, because a page of the guide may send no request of its own, and loads at the first use.
"use strict";

(() => {
  const box = document.getElementById("search");
  const query = document.getElementById("query");
  const results = document.getElementById("results");
  const MOST = 20;
  const AROUND = 70; // characters of a result's text before and after the first word
  let sections = null;
  let isAsked = false;

  function load() {
    if (isAsked) return;
    isAsked = true;
    const script = document.createElement("script");
    script.src = `${box.dataset.base}/search-index.js`;
    script.addEventListener("load", () => {
      sections = window.guideSections.map(([place, title, path, text]) => ({
        place, title, path, text,
        low: [title.toLowerCase(), path.toLowerCase(), text.toLowerCase()],
      }));
      show();
    });
    document.head.append(script);
  }

  function score({ low: [title, path, text] }, words) {
    let sum = 0;
    for (const word of words) {
      const points = 12 * title.includes(word) + 4 * path.includes(word)
        + Math.min(text.split(word).length - 1, 5);
      if (!points) return 0;
      sum += points;
    }
    return sum;
  }

  // Text nodes and marks alone: what somebody types or writes never becomes HTML.
  function mark(element, text, words) {
    const low = text.toLowerCase();
    let from = 0;
    while (from < text.length) {
      const hits = words.map((word) => [low.indexOf(word, from), word]).filter(([at]) => at >= 0);
      if (!hits.length) break;
      const [at, word] = hits.reduce((best, hit) => (hit[0] < best[0] ? hit : best));
      element.append(text.slice(from, at));
      const marked = document.createElement("mark");
      marked.append(text.slice(at, at + word.length));
      element.append(marked);
      from = at + word.length;
    }
    element.append(text.slice(from));
  }

  function part(name, text, words) {
    const element = document.createElement(name);
    mark(element, text, words);
    return element;
  }

  function describe(section, words) {
    const link = document.createElement("a");
    link.href = `${box.dataset.base}/${section.place}`;
    link.append(part("strong", section.title, words));
    if (section.path && section.path !== section.title) link.append(part("small", section.path, []));
    const { text, low } = section;
    const at = Math.min(...words.map((word) => low[2].indexOf(word)).filter((one) => one >= 0));
    // Without a hit in the text, `at` is infinite.
    const begin = at > AROUND && at < text.length ? text.indexOf(" ", at - AROUND) + 1 : 0;
    const end = text.lastIndexOf(" ", begin + 2 * AROUND);
    const isCut = text.length > begin + 2 * AROUND;
    link.append(part("span", `${begin ? "… " : ""}${isCut ? `${text.slice(begin, end)} …` : text.slice(begin)}`, words));
    return link;
  }

  function show() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 8);
    results.hidden = !words.length;
    if (!words.length || !sections) return;
    const found = sections
      .map((section) => [score(section, words), section])
      .filter(([points]) => points)
      .sort((one, other) => other[0] - one[0]);
    const said = document.createElement("p");
    said.append(found.length ? `${found.length} sections${found.length > MOST ? `, the best ${MOST} here` : ""}` : "No section has all these words.");
    results.replaceChildren(said, ...found.slice(0, MOST).map(([, section]) => describe(section, words)));
  }

  query.addEventListener("focus", load);
  query.addEventListener("input", () => { load(); show(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== query) {
      event.preventDefault();
      query.focus();
    } else if (event.key === "Escape") {
      results.hidden = true;
    }
  });
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target) || event.target.closest("a")) results.hidden = true;
  });
  box.hidden = false;
})();
