// The time zone of the page. If the user has chosen a time zone in Airflow's UI, the page uses this time zone.
// Otherwise the page uses the time zone of the browser.

const AIRFLOW = "timezone"; // key in the local storage (airflow 3.3): a name such as Europe/Berlin, as JSON

/** Returns the name of the time zone, or undefined if the name of the browser's time zone is unknown. */
export function timeZone() {
  try {
    const name = JSON.parse(localStorage.getItem(AIRFLOW)) ?? undefined;
    return new Intl.DateTimeFormat([], { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined; // the storage may be disabled, or the browser does not know the name
  }
}

/** If the user chooses another time zone in Airflow's UI, loads the page again, because all times change. */
export function followTimeZone() {
  addEventListener("storage", (event) => event.key === AIRFLOW && location.reload());
}
