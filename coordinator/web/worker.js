// Takes the place of a worker that another server registered at this address, and ends it. The coordinator has no worker.
/** @type {any} */
const worker = self;

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(end()));

async function end() {
  await worker.clients.claim();
  await worker.registration.unregister();
  // Not awaited: a page may load only after this worker is active.
  for (const page of await worker.clients.matchAll({ type: "window" })) page.navigate(page.url);
}
