import { announce, badge, h, nameOf, swap, trouble } from "./dom.js";
import { follow } from "./channel.js";
import { Overview } from "./overview.js";
import { Editor } from "./editor.js";
import { History } from "./history.js";
import { Deletion, gone } from "./removal.js";

const views = { overview: Overview, configuration: Editor, history: History, delete: Deletion };

/**
 * The page of one draft: what the panel's server knows of it (draft) and what
 * slipway knows (deployment, null where it does not know it), kept up to date by
 * the channel. Its views are shown one at a time and live as long as the page, so
 * that what is typed, and a delete that runs, stay while another one is looked at.
 */
export class DraftPage {
  #stop = null;
  #views = new Map();
  #loaded;
  #shown = null;
  log = { build: null, text: "" };
  buildEvents = 0; // how many came

  constructor(panel, id) {
    Object.assign(this, { panel, id, draft: null, deployment: null, title: "Deployment", connected: true });
    this.head = h("div");
    this.body = h("div", { class: "loading" }, "Loading …");
    this.element = h("div", { class: "page" }, this.head, this.body);
    this.#loaded = this.#load();
  }

  close() {
    this.#stop?.();
    this.#stop = null;
    for (const view of this.#views.values()) view.close?.();
  }

  async #load() {
    try {
      this.draft = await this.panel.drafts.read(this.id);
    } catch (problem) {
      if (problem.status === 404) this.#gone();
      else this.body = swap(this.body, trouble(problem, () => location.reload()));
      return false;
    }
    this.title = this.draft.name;
    try {
      await this.refresh();
    } catch (problem) {
      this.unreachable = problem;
    }
    return true;
  }

  /** Reads the deployment again, and follows it once slipway knows it. */
  async refresh() {
    this.deployment = await this.panel.slipway.read(this.id);
    this.unreachable = null;
    if (this.deployment) this.#follow();
    this.changed();
  }

  #follow() {
    this.#stop ??= follow(this.panel.slipway, this.id, {
      snapshot: (deployment) => {
        this.deployment = deployment;
        this.log = { build: null, text: "" };
        this.changed();
      },
      state: ({ state, since, reason, live }) => {
        const before = this.deployment.state;
        Object.assign(this.deployment, { state, since, reason, live });
        if (state !== before) announce(`${this.draft.name}: ${nameOf(state)}${reason ? `, ${reason}` : ""}`);
        this.changed();
        // What a deploy gave is read anew: domain, instances, nodes.
        if (!["building", "destroying"].includes(state)) this.refresh().catch(() => {});
      },
      build: (build) => {
        this.buildEvents++;
        if (build.number >= (this.deployment.latestBuild?.number ?? 0)) this.deployment.latestBuild = build;
        this.changed();
      },
      log: ({ build, from, text }) => {
        if (this.log.build !== build || from === 0) this.log = { build, text: "" };
        this.log.text += text;
        this.#current()?.logged?.();
      },
      connection: (connected) => {
        this.connected = connected;
        this.changed();
      },
      problem: (problem) => this.#refused(problem),
    }, { log: true });
  }

  // slipway does not let this page follow any more, which is so too where there
  // is no record that a token could name.
  async #refused(refusal) {
    this.#stop = null;
    const problem = await this.panel.drafts.read(this.id).then(() => refusal, (other) => other);
    if (problem.status === 404) return this.#gone();
    this.unreachable = problem;
    this.changed();
  }

  #gone() {
    this.close();
    this.#loaded = Promise.resolve(false);
    this.head = swap(this.head, h("div"));
    this.body = swap(this.body, gone());
    announce("This deployment is gone.");
  }

  #current() {
    return this.#views.get(this.#shown);
  }

  /** Shows what has changed. */
  changed() {
    this.#header();
    this.#current()?.update?.();
  }

  /** Takes a draft that was saved. */
  saved(draft) {
    this.draft = draft;
    this.title = draft.name;
    this.changed();
  }

  async show(name, section) {
    if (!(await this.#loaded)) return;
    const kind = views[name] ? name : "overview";
    if (!this.#views.has(kind)) this.#views.set(kind, new views[kind](this));
    this.#shown = kind;
    const view = this.#current();
    this.changed();
    if (this.body !== view.element) {
      this.body.replaceWith(view.element);
      this.body = view.element;
    }
    await view.show?.(section);
  }

  get state() {
    return this.unreachable ? "unknown" : this.deployment?.state ?? "draft";
  }

  #header() {
    const tab = (kind, text) => h("a", {
      href: `#/drafts/${this.id}${kind === "overview" ? "" : `/${kind}`}`, "data-key": `tab-${kind}`,
      "aria-current": this.#shown === kind ? "page" : null,
    }, text);
    this.head = swap(this.head, h("div", { class: "head" },
      h("p", { class: "crumb" }, h("a", { href: "#/", "data-key": "up" }, "Deployments")),
      h("div", { class: "row" },
        h("h1", { tabindex: -1, "data-key": "h1" }, this.draft.name),
        badge(this.state),
        this.connected || this.unreachable ? null : h("span", { class: "quiet small" }, "reconnecting …")),
      h("nav", { class: "tabs", "aria-label": "Parts of the deployment" },
        tab("overview", "Overview"), tab("configuration", "Configuration"), tab("history", "History"), tab("delete", "Delete")),
      this.unreachable ? trouble(this.unreachable, () => this.refresh().catch((problem) => {
        this.unreachable = problem;
        this.changed();
      })) : null));
  }
}
