// Determines the iteration of a loop, or the instance of a mapped task, that the page shows (airflow 3.4).

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/**
 * Returns the part of an API request's query that contains the region of a task instance. The result is empty if there
 * is no region.
 *
 * Airflow's UI does not add the region to the URL of the page's frame. The region is only in the URL of the UI.
 *
 * @param query the query of the page's URL.
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
