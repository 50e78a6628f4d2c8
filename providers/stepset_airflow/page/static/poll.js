// Polls the server while the page is visible. After the end of the run and after errors, it polls less often.

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
 * @param path returns the path of the data, relative to the page.
 * @param show is called with each changed response, and with the number of seconds by which this machine's clock is
 *     ahead of the server's clock. Returns whether the data may still change.
 * @param fail is called with a message after an error, and with null after a successful response.
 * @param every milliseconds between two requests while the data may change.
 * @returns a function that requests the data at once, because the path has changed.
 */
export function poll(path, show, fail, every = EVERY) {
  let body = "", continues = true, failures = 0, timer = 0, last = 0;

  async function request() {
    clearTimeout(timer);
    if (document.hidden) return; // visibilitychange calls it again
    const here = ++last;
    try {
      const answer = await fetch(path(), { credentials: "same-origin", headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Refused(answer.status);
      const text = await answer.text();
      if (here !== last) return; // a later request asks for something else
      const ahead = Date.now() / 1000 - Date.parse(answer.headers.get("date") ?? "") / 1000;
      if (text !== body) {
        body = text;
        continues = show(JSON.parse(text), Math.abs(ahead) > 2 ? ahead : 0);
      }
      failures = 0;
      fail(null);
    } catch (error) {
      if (here !== last) return;
      failures += 1;
      fail(error instanceof Refused ? error.message : "Airflow does not answer. The request is repeated.");
    }
    const wait = failures ? Math.min(LONGEST, EVERY * 2 ** failures) : continues ? every : QUIET;
    timer = setTimeout(request, wait);
  }

  document.addEventListener("visibilitychange", request);
  request();
  return request;
}

class Refused extends Error {
  constructor(status) {
    super(PROBLEMS[status] ?? `Airflow answers with an error (${status}). The request is repeated.`);
  }
}
