// Logs in with the code of a link, and shows the login of this device. The token stays in localStorage, which belongs to this
// scheme, host and port alone.

const TOKEN = "c3po-login";
const part = (id) => document.getElementById(id);

// The code leaves the address at once, so that neither the history nor a copied address has it.
const linked = location.hash.slice(1);
if (linked) history.replaceState(null, "", location.pathname);

class Refused extends Error {
  constructor(status, body) {
    super([body.error && `${body.error}.`, body.suggestion].filter(Boolean).join("\n") || `The coordinator answered ${status}.`);
    this.status = status;
  }
}

async function call(method, path, body) {
  const headers = {};
  const token = localStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, body: body && JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch {
    throw new Error("The coordinator does not answer. Check the network and try again.");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer.data;
}

function say(error) {
  part("error").textContent = error ? error.message : "";
  part("error").hidden = !error;
}

function show(id) {
  for (const view of ["offer", "login"]) part(view).hidden = view !== id;
}

function showOffer() {
  part("code").value = linked;
  part("typed").hidden = Boolean(linked);
  show("offer");
}

function showLogin(login) {
  part("name").textContent = login.name;
  part("scope").textContent = login.scope;
  part("until").textContent = new Date(login.expires_at).toLocaleString();
  part("leave").onclick = () => busy(part("leave"), () => leave(login.id));
  show("login");
}

async function busy(button, work) {
  button.disabled = true;
  say(null);
  try {
    await work();
  } catch (error) {
    say(error);
  } finally {
    button.disabled = false;
  }
}

async function spend() {
  const device = part("device").value.trim();
  const { token, login } = await call("POST", "/api/v1/login", { code: part("code").value, ...(device && { device }) });
  localStorage.setItem(TOKEN, token);
  showLogin(login);
}

async function leave(id) {
  try {
    await call("DELETE", `/api/v1/logins/${encodeURIComponent(id)}`);
  } catch (error) {
    // A login that has ended already needs no end.
    if (!(error instanceof Refused && [401, 404].includes(error.status))) throw error;
  }
  localStorage.removeItem(TOKEN);
  part("code").value = "";
  part("typed").hidden = false;
  show("offer");
}

async function begin() {
  if (linked || !localStorage.getItem(TOKEN)) return showOffer();
  try {
    const { login } = await call("GET", "/api/v1/me");
    showLogin(login);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) localStorage.removeItem(TOKEN);
    showOffer();
    say(error);
  }
}

part("offer").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(part("spend"), spend);
});
begin();
