import { announce, h, icon, replace, swap, swapLinks, trouble } from "./dom.js";
import { Form } from "./form.js";
import * as pointers from "./pointer.js";
import { forgetCleared, Schema, titleOf, withoutSecrets, withSecrets } from "./schema.js";

/** The configuration of a draft: a form of one section at a time. */
export class Editor {
  #schema = null;
  #sections = [];
  #applications = { applications: [], changed: [] };
  #stored = []; // the applications of the last submit
  #errors = [];
  #section = "";
  #dirty = false;
  #key = null;
  #asked = 0;
  #timer;
  #secrets = new Map();

  constructor(page) {
    this.page = page;
    this.nav = h("nav");
    this.summary = h("div");
    this.fields = h("div", { class: "loading" }, "Loading …");
    this.status = h("span", { class: "quiet", role: "status" });
    this.buttons = [
      h("button", { type: "button", disabled: true, onclick: () => this.#busy("Saving …", () => this.#save()) }, "Save draft"),
      h("button", { type: "button", disabled: true, onclick: () => this.#busy("Evaluating …", () => this.#preview()) }, "Preview"),
      h("button", { type: "submit", disabled: true, class: "primary" }, "Submit"),
    ];
    this.dialog = h("dialog", { class: "card", "aria-labelledby": "preview-title" });
    this.element = h("div", { class: "editor" },
      this.nav,
      h("form", {
        class: "card", novalidate: true,
        onsubmit: (event) => {
          event.preventDefault();
          this.#busy("Submitting …", () => this.#submit());
        },
      }, this.summary, this.fields, h("div", { class: "bar" }, this.status, this.buttons)),
      this.dialog);
    this.#take(page.draft);
    this.leaving = (event) => this.#dirty && event.preventDefault();
    addEventListener("beforeunload", this.leaving);
  }

  close() {
    clearTimeout(this.#timer);
    removeEventListener("beforeunload", this.leaving);
  }

  #take(draft) {
    this.name = draft.name;
    this.configuration = structuredClone(draft.configuration);
    this.#dirty = false;
  }

  async show(section = "") {
    this.#section = section;
    try {
      this.#schema ??= new Schema(await this.page.panel.slipway.schema());
      await this.#ask();
      this.#render();
    } catch (problem) {
      this.fields = swap(this.fields, trouble(problem, () => this.show(section)));
    }
  }

  // What the form is made of follows from the configuration, which only slipway
  // can read: its sections, and which applications run and have changed.
  async #ask() {
    const asked = ++this.#asked, { slipway } = this.page.panel;
    const before = this.page.deployment?.configuration;
    const configuration = withoutSecrets(this.#schema, this.configuration);
    const [sections, applications, stored] = await Promise.all([
      slipway.sections(configuration), slipway.applications(configuration, before),
      before ? slipway.applications(before) : { applications: [] },
    ]);
    if (asked !== this.#asked) return;
    [this.#sections, this.#applications, this.#stored] = [sections, applications, stored.applications];
  }

  #changed(structure) {
    this.#dirty = true;
    this.#key = null;
    this.#tell();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      try {
        await this.#ask();
        if (structure) this.#render();
        else this.#navigation();
      } catch (problem) {
        this.summary = swap(this.summary, trouble(problem));
      }
    }, structure ? 0 : 500);
  }

  #render() {
    const section = this.#sections.find(({ id }) => id === this.#section);
    const pointer = section?.path ?? "";
    if (!this.form) for (const button of this.buttons) button.disabled = false;
    this.form = new Form({
      schema: this.#schema, configuration: this.configuration, secrets: this.#secrets,
      isSet: (owner, field) => this.#isSet(owner, field), changed: (structure) => this.#changed(structure),
    });
    const of = this.#schema.at(pointer);
    const fields = this.form.render(pointer, { skip: this.#sections.map(({ path }) => path).filter((path) => path !== pointer) });
    this.fields = replace(this.fields, h("div", {},
      h("h2", { tabindex: -1, "data-key": "section" }, section?.title ?? "General"),
      section ? (of.description ? h("p", { class: "quiet" }, of.description) : null) : this.#nameField(),
      fields));
    this.form.showErrors(this.#errors);
    this.#navigation();
    this.#tell();
  }

  #nameField() {
    const input = h("input", {
      id: "draft-name", "data-key": "draft-name", maxlength: 80, value: this.name, "aria-describedby": "draft-name.hint",
      oninput: () => {
        this.name = input.value;
        this.#dirty = true;
        this.#tell();
      },
    });
    return h("div", { class: "field" }, h("label", { for: "draft-name" }, "Name"),
      h("p", { class: "hint", id: "draft-name.hint" }, "For people. Only this panel knows it."), input);
  }

  #navigation() {
    const entry = (id, title, marks) => {
      const problems = this.#errors.filter(({ path }) => this.#sectionOf(path) === id).length;
      return h("li", {}, h("a", {
        href: `#/drafts/${this.page.id}/configuration${id ? `/${encodeURIComponent(id)}` : ""}`,
        "aria-current": id === this.#section ? "page" : null, "data-key": `section-${id}`,
      }, h("span", { class: "grow" }, title), marks,
      problems ? h("span", { class: "count" }, String(problems), h("span", { class: "unseen" }, " problems")) : null));
    };
    const at = new Map(this.#applications.applications.map((application) => [application.path, application]));
    this.nav = swapLinks(this.nav, h("nav", { class: "sections", "aria-label": "Sections" }, h("ul", {},
      entry("", "General"),
      this.#sections.map(({ id, title, path }) => {
        const application = at.get(path);
        return entry(id, title, application ? [
          this.page.deployment && this.#applications.changed.includes(application.application)
            ? h("span", { class: "dot", title: "Changed since the last submit" }, h("span", { class: "unseen" }, " changed,")) : null,
          h("span", { class: `onoff ${application.enabled ? "on" : "off"}` }, application.enabled ? "on" : "off"),
        ] : null);
      }))));
  }

  #tell(text) {
    this.status.textContent = text ?? (this.#dirty ? "Not saved" : this.page.deployment ? "Saved" : "Saved, never submitted");
  }

  // A destroy has deleted all secrets; an import that deploys nothing has not.
  get #destroyed() {
    const { state, latestBuild } = this.page.deployment ?? {};
    return state === "idle" && latestBuild?.action === "destroy";
  }

  // Where slipway keeps the secrets of what the owner is in the last submit,
  // which may have had another method.
  #isSet(owner, field) {
    if (this.#destroyed) return false;
    const application = this.#applications.applications.find(({ path }) => pointers.isWithin(owner, path));
    const stored = this.#stored.find((other) => other.application === application?.application);
    const at = stored ? stored.path + owner.slice(application.path.length) : owner;
    return (pointers.get(this.page.deployment?.configuration, at)?.secretsSet ?? []).includes(field);
  }

  #sectionOf(path) {
    return this.#sections.find((section) => pointers.isWithin(path, section.path))?.id ?? "";
  }

  async #busy(text, action) {
    for (const button of this.buttons) button.disabled = true;
    this.#tell(text);
    try {
      await action();
      this.#tell();
    } catch (problem) {
      this.#tell();
      this.#failed(problem);
    } finally {
      for (const button of this.buttons) button.disabled = false;
    }
  }

  // Problems are listed above the form, each with a way to its field.
  #failed(problem) {
    this.#errors = problem.details ?? [];
    if (problem.code === "changed_meanwhile") return this.#conflict();
    if (this.#errors.length === 0) {
      this.summary = swap(this.summary, trouble(problem));
    } else {
      const link = ({ path, message }) => h("li", {}, h("a", {
        href: `#/drafts/${this.page.id}/configuration/${encodeURIComponent(this.#sectionOf(path))}`,
        onclick: async (event) => {
          event.preventDefault();
          const section = this.#sectionOf(path);
          if (section !== this.#section) {
            history.pushState(null, "", `#/drafts/${this.page.id}/configuration/${encodeURIComponent(section)}`);
            await this.show(section);
          }
          if (!this.form.focus(path)) this.fields.querySelector("h2").focus();
        },
      }, titleOf(this.#schema.at(path), pointers.parse(path).at(-1) ?? "Configuration")), `: ${message}`);
      this.summary = swap(this.summary, h("div", { class: "notice bad", role: "alert", tabindex: -1 }, icon("warn"), h("div", {},
        h("p", {}, h("strong", {}, this.#errors.length === 1 ? "There is a problem" : `There are ${this.#errors.length} problems`)),
        h("ul", {}, this.#errors.map(link)))));
    }
    this.form.showErrors(this.#errors);
    this.#navigation();
    this.summary.tabIndex = -1;
    this.summary.focus();
  }

  #conflict() {
    const load = async (keepMine) => {
      const draft = await this.page.panel.drafts.read(this.page.id);
      this.page.saved(draft);
      this.summary = swap(this.summary, h("div"));
      if (keepMine) return this.#save();
      this.#take(draft);
      await this.show(this.#section);
    };
    this.summary = swap(this.summary, h("div", { class: "notice bad", role: "alert", tabindex: -1 }, icon("warn"), h("div", {},
      h("p", {}, "This draft was changed in another tab."),
      h("button", { type: "button", class: "small", onclick: () => this.#busy("Loading …", () => load(false)) }, "Load that version"), " ",
      h("button", { type: "button", class: "small", onclick: () => this.#busy("Saving …", () => load(true)) }, "Keep this one"))));
    this.summary.focus();
  }

  #clearErrors() {
    this.#errors = [];
    this.summary = swap(this.summary, h("div"));
    this.form.showErrors([]);
    this.#navigation();
  }

  async #save() {
    const configuration = withoutSecrets(this.#schema, this.configuration);
    const draft = await this.page.panel.drafts.save(this.page.id, { name: this.name, configuration, revision: this.page.draft.revision });
    this.#dirty = false;
    this.#clearErrors();
    this.page.saved(draft);
  }

  get #whole() {
    return withSecrets(withoutSecrets(this.#schema, this.configuration), this.#secrets);
  }

  async #preview() {
    const { nodes, disabledApplications, secretsSet } = await this.page.panel.slipway.preview(this.page.id, this.#whole);
    this.#clearErrors();
    const secrets = Object.entries(secretsSet ?? {}).flatMap(([application, fields]) => fields.map((field) => `${application} ${field}`));
    this.dialog.replaceChildren(
      h("h2", { id: "preview-title" }, "What a submit would deploy"),
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Node"), h("th", { scope: "col" }, "Publishes"))),
        h("tbody", {}, nodes.map((node) => h("tr", {}, h("th", { scope: "row", class: "mono" }, node.name), h("td", {}, node.names.join(", ") || "–"))))),
      h("p", {}, h("strong", {}, "Disabled: "), disabledApplications.join(", ") || "nothing"),
      secrets.length ? h("p", {}, h("strong", {}, "Secrets to set: "), secrets.join(", ")) : null,
      h("p", { class: "quiet small" }, "Nothing was stored, and no build is queued."),
      h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
    this.dialog.showModal();
  }

  async #submit() {
    // What the last deploy has cleared is not cleared again: somebody may have
    // set it since, by hand. One that failed has cleared nothing yet.
    const { state, live, latestBuild } = this.page.deployment ?? {};
    if (this.#destroyed || (state === "active" && live === latestBuild?.number)) {
      forgetCleared(this.#schema, this.configuration, (owner, field) => !this.#isSet(owner, field));
    }
    await this.#save();
    // If the answer gets lost, the same key finds the same build.
    this.#key ??= crypto.randomUUID();
    const { build } = await this.page.panel.slipway.submit(this.page.id, this.#whole, this.#key);
    this.#key = null;
    this.#secrets.clear();
    await this.page.refresh();
    announce(`Build ${build} is recorded.`);
    this.page.panel.go(`#/drafts/${this.page.id}`);
  }
}
