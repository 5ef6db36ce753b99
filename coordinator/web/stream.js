// The stream of events, read with the login of this device while the page is visible. A browser allows six connections to one
// address, so a hidden page keeps none.
import { request } from "./api.js";

/** The stream is silent for 15 s at most. */
const SILENCE = 40_000;
/** The pauses between attempts, and between looks if the coordinator offers no stream. */
const PAUSE_MIN = 1_000;
const PAUSE_MAX = 15_000;
const LOOK = 5_000;

/**
 * Splits the text of a stream into events, each with its data. Returns the data, and the rest of the text.
 * @param {string} text
 * @returns {{events: any[], rest: string}}
 */
export function parse(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const data = blocks.flatMap((block) => block.split("\n").filter((line) => line.startsWith("data:")));
  return { events: data.map((line) => JSON.parse(line.slice(5))), rest };
}

/** A view that events keep up to date. @typedef {{look: () => Promise<void>, concerns: (event: any) => boolean}} View */

/**
 * Calls `look` when the stream begins, and after each event that concerns the view. Calls `lost` with whether the connection is
 * lost. Without a stream, it calls `look` from time to time.
 * @param {View} view
 * @param {(isLost: boolean) => void} lost
 */
export function follow({ look, concerns }, lost) {
  /** @type {AbortController | null} */
  let reading = null;

  async function run(/** @type {AbortController} */ stop) {
    for (let pause = PAUSE_MIN; !stop.signal.aborted; pause = Math.min(pause * 2, PAUSE_MAX)) {
      try {
        const isStream = await read(stop.signal, async (events) => {
          if (events.length > 0 && !events.some((event) => event.event === "reset" || concerns(event))) return;
          await look();
          lost(false);
          pause = PAUSE_MIN;
        });
        if (!isStream) {
          await look();
          lost(false);
          await sleep(LOOK, stop.signal);
          continue;
        }
      } catch {
        // Shown below, and tried again.
      }
      if (stop.signal.aborted) return;
      lost(true);
      await sleep(pause, stop.signal);
    }
  }

  function change() {
    reading?.abort();
    reading = null;
    if (document.visibilityState !== "visible") return;
    reading = new AbortController();
    run(reading);
  }

  document.addEventListener("visibilitychange", change);
  window.addEventListener("online", change);
  change();
}

/**
 * Reads the stream until it ends. Calls `take` once it has begun, and with each part. Returns false if there is no stream.
 * @param {AbortSignal} stop
 * @param {(events: any[]) => Promise<void>} take
 */
async function read(stop, take) {
  const cut = new AbortController();
  const abort = () => cut.abort();
  stop.addEventListener("abort", abort);
  let watch = setTimeout(abort, SILENCE);
  try {
    const headers = { Accept: "text/event-stream" };
    const response = await request("/api/v1/events?agent=human", { headers, signal: cut.signal });
    if (!response.ok || !response.body) return false;
    await take([]);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return true;
      clearTimeout(watch);
      watch = setTimeout(abort, SILENCE);
      const { events, rest } = parse(text + value);
      text = rest;
      if (events.length > 0) await take(events);
    }
  } finally {
    clearTimeout(watch);
    cut.abort();
    stop.removeEventListener("abort", abort);
  }
}

/** @param {number} ms @param {AbortSignal} stop */
function sleep(ms, stop) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    stop.addEventListener("abort", () => (clearTimeout(timer), done(undefined)), { once: true });
  });
}
