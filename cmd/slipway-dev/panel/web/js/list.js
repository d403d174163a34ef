import { badge, h, icon, swap, trouble, when } from "./dom.js";

/** The drafts of a person, with what slipway knows of each. */
export class ListPage {
  title = "Deployments";
  #closed = false;
  #timer;
  #shown;

  constructor(panel) {
    this.panel = panel;
    this.list = h("div", { class: "loading" }, "Loading …");
    this.failed = h("div");
    const name = h("input", { id: "name", required: true, maxlength: 80, placeholder: "for example Community site", autocomplete: "off" });
    this.element = h("div", { class: "page" },
      h("h1", { tabindex: -1 }, "Deployments"),
      this.failed,
      this.list,
      h("form", {
        class: "card new",
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            const draft = await this.panel.drafts.create(name.value);
            this.panel.slipway.forgetToken(); // the next one names this draft too
            this.panel.go(`#/drafts/${draft.id}/configuration`);
          } catch (problem) {
            this.failed.replaceChildren(trouble(problem));
          }
        },
      },
      h("div", { class: "field" }, h("label", { for: "name" }, "New deployment"), name),
      h("button", { type: "submit", class: "primary" }, icon("plus"), "Create draft")));
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  // A browser has few connections to one server, so the list asks again and
  // leaves the channels to the pages of single deployments.
  async show() {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    if (!document.hidden || this.list.className === "loading") await this.#load();
    if (!this.#closed) this.#timer = setTimeout(() => this.show(), 4000);
  }

  async #load() {
    let drafts;
    try {
      drafts = await this.panel.drafts.list();
    } catch (problem) {
      this.failed.replaceChildren(trouble(problem));
      return;
    }
    let known = null;
    try {
      known = new Map((await this.panel.slipway.list(drafts.map((draft) => draft.id))).map((d) => [d.deploymentId, d]));
      this.failed.replaceChildren();
    } catch (problem) {
      this.failed.replaceChildren(trouble(problem));
    }
    const now = JSON.stringify([drafts, known && [...known.values()].map((d) => [d.deploymentId, d.state, d.domain])]);
    if (now === this.#shown) return;
    this.#shown = now;
    this.list = swap(this.list, drafts.length === 0 ? empty() : h("ul", { class: "cards" }, drafts.map((draft) => card(draft, known))));
  }
}

function empty() {
  return h("div", { class: "empty" },
    h("p", { class: "big" }, "Nothing here yet"),
    h("p", {}, "Create a draft, say what it should run, and launch it."));
}

function card(draft, known) {
  const deployment = known?.get(draft.id);
  const state = !known ? "unknown" : deployment?.state ?? "draft";
  return h("li", { class: "card row", "data-draft": draft.id },
    h("div", { class: "grow" },
      h("a", { class: "name", href: `#/drafts/${draft.id}`, "data-key": draft.id }, draft.name),
      h("p", { class: "quiet small" },
        deployment?.domain ?? { draft: "Never submitted", unknown: "slipway does not answer" }[state] ?? "No domain", " · changed ", when(draft.updated))),
    state === "idle" && deployment.latestBuild?.action === "destroy"
      ? h("span", { class: "quiet small phantom" }, "Nothing is up") : null,
    badge(state));
}
