import { badge, duration, h, swap, trouble, when } from "./dom.js";

const callbacks = {
  accepted: "callback accepted", pending: "callback pending", delivered: "callback delivered",
  failed: "callback failed", refused: "callback refused", skipped: "callback skipped",
};

/** The builds of a deployment, newest first. */
export class History {
  #builds = [];
  #more = false;
  #seen = null;
  #logs = new Map();

  constructor(page) {
    this.page = page;
    this.list = h("div", { class: "loading" }, "Loading …");
    this.element = h("div", { class: "stack" }, this.list);
  }

  async show() {
    this.#seen = null;
    await this.update();
  }

  async update() {
    const { deployment, panel, id } = this.page;
    if (!deployment) {
      this.list = swap(this.list, h("div", { class: "empty" }, h("p", { class: "big" }, "No builds yet"), h("p", {}, "Each submit and each destroy is a build, and is listed here.")));
      return;
    }
    const seen = JSON.stringify(deployment.latestBuild);
    if (seen === this.#seen) return;
    this.#seen = seen;
    try {
      this.#builds = await panel.slipway.builds(id);
      this.#more = this.#builds.length === 20;
      this.#show();
    } catch (problem) {
      this.#failed(problem);
    }
  }

  #failed(problem) {
    this.#seen = null;
    this.list = swap(this.list, trouble(problem, () => this.update()));
  }

  #show() {
    this.list = swap(this.list, h("section", { class: "card", "aria-label": "Builds" },
      h("ol", { class: "rows builds", reversed: true }, this.#builds.map((build) => this.#row(build))),
      this.#more ? h("button", { type: "button", "data-key": "older", onclick: () => this.#older() }, "Older builds") : null));
  }

  async #older() {
    try {
      const next = await this.page.panel.slipway.builds(this.page.id, this.#builds.at(-1).number);
      this.#builds.push(...next);
      this.#more = next.length === 20;
      this.#show();
    } catch (problem) {
      this.#failed(problem);
    }
  }

  #row(build) {
    const log = this.#logs.get(build.number);
    const callback = callbacks[typeof build.callback === "object" ? build.callback?.state ?? build.callback?.status : build.callback];
    return h("li", { "data-build": build.number },
      h("div", { class: "row" },
        h("span", { class: "number" }, `#${build.number}`),
        h("div", { class: "grow" },
          h("strong", {}, build.action === "destroy" ? "Destroy" : "Deploy"),
          h("p", { class: "quiet small" }, when(build.createdAt),
            build.startedAt && build.finishedAt ? ` · took ${duration(build.startedAt, build.finishedAt)}` : "",
            build.evaluation === "skipped" ? " · not evaluated at the submit" : "",
            callback ? ` · ${callback}` : "")),
        badge(build.status),
        h("button", {
          type: "button", class: "small", "aria-expanded": String(Boolean(log)), "data-key": `log-${build.number}`,
          onclick: () => this.#toggle(build),
        }, "Log", h("span", { class: "unseen" }, ` of build ${build.number}`))),
      build.reason ? h("p", { class: build.status === "failed" ? "reason bad" : "reason" }, build.reason) : null,
      log ? h("pre", { class: "log", tabindex: 0, "aria-label": `Log of build ${build.number}` }, log) : null);
  }

  async #toggle(build) {
    if (this.#logs.delete(build.number)) return this.#show();
    try {
      this.#logs.set(build.number, (await this.page.panel.slipway.log(this.page.id, build.number)) || "The deployer printed nothing.");
      this.#show();
    } catch (problem) {
      this.#failed(problem);
    }
  }
}
