// Times relative to now, in the zone that was chosen; keys; themes; picking; zooming. The pages work
// without it: times stand there in full, everything is a link or a form.
"use strict";
(() => {
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const FROM = { d: 172800, h: 6000, m: 100, s: 0 };
  const zoneOf = () => document.body.dataset.zone || "UTC";
  let format = null;

  const formatter = () => {
    if (!format || format.zone !== zoneOf()) {
      const options = {
        timeZone: zoneOf(), year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit",
        minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
      };
      format = { zone: zoneOf(), of: new Intl.DateTimeFormat("en-CA", options) };
    }
    return format.of;
  };

  const brief = (seconds) => {
    const [unit, length] = UNITS.find(([name]) => seconds >= FROM[name]);
    return `${Math.floor(seconds / length)}${unit}`;
  };

  const write = (element, now) => {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const away = (at - now) / 1000;
    const past = away <= 0;
    const words = brief(Math.abs(away));
    const text = element.classList.contains("elapsed") ? words : past ? `${words} ago` : `in ${words}`;
    if (element.textContent !== text) element.textContent = text;
    if (element.dataset.zone !== zoneOf()) {
      element.dataset.zone = zoneOf();
      element.title = formatter().format(at);
    }
  };

  const times = (root = document) => {
    const now = new Date();
    for (const one of root.querySelectorAll("time")) write(one, now);
  };

  // ---- the zone

  const zones = () => {
    const select = document.getElementById("zone");
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const all = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
    const there = new Set([...select.options].map((one) => one.value));
    for (const name of [own, ...all]) {
      if (name && !there.has(name)) {
        there.add(name);
        select.add(new Option(name === own ? `${name} (here)` : name, name));
      }
    }
    select.value = zoneOf();
    select.addEventListener("change", () => {
      const root = document.querySelector(".brand").getAttribute("href");
      document.cookie = `blackboard_zone=${encodeURIComponent(select.value)}; path=${root}; max-age=31536000; samesite=lax`;
      document.body.dataset.zone = select.value;
      const address = new URL(location);
      if (address.searchParams.has("zone")) {
        address.searchParams.delete("zone");
        location.assign(address);
      } else if (document.querySelector(".timeline, .heat")) location.reload();
      else times();
    });
  };

  // ---- themes

  const theme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("blackboard-theme", root.dataset.theme);
  };

  // ---- keys

  const ADDRESSES = { b: "", t: "timeline", r: "runs", f: "failures", w: "workers", l: "leases", h: "health" };
  let went = 0;

  const lines = () => [...document.querySelectorAll("tr[data-href]")];
  const chosen = () => document.querySelector("tr.chosen");

  const step = (by) => {
    const all = lines();
    if (!all.length) return;
    const at = all.indexOf(chosen());
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    chosen()?.classList.remove("chosen");
    next.classList.add("chosen");
    next.querySelector("a").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  const search = () => {
    const field = document.getElementById("search");
    field?.focus();
    field?.select();
  };

  const pressed = (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog[open]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && typing && !typing.matches("dialog")) {
      event.preventDefault(); // else a search is emptied, and all is shown
      return event.target.blur();
    }
    if (typing) return;
    if (Date.now() - went < 1500 && event.key in ADDRESSES) {
      location.assign(document.querySelector(".brand").getAttribute("href") + ADDRESSES[event.key]);
      return;
    }
    const keys = {
      "/": search,
      j: () => step(1),
      k: () => step(-1),
      x: () => chosen()?.querySelector("input[type=checkbox]")?.click(),
      g: () => { went = Date.now(); },
      p: () => document.querySelector("a.live")?.click(),
      d: theme,
      "?": () => document.getElementById("help").showModal(),
    };
    if (event.key in keys) {
      event.preventDefault();
      keys[event.key]();
    }
  };

  // ---- picking

  const picked = (event) => {
    if (event.target.id !== "pick-all") return;
    for (const one of document.querySelectorAll("input[name=pick]")) one.checked = event.target.checked;
  };

  // ---- zooming a timeline by dragging

  let from = null;

  const brush = (event) => {
    const picture = event.target.closest?.(".picture");
    const box = (picture ?? document.querySelector(".picture"))?.getBoundingClientRect();
    if (!box) return;
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    const shade = document.querySelector(".brush");
    if (event.type === "pointerdown" && picture && event.button === 0) from = part;
    else if (event.type === "pointermove" && from !== null && Math.abs(part - from) > 0.01) {
      const left = Math.min(part, from);
      shade.hidden = false;
      shade.style.left = `${left * 100}%`;
      shade.style.width = `${Math.abs(part - from) * 100}%`;
    } else if (event.type === "pointerup" && from !== null) {
      const [low, high] = [Math.min(part, from), Math.max(part, from)];
      from = null;
      shade.hidden = true;
      if (high - low < 0.01) return;
      const { since, until, url } = document.querySelector(".timeline").dataset;
      const [begin, whole] = [Number(since), Number(until) - Number(since)];
      const address = new URL(url, location);
      address.searchParams.set("hours", ((whole * (high - low)) / 3600).toFixed(4));
      address.searchParams.set("until", new Date((begin + whole * high) * 1000).toISOString());
      location.assign(address);
    }
  };

  const begin = () => {
    zones();
    times();
    setInterval(times, 1000);
    new MutationObserver(() => times()).observe(document.querySelector("main").parentNode, { childList: true, subtree: true });
    document.getElementById("theme").addEventListener("click", theme);
    document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
    document.addEventListener("keydown", pressed);
    document.addEventListener("change", picked);
    for (const kind of ["pointerdown", "pointermove", "pointerup"]) document.addEventListener(kind, brush);
    document.addEventListener("dragstart", (event) => event.target.closest?.(".picture") && event.preventDefault());
  };

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
