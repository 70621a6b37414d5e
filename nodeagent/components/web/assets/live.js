"use strict";
(() => {
  const root = document.documentElement;
  const status = document.getElementById("live");
  const waiting = new Map();
  let ahead = Date.now() / 1000 - Number(root.dataset.time); // this clock minus the node's
  const show = (text, kind) => { status.textContent = text; status.className = kind; };
  const age = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const join = (size, unit, small, smallUnit) => {
      const rest = Math.floor((whole % size) / small);
      return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
    };
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return join(60, "min", 1, "s");
    if (whole < 86400) return join(3600, "h", 60, "min");
    return join(86400, "d", 3600, "h");
  };
  const showAges = () => {
    const now = Date.now() / 1000 - ahead;
    for (const time of document.querySelectorAll("time[data-since]")) {
      const text = age(now - Number(time.dataset.since));
      if (time.textContent !== text) time.textContent = text;
    }
  };
  // What a reader has selected stays until it is let go; focus, scroll positions and opened details survive.
  const isSelected = (element) => {
    const selection = document.getSelection();
    return Boolean(selection) && !selection.isCollapsed && selection.containsNode(element, true);
  };
  const nameOf = (element) => element.getAttribute("href") || element.id;
  const put = (id, html) => {
    const old = document.getElementById(id);
    if (!old) return true;
    if (isSelected(old)) return false;
    const box = document.createElement("template");
    box.innerHTML = html;
    const fresh = box.content.firstElementChild;
    const opened = [...old.querySelectorAll("details[open]")].map((one) => one.id);
    const scrolled = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : "";
    old.className = fresh.className;
    old.replaceChildren(...fresh.childNodes);
    for (const one of opened) { const again = document.getElementById(one); if (again) again.open = true; }
    old.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (focused) {
      const again = [...old.querySelectorAll("a, summary, [tabindex]")].find((one) => nameOf(one) === focused);
      if (again) again.focus({ preventScroll: true });
    }
    return true;
  };
  const putWaiting = () => {
    for (const [id, html] of waiting) if (put(id, html)) waiting.delete(id);
    showAges();
  };
  const source = new EventSource(`/live?page=${encodeURIComponent(location.pathname)}&since=${root.dataset.version}`);
  source.addEventListener("open", () => show("● live", "on"));
  source.addEventListener("error", () => show("○ not live: connection lost", "off"));
  source.addEventListener("sections", (event) => {
    const update = JSON.parse(event.data);
    ahead = Date.now() / 1000 - update.time;
    document.title = update.title;
    for (const [id, html] of Object.entries(update.sections)) waiting.set(id, html);
    putWaiting();
  });
  setInterval(putWaiting, 1000);
})();
