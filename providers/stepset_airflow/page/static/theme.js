// Light or dark: what Airflow's own page has been set to, else what the system prefers.

const AIRFLOW = "theme"; // where Airflow 3 keeps its choice: light, dark or system

function chosen() {
  try {
    return localStorage.getItem(AIRFLOW);
  } catch {
    return null; // storage may be off; then the system's preference counts
  }
}

function apply() {
  const theme = chosen();
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** Follows the choice, also when it is made while this page is shown in Airflow's. */
export function followTheme() {
  apply();
  addEventListener("storage", (event) => event.key === AIRFLOW && apply());
}
