export function follow(address, types, hear, again) {
  let stream = null;
  const close = () => (stream?.close(), (stream = null));
  function open() {
    const url = document.hidden ? null : address();
    if (stream || !url) return;
    stream = new EventSource(url);
    for (const type of types) stream.addEventListener(type, hear);
    stream.onerror = () => {
      if (stream?.readyState !== EventSource.CLOSED) return;
      close();
      setTimeout(() => (open(), again()), 5000);
    };
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
  return { open, close };
}
