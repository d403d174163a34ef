import { announce, h, icon, swap, trouble } from "./dom.js";
import { deleteDeployment, NotDeleted } from "./deletion.js";
import { onlyImported } from "./slipway.js";

const steps = [
  ["destroy", "Ask slipway to haul it out", "A destroy is queued; whatever waits for its turn is dropped."],
  ["wait", "Wait until nothing is up", "The channel of the deployment says so."],
  ["confirm", "Remove the record here", "Only now: infrastructure without a record would be a leak that nobody sees."],
];

/** Deletes a deployment in three steps, which a person can watch. */
export class Deletion {
  #at = null; // the step that runs
  #problem = null;
  #done = false;

  constructor(page) {
    this.page = page;
    this.content = h("div");
    this.element = h("div", { class: "stack" }, this.content);
    this.update();
  }

  // Another tab, or slipway's callback, may have been faster.
  async show() {
    if (this.#done || this.#at) return;
    try {
      await this.page.panel.drafts.read(this.page.id);
    } catch (problem) {
      if (problem.status === 404) {
        this.#done = true;
        this.update();
      }
    }
  }

  update() {
    this.content = swap(this.content, this.#done ? gone() : this.#steps());
  }

  #steps() {
    const { deployment } = this.page;
    const at = steps.findIndex(([name]) => name === this.#at);
    const runs = at >= 0 && !this.#problem;
    const imported = onlyImported(deployment);
    const nothing = !deployment || deployment.state === "idle";
    return h("section", { class: "card danger", "aria-label": "Delete" },
      h("h2", {}, "Delete this deployment"),
      imported ? h("div", { class: "notice bad" }, icon("warn"), h("div", {},
        h("p", {}, h("strong", {}, "What was up before the import stays as it is.")),
        h("p", {}, "slipway has deployed nothing, so it takes nothing down. To have it hauled out, ",
          h("a", { href: `#/drafts/${this.page.id}/configuration`, "data-key": "deploy" }, "deploy it once"),
          " and delete it then. Without this record nobody sees what is left.")))
        : h("p", { class: "quiet" }, nothing
          ? "Nothing is up, so only its record is left to remove."
          : "Everything that it runs is taken down, with its data. Then its record goes too. This cannot be undone."),
      h("ol", { class: "steps" }, steps.map(([name, title, text], i) => {
        const state = at < 0 ? "waiting" : i < at ? "done" : i > at ? "waiting" : this.#problem ? "failed" : "running";
        return h("li", { class: state, "data-step": name, "data-state": state, "aria-current": state === "running" ? "step" : null },
          h("span", { class: "mark", "aria-hidden": "true" }, state === "done" ? icon("check") : state === "failed" ? icon("cross") : String(i + 1)),
          h("div", {}, h("strong", {}, title), h("span", { class: "unseen" }, ` (${state})`), h("p", { class: "quiet small" }, text)));
      })),
      this.#problem ? h("div", { class: "notice bad", role: "alert" }, icon("warn"), h("div", {},
        h("p", {}, this.#problem instanceof NotDeleted ? this.#problem.message : `It stopped: ${this.#problem.message}`),
        h("p", { class: "small" }, this.#problem instanceof NotDeleted ? "The record is still here, so you can try again." : "You can try again."))) : null,
      runs && this.#at !== "confirm" ? h("p", { class: "quiet small" }, "You may close this page: slipway tells the panel when it is done.") : null,
      h("div", {}, h("button", {
        type: "button", class: "primary bad", disabled: runs, "data-key": "delete", onclick: () => this.#delete(),
      }, icon("bin"), this.#problem ? "Try again" : runs ? "Deleting …" : imported ? "Remove the record all the same" : nothing ? "Remove the record" : "Delete")));
  }

  async #delete() {
    this.#problem = null;
    try {
      await deleteDeployment({
        slipway: this.page.panel.slipway, drafts: this.page.panel.drafts, id: this.page.id,
        step: (name) => {
          this.#at = name;
          announce(steps.find(([other]) => other === name)[1]);
          this.update();
        },
      });
    } catch (problem) {
      // The record went while this waited: by another tab, or by the callback.
      if (problem.status === 404) this.#done = true;
      this.#problem = problem;
      return this.update();
    }
    this.page.close();
    announce(`${this.page.draft.name} is deleted.`);
    this.page.panel.go("#/");
  }
}

/** Stands for a draft that is not there, or no more. */
export function gone() {
  return h("div", { class: "empty" },
    h("h1", { tabindex: -1, class: "big" }, "This deployment is gone"),
    h("p", {}, "It was deleted, or it is somebody else’s."),
    h("p", {}, h("a", { class: "button", href: "#/" }, "All deployments")));
}
