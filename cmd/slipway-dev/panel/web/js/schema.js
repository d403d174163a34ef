import * as pointers from "./pointer.js";

// Where a schema has others in it: those that may apply to the same value, to a
// member of it, and to an item of it. slipway finds the secrets by the same
// lists, whichever branch a value takes.
const ofSame = (schema) => [
  ...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []),
  schema.if, schema.then, schema.else, ...Object.values(schema.dependentSchemas ?? {}),
];
const ofMember = (schema, key) => [
  ...(Object.hasOwn(schema.properties ?? {}, key)
    ? [schema.properties[key]] : [schema.additionalProperties, schema.unevaluatedProperties]),
  ...Object.keys(schema.patternProperties ?? {}).filter((pattern) => fits(pattern, key)).map((pattern) => schema.patternProperties[pattern]),
];
const ofItem = (schema, i) => (i < (schema.prefixItems?.length ?? 0)
  ? [schema.prefixItems[i]] : [schema.items, schema.unevaluatedItems, schema.contains]);
const ofWhatever = (schema) => [
  ...Object.values(schema.properties ?? {}), ...Object.values(schema.patternProperties ?? {}),
  schema.additionalProperties, schema.unevaluatedProperties, ...ofItems(schema),
];
const ofItems = (schema) => [...(schema.prefixItems ?? []), schema.items, schema.unevaluatedItems, schema.contains];

// A pattern that JavaScript cannot read fits everything: better a value too many
// is taken out than that a secret stays.
function fits(pattern, key) {
  try {
    return new RegExp(pattern, "u").test(key);
  } catch {
    return true;
  }
}

/** Why nobody can tell where the secrets of a configuration are. */
export class NotUnderstood extends Error {
  constructor(what) {
    super(`The schema has ${what}: this page cannot tell what is secret, so it shows, keeps and sends nothing.`);
  }
}

/**
 * The JSON Schema of a configuration, as far as a form needs to read it. Making
 * one throws NotUnderstood where anything in it could hide a secret.
 */
export class Schema {
  constructor(root) {
    this.root = root;
    this.whole = this.#expand([root]);
    for (const schema of this.#reach(this.whole)) {
      // slipway takes out members, not items.
      if (this.#expand(ofItems(schema)).some(isSecret)) throw new NotUnderstood("a list of secrets");
    }
  }

  // The schemas that may apply to one value: the given ones, what they refer to,
  // and their parts.
  #expand(schemas, found = new Set()) {
    for (const schema of schemas) {
      if (schema === null || typeof schema !== "object" || found.has(schema)) continue; // no schema, or true or false
      this.#understand(schema);
      found.add(schema);
      this.#expand([...("$ref" in schema ? [this.#target(schema.$ref)] : []), ...ofSame(schema)], found);
    }
    return [...found];
  }

  #understand(schema) {
    if (Array.isArray(schema)) throw new NotUnderstood("a list in the place of a schema");
    for (const keyword of ["$dynamicRef", "$recursiveRef", "dependencies", "additionalItems"]) {
      if (keyword in schema) throw new NotUnderstood(keyword);
    }
    if ("$id" in schema && schema !== this.root) throw new NotUnderstood("an $id within");
  }

  /** What a reference within the schema stands for. */
  #target(reference) {
    let target;
    try {
      const fragment = String(reference).startsWith("#") ? decodeURIComponent(reference.slice(1)) : null;
      if (fragment === "" || fragment?.startsWith("/")) target = pointers.get(this.root, fragment);
      else if (fragment) target = anchored(this.root, fragment);
    } catch {
      // Not the URI that it should be.
    }
    if (target === undefined) throw new NotUnderstood(`the reference ${JSON.stringify(reference)}`);
    return target;
  }

  // The given schemas, and those of whatever is in a value that they apply to.
  #reach(schemas, found = new Set()) {
    const more = schemas.filter((schema) => !found.has(schema));
    for (const schema of more) found.add(schema);
    return more.length === 0 ? [...found] : this.#reach(this.#expand(more.flatMap(ofWhatever)), found);
  }

  /** The schemas that may apply to a member of a value that `schemas` are for. */
  ofMember(schemas, key) {
    return this.#expand(schemas.flatMap((schema) => ofMember(schema, key)));
  }

  /** The same of an item. */
  ofItem(schemas, i) {
    return this.#expand(schemas.flatMap((schema) => ofItem(schema, i)));
  }

  #of(pointer) {
    return pointers.parse(pointer).reduce((schemas, key) => [
      ...this.ofMember(schemas, key), ...(/^\d+$/.test(key) ? this.ofItem(schemas, Number(key)) : []),
    ], this.whole);
  }

  /** Whether the value at a pointer is a secret. */
  isSecret(pointer) {
    return this.#of(pointer).some(isSecret);
  }

  /** Whether the value at a pointer may have a secret in it. */
  holdsSecrets(pointer) {
    return this.#reach(this.#of(pointer)).some(isSecret);
  }

  /** The schema with what it refers to in it. */
  resolve(schema, depth = 0) {
    if (schema === null || typeof schema !== "object" || depth > 20) return {};
    let whole = schema;
    if ("$ref" in schema) {
      const { $ref, ...rest } = schema;
      whole = { ...this.resolve(this.#target($ref), depth + 1), ...rest };
    }
    for (const part of whole.allOf ?? []) {
      const { properties, required, ...rest } = this.resolve(part, depth + 1);
      whole = {
        ...rest, ...whole,
        properties: { ...properties, ...whole.properties },
        required: [...(required ?? []), ...(whole.required ?? [])],
      };
    }
    return whole;
  }

  /**
   * Where an object is one of several: each key is a way, and a configuration
   * has exactly one of them. null where it is not.
   */
  ways(schema) {
    if (schema.properties && schema.maxProperties === 1 && Object.keys(schema.properties).length > 1) {
      return Object.entries(schema.properties).map(([key, of]) => [key, this.resolve(of)]);
    }
    const branches = (schema.oneOf ?? schema.anyOf ?? []).map((branch) => this.resolve(branch));
    const keys = branches.map((branch) => branch.required?.[0] ?? Object.keys(branch.properties ?? {})[0]);
    if (branches.length < 2 || keys.some((key) => key === undefined) || new Set(keys).size < keys.length) return null;
    return keys.map((key, i) => [key, this.resolve(branches[i].properties?.[key] ?? schema.properties?.[key] ?? {})]);
  }

  properties(schema) {
    return Object.entries(schema.properties ?? {}).map(([key, of]) => [key, this.resolve(of)]);
  }

  /** The schema of the value at a pointer. */
  at(pointer) {
    let schema = this.resolve(this.root);
    for (const key of pointers.parse(pointer)) {
      const way = this.ways(schema)?.find(([name]) => name === key)?.[1];
      const next = way ?? schema.properties?.[key] ?? (/^\d+$/.test(key) ? schema.items : undefined) ?? schema.additionalProperties;
      schema = this.resolve(next ?? {});
    }
    return schema;
  }
}

export const typeOf = (schema) => (Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type);

const isSecret = (schema) => schema.writeOnly === true;

function anchored(at, name) {
  if (at === null || typeof at !== "object") return undefined;
  if (at.$anchor === name || at.$dynamicAnchor === name) return at;
  for (const part of Object.values(at)) {
    const found = anchored(part, name);
    if (found !== undefined) return found;
  }
}

/** Whether an object has the lists that go with secrets. */
export const ownsSecrets = (schema) => Boolean(schema.properties?.secretsSet && schema.properties?.secretsClear);

/** A title for people. */
export function titleOf(schema, key) {
  if (schema.title) return schema.title;
  const words = key.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll(/[-_]/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What an object needs to hold before anybody has filled it in. */
export function beginning(schema, value = {}) {
  for (const key of schema.required ?? []) {
    const of = schema.properties?.[key];
    if (of?.type === "object" && value[key] === undefined) value[key] = beginning(of);
  }
  return value;
}

/**
 * A copy of a configuration without the values of secrets, which a front-end
 * does not store, and without secretsSet, which slipway fills in.
 */
export function withoutSecrets(schema, configuration) {
  const walk = (schemas, value) => {
    if (Array.isArray(value)) return value.map((item, i) => walk(schema.ofItem(schemas, i), item));
    if (value === null || typeof value !== "object") return value;
    const entries = [];
    for (const [key, member] of Object.entries(value)) {
      const of = schema.ofMember(schemas, key);
      const filledIn = key === "secretsSet" && of.some(({ readOnly }) => readOnly === true);
      if (!of.some(isSecret) && !filledIn) entries.push([key, walk(of, member)]);
    }
    return Object.fromEntries(entries);
  };
  return walk(schema.whole, configuration);
}

/** A copy of a configuration with the secrets that were typed, by pointer. */
export function withSecrets(configuration, secrets) {
  const whole = structuredClone(configuration);
  for (const [pointer, value] of secrets) pointers.set(whole, pointer, value);
  return whole;
}

/**
 * Takes names out of the lists of secrets to clear, where cleared(owner, name)
 * says that it has been done; owner is the pointer of the object with the list.
 */
export function forgetCleared(schema, value, cleared, owner = "") {
  if (value === null || typeof value !== "object") return;
  for (const [key, member] of Object.entries(value)) {
    if (key !== "secretsClear" || !Array.isArray(member) || !ownsSecrets(schema.at(owner))) {
      forgetCleared(schema, member, cleared, pointers.child(owner, key));
      continue;
    }
    value[key] = member.filter((name) => !cleared(owner, name));
    if (value[key].length === 0) delete value[key];
  }
}
