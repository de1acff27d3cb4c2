// Runs before the page is drawn, so that a dark page does not flash white.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("blackboard-theme");
  } catch { /* the browser keeps nothing */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
