import { h, icon } from "./dom.js";
import * as pointers from "./pointer.js";
import { beginning, ownsSecrets, titleOf, typeOf } from "./schema.js";

/**
 * A form made from a schema. It edits `configuration` in place and keeps the
 * secrets that are typed apart, in the map `secrets` by pointer.
 *
 * `isSet(owner, field)` tells whether slipway has a value of a secret, where
 * owner is the pointer of the object that it belongs to. `changed(structure)` is
 * called after each change; structure is whether other fields are shown now.
 */
export class Form {
  constructor({ schema, configuration, secrets, isSet, changed }) {
    Object.assign(this, { schema, configuration, secrets, isSet, changed });
    this.controls = new Map(); // by pointer: {input, error}
  }

  /** The form of the value at a pointer; what lies at `skip` is left out. */
  render(pointer, { skip = [] } = {}) {
    this.controls.clear();
    this.skip = skip;
    const schema = this.schema.at(pointer);
    return h("div", { class: "fields" }, this.#inside(schema, pointer, ownsSecrets(schema) ? pointer : null));
  }

  /** Shows problems at their fields; returns those that have none here. */
  showErrors(details) {
    for (const { input, error } of this.controls.values()) {
      input.removeAttribute("aria-invalid");
      error.hidden = true;
      error.textContent = "";
    }
    return details.filter(({ path, message }) => {
      const control = this.#controlOf(path);
      if (!control) return true;
      control.input.setAttribute("aria-invalid", "true");
      control.error.hidden = false;
      const sentence = `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
      control.error.textContent += control.error.textContent ? ` ${sentence}` : sentence;
      return false;
    });
  }

  /** Puts the focus into the field of a pointer, and tells whether there is one. */
  focus(path) {
    const control = this.#controlOf(path);
    control?.input.focus();
    control?.input.scrollIntoView({ block: "center" });
    return Boolean(control);
  }

  // A problem of a value inside of a field, such as an item of a list, is
  // shown at the field.
  #controlOf(path) {
    for (let at = path; ; at = pointers.parent(at)) {
      if (this.controls.has(at)) return this.controls.get(at);
      if (at === "") return null;
    }
  }

  #set(pointer, value, structure = false) {
    pointers.set(this.configuration, pointer, value);
    this.changed(structure);
  }

  // A field that is emptied is not set any more. An item stays where it is, as
  // `empty`: without it the others would move, under fields that stay.
  #setOrEmpty(pointer, value, { item }, empty = "") {
    this.#set(pointer, value === undefined && item ? empty : value);
  }

  #inside(schema, pointer, owner) {
    const ways = this.schema.ways(schema);
    if (ways) return this.#ways(schema, ways, pointer, owner);
    const properties = this.schema.properties(schema);
    // A schema does not tell an order; what matters most comes first.
    const rank = ([key, of]) =>
      key === "enable" ? 0 : schema.required?.includes(key) && typeOf(of) !== "object" ? 1
        : this.schema.isSecret(pointers.child(pointer, key)) ? 4 : typeOf(of) === "object" ? 5 : typeOf(of) === "array" ? 3 : 2;
    return properties.toSorted((a, b) => rank(a) - rank(b)).map(([key, of]) => {
      const at = pointers.child(pointer, key);
      if (this.skip.includes(at) || of.readOnly || (key === "secretsClear" && ownsSecrets(schema))) return null;
      return this.#node(of, at, { owner, key, required: schema.required?.includes(key) });
    });
  }

  #node(schema, pointer, context) {
    if (ownsSecrets(schema)) context = { ...context, owner: pointer };
    if (this.schema.isSecret(pointer)) return this.#secret(schema, pointer, context);
    if (schema.const !== undefined) return null;
    if (schema.enum) return this.#select(schema, pointer, context);
    switch (typeOf(schema)) {
      case "boolean": return this.#switch(schema, pointer, context);
      case "string": return this.#text(schema, pointer, context);
      case "integer": case "number": return this.#number(schema, pointer, context);
      case "array": return this.#array(schema, pointer, context);
      case "object": if (schema.properties || this.schema.ways(schema)) return this.#object(schema, pointer, context);
    }
    return this.#json(schema, pointer, context);
  }

  // Secrets that there is no field for would be shown by one of JSON.
  #hidden(schema, { key }) {
    return h("fieldset", { class: "group" }, h("legend", {}, titleOf(schema, key)),
      schema.description ? h("p", { class: "hint" }, schema.description) : null,
      h("p", { class: "hint" }, "It may hold secrets that there is no field for here, so it is not shown. It stays as it is."));
  }

  #object(schema, pointer, { owner, key }) {
    const inside = this.#inside(schema, pointer, owner).flat(Infinity).filter(Boolean);
    if (inside.length === 0) return null;
    return h("fieldset", { class: "group" },
      h("legend", {}, titleOf(schema, key)),
      schema.description ? h("p", { class: "hint" }, schema.description) : null,
      inside);
  }

  // One of several ways. Another way gets what was filled in for the one
  // before: they mostly have the same settings.
  #ways(schema, ways, pointer, owner) {
    const value = pointers.get(this.configuration, pointer) ?? {};
    const chosen = ways.find(([key]) => Object.hasOwn(value, key))?.[0];
    const name = `way${pointer}`;
    const error = h("p", { class: "error", id: `${name}.error`, hidden: true });
    const choose = (key, of) => {
      const kept = chosen ? value[chosen] : undefined;
      if (chosen) pointers.set(this.configuration, pointers.child(pointer, chosen), undefined);
      for (const [at, secret] of [...this.secrets]) {
        const before = pointers.child(pointer, chosen ?? "");
        if (!pointers.isWithin(at, before)) continue;
        this.secrets.delete(at);
        this.secrets.set(pointers.child(pointer, key) + at.slice(before.length), secret);
      }
      this.#set(pointers.child(pointer, key), beginning(of, kept ?? {}), true);
    };
    const inputs = ways.map(([key, of]) => h("label", { class: "way" },
      h("input", {
        type: "radio", name, value: key, checked: key === chosen, "data-key": `${name}/${key}`,
        "aria-describedby": `${name}.error`,
        onchange: () => choose(key, of),
      }),
      h("span", {}, h("strong", {}, titleOf(of, key)), of.description ? h("span", { class: "hint" }, of.description) : null)));
    if (!chosen) this.controls.set(pointer, { input: inputs[0].querySelector("input"), error });
    const of = ways.find(([key]) => key === chosen)?.[1];
    return [
      h("fieldset", { class: "ways" }, h("legend", {}, pointer === "" ? "Method" : "One of"), inputs, error),
      of ? this.#inside(of, pointers.child(pointer, chosen), ownsSecrets(of) ? pointers.child(pointer, chosen) : owner) : null,
    ];
  }

  // A field: label, hint, control, error, tied together for screen readers.
  #field(schema, pointer, { key, required, label }, control, extra) {
    const id = `f${pointer}`;
    control.id = id;
    control.dataset.key = id;
    const hint = schema.description ? h("p", { class: "hint", id: `${id}.hint` }, schema.description) : null;
    const error = h("p", { class: "error", id: `${id}.error`, hidden: true });
    control.setAttribute("aria-describedby", `${hint ? `${id}.hint ` : ""}${id}.error`);
    this.controls.set(pointer, { input: control, error });
    return h("div", { class: "field" },
      h("label", { for: id }, label ?? titleOf(schema, key), required ? h("span", { class: "required" }, " required") : null),
      hint, control, extra, error);
  }

  #text(schema, pointer, context) {
    const kinds = { email: "email", uri: "url", date: "date" };
    const long = schema.maxLength === undefined || schema.maxLength > 300;
    const input = h(long && !schema.format && !schema.pattern ? "textarea" : "input", {
      type: kinds[schema.format] ?? "text", rows: 2, spellcheck: "false", autocomplete: "off",
      autocapitalize: schema.format ? "none" : null,
      placeholder: schema.default ?? (schema.examples?.[0] ? `for example ${schema.examples[0]}` : null),
      value: pointers.get(this.configuration, pointer) ?? "",
      oninput: () => this.#setOrEmpty(pointer, input.value === "" ? undefined : input.value, context),
    });
    return this.#field(schema, pointer, context, input);
  }

  #number(schema, pointer, context) {
    const input = h("input", {
      type: "number", inputmode: "numeric", class: "short",
      min: schema.minimum ?? null, max: schema.maximum ?? null, step: schema.multipleOf ?? (typeOf(schema) === "integer" ? 1 : "any"),
      placeholder: schema.default ?? null, value: pointers.get(this.configuration, pointer) ?? "",
      // What is no number stays text, so that slipway says what is wrong with it.
      oninput: () => this.#setOrEmpty(pointer, input.validity.badInput ? "not a number" : input.value === "" ? undefined : Number(input.value), context, null),
    });
    return this.#field(schema, pointer, context, input);
  }

  #switch(schema, pointer, { key }) {
    const id = `f${pointer}`;
    const error = h("p", { class: "error", id: `${id}.error`, hidden: true });
    const input = h("input", {
      type: "checkbox", role: "switch", id, "data-key": id, "aria-describedby": `${id}.hint ${id}.error`,
      checked: pointers.get(this.configuration, pointer) ?? schema.default ?? false,
      onchange: () => this.#set(pointer, input.checked),
    });
    this.controls.set(pointer, { input, error });
    return h("div", { class: "field switch" }, input,
      h("div", {}, h("label", { for: id }, titleOf(schema, key)), h("p", { class: "hint", id: `${id}.hint` }, schema.description ?? ""), error));
  }

  #select(schema, pointer, context) {
    const value = pointers.get(this.configuration, pointer);
    const none = schema.default !== undefined ? `Default: ${schema.default}` : "Choose …";
    const input = h("select", {
      onchange: () => this.#setOrEmpty(pointer, input.value === "" ? undefined : schema.enum[Number(input.value)], context),
    }, h("option", { value: "" }, none), schema.enum.map((option, i) => h("option", { value: String(i) }, String(option))));
    input.value = String(schema.enum.indexOf(value) < 0 ? "" : schema.enum.indexOf(value));
    return this.#field(schema, pointer, context, input);
  }

  #array(schema, pointer, context) {
    const items = this.schema.resolve(schema.items ?? {});
    if (items.enum && schema.uniqueItems) return this.#several(schema, items, pointer, context);
    const simple = ["string", "integer", "number"].includes(typeOf(items)) || items.enum;
    if (!simple && typeOf(items) !== "object") return this.#json(schema, pointer, context);
    const value = pointers.get(this.configuration, pointer);
    const list = Array.isArray(value) ? value : [];
    const error = h("p", { class: "error", hidden: true });
    const label = titleOf(schema, context.key);
    const fresh = () => (!simple ? beginning(items) : ["integer", "number"].includes(typeOf(items)) ? null : "");
    const add = h("button", {
      type: "button", class: "small", "data-key": `${pointer}+`,
      onclick: () => this.#set(pointer, [...list, fresh()], true),
    }, icon("plus"), "Add");
    this.controls.set(pointer, { input: add, error });
    return h("fieldset", { class: "group" }, h("legend", {}, label),
      schema.description ? h("p", { class: "hint" }, schema.description) : null,
      list.map((_, i) => h("div", { class: "item" },
        this.#node({ ...items, title: `${items.title ?? label} ${i + 1}` }, pointers.child(pointer, i), { ...context, key: String(i), required: false, item: true }),
        h("button", {
          type: "button", class: "small quiet", "aria-label": `Remove ${label} ${i + 1}`,
          onclick: () => this.#set(pointers.child(pointer, i), undefined, true),
        }, icon("cross")))),
      add, error);
  }

  #several(schema, items, pointer, { key }) {
    const error = h("p", { class: "error", id: `f${pointer}.error`, hidden: true });
    const value = pointers.get(this.configuration, pointer) ?? schema.default ?? [];
    const inputs = items.enum.map((option) => h("input", {
      type: "checkbox", checked: value.includes(option), "aria-describedby": `f${pointer}.error`,
      onchange: () => this.#set(pointer, items.enum.filter((_, i) => inputs[i].checked)),
    }));
    if (inputs.length > 0) this.controls.set(pointer, { input: inputs[0], error });
    return h("fieldset", { class: "several" }, h("legend", {}, titleOf(schema, key)),
      schema.description ? h("p", { class: "hint" }, schema.description) : null,
      inputs.map((input, i) => h("label", {}, input, String(items.enum[i]))), error);
  }

  // What there is no field for is edited as it is.
  #json(schema, pointer, context) {
    if (this.schema.holdsSecrets(pointer)) return this.#hidden(schema, context);
    const value = pointers.get(this.configuration, pointer);
    const input = h("textarea", {
      rows: 4, spellcheck: "false", class: "code", value: value === undefined ? "" : JSON.stringify(value, null, 2),
      oninput: () => {
        try {
          this.#setOrEmpty(pointer, input.value.trim() === "" ? undefined : JSON.parse(input.value), context, null);
          input.setCustomValidity("");
        } catch {
          input.setCustomValidity("This is not JSON.");
        }
        input.reportValidity();
      },
    });
    return this.#field({ ...schema, description: [schema.description, "As JSON."].filter(Boolean).join(" ") }, pointer, context, input);
  }

  // A secret is never shown: slipway only tells whether it is set. What is typed
  // goes with the next submit and is in no draft.
  #secret(schema, pointer, { owner, ...context }) {
    const at = owner ?? pointers.parent(pointer);
    const field = pointers.parse(pointer.slice(at.length)).join(".");
    const list = `${at}/secretsClear`;
    const cleared = () => pointers.get(this.configuration, list) ?? [];
    const setCleared = (to) => {
      const rest = cleared().filter((name) => name !== field);
      const next = to ? [...rest, field] : rest;
      pointers.set(this.configuration, list, next.length > 0 ? next : undefined);
    };
    const input = h("input", {
      type: "password", autocomplete: "new-password", value: this.secrets.get(pointer) ?? "",
      oninput: () => {
        if (input.value === "") this.secrets.delete(pointer);
        else {
          this.secrets.set(pointer, input.value);
          setCleared(false);
        }
        show();
        this.changed(false);
      },
    });
    const status = h("span", { class: "status", "aria-live": "polite" });
    const clear = h("button", {
      type: "button", class: "small", "data-key": `${pointer}.clear`,
      onclick: () => {
        const keep = cleared().includes(field);
        setCleared(!keep);
        if (!keep) {
          this.secrets.delete(pointer);
          input.value = "";
        }
        show();
        this.changed(false);
      },
    });
    const title = titleOf(schema, context.key);
    const show = () => {
      const set = this.isSet(at, field), clears = cleared().includes(field), typed = this.secrets.has(pointer);
      const state = typed ? "typed" : clears && set ? "clearing" : set ? "set" : "unset";
      status.dataset.secret = state;
      status.textContent = {
        typed: "Goes with the next submit, and is not saved with the draft",
        clearing: "Will be cleared by the next submit",
        set: "Set",
        unset: "Not set",
      }[state];
      clear.hidden = !set;
      clear.textContent = clears ? "Keep" : "Clear";
      clear.setAttribute("aria-label", `${clear.textContent} ${title}`);
      input.placeholder = set && !clears ? "Leave empty to keep the value" : "";
    };
    show();
    return this.#field(schema, pointer, context, input, h("div", { class: "secret" }, status, clear));
  }
}
