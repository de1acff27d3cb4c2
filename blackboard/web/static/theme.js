// Runs before the page is drawn, so that a dark page does not flash white.
(() => {
  const chosen = localStorage.getItem("blackboard-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
