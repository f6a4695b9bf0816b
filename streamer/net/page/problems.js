// What can go wrong, in one line each: cause and way out. In: the browser's errors, the server's refusals. Out: Problem.

// One line for the user. wantsKey: another API key would help.
export class Problem extends Error {
  constructor(message, wantsKey = false) {
    super(message);
    this.wantsKey = wantsKey;
  }
}

const MICROPHONE = {
  NotAllowedError: "The microphone is not allowed. Allow it for this page in the browser's settings, then press Speak.",
  NotFoundError: "There is no microphone. Plug one in, or choose a recording.",
  NotReadableError: "The microphone is taken by another program, or the system withholds it.",
};

export function ofMicrophone(error) {
  if (error instanceof Problem) return error;
  return new Problem(MICROPHONE[error.name] ?? `The microphone cannot be opened (${error.message || error.name}).`);
}

const REFUSED = {
  401: (_, key) =>
    key
      ? "That API key is not the server's. Type the right one into the field above."
      : "The server wants an API key. Type it into the field above.",
  403: () => "The server does not take this page's origin (--allow-origin).",
  503: (response) => {
    const wait = response.headers.get("Retry-After");
    return `The server is full${wait ? `; try again in ${wait} s` : "; try again later"}.`;
  },
};

// A browser hides why a websocket was refused. The same request without the upgrade tells: {status, problem}.
export async function whyRefused(url, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(url, { headers, cache: "no-store" });
  } catch {
    return { status: 0, problem: new Problem("The server cannot be reached. Is `streamer serve` running?") };
  }
  const told = REFUSED[response.status]?.(response, key) ?? `The server refuses the connection (${response.status}).`;
  return { status: response.status, problem: new Problem(told, response.status === 401) };
}
