// The time zone of the page's times: the one that the user has chosen in Airflow's UI, else the browser's.

const AIRFLOW = "timezone"; // key in the local storage (airflow 3.3): a name such as Europe/Berlin, as JSON

/** Returns the time zone's name; undefined: the browser's. */
export function timeZone() {
  try {
    const name = JSON.parse(localStorage.getItem(AIRFLOW)) ?? undefined;
    return new Intl.DateTimeFormat([], { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined; // the storage may be disabled, or the browser does not know the name
  }
}

/** Loads the page again when the user chooses another time zone in Airflow's UI: all of its times change. */
export function followTimeZone() {
  addEventListener("storage", (event) => event.key === AIRFLOW && location.reload());
}
