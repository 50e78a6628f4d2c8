// Asks the server again and again, for as long as somebody looks: less often when nothing happens, or nobody answers.

const EVERY = 1500;
const QUIET = 10000;
const LONGEST = 30000;

const PROBLEMS = {
  401: "You are not logged in any more. Reload the page to log in.",
  403: "You may not read the runs of this DAG. Who may is decided by Airflow's roles.",
  404: "There is no such task instance. It may have been deleted.",
};

/**
 * Follows what an address answers.
 *
 * @param path of the data, relative to the page.
 * @param show is called with the answer when it is another than before, and with how far this machine's clock is ahead
 *     of the server's, in seconds; says whether more is to be expected.
 * @param fail is called with one sentence when there is no answer, and with null when there is one again.
 */
export function poll(path, show, fail) {
  let body = "", goesOn = true, failures = 0, timer = 0;

  async function ask() {
    clearTimeout(timer);
    if (document.hidden) return; // visibilitychange brings it back
    try {
      const answer = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Refused(answer.status);
      const text = await answer.text();
      const ahead = Date.now() / 1000 - Date.parse(answer.headers.get("date") ?? "") / 1000;
      if (text !== body) {
        body = text;
        goesOn = show(JSON.parse(text), Math.abs(ahead) > 2 ? ahead : 0);
      }
      failures = 0;
      fail(null);
    } catch (error) {
      failures += 1;
      fail(error instanceof Refused ? error.message : "Airflow does not answer. It is asked again.");
    }
    const wait = failures ? Math.min(LONGEST, EVERY * 2 ** failures) : goesOn ? EVERY : QUIET;
    timer = setTimeout(ask, wait);
  }

  document.addEventListener("visibilitychange", ask);
  ask();
}

class Refused extends Error {
  constructor(status) {
    super(PROBLEMS[status] ?? `Airflow answers with an error (${status}). It is asked again.`);
  }
}
