// Which iteration of a loop, or which expansion of a mapped task, the page shows (airflow 3.4).

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/**
 * Returns the part of an API request's query that names the region of a task instance; empty if no region is given.
 *
 * Airflow's UI passes the region neither to the frame's address nor to its script, but keeps it in its own address.
 *
 * @param query the query of the page's address.
 */
export function regionQuery(query) {
  const given = query.has("region_index") ? query : new URLSearchParams(airflowQuery());
  const id = given.get("region_id") ?? "", index = given.get("region_index") ?? "";
  if (!/^\d+$/.test(index)) return "";
  return `&region_index=${index}${UUID.test(id) ? `&region_id=${id}` : ""}`;
}

function airflowQuery() {
  try {
    return parent === window ? "" : parent.location.search;
  } catch {
    return ""; // another site shows the page
  }
}
