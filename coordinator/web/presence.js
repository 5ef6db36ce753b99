// Reports that a question was displayed, that its person acted on it, and that the person uses the page.
import { call, keptToken } from "./api.js";

/** How long it must be in the viewport of a visible page. */
const DISPLAYED = 1_000;
/** How often input is reported at most. */
const INPUT = 10_000;

/**
 * Reports each stage once.
 * @param {string} id
 * @param {Element} text
 */
export function report(id, text) {
  /** @type {Set<string>} */
  const reported = new Set();
  const reach = (/** @type {string} */ stage) => {
    if (reported.has(stage)) return;
    reported.add(stage);
    const path = `/api/v1/questions/${encodeURIComponent(id)}/receipt`;
    // A receipt that is lost is reported again by the next action.
    call("POST", path, { stage, via: "page" }).catch(() => reported.delete(stage));
  };
  watch(text, DISPLAYED, () => reach("in_session"));
  const acts = () => reach("seen");
  for (const kind of ["pointerdown", "keydown", "input"]) text.ownerDocument.addEventListener(kind, acts, { passive: true });
}

/** Reports that the person uses the visible page, with its login: pushes of questions to that person then wait. */
export function reportInput() {
  let next = 0;
  const used = (/** @type {Event} */ event) => {
    const now = Date.now();
    if (!event.isTrusted || document.visibilityState !== "visible" || now < next || !keptToken()) return;
    next = now + INPUT;
    // After a lost report, the next input is reported.
    call("POST", "/api/v1/me/input").catch(() => (next = 0));
  };
  for (const kind of ["pointerdown", "keydown", "wheel", "touchmove"]) document.addEventListener(kind, used, { capture: true, passive: true });
}

/**
 * Calls `then` once the element was in the viewport of the visible page for that long without a break.
 * @param {Element} element
 * @param {number} ms
 * @param {() => void} then
 * @param {string} [margin]
 */
export function watch(element, ms, then, margin = "0px") {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isInView = false;
  const change = () => {
    clearTimeout(timer);
    if (!isInView || document.visibilityState !== "visible") return;
    timer = setTimeout(() => {
      observer.disconnect();
      document.removeEventListener("visibilitychange", change);
      then();
    }, ms);
  };
  const observer = new IntersectionObserver((entries) => {
    isInView = entries.at(-1)?.isIntersecting ?? false;
    change();
  }, { rootMargin: margin });
  document.addEventListener("visibilitychange", change);
  observer.observe(element);
}
