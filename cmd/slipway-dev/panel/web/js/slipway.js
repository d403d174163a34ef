import { Problem } from "./problem.js";

/**
 * Whether a deployment was imported, and slipway has not deployed it yet. What
 * was up before is up, and is not hauled out by a destroy.
 */
export const onlyImported = (deployment) => deployment?.state === "idle" && deployment.latestBuild === null;

/** The deployments API, as a page calls it: a bearer token, never a cookie. */
export class Slipway {
  #token = null;

  constructor(base, newToken) {
    this.base = base;
    this.newToken = newToken;
  }

  /** Drops the token, for example because there is a deployment that it does not name. */
  forgetToken() {
    this.#token = null;
  }

  // A token is fetched when it is needed, and again half a minute before its
  // end, so that one does not expire on the way.
  async #bearer() {
    if (!this.#token || Date.now() > this.#token.until) {
      const { token, expiresIn } = await this.newToken();
      this.#token = { value: token, until: Date.now() + (expiresIn - 30) * 1000 };
    }
    return this.#token.value;
  }

  async fetch(method, path, { body, headers = {}, open = false } = {}) {
    const send = async () => {
      const all = new Headers(headers);
      if (!open) all.set("Authorization", `Bearer ${await this.#bearer()}`);
      if (body !== undefined) all.set("Content-Type", "application/json");
      try {
        return await fetch(this.base + path, {
          method, headers: all, body: body === undefined ? undefined : JSON.stringify(body),
          credentials: "omit", cache: "no-cache",
        });
      } catch {
        // A browser does not tell a page why: no network, or an origin that is
        // not in SLIPWAY_CORS_ORIGINS.
        throw new Problem(0, {
          error: "unreachable",
          message: `slipway at ${this.base} does not answer this page. It is away, or it does not allow front-ends at ${location.origin}.`,
        });
      }
    };
    let response = await send();
    if (response.status === 401 && !open) {
      this.forgetToken();
      response = await send();
    }
    // 503 says when to come back, and every call here may be repeated: a submit
    // has its key, a destroy is asked for once however often it is sent.
    for (let tries = 0; response.status === 503 && tries < 3; tries++) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, Math.min(seconds, 10) * 1000));
      response = await send();
    }
    if (!response.ok) throw await Problem.of(response);
    return response;
  }

  async call(method, path, options) {
    const response = await this.fetch(method, path, options);
    return response.status === 204 ? null : response.json();
  }

  /** The deployment, or null where slipway does not know it. */
  async read(id) {
    try {
      return await this.call("GET", `/deployments/${id}`);
    } catch (problem) {
      if (problem.status === 404) return null;
      throw problem;
    }
  }

  async list(ids) {
    if (ids.length === 0) return [];
    const query = new URLSearchParams(ids.map((id) => ["id", id]));
    return (await this.call("GET", `/deployments?${query}`)).deployments;
  }

  /** The same key again is the same build, so a submit may be repeated with it. */
  submit(id, configuration, key) {
    return this.call("PUT", `/deployments/${id}`, { body: { configuration }, headers: { "Idempotency-Key": key } });
  }

  preview(id, configuration) {
    return this.call("POST", `/deployments/${id}/preview`, { body: { configuration } });
  }

  cancel(id, build) {
    return this.call("POST", `/deployments/${id}/builds/${build}/cancel`);
  }

  async builds(id, before) {
    const query = before ? `?limit=20&before=${before}` : "?limit=20";
    return (await this.call("GET", `/deployments/${id}/builds${query}`)).builds;
  }

  async log(id, build) {
    return (await this.fetch("GET", `/deployments/${id}/builds/${build}/log`)).text();
  }

  async sboms(id) {
    return (await this.call("GET", `/sbom-list/${id}`)).nodes;
  }

  async sbom(id, node) {
    return (await this.fetch("GET", `/sbom/${id}?node=${encodeURIComponent(node)}`)).blob();
  }

  // These are public and read only the body.
  schema() {
    return this.call("GET", "/schema", { open: true });
  }

  async sections(configuration) {
    return (await this.call("POST", "/sections", { body: { configuration }, open: true })).sections;
  }

  applications(configuration, previous) {
    return this.call("POST", "/application-paths", {
      body: previous ? { configuration, previous } : { configuration }, open: true,
    });
  }
}
