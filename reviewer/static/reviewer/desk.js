/* The desk's own script: no eval, no inline handlers, so it runs under default-src 'self'.
   Every page works without it; it adds the clock, the keys, focus, and guards against slips of the hand. */
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const word = (name, values = {}) => {
    const text = $(`[data-word="${name}"]`, $("#words")?.content ?? document)?.textContent ?? "";
    return text.replace(/\{(\w+)\}/g, (_, key) => values[key]);
  };
  const say = (text, isUrgent) => { const region = $(isUrgent ? "#shout" : "#say"); if (region) region.textContent = text; };

  // htmx notes the address it is on in the browser's storage, although we keep no history there: nothing stays behind.
  try { sessionStorage.removeItem("htmx-current-path-for-history"); } catch { /* storage is off */ }

  // The server's clock decides; the browser only measures how long ago the page was made.
  const served = Date.parse(document.body.dataset.serverNow) || Date.now();
  const start = performance.now();
  const now = () => served + (performance.now() - start);

  const MARKS = [300, 60, 30];
  const said = new Map();
  const two = number => String(number).padStart(2, "0");
  const digits = s => s >= 3600
    ? word("hours", { hours: Math.floor(s / 3600), minutes: two(Math.floor(s % 3600 / 60)) })
    : `${Math.floor(s / 60)}:${two(s % 60)}`;
  const spoken = s => s >= 120 ? word("minutes", { count: Math.round(s / 60) }) : s >= 60 ? word("minute") : word("seconds", { count: s });

  function tick() {
    for (const timer of $$("[data-expires]")) {
      const end = timer.dataset.expires;
      const left = Math.max(0, Math.ceil((Date.parse(end) - now()) / 1000));
      const text = left ? digits(left) : word(timer.closest(".due, .jump") ? "time-up" : "expired");
      if (timer.textContent !== text) timer.textContent = text;
      if (!left && timer.closest(".jump")) timer.nextElementSibling.hidden = true; // "left"
      timer.closest(".left, .due")?.classList.toggle("soon", left > 0 && left < 120);
      timer.closest(".plans > li")?.classList.toggle("gone", !left);
      if (!timer.closest(".due")) continue;
      const before = said.get(end) ?? Infinity;
      if (before !== Infinity) for (const mark of MARKS) if (left <= mark && before > mark && left) say(word("left", { time: spoken(mark) }), mark <= 60);
      if (!left && before > 0) expire();
      said.set(end, left);
    }
    for (const bar of $$("[data-drain]")) bar.value = Math.max(0, (Date.parse(bar.dataset.drain) - now()) / 1000);
    const clock = $("[data-clock]");
    if (clock) clock.textContent = new Date(now()).toISOString().slice(11, 19);
  }
  function expire() {
    for (const button of $$("[data-action='approve'] button, [data-action='reject'] button")) button.setAttribute("aria-disabled", "true");
    // What became of the plan is the server's to say: it may be being written, or have been.
    const isTold = $("[data-action].htmx-request") || $("#news-part .outcome");
    if (!isTold) say(word("too-late"), true);
    look();
  }

  // A press meant for what was here before must not land on what has just appeared. It is told so.
  let armedAt = 0;
  const arm = () => {
    armedAt = performance.now() + 700;
    $("#approve")?.setAttribute("data-arming", "");
    setTimeout(() => { if (performance.now() >= armedAt) $("#approve")?.removeAttribute("data-arming"); }, 705);
  };
  arm();
  const isLocked = () => { const fact = $("#fact"); return Boolean(fact && !fact.value.trim()); };
  const lock = () => {
    const button = $("#approve");
    if (!button || !$("#fact")) return;
    if (isLocked()) button.setAttribute("aria-disabled", "true"); else button.removeAttribute("aria-disabled");
  };
  document.addEventListener("input", event => { if (event.target.id === "fact") lock(); });
  document.addEventListener("submit", event => {
    const action = event.target.dataset?.action;
    if (!action) return;
    const isApproval = action === "approve";
    const isDead = event.submitter?.getAttribute("aria-disabled") === "true";
    if (isDead || (isApproval && (isLocked() || performance.now() < armedAt))) {
      event.preventDefault();
      event.stopImmediatePropagation();
      if (isApproval && isLocked()) $("#fact").focus();
      else if (isApproval && !isDead) { const early = $("#early"); early.hidden = false; say(early.textContent, true); }
    }
  }, true);
  // Enter in a field never decides: it moves on to the button.
  document.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.isComposing || !event.target.matches("[data-action] input:not([type=radio])")) return;
    event.preventDefault();
    $("button:not([hidden])", event.target.form)?.focus();
  });

  // What is new about what this page shows. Nothing on it moves: the server says by hints that there is something to
  // see (/live/), and the page asks for it. Without a stream, as on a server without an event loop, it asks by the clock.
  let looking = false, again = false;
  const isHere = () => document.visibilityState === "visible";
  async function look() {
    const watch = $("#watch");
    if (!watch || !window.htmx || document.querySelector("[data-action].htmx-request")) return;
    if (looking) { again = true; return; }
    looking = true;
    const isBusy = $("#plan").dataset.state === "committing";
    try {
      if (isBusy) await htmx.ajax("GET", location.pathname.replace(/(approve|reject|settle|replan|recheck)\/$/, ""), { target: "#plan", select: "#plan", swap: "outerHTML show:none" });
      else await htmx.ajax("GET", watch.getAttribute("href"), { target: "#news-part", swap: "innerHTML" });
    } catch { /* said by the listeners below; the next look may get through */ } finally { looking = false; }
    if (again) { again = false; look(); }
  }
  const refresh = () => { look(); document.body.dispatchEvent(new CustomEvent("visible-again")); };

  // Parts that are as they were are not sent again: the browser keeps nothing (no-store), so the page keeps their names.
  const tags = new Map();
  const pathOf = url => new URL(url, location.href).pathname;
  document.addEventListener("htmx:configRequest", event => {
    const tag = event.detail.verb === "get" && tags.get(pathOf(event.detail.path));
    if (tag) event.detail.headers["If-None-Match"] = tag;
  });
  document.addEventListener("htmx:afterRequest", event => {
    const { xhr, requestConfig, target } = event.detail;
    const tag = xhr?.status === 200 && xhr.getResponseHeader("ETag");
    if (tag && requestConfig.verb === "get") tags.set(pathOf(requestConfig.path), tag);
    const isOfThePage = requestConfig?.verb === "get" && target?.id !== "recheck"; // a recheck's 503 is its target's
    if (xhr?.status >= 500 ? isOfThePage : xhr?.status) setOffline(xhr.status >= 500);
  });

  // EventSource gives up for good at the first 502; this tells an answer that ends it (no session, no event loop) from a
  // server that is away, and asks again: later each time, and not with everybody else.
  const DEAF = 70000; // milliseconds; the server says something every 20 s
  let stream = null, isOpen = false, isOver = false, failures = 0, later = 0, heardAt = 0, lookedAt = performance.now();
  async function listen() {
    clearTimeout(later);
    const url = $("[data-live]")?.dataset.live;
    if (stream || isOver || !url || !isHere()) return;
    const own = stream = new AbortController();
    heardAt = performance.now();
    try {
      const answer = await fetch(url, { signal: own.signal, headers: { Accept: "text/event-stream" } });
      isOver = answer.status !== 200 && answer.status < 500;
      if (answer.status === 200) await hear(answer.body.pipeThrough(new TextDecoderStream()).getReader(), own);
    } catch { /* cut, or nobody there: what follows is the same */ }
    if (stream !== own) return; // let go on purpose
    stream = null;
    isOpen = false;
    if (isOver) return;
    failures += 1;
    later = setTimeout(listen, Math.min(60, 2 ** failures) * (500 + Math.random() * 500));
    refresh(); // which says whether the server is there
  }
  async function hear(reader, own) {
    isOpen = true;
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done || stream !== own) return;
      heardAt = performance.now();
      failures = 0;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const hint of new Set(lines.filter(line => line.startsWith("event: ")).map(line => line.slice(7)))) {
        if (hint !== "plans") look(); else if ($("#watched")) refresh();
      }
    }
  }
  // A page that nobody looks at holds no connection: a browser has few of them for one server.
  function silence() { const own = stream; stream = null; isOpen = false; clearTimeout(later); own?.abort(); }
  const pause = () => $("#plan")?.dataset.state === "committing" ? 2000 : isOpen ? 60000 : 10000;
  setInterval(() => {
    if (stream && performance.now() - heardAt > DEAF) { silence(); listen(); }
    if (!isHere() || !navigator.onLine || performance.now() - lookedAt < pause()) return;
    lookedAt = performance.now();
    refresh();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (!isHere()) { silence(); return; }
    listen();
    refresh();
  });
  addEventListener("pagehide", silence);

  function setOffline(isOff) {
    const box = $("#offline");
    if (!box || box.hidden === !isOff) return;
    box.hidden = !isOff;
    say(word(isOff ? "offline" : "online"));
  }
  addEventListener("offline", () => setOffline(true));
  addEventListener("online", () => { setOffline(false); listen(); refresh(); });

  // What has moved since the dry run is read after the page is shown; nothing waits for it. A target may take its time.
  async function recheck(link) {
    const box = $("#recheck");
    if (!box || !link || !window.htmx || box.classList.contains("reading")) return;
    box.classList.add("reading");
    try { await htmx.ajax("GET", link.getAttribute("href"), { target: "#recheck", swap: "outerHTML" }); }
    catch { /* said in its place, below */ }
    finally {
      box.classList.remove("reading");
      if (box.isConnected) $("p", box).textContent = word("unread");
    }
  }
  const recheckAtOnce = () => recheck($("#recheck [data-first]"));
  document.addEventListener("click", event => {
    const link = event.target.closest("[data-recheck]");
    if (!link || !window.htmx || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    recheck(link);
  });

  // An answer that is no plan page is never put in its place: its sentence is shown above it instead.
  const notice = text => {
    const news = $("#news");
    say(text, true);
    if (!news) return;
    const box = Object.assign(document.createElement("p"), { className: "notice", textContent: `${text} ` });
    box.append(Object.assign(document.createElement("a"), { href: location.pathname, textContent: word("reload") }));
    $(":scope > .notice", news)?.remove();
    news.prepend(box);
    news.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("htmx:beforeSwap", event => {
    const { target, xhr, requestConfig } = event.detail;
    if (target?.id !== "plan") { if (["news-part", "fresh", "recheck"].includes(target?.id) && xhr.status >= 400) event.detail.shouldSwap = false; return; }
    const answer = new DOMParser().parseFromString(xhr.responseText, "text/html");
    if (answer.querySelector("#plan")) return;
    event.detail.shouldSwap = false;
    if (requestConfig.verb !== "get") notice(answer.querySelector("[data-message]")?.textContent.trim() || word("odd"));
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(name, event => {
    setOffline(true);
    if (event.detail.elt?.dataset?.action) notice(word("lost"));
  });
  document.addEventListener("htmx:responseError", event => { if (event.detail.elt?.dataset?.action && event.detail.xhr.status >= 500) notice(word("odd")); });

  // After a decision its outcome takes focus, so that it is read out and in view.
  const land = () => {
    const outcome = $("#outcome");
    if (!outcome || outcome.contains(document.activeElement)) return;
    outcome.focus({ preventScroll: true });
    outcome.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("htmx:afterSettle", event => {
    if (event.detail.target?.id === "plan" || event.target.id === "plan") { arm(); tags.clear(); tick(); lock(); land(); recheckAtOnce(); if (!$("#decision form[data-action='approve']")) $("#jump")?.remove(); }
    if (event.target.id === "recheck" && event.target.classList.contains("no")) arm();
    for (const flags of $$(".plans .flags")) flags.closest("li").classList.toggle("gone", flags.classList.contains("gone"));
    const count = $("#nav-count");
    if (document.body.dataset.page === "inbox" && count) document.title = document.title.replace(/^(\(.*?\) )?/, count.dataset.waiting !== "0" ? `(${count.dataset.waiting}) ` : "");
  });

  // Theme and order of times are kept by the server for the person, and shown here at once.
  async function keep(button) {
    const form = button.form, data = new FormData(form);
    data.set(button.name, button.value);
    try {
      const answer = await fetch(form.action, { method: "POST", body: data, headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    } catch { say(word("not-saved"), true); return; }
    if (button.name === "theme") {
      document.documentElement.dataset.theme = button.value;
      button.value = button.value === "dark" ? "light" : "dark";
      return;
    }
    button.value = button.value === "local" ? "utc" : "local";
    for (const time of $$("time.both")) { const [one, other] = $$("span", time); [one.textContent, other.textContent] = [other.textContent, one.textContent]; }
    say(word("time-first"));
  }
  document.addEventListener("submit", event => {
    if (!event.target.matches?.("[data-look]") || !event.submitter?.name) return;
    event.preventDefault();
    keep(event.submitter);
  });
  // Where the theme is the device's, the first press goes to the other one, not to what shows already.
  const themed = $("[data-look] [name='theme']");
  if (themed && !document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches) themed.value = "light";

  // Keys move and open. None of them decides anything.
  const keys = $("#keys"), opener = $("[data-keys]");
  if (opener) { opener.hidden = false; opener.addEventListener("click", () => keys.showModal()); }
  const hasKeys = document.body.dataset.singleKeys !== "off";
  let chord = 0, change = -1;
  const move = by => {
    const rows = $$(".plans > li");
    if (!rows.length) return;
    const at = rows.findIndex(row => row.classList.contains("sel"));
    const to = Math.min(rows.length - 1, Math.max(0, at + by));
    for (const row of rows) row.classList.toggle("sel", row === rows[to]);
    $("h3 a", rows[to]).focus();
  };
  const acts = {
    j: () => move(1),
    k: () => move(-1),
    g: () => { chord = performance.now(); },
    u: () => $(".crumbs a")?.click(),
    n: () => $("#next")?.click(),
    a: () => (isLocked() ? $("#fact") : $("#approve"))?.focus(),
    r: () => { const box = $("details.reject"); if (box) { box.open = true; $("textarea", box).focus(); } },
    c: () => {
      const cards = $$(".act[id^='change-']");
      if (!cards.length) return;
      change = (change + 1) % cards.length;
      cards[change].tabIndex = -1;
      cards[change].focus();
      cards[change].scrollIntoView({ block: "start" });
    },
    "/": () => { const box = $("#q"); box?.closest("details")?.setAttribute("open", ""); box?.focus(); },
    t: () => { const button = $("[name='time_first']"); if (button) keep(button); else say(word("same-time")); },
    "?": () => keys.showModal(),
  };
  document.addEventListener("keydown", event => {
    if (!hasKeys || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]") || $("dialog[open]")) return;
    const key = event.key.toLowerCase();
    if (chord && performance.now() - chord < 1200) {
      chord = 0;
      const to = { i: document.body.dataset.inbox, a: document.body.dataset.audit }[key];
      if (to) { event.preventDefault(); location.href = to; return; }
    }
    if (acts[key]) { event.preventDefault(); acts[key](); }
  });
  document.addEventListener("focusin", event => {
    const row = event.target.closest(".plans > li");
    if (row) for (const other of $$(".plans > li")) other.classList.toggle("sel", other === row);
  });
  // A list that takes its time says so; one that comes at once does not flicker.
  const load = () => setTimeout(() => { $("#main").setAttribute("aria-busy", "true"); $("#loading").hidden = false; say($("#loading").textContent); }, 250);
  document.addEventListener("click", event => {
    const isPlain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented);
    if (isPlain && event.target.closest(".fresh a, .seg a, .pager a, .plans h3 a, .nav a, .tabbar a")) load();
  });
  document.addEventListener("submit", event => { if (event.target.method === "get" && !event.submitter?.hasAttribute("formaction")) load(); });

  // The browser's back button may bring the page as it was: what is true may have changed.
  addEventListener("pageshow", event => { if (event.persisted) location.reload(); });

  listen();
  lock();
  if ($("#plan[data-answer]") || ($("#outcome") && !$("#plan"))) land();
  tick();
  recheckAtOnce();
  setInterval(tick, 1000);

  // Forms that may be sent once: a second press would take the first one's answer away, and the secret in it.
  document.addEventListener("submit", event => {
    const form = event.target;
    if (!form.matches?.("[data-once]")) return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    const pressed = event.submitter ?? $$("[type=submit]", form).find(button => button.getClientRects().length);
    pressed?.classList.add("htmx-request");
  });
  for (const button of $$("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText($(`#${button.dataset.copy}`).textContent);
      say(word("copied"));
      button.classList.add("done");
    });
  }
})();
