import { lookAt } from "./first_look.js";
import { list as listFiles, pack, takeDrops } from "./folder.js";

const [form, input, folder, drop, list, go] = ["submit", "file", "folder", "drop", "files", "go"].map((id) => document.getElementById(id));
const at = form.dataset;
const PIECE = 64 << 20; // bytes of one request
const batches = [];
let asking = null, due = 0, sending = false;

function made(tag, className, text) {
  const one = document.createElement(tag);
  if (className) one.className = className;
  if (text) one.textContent = text;
  return one;
}

function size(bytes) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${name}`;
  return `${bytes} B`;
}

function say(text) {
  Object.assign(document.getElementById("said"), { textContent: text, hidden: !text });
}

function fields() {
  const body = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value) body.append(name, value);
  body.delete("name");
  body.set("file_names", batches.map((one) => one.file.name.replaceAll("\n", " ")).join("\n"));
  return body;
}

async function asked(path, body, signal) {
  const answer = await fetch(path, { method: body ? "POST" : "GET", body, signal });
  if (answer.redirected && new URL(answer.url).pathname.endsWith("/ui/login")) location.reload();
  const found = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (answer.ok) return found;
  const error = new Error(found.querySelector("main p:not(.muted)")?.textContent ?? `The service answers ${answer.status}.`);
  error.remedies = found.getElementById("remedies")?.content.children ?? [];
  throw error;
}

function marked(errors) {
  for (const place of form.querySelectorAll(".wrong")) {
    const name = place.id.slice("wrong-".length);
    place.textContent = errors[name] ?? "";
    const field = form.elements.namedItem(name);
    if (field instanceof Element) field.toggleAttribute("aria-invalid", name in errors);
  }
}

async function plan() {
  clearTimeout(due);
  asking?.abort();
  const mine = (asking = new AbortController());
  const opened = document.querySelector("#plan details").open;
  const found = await asked(`${at.here}/plan`, fields(), mine.signal);
  const fresh = document.importNode(found.getElementById("plan"), true);
  fresh.querySelector("details").open = opened;
  document.getElementById("plan").replaceWith(fresh);
  const errors = JSON.parse(fresh.dataset.errors);
  marked(errors);
  return Object.keys(errors).length ? null : [JSON.parse(fresh.dataset.recipe), JSON.parse(fresh.dataset.trials)];
}

function planSoon() {
  clearTimeout(due);
  const told = (error) => error.name === "AbortError" || say(error.message);
  due = setTimeout(() => plan().then((recipe) => recipe && say(""), told), 250); // what was said was of former settings
}

async function choose() {
  const chosen = form.elements.choice.value;
  try {
    const found = await asked(`${at.here}?choice=${encodeURIComponent(chosen)}`);
    const opened = document.querySelector("#fields details").open;
    const fresh = document.importNode(found.getElementById("fields"), true);
    fresh.querySelector("details").open = opened;
    const typed = new Map(new FormData(form));
    document.getElementById("fields").replaceWith(fresh);
    hidePlain();
    for (const field of fresh.querySelectorAll("[name]"))
      if (!field.name.startsWith("method.") && typed.get(field.name)) field.value = typed.get(field.name);
    planSoon();
  } catch (error) {
    say(error.message);
  }
}

async function check(batch) {
  batch.said.textContent = "Here. Looking into it …";
  const body = fields();
  body.set("upload", batch.id);
  for (const [name, value] of Object.entries(batch.reading)) body.set(name, value);
  try {
    const found = await asked(`${at.here}/check`, body);
    batch.report.replaceChildren(document.importNode(found.querySelector(".report"), true));
    batch.said.textContent = "Uploaded and looked at.";
    batch.state = "checked";
  } catch (error) {
    batch.said.textContent = error.message;
    const remedies = [...(error.remedies ?? [])].map((one) => remedy(batch, document.importNode(one, true)));
    const buttons = made("div", "buttons");
    buttons.append(...remedies);
    batch.report.replaceChildren(...(remedies.length ? [buttons] : []));
    batch.state = "refused";
  }
  shown(batch);
}

function remedy(batch, button) {
  button.addEventListener("click", () => {
    batch.reading = { [button.dataset.option]: button.dataset.value };
    batch.report.replaceChildren();
    check(batch);
  });
  return button;
}

function shown(batch) {
  batch.row.className = batch.state;
  batch.bar.hidden = batch.state !== "uploading";
  batch.again.hidden = batch.state !== "broken";
  go.disabled = sending || !batches.length || batches.some((one) => one.state !== "checked");
}

async function look(batch) {
  batch.state = "looking";
  batch.said.textContent = "Looking at its images …";
  shown(batch);
  const { refused, warning } = await lookAt(batch.file, `${at.here}/look`).catch(() => ({}));
  if (!batches.includes(batch)) return next(); // removed meanwhile
  if (refused) {
    batch.state = "refused";
    batch.said.textContent = `${refused} Nothing was uploaded.`;
    shown(batch);
    return next();
  }
  if (warning) batch.report.append(made("p", "notice", warning));
  upload(batch);
}

function upload(batch) {
  const { file } = batch;
  batch.state = "uploading";
  batch.upload = new tus.Upload(file, {
    endpoint: at.uploads,
    chunkSize: PIECE,
    retryDelays: [0, 500, 1000, 2000, 4000, 8000, 15000, 30000],
    metadata: { filename: file.name },
    onProgress: (sent, all) => {
      batch.bar.value = all ? sent / all : 1;
      batch.said.textContent = `${size(sent)} of ${size(all)}`;
    },
    onError: (error) => {
      const answer = error.originalResponse;
      let why = answer ? `The service answers ${answer.getStatus()}.` : "The connection was lost.";
      try {
        why = JSON.parse(answer.getBody()).detail ?? why;
      } catch {} // not one of the service's own answers
      batch.state = "broken";
      batch.said.textContent = `${why} What has arrived is kept.`;
      shown(batch);
      next();
    },
    onSuccess: async () => {
      batch.id = batch.upload.url.split("/").pop();
      await check(batch);
      next();
    },
  });
  shown(batch);
  batch.upload.findPreviousUploads().then((known) => {
    if (known.length) batch.upload.resumeFromPreviousUpload(known.at(-1));
    batch.upload.start();
  });
}

function next() {
  if (batches.some((one) => one.state === "uploading" || one.state === "looking")) return;
  const waiting = batches.find((one) => one.state === "waiting");
  if (waiting) look(waiting);
}

function remove(batch) {
  batch.upload?.abort(true).catch(() => {}); // one that is gone already
  batches.splice(batches.indexOf(batch), 1);
  batch.row.remove();
  input.focus();
  go.disabled = !batches.length || batches.some((one) => one.state !== "checked");
  next();
  planSoon();
}

function add(file) {
  const batch = { file, state: "waiting", reading: {}, row: made("li"), said: made("p", "muted", "Waits for the one before it."), report: made("div") };
  const head = made("div", "file");
  const end = at.endings.split(",").find((one) => file.name.toLowerCase().endsWith(one)) ?? "";
  const name = file.name.slice(0, file.name.length - end.length).slice(0, 100);
  batch.bar = Object.assign(made("progress"), { ariaLabel: `Upload of ${file.name}` });
  batch.name = Object.assign(made("input"), { value: name, maxLength: 100, autocomplete: "off" });
  const label = made("label", "", "Name ");
  label.append(batch.name);
  batch.again = Object.assign(made("button", "small", "Go on"), { type: "button" });
  batch.again.addEventListener("click", () => upload(batch));
  const away = Object.assign(made("button", "quiet small", "Remove"), { type: "button", ariaLabel: `Remove ${file.name}` });
  away.addEventListener("click", () => remove(batch));
  head.append(made("span", "strong", file.name), made("span", "muted", size(file.size)), label, batch.again, away);
  batch.said.setAttribute("role", "status");
  if (file.size > Number(at.most)) {
    batch.state = "refused";
    batch.said.textContent = `A batch may have ${size(Number(at.most))}; this one has ${size(file.size)}. Split it.`;
  }
  batch.row.append(head, batch.bar, batch.said, batch.report);
  list.append(batch.row);
  batches.push(batch);
  shown(batch);
}

function addAll(files) {
  say("");
  [...files].forEach(add);
  next();
  planSoon();
}

async function submitted(batch, [recipe, trials]) {
  const name = batch.name.value.trim();
  const own = Object.keys(recipe).length ? recipe : undefined; // a form that is left as it is says nothing of the recipe
  const body = JSON.stringify({ upload: batch.id, ...(name && { name }), recipe: own, ...trials });
  const query = { ...batch.reading, ...(form.elements.namedItem("again").checked && { again: "true" }) };
  const headers = { "Content-Type": "application/json", "Idempotency-Key": `page-${batch.id}` };
  if (form.elements.namedItem("conflicts").checked) query.conflicts = "keep";
  const answer = await fetch(`${at.tasks}?${new URLSearchParams(query)}`, { method: "POST", body, headers });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  // a held batch that is sent with another recipe is learned again, by a new job
  return { job: told.job.id, isKnown: Boolean(told.repeats) && !(told.repeats.standing === "held" && !told.job.is_terminal) };
}

async function send() {
  say("");
  sending = go.disabled = true;
  let [job, isKnown] = [null, false]; // isKnown: the model had one of the batches
  const several = batches.length > 1;
  try {
    const recipe = await plan();
    if (recipe === null) throw new Error("The recipe cannot be used: see the inputs that are marked.");
    for (const batch of [...batches]) {
      const told = await submitted(batch, recipe);
      job = told.job;
      isKnown ||= told.isKnown;
      for (const key of Object.keys(localStorage).filter((one) => localStorage[one].includes(batch.id)))
        localStorage.removeItem(key); // the upload is spent
      batches.splice(batches.indexOf(batch), 1);
      batch.row.className = "sent";
      batch.said.textContent = told.isKnown ? "Nothing was learned again: the model has it. " : "Sent. ";
      if (several) batch.said.append(Object.assign(made("a", "", "Its job"), { href: at.jobs + job }));
    }
    if (!several) location.assign(`${at.jobs}${job}${isKnown ? "?sent_again=true" : ""}`);
    else if (!isKnown) location.assign(`${at.home}#jobs-title`);
    else sending = false; // the rows above say which ones, with links
  } catch (error) {
    say(job ? `${error.message} The batches before it are sent.` : error.message);
    sending = go.disabled = false;
  }
}

const hidePlain = () => form.querySelectorAll(".plain").forEach((one) => (one.hidden = true));

hidePlain();
for (const one of form.querySelectorAll("[data-needs-script]")) one.hidden = false;
input.multiple = true;
input.removeAttribute("name");
go.disabled = true;
input.addEventListener("change", () => {
  addAll(input.files);
  input.value = "";
});
folder.addEventListener("change", () => {
  const files = [...folder.files].map((file) => [file.webkitRelativePath, file]);
  if (files.length) addAll([pack(files, files[0][0].split("/")[0])]);
});
takeDrops(drop, async (entries) => {
  const listed = await Promise.all(entries.map((one) => listFiles(one)));
  addAll(listed.map((files, i) => (entries[i].isFile ? files[0][1] : pack(files, entries[i].name))));
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!go.disabled) send();
});
form.addEventListener("input", (event) => {
  if (event.target === input || event.target === folder || list.contains(event.target)) return;
  if (event.target.name === "choice") choose();
  else planSoon();
});
window.addEventListener("beforeunload", (event) => {
  if (!sending && batches.some((one) => one.state === "uploading")) event.preventDefault();
});
