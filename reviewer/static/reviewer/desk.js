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
      const text = left ? digits(left) : word("expired");
      if (timer.textContent !== text) timer.textContent = text;
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
    say(word("expired-plan"), true);
    look();
  }

  // A press meant for what was here before must not land on what has just appeared.
  let armedAt = performance.now() + 700;
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
    }
  }, true);
  // Enter in a field never decides: it moves on to the button.
  document.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.isComposing || !event.target.matches("[data-action] input:not([type=radio])")) return;
    event.preventDefault();
    $("button:not([hidden])", event.target.form)?.focus();
  });

  // What is new about the plan on this page. Nothing on it moves: one sentence appears above it.
  let looking = false;
  const isHere = () => document.visibilityState === "visible" && navigator.onLine;
  async function look() {
    const watch = $("#watch");
    if (!watch || looking || !window.htmx || document.querySelector("[data-action].htmx-request")) return;
    looking = true;
    const isBusy = $("#plan").dataset.state === "committing";
    try {
      if (isBusy) await htmx.ajax("GET", location.pathname.replace(/(approve|reject|settle|replan|recheck)\/$/, ""), { target: "#plan", select: "#plan", swap: "outerHTML show:none" });
      else await htmx.ajax("GET", watch.getAttribute("href"), { target: "#news", swap: "innerHTML" });
    } catch { /* said by the listeners below; the next look may get through */ } finally { looking = false; }
  }
  setInterval(() => { if (isHere()) look(); }, $("#plan")?.dataset.state === "committing" ? 2000 : 10000);
  document.addEventListener("visibilitychange", () => {
    if (!isHere()) return;
    look();
    document.body.dispatchEvent(new CustomEvent("visible-again"));
  });

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
    news.replaceChildren(box);
    news.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("htmx:beforeSwap", event => {
    const { target, xhr, requestConfig } = event.detail;
    if (target?.id !== "plan") { if (["news", "recheck"].includes(target?.id) && xhr.status >= 400) event.detail.shouldSwap = false; return; }
    const answer = new DOMParser().parseFromString(xhr.responseText, "text/html");
    if (answer.querySelector("#plan")) return;
    event.detail.shouldSwap = false;
    if (requestConfig.verb !== "get") notice(answer.querySelector("[data-message]")?.textContent.trim() || word("odd"));
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(name, event => {
    if (event.detail.elt?.dataset?.action) notice(word("lost")); else say(word("offline"));
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
    if (event.detail.target?.id === "plan" || event.target.id === "plan") { armedAt = performance.now() + 700; tick(); lock(); land(); recheckAtOnce(); if (!$("#decision form[data-action='approve']")) $("#jump")?.remove(); }
    if (event.target.id === "recheck" && event.target.classList.contains("no")) armedAt = performance.now() + 700;
    const count = $("#nav-count");
    if (document.body.dataset.page === "inbox" && count) document.title = document.title.replace(/^(\(.*?\) )?/, count.dataset.waiting !== "0" ? `(${count.dataset.waiting}) ` : "");
  });

  // Keys move and open. None of them writes.
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
    "/": () => $("#q")?.focus(),
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
  // The browser's back button may bring the page as it was: what is true may have changed.
  addEventListener("pageshow", event => { if (event.persisted) location.reload(); });

  lock();
  if ($("#plan[data-answer]") || ($("#outcome") && !$("#plan"))) land();
  tick();
  recheckAtOnce();
  setInterval(tick, 1000);

  // Forms that may be sent once: a second press would take the first one's answer away, and the secret in it.
  document.addEventListener("submit", event => {
    const form = event.target;
    if (!form.matches?.("[data-once]")) return;
    if (form.dataset.sent) event.preventDefault(); else { form.dataset.sent = "1"; $("[type=submit]", form)?.classList.add("htmx-request"); }
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
