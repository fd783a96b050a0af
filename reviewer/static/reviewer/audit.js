/* Brushing the histogram: drag over bars, or hold Shift with the arrow keys, and the search narrows to their time.
   Without this script each bar is a link of its own. Loads under default-src 'self'. */
(() => {
  "use strict";
  const chart = document.querySelector("[data-brush]");
  if (!chart) return;
  const bars = [...chart.querySelectorAll("a[data-from]")];
  const say = text => { const region = document.querySelector("#say"); if (region) region.textContent = text; };
  let first = -1, last = -1, isDragging = false;

  const mark = () => {
    const [low, high] = [Math.min(first, last), Math.max(first, last)];
    bars.forEach((bar, place) => bar.classList.toggle("brushed", first >= 0 && place >= low && place <= high));
  };
  const clear = () => { first = last = -1; mark(); };
  const open = () => {
    const from = bars[Math.min(first, last)].dataset.from, to = bars[Math.max(first, last)].dataset.to;
    const query = new URLSearchParams(chart.dataset.base);
    for (const name of ["from", "to", "last"]) query.delete(name);
    query.set("from", from);
    query.set("to", to);
    location.assign(`${location.pathname}?${query}`);
  };
  const barAt = event => {
    const box = chart.getBoundingClientRect();
    const place = Math.floor((event.clientX - box.left) / box.width * bars.length);
    return Math.max(0, Math.min(bars.length - 1, getComputedStyle(chart).direction === "rtl" ? bars.length - 1 - place : place));
  };

  chart.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    first = last = barAt(event);
    isDragging = true;
  });
  window.addEventListener("pointermove", event => {
    if (!isDragging) return;
    last = barAt(event);
    if (first !== last) mark();
  });
  window.addEventListener("pointerup", () => {
    if (!isDragging) return;
    isDragging = false;
    if (first !== last) open(); else clear();
  });
  window.addEventListener("pointercancel", () => { isDragging = false; clear(); });
  chart.addEventListener("dragstart", event => event.preventDefault());
  // The press that ended a brush is not a press on the bar under it.
  chart.addEventListener("click", event => { if (first !== last) event.preventDefault(); }, true);

  // One stop of the Tab key for all bars; the arrow keys move among them.
  bars.forEach((bar, place) => bar.setAttribute("tabindex", place === bars.length - 1 ? "0" : "-1"));
  const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  chart.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = bars.indexOf(document.activeElement);
    if (here < 0) return;
    if (event.key === "Escape" && first >= 0) { clear(); event.preventDefault(); return; }
    if (event.key === "Enter" && first >= 0 && first !== last) { event.preventDefault(); open(); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(bars.length - 1, here + moves[event.key]));
    if (event.shiftKey) { if (first < 0) first = here; last = next; mark(); } else clear();
    bars[here].setAttribute("tabindex", "-1");
    bars[next].setAttribute("tabindex", "0");
    bars[next].focus();
    if (event.shiftKey) say(`${bars[Math.min(first, last)].dataset.from} – ${bars[Math.max(first, last)].dataset.to}`);
  });
})();
