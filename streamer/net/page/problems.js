// What can go wrong, in one line each: cause and way out. In: the browser's errors, the server's refusals. Out: Problem.

// A word for the user (words.js). wantsKey: another API key would help.
export class Problem extends Error {
  constructor(...word) {
    super(word[0]);
    this.word = word;
    this.wantsKey = word[0] === "no-key" || word[0] === "wrong-key";
  }
}

const MICROPHONE = { NotAllowedError: "not-allowed", NotFoundError: "no-microphone", NotReadableError: "taken" };

export function ofMicrophone(error) {
  if (error instanceof Problem) return error;
  const name = MICROPHONE[error.name];
  return name ? new Problem(name) : new Problem("no-opening", error.message || error.name);
}

const REFUSED = {
  401: (_, key) => [key ? "wrong-key" : "no-key"],
  403: () => ["origin"],
  503: (response) => ["full", response.headers.get("Retry-After")],
};

// A browser hides why a websocket was refused. The same request without the upgrade tells: {status, problem}.
export async function whyRefused(url, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(url, { headers, cache: "no-store" });
  } catch {
    return { status: 0, problem: new Problem("unreachable") };
  }
  const word = REFUSED[response.status]?.(response, key) ?? ["refused", response.status];
  return { status: response.status, problem: new Problem(...word) };
}
