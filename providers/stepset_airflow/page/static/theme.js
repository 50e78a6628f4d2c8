// Sets the light or dark theme. The page uses the theme of Airflow's UI, or else the theme of the system.

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

/** Applies the theme. If the user changes the theme in Airflow's UI, applies the new theme. */
export function followTheme() {
  apply();
  addEventListener("storage", (event) => event.key === AIRFLOW && apply());
}
