// Times relative to now, in the zone that was chosen; whether the page is live; keys; themes;
// picking; what actions ask; zooming. Without it the pages show and change the same: times stand
// there in full, and what is shown and changed is a link or a form.
"use strict";
(() => {
  const UNITS = [["s", 1, 120], ["m", 60, 7200], ["h", 3600, 172800], ["d", 86400, Infinity]];
  const zoneOf = () => document.body.dataset.zone || "UTC";

  // Times are those of the store; the clock of this machine may be wrong by minutes.
  const ahead = (() => {
    const loaded = performance.getEntriesByType("navigation")[0]?.responseStart;
    const told = Number(document.body.dataset.now); // when the answer began to arrive
    const by = loaded && told ? Date.now() - performance.now() + loaded - told : 0;
    return Math.abs(by) > 2000 ? by : 0;
  })();
  const clock = () => Date.now() - ahead;
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

  const brief = (seconds, nearest = false) => {
    const rounded = (length) => Math.floor(seconds / length + (nearest ? 0.5 : 0));
    const [unit, length] = UNITS.find(([, each, end]) => rounded(each) * each < end);
    return `${rounded(length)}${unit}`;
  };

  const write = (element, now) => {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const away = Math.trunc((at - now) / 1000);
    const words = brief(Math.abs(away), away > 0);
    const { classList } = element;
    const text = classList.contains("exact") ? formatter().format(at).replace(",", "")
      : classList.contains("elapsed") ? words
        : away === 0 ? "now" : away < 0 ? `${words} ago` : `in ${words}`;
    if (element.textContent !== text) element.textContent = text;
    if (!classList.contains("exact") && element.dataset.zone !== zoneOf()) {
      element.dataset.zone = zoneOf();
      element.title = formatter().format(at);
    }
  };

  const times = (root = document) => {
    const now = clock();
    for (const time of root.querySelectorAll("time")) write(time, now);
  };

  // ---- the zone

  const zones = () => {
    const select = document.getElementById("zone");
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const all = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
    const there = new Set([...select.options].map((option) => option.value));
    for (const name of [own, ...all]) {
      if (name && !there.has(name)) {
        there.add(name);
        select.add(new Option(name === own ? `${name} (here)` : name, name));
      }
    }
    select.value = zoneOf();
    select.addEventListener("change", () => {
      document.cookie = `${document.body.dataset.zoneCookie}=${encodeURIComponent(select.value)}; path=${document.body.dataset.root.replace(/(.)\/$/, "$1")}; max-age=31536000; samesite=lax`;
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
    try {
      localStorage.setItem("blackboard-theme", root.dataset.theme);
    } catch { /* the browser keeps nothing: until the next page, then */ }
  };

  // ---- whether the page is live

  // A search has changed the address since the link was made.
  const relink = () => {
    const link = document.querySelector("a.live");
    if (!link) return;
    const address = new URL(location);
    if (link.classList.contains("paused")) address.searchParams.delete("live");
    else address.searchParams.set("live", "off");
    link.href = address.search || "?";
  };

  const SILENCE = 40000; // milliseconds; the server sends something every 15 s
  const PATIENCE = 3000; // a connection that is made anew within that is not worth a word
  let heard = Date.now();
  let lost = 0;
  let searched = 0; // when a search without an answer was made again
  let polled = false; // the server has no stream for this page: it is asked now and then

  const connected = (is) => {
    const link = document.querySelector("a.live:not(.paused)");
    const state = !is ? "not connected" : polled ? "every 15 s" : "live";
    if (!link || link.lastElementChild.textContent === state) return;
    link.classList.toggle("away", !is);
    link.classList.toggle("polled", is && polled);
    link.lastElementChild.textContent = state;
    link.dataset.title ??= link.title;
    link.title = !is ? `As it was at ${formatter().format(new Date(heard - ahead))}`
      : polled ? "Too many pages are open for this one to be live" : link.dataset.title;
  };

  let server = null; // the mark of the one that was heard
  const isOfAnother = () => server && server !== document.body.dataset.server;

  // A server that was started anew takes no form of this page. What is typed or picked is kept.
  const renew = async () => {
    if (!isOfAnother()) return;
    const answer = await fetch(location).catch(() => null); // it sets the cookie, for all tabs
    if (!answer?.ok) return; // it is tried again when the server is heard again
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.body.dataset.server = made.body.dataset.server;
    if (!isBusy()) return location.reload();
    const csrf = made.querySelector("[name=csrf]");
    if (csrf) for (const field of document.querySelectorAll("[name=csrf]")) field.value = csrf.value;
  };

  const isBusy = () => document.querySelector("details.act[open], [name=pick]:checked");

  const away = document.getElementById("away");
  const say = (text) => {
    away.hidden = !text;
    away.textContent = text;
  };

  const hears = (event) => {
    [heard, lost] = [Date.now(), 0];
    const { message } = event.detail;
    if (message?.event === "server" || message?.event === "polled") {
      server = message.data;
      polled = message.event === "polled";
    }
    connected(true);
    if (!away.hidden && Date.now() - searched > SILENCE / 4) {
      searched = Date.now();
      htmx.trigger("#search", "search"); // what was typed meanwhile
    }
    // A tab that was opened in the background was hidden before there was a stream to pause.
    if (document.hidden) document.dispatchEvent(new Event("visibilitychange"));
    if (!isOfAnother()) return;
    // One tab after another: each cookie makes the forms of the one before invalid.
    if (navigator.locks) navigator.locks.request("renew", renew);
    else renew();
  };

  const loses = () => { lost ||= Date.now(); };

  // No answer: to the first request of a stream, or to another one.
  const misses = (asking) => {
    if (asking.id === "live") loses();
    else say("The server does not answer: what is shown is older, or not what was asked for. Live pages ask again by themselves; else search again, or load the page anew.");
  };

  // The first answer to the request of a stream, where it is no stream: those go to the extension.
  const answered = (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if (sourceElement.id !== "live") return;
    event.preventDefault();
    if (response.status === 401 && !isBusy()) location.reload(); // to sign in
    loses();
  };

  // What is no page of this server, such as what a proxy answers in its place, has not the part.
  const swaps = (event) => {
    const { ctx, tasks } = event.detail;
    if (!ctx.select || tasks.some(({ fragment }) => fragment.childElementCount)) return;
    event.preventDefault();
    misses(ctx.sourceElement);
  };

  let asked = 0;

  // A stream that was there is opened again by the extension; one that never was, here.
  const connect = () => {
    const live = document.getElementById("live");
    const address = live?.getAttribute("hx-sse:connect");
    if (!lost || !address || live._htmx?.sse || Date.now() - asked < PATIENCE) return;
    asked = Date.now();
    htmx.ajax("GET", address, { source: live });
  };

  const watch = () => {
    if (document.hidden) return;
    connect();
    if (!lost && Date.now() - heard > SILENCE) {
      // A machine that slept, or a network that changed, leaves a connection that is never closed.
      loses();
      document.getElementById("live")?._htmx?.sse?.reader?.cancel();
    }
    if (lost && Date.now() - lost > PATIENCE) connected(false);
  };

  // A page that was hidden connects at once, also where the server is only asked now and then.
  const shows = () => {
    const sse = document.getElementById("live")?._htmx?.sse;
    if (document.hidden || !sse) return;
    sse.config.reconnectDelay = 500; // milliseconds
    sse.delayCanceller?.();
  };

  // What was done is said once: not when the page is loaded again, or its address is shared.
  const forget = () => {
    const address = new URL(location);
    if (!address.searchParams.has("done")) return;
    address.searchParams.delete("done");
    history.replaceState(history.state, "", address);
    relink();
  };

  // ---- keys

  const ADDRESSES = { b: "", t: "timeline", r: "runs", f: "failures", w: "workers", l: "leases", e: "leaders", a: "actions", h: "health" };
  let went = 0;

  const lines = () => [...document.querySelectorAll("tr[data-href]")];
  const chosen = () => document.activeElement.closest("tr[data-href]");

  const step = (by) => {
    const all = lines();
    if (!all.length) return;
    const next = all[Math.min(Math.max(all.indexOf(chosen()) + by, 0), all.length - 1)];
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
    if (event.key === "Escape" && document.querySelector("details.act[open]")) return close(event);
    if (event.key === "Escape" && typing && !typing.matches("dialog")) {
      event.preventDefault(); // else a search is emptied, and all is shown
      return event.target.blur();
    }
    if (typing) return;
    if (Date.now() - went < 1500 && event.key in ADDRESSES) {
      location.assign(document.body.dataset.root + ADDRESSES[event.key]);
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

  const picks = () => [...document.querySelectorAll("input[name=pick]")];

  const pick = (event) => {
    if (event.target.id === "pick-all") {
      for (const input of picks()) input.checked = event.target.checked;
    }
    count();
  };

  const count = () => {
    const which = document.getElementById("which");
    if (!which) return;
    const [all, number] = [picks(), picks().filter((input) => input.checked).length];
    const box = document.getElementById("pick-all");
    box.checked = number > 0 && number === all.length;
    box.indeterminate = number > 0 && number < all.length;
    which.parentNode.classList.toggle("picking", number > 0);
    const text = number ? `With the ${number} picked:` : `With all ${which.dataset.all}:`;
    if (which.textContent !== text) which.textContent = text;
  };

  // ---- what an action asks: one at a time; what is typed there is left alone by updates

  const keep = (details, isOpen) => details.toggleAttribute("hx-morph-skip", isOpen);

  const opened = (event) => {
    const details = event.target;
    if (!details.matches?.("details.act")) return;
    keep(details, details.open);
    if (details.open) details.querySelector("input, textarea, button")?.focus();
  };

  // An update may come between the click and the event that it is open.
  const opens = (event) => {
    const details = event.target.closest?.("details.act > summary")?.parentNode;
    if (details) keep(details, !details.open);
  };

  const close = (event) => {
    for (const details of document.querySelectorAll("details.act[open]")) {
      if (event.type === "keydown" || !details.contains(event.target)) details.open = false;
      if (event.type === "keydown") details.querySelector("summary").focus();
    }
  };

  // ---- zooming a timeline by dragging

  let from = null;

  const brush = (event) => {
    const picture = event.target.closest?.(".picture");
    const box = (picture ?? document.querySelector(".picture"))?.getBoundingClientRect();
    if (!box) return;
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    const shade = document.querySelector(".brush");
    if (event.type === "pointercancel") { // a finger has begun to scroll
      from = null;
      shade.hidden = true;
    } else if (event.type === "pointerdown" && picture && event.button === 0) from = part;
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
    forget();
    zones();
    const all = () => {
      times();
      count();
    };
    all();
    setInterval(() => {
      times();
      watch();
    }, 1000);
    new MutationObserver(all).observe(document.querySelector("main").parentNode, { childList: true, subtree: true });
    // Those that were opened before this script was there.
    for (const details of document.querySelectorAll("details.act[open]")) keep(details, true);
    document.querySelector(".top [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
    document.getElementById("theme").addEventListener("click", theme);
    document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
    document.addEventListener("keydown", pressed);
    document.addEventListener("change", pick);
    document.addEventListener("toggle", opened, true);
    document.addEventListener("click", opens);
    document.addEventListener("click", close);
    document.addEventListener("visibilitychange", shows);
    document.addEventListener("htmx:after:history:push", relink);
    document.addEventListener("htmx:sse:after:connection", hears);
    document.addEventListener("htmx:sse:after:message", hears);
    document.addEventListener("htmx:sse:error", (event) => {
      if (event.detail.status === 401 && !isBusy()) location.reload(); // to sign in
      loses();
    });
    document.addEventListener("htmx:sse:before:connection", (event) => {
      if (event.detail.connection.attempt && !polled) loses();
    });
    document.addEventListener("htmx:error", (event) => misses(event.target));
    document.addEventListener("htmx:before:response", answered);
    document.addEventListener("htmx:before:swap", swaps);
    document.addEventListener("htmx:after:request", () => say(""));
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) document.addEventListener(kind, brush);
    document.addEventListener("dragstart", (event) => event.target.closest?.(".picture") && event.preventDefault());
  };

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
