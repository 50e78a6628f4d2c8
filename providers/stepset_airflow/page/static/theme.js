// Light or dark: the theme of Airflow's UI, else that of the system.

const AIRFLOW = "theme"; // key in the local storage (airflow 3.3): light, dark or system

function chosen() {
  try {
    return localStorage.getItem(AIRFLOW);
  } catch {
    return null; // the storage may be disabled
  }
}

function apply() {
  const theme = chosen();
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** Applies the theme, and later changes of it in Airflow's UI. */
export function followTheme() {
  apply();
  addEventListener("storage", (event) => event.key === AIRFLOW && apply());
}
