// Tries everything that a page of another origin can do to the coordinator at TARGET, and returns what it got.
const got = [];
const stored = Object.keys(localStorage).map((key) => localStorage.getItem(key));
if (stored.some((text) => text.includes("c3po-login_"))) got.push("storage");
const paths = ["/api/v1/me", "/api/v1/logins", "/api/agents", "/api/v1/login", "/login", "/web/login.js", "/metrics"];
for (const path of paths) {
    for (const options of [
        {}, {credentials: "include"}, {headers: {Authorization: "Bearer TOKEN"}},
        {method: "POST", body: "{}"}, {method: "POST", body: '{"code":"CODE"}', headers: {"Content-Type": "application/json"}},
        {mode: "no-cors", method: "POST", body: '{"code":"CODE"}'}, {mode: "no-cors"},
    ]) {
        try {
            const response = await fetch("TARGET" + path, options);
            if (response.type !== "opaque" || (await response.text())) got.push(`${path} ${JSON.stringify(options)} ${response.type}`);
        } catch {}
    }
}
await new Promise((done) => {
    const socket = new WebSocket("TARGET/acp".replace("http", "ws"), "c3po.acp.v1");
    socket.onopen = () => { got.push("a link"); done(); };
    socket.onerror = done;
});
const frame = document.createElement("iframe");
frame.src = "TARGET/login";
await new Promise((done) => { frame.onload = done; frame.onerror = done; setTimeout(done, 3000); document.body.append(frame); });
try { if (frame.contentDocument && frame.contentDocument.querySelector("#offer")) got.push("a frame"); } catch {}
try { got.push("its storage " + frame.contentWindow.localStorage.length); } catch {}
const script = document.createElement("script");
script.src = "TARGET/web/login.js";
await new Promise((done) => { script.onload = () => { got.push("a script"); done(); }; script.onerror = done; document.body.append(script); });
return got;
