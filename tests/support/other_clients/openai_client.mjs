// npm openai, unmodified: a turn over TLS. In: the server's address, a WAV of PCM16 at 24 kHz. Out:
// texts and errors as JSON.
import fs from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [url, file] = process.argv.slice(2);
const baseURL = url.replace("wss", "https").replace("/realtime", "");
const realtime = new OpenAIRealtimeWS({ model: "streamer" }, new OpenAI({ apiKey: "none", baseURL }));
const [texts, errors] = [[""], []];
realtime.on("error", (error) => errors.push(String(error)));
realtime.on("session.created", () => {
  const audio = { input: { turn_detection: null } };
  realtime.send({ type: "session.update", session: { type: "realtime", audio } });
  const pcm = fs.readFileSync(file).subarray(44).toString("base64");
  realtime.send({ type: "input_audio_buffer.append", audio: pcm });
  realtime.send({ type: "input_audio_buffer.commit" });
  realtime.send({ type: "response.create" });
});
realtime.on("response.output_text.delta", ({ delta }) => (texts[0] += delta));
realtime.on("response.done", () => {
  console.log(JSON.stringify({ texts, errors }));
  realtime.close();
});
