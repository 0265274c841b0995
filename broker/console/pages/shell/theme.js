/**
 * Light or dark: as the system says, unless the user chose one.
 */

const KEY = "magnetar-theme";
const CHOICES = ["system", "light", "dark"];

/** Applies the choice of an earlier visit. */
export function applyTheme() {
  const chosen = choice();
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/** Returns "system", "light" or "dark". */
export function choice() {
  const kept = localStorage.getItem(KEY);
  return CHOICES.includes(kept) ? kept : "system";
}

/** Keeps a choice and applies it. */
export function choose(theme) {
  localStorage.setItem(KEY, theme);
  applyTheme();
}
