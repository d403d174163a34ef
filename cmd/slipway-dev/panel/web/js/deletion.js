import { follow } from "./channel.js";

/** Why a delete stopped before its last step. The record is still there. */
export class NotDeleted extends Error {}

/**
 * Deletes a deployment and then the record of it. The order matters: a record
 * without infrastructure is seen and can be deleted again, infrastructure
 * without a record is a leak that nobody sees.
 *
 * `step(name)` is told of each step as it begins: destroy, wait, confirm. The
 * whole may be repeated at any time, also after the page was closed half-way.
 * Where the record goes while it waits, it throws the 404 of the front-end.
 */
export async function deleteDeployment({ slipway, drafts, id, step }) {
  step("destroy");
  // The front-end's own server makes a token for this one record. slipway hands
  // it back when the destroy is done, so the record also goes without this page.
  const { callbackUrl, callbackToken } = await drafts.beginDeletion(id);
  const up = await destroy(slipway, id, { "X-Callback-Url": callbackUrl, "X-Callback-Token": callbackToken });

  if (up) {
    step("wait");
    await untilIdle(slipway, drafts, id);
  }

  step("confirm");
  try {
    await drafts.confirmDeletion(id);
  } catch (problem) {
    if (problem.status !== 404) throw problem; // slipway's callback was faster
  }
}

/** Whether there is something to wait for. */
async function destroy(slipway, id, headers) {
  try {
    const answer = await slipway.call("DELETE", `/deployments/${id}`, { headers });
    return answer.state !== "idle"; // 200 {"state": "idle"}: nothing is up
  } catch (problem) {
    if (problem.status === 404) return false; // slipway never knew it
    throw problem;
  }
}

/** Waits on the channel for the end of the destroy. */
function untilIdle(slipway, drafts, id) {
  return new Promise((resolve, reject) => {
    const look = ({ state, reason }) => {
      if (state === "destroying") return;
      stop();
      if (state === "idle") return resolve();
      if (state === "failed") return reject(new NotDeleted(reason || "The destroy failed."));
      reject(new NotDeleted("The deployment is wanted again: it was submitted, or the destroy was cancelled."));
    };
    // A page that was away while the callback removed the record has a token
    // that does not name the deployment any more. But slipway may refuse for
    // other reasons too, so only the record tells: while it is there, nobody
    // said that nothing is up, and it stays.
    const problem = (refusal) => drafts.read(id).then(() => reject(refusal), reject);
    const stop = follow(slipway, id, { snapshot: look, state: look, problem });
  });
}
