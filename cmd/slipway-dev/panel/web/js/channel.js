/**
 * Follows the channel of a deployment until the returned function is called.
 * `on` has a listener for each kind of event that is wanted (snapshot, state,
 * build, log, reset), and may have one for `connection`, which gets whether the
 * channel is open, and one for `problem`, which gets why it was refused: nothing
 * follows then.
 *
 * EventSource comes back by itself, with the last event it saw, as long as its
 * ticket is good. When the stream ends with the token that bought the ticket,
 * this buys a new one and goes on behind the same event: no gap, no repeat.
 */
export function follow(slipway, id, on, { log = false } = {}) {
  const first = 500;
  let source, timer, last = null, stopped = false, wait = first;

  async function open() {
    let ticket;
    try {
      ({ ticket } = await slipway.call("POST", `/deployments/${id}/events/ticket`));
    } catch (problem) {
      return [401, 403, 404].includes(problem.status) ? end(problem) : again();
    }
    if (stopped) return;
    const query = new URLSearchParams({ ticket, log });
    if (last) query.set("lastEventId", last);
    source = new EventSource(`${slipway.base}/deployments/${id}/events?${query}`);
    source.onopen = () => {
      wait = first;
      on.connection?.(true);
    };
    source.onerror = () => {
      on.connection?.(false);
      if (source.readyState === EventSource.CLOSED) again();
    };
    for (const kind of ["snapshot", "state", "build", "log", "reset"]) {
      source.addEventListener(kind, (event) => {
        last = event.lastEventId || last;
        on[kind]?.(JSON.parse(event.data));
      });
    }
  }

  function again() {
    if (stopped) return;
    timer = setTimeout(open, wait);
    wait = Math.min(2 * wait, 15000);
  }

  // To ask again would be answered alike: whose token it is may not follow this
  // deployment, or no more.
  function end(problem) {
    if (!stopped) on.problem?.(problem);
    stopped = true;
  }

  open();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source?.close();
  };
}
