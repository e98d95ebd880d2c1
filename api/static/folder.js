const encode = (text) => new TextEncoder().encode(text);

function header(path, size) {
  const cut = encode(path).length > 99 ? path.lastIndexOf("/") : -1;
  const head = new Uint8Array(512);
  const put = (at, text, most) => head.set(encode(text).subarray(0, most), at);
  for (const [at, text] of [[100, "0000644"], [124, size.toString(8).padStart(11, "0")], [136, "0"], [148, "        "], [156, "0"], [257, "ustar"], [263, "00"]]) put(at, text);
  put(0, path.slice(cut + 1), 99);
  put(345, path.slice(0, Math.max(0, cut)), 154);
  put(148, `${head.reduce((sum, one) => sum + one).toString(8).padStart(6, "0")}\0`);
  return head;
}

export async function list(entry, at = "") {
  if (entry.isFile) return [[at + entry.name, await new Promise((...ends) => entry.file(...ends))]];
  const reader = entry.createReader();
  const all = [];
  for (let some = [0]; some.length; all.push(...some)) some = await new Promise((...ends) => reader.readEntries(...ends));
  return (await Promise.all(all.map((one) => list(one, `${at}${entry.name}/`)))).flat();
}

export function pack(files, name) {
  const parts = files.flatMap(([path, file]) => [header(path, file.size), file, new Uint8Array(-file.size & 511)]);
  const lastModified = files.reduce((last, [, file]) => Math.max(last, file.lastModified), 0);
  return new File([...parts, new Uint8Array(1024)], `${name}.tar`, { lastModified });
}

export function takeDrops(place, take) {
  for (const type of ["dragenter", "dragover", "dragleave", "drop"])
    place.addEventListener(type, (event) => {
      if (type !== "dragleave") event.preventDefault();
      place.classList.toggle("over", type.startsWith("drage") || type === "dragover");
      if (type === "drop") take([...event.dataTransfer.items].map((one) => one.webkitGetAsEntry()).filter(Boolean));
    });
}
