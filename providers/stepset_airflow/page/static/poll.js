// Polls the server while the page is visible; less often after the end of the run, and after errors.

const EVERY = 1500;
const QUIET = 10000;
const LONGEST = 30000;

const PROBLEMS = {
  401: "You are no longer logged in. Reload the page to log in.",
  403: "You may not read the runs of this DAG. Airflow's roles grant the permission.",
  404: "There is no such task instance. It may have been deleted.",
};

/**
 * Polls a URL.
 *
 * @param path of the data, relative to the page.
 * @param show is called with each changed answer, and with the seconds by which this machine's clock is ahead of the
 *     server's; returns whether the data may still change.
 * @param fail is called with a sentence after an error, and with null after an answer.
 */
export function poll(path, show, fail) {
  let body = "", continues = true, failures = 0, timer = 0;

  async function request() {
    clearTimeout(timer);
    if (document.hidden) return; // visibilitychange calls it again
    try {
      const answer = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Refused(answer.status);
      const text = await answer.text();
      const ahead = Date.now() / 1000 - Date.parse(answer.headers.get("date") ?? "") / 1000;
      if (text !== body) {
        body = text;
        continues = show(JSON.parse(text), Math.abs(ahead) > 2 ? ahead : 0);
      }
      failures = 0;
      fail(null);
    } catch (error) {
      failures += 1;
      fail(error instanceof Refused ? error.message : "Airflow does not answer. The request is repeated.");
    }
    const wait = failures ? Math.min(LONGEST, EVERY * 2 ** failures) : continues ? EVERY : QUIET;
    timer = setTimeout(request, wait);
  }

  document.addEventListener("visibilitychange", request);
  request();
}

class Refused extends Error {
  constructor(status) {
    super(PROBLEMS[status] ?? `Airflow answers with an error (${status}). The request is repeated.`);
  }
}
