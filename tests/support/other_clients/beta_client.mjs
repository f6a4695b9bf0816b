// npm openai-realtime-api, unmodified: a turn that the client ends, and one of voice activity.
// In: the server's address, a WAV of PCM16 at 24 kHz. Out: texts and errors as JSON.
import fs from "node:fs";
import { RealtimeClient } from "openai-realtime-api";

const [url, file] = process.argv.slice(2);
const pcm = Int16Array.from(new Int16Array(fs.readFileSync(file).buffer.slice(44)));
const client = new RealtimeClient({ url, apiKey: "none" });
const [texts, errors] = [[], []];
client.on("error", (error) => errors.push(error));
client.on("conversation.item.completed", ({ item }) => {
  if (item.role === "assistant") texts.push(item.formatted.text);
});
const answered = () =>
  new Promise((resolve) => {
    client.on("realtime.event", ({ event }) => event.type === "response.done" && resolve());
  });
client.updateSession({ turn_detection: null });
await client.connect();
await client.waitForSessionCreated();
client.appendInputAudio(pcm);
client.createResponse();
await answered();
client.updateSession({ turn_detection: { type: "server_vad" } });
client.appendInputAudio(pcm);
client.appendInputAudio(new Int16Array(48_000));
await answered();
console.log(JSON.stringify({ texts, errors }));
client.disconnect();
