// Looks as Airflow does around it: its theme, its background. Alone in a window it follows the system.

const around = (() => {
  try {
    return window.parent !== window ? window.parent.document : null;
  } catch {
    return null;
  }
})();

export function followTheme(onChange) {
  const wants = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const classes = around?.documentElement.classList;
    const isDark = classes && (classes.contains("dark") || classes.contains("light")) ? classes.contains("dark") : wants.matches;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    const background = around ? getComputedStyle(around.documentElement).backgroundColor : "";
    if (background && !/^rgba\(0, 0, 0, 0\)$|^transparent$/.test(background)) document.documentElement.style.setProperty("--ground", background);
    onChange();
  };
  wants.addEventListener("change", apply);
  if (around) new MutationObserver(apply).observe(around.documentElement, { attributes: true, attributeFilter: ["class"] });
  apply();
}
