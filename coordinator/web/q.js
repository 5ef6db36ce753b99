// The pages of questions: /q lists them, and /q/ID shows one.
import { forgetToken, Refused } from "./api.js";
import { h, part } from "./dom.js";
import { listView } from "./list.js";
import { loginFor, questionAt } from "./paths.js";
import { reportInput } from "./presence.js";
import { questionView } from "./question.js";
import { follow } from "./stream.js";

const view = part("view");
const id = questionAt(location.pathname);

function begin() {
  if (id === null && location.pathname !== "/q") return showMissing();
  if (id !== null) {
    if (cameBack()) return showStep();
    // The browser may keep this page as it is, and show it again on the way back.
    window.addEventListener("pagehide", showStep);
  }
  reportInput();
  const { look, concerns } = id === null ? listView(view) : questionView(id, view);
  follow({ look: () => look().catch(explain), concerns }, (isLost) => (part("lost").hidden = !isLost));
}

/** Leads to the login page if that helps. Throws an error that may pass. @param {unknown} error */
function explain(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) {
    forgetToken(error.token);
    location.replace(loginFor(location.pathname));
  } else if (error.code === "MESSAGE_NOT_FOUND") {
    showMissing();
  } else if (error.status >= 500 || error.status === 429) {
    throw error;
  } else {
    view.replaceChildren(h("h1", { class: "unseen" }, "Question"), h("p", { class: "error", role: "alert" }, error.message));
  }
}

/** Returns whether the browser went back or forward to this page: the script of another page can do that between two presses. */
function cameBack() {
  const [navigation] = performance.getEntriesByType("navigation");
  return navigation instanceof PerformanceNavigationTiming && navigation.type === "back_forward";
}

/** Shows one more step instead of the question, as for a page that another site opened. */
function showStep() {
  const show = h("a", { id: "show", href: location.pathname }, "Show the question");
  view.replaceWith(h("main", {}, h("h1", {}, "c3po"), h("p", {}, "The browser went back to this page."), h("p", {}, show)));
}

function showMissing() {
  view.replaceChildren(h("h1", { class: "unseen" }, "Question"), h("p", { id: "none" }, "There is no such question. It may have been settled long ago."));
}

begin();
