import { list, pack, takeDrops } from "./folder.js";

const form = document.getElementById("own");
const said = form.querySelector(".said");
const folder = document.getElementById("folder");
const copy = document.getElementById("copy");

function send(files) {
  const isOne = files.length === 1 && !files[0][0].includes("/");
  const isGood = isOne ? /\.(zip|tar|tgz|npz|gz)$/i.test(files[0][0]) : files.some(([path]) => path.includes("/"));
  said.textContent = isGood ? form.dataset.sending : form.dataset.loose;
  if (!isGood) return;
  const chosen = new DataTransfer();
  chosen.items.add(isOne ? files[0][1] : pack(files, "photos"));
  form.elements.file.files = chosen.files;
  const tops = new Set(files.map(([path]) => path.split(/[/.]/)[0]));
  form.elements.name.value = tops.size === 1 ? [...tops][0] : "";
  form.submit();
}

for (const one of document.querySelectorAll("[data-needs-script]")) one.hidden = false;
form.querySelector(".zip").hidden = true;
folder.addEventListener("change", () => send([...folder.files].map((file) => [file.webkitRelativePath, file])));
takeDrops(form, async (entries) => send((await Promise.all(entries.map((one) => list(one)))).flat()));
copy.hidden = !navigator.clipboard;
copy.addEventListener("click", async () => {
  await navigator.clipboard.writeText(document.getElementById("commands").textContent);
  copy.textContent = "Copied";
});
