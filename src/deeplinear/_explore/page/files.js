// Files of the user: sent to the server on this machine, and read there.

import { Refused } from "./api.js";
import { element } from "./dom.js";

// Sends a file; returns what the server knows it by.
export async function send(file, most, signal) {
  const size = (bytes) => `${(bytes / 2 ** 20).toPrecision(2)} MB`;
  if (file.size > most) throw new Refused({ error: `${file.name} is ${size(file.size)}, and this page accepts at most ${size(most)}` });
  const headers = { "content-type": "application/octet-stream" };
  const response = await fetch(`api/upload?name=${encodeURIComponent(file.name)}`, { method: "POST", headers, body: file, signal });
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Refused(answer);
  return answer.file;
}

export const forget = (file) => fetch(`api/upload?file=${encodeURIComponent(file)}`, { method: "DELETE" }).catch(() => {});

export const nameOf = (file) => file.slice(17); // after the digits

// A button that asks for a file. `read(file, signal)` does what is done with it, meanwhile the button cancels. Where
// several may be chosen it gets a list of them.
export function fileButton(id, text, accept, read, multiple = false) {
  const input = element("input", { type: "file", id: `${id}-input`, accept, multiple, hidden: true, tabIndex: -1 });
  const button = element("button", { type: "button", className: "button", id, textContent: text });
  let job = null;
  button.addEventListener("click", () => (job ? job.abort() : input.click()));
  input.addEventListener("change", async () => {
    if (!input.files.length) return;
    job = new AbortController();
    button.textContent = "Cancel";
    try {
      await read(multiple ? [...input.files] : input.files[0], job.signal);
    } finally {
      job = null;
      button.textContent = text;
      input.value = ""; // so that the same file can be chosen again
    }
  });
  return [button, input];
}
