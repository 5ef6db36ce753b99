// Logs in with the code of a link, and shows the login of this device.
import { call, forgetToken, keepToken, keptToken, Refused } from "./api.js";
import { part } from "./dom.js";
import { wayBack } from "./paths.js";

const code = /** @type {HTMLInputElement} */ (part("code"));
const device = /** @type {HTMLInputElement} */ (part("device"));
const leaves = /** @type {HTMLButtonElement} */ (part("leave"));
const spends = /** @type {HTMLButtonElement} */ (part("spend"));

// The code and its id leave the address at once, so that neither the history nor a copied address has them.
const linked = location.hash.slice(1);
const back = wayBack(location.search);
if (linked) history.replaceState(null, "", "/login" + (back ? location.search : ""));

/** @param {unknown} error */
function showError(error) {
  part("error").textContent = error instanceof Error ? error.message : "";
  part("error").hidden = !error;
}

/** @param {string} id */
function show(id) {
  for (const view of ["offer", "login"]) part(view).hidden = view !== id;
}

function showOffer() {
  code.value = linked;
  part("typed").hidden = Boolean(linked);
  show("offer");
}

/** @param {any} login */
function showLogin(login) {
  part("name").textContent = login.name;
  part("scope").textContent = login.scope;
  part("until").textContent = new Date(login.expires_at).toLocaleString();
  leaves.onclick = () => busy(leaves, leave);
  show("login");
}

/** @param {HTMLButtonElement} button @param {() => Promise<void>} work */
async function busy(button, work) {
  button.disabled = true;
  showError(null);
  try {
    await work();
  } catch (error) {
    showError(error);
  } finally {
    button.disabled = false;
  }
}

/** Spends the code, and ends the login that this browser has, which it would forget. */
async function spend() {
  const name = device.value.trim();
  const { token, login } = await call("POST", "/api/v1/login", { code: code.value, ...(name && { device: name }) });
  const former = keptToken();
  try {
    keepToken(token);
  } catch {
    const full = "This browser stores no more data";
    await end(token).catch((error) => {
      throw new Error(`${full}, and the new login ${login.id} may still be valid (${error.message}): revoke it.`);
    });
    throw new Error(`${full}, so the new login was ended. Free some of its storage and use another code.`);
  }
  // The list of logins has one that could not be ended, for as long as it is valid.
  await end(former).catch(() => {});
  if (back) location.replace(back);
  else showLogin(login);
}

/** Ends the login of a token. @param {string | null} token */
async function end(token) {
  if (token === null) return;
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const { login } = await call("GET", "/api/v1/me", undefined, headers);
    await call("DELETE", `/api/v1/logins/${encodeURIComponent(login.id)}`, undefined, headers);
  } catch (error) {
    // A login that has ended already needs no end.
    if (!(error instanceof Refused && [401, 404].includes(error.status))) throw error;
  }
  forgetToken(token);
}

async function leave() {
  // Another tab may have logged in since.
  await end(keptToken());
  code.value = "";
  part("typed").hidden = false;
  show("offer");
}

async function begin() {
  if (linked || keptToken() === null) return showOffer();
  try {
    const { login } = await call("GET", "/api/v1/me");
    showLogin(login);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) forgetToken(error.token);
    showOffer();
    showError(error);
  }
}

part("offer").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(spends, spend);
});
begin();
