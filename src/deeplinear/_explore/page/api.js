// Requests to the server: each is answered by lines of JSON, and ends its work there when it is aborted here.

export class Refused extends Error {
  constructor({ error, field }) {
    super(error);
    this.field = field ?? null;
  }
}

export async function run(task, body, { signal, onProgress } = {}) {
  const response = await fetch(`api/${task}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw new Refused(await problemOf(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused({ error: "the server ended the connection; is it still running?" });
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const message = JSON.parse(line);
      if ("progress" in message) onProgress?.(message.progress);
      else if ("error" in message) throw new Refused(message);
      else return message.result;
    }
  }
}

export async function post(path, body) {
  const response = await fetch(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Refused(await problemOf(response));
  return response;
}

async function problemOf(response) {
  return response.json().catch(() => ({ error: `the server answered ${response.status}` }));
}
