// The addresses of the pages. An id of a question is two agents and a number, so it needs no escape.

const QUESTION = /^\/q\/([A-Za-z0-9][A-Za-z0-9_.-]*::[A-Za-z0-9][A-Za-z0-9_.-]*::[0-9A-Fa-f]{8})$/;

/** Returns the id of the question at a path of this site, or null. @param {string} path */
export function questionAt(path) {
  return QUESTION.exec(path)?.[1] ?? null;
}

/** Returns the page to which the login page leads back, or null. Only pages of questions qualify. @param {string} query */
export function wayBack(query) {
  const back = new URLSearchParams(query).get("back") ?? "";
  return back === "/q" || questionAt(back) !== null ? back : null;
}

/** Returns the address of the login page that leads back to this path. @param {string} path */
export function loginFor(path) {
  return `/login?back=${encodeURIComponent(path)}`;
}
