import { Problem } from "./problem.js";

// The panel's own server. The browser adds the cookie of the session; a request
// that another origin caused is refused there.
async function call(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, { error: "unreachable", message: "The panel does not answer. Is it still running?" });
  }
  if (!response.ok) throw await Problem.of(response);
  return response.status === 204 ? null : response.json();
}

export const session = {
  read: () => call("GET", "/session"),
  signIn: (user) => call("POST", "/session", { user }),
  signOut: () => call("DELETE", "/session"),
  token: () => call("POST", "/token", {}),
};

export const drafts = {
  list: async () => (await call("GET", "/drafts")).drafts,
  create: (name) => call("POST", "/drafts", { name }),
  read: (id) => call("GET", `/drafts/${id}`),
  save: (id, { name, configuration, revision }) => call("PUT", `/drafts/${id}`, { name, configuration, revision }),
  beginDeletion: (id) => call("POST", `/drafts/${id}/deletion`, {}),
  confirmDeletion: (id) => call("DELETE", `/drafts/${id}`),
};
