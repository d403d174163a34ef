import * as pointers from "./pointer.js";

/** The JSON Schema of a configuration, as far as a form needs to read it. */
export class Schema {
  constructor(root) {
    this.root = root;
  }

  /** The schema with what it refers to in it. */
  resolve(schema, depth = 0) {
    if (schema === null || typeof schema !== "object" || depth > 20) return {};
    let whole = schema;
    if (typeof schema.$ref === "string" && schema.$ref.startsWith("#")) {
      const { $ref, ...rest } = schema;
      whole = { ...this.resolve(pointers.get(this.root, decodeURIComponent($ref.slice(1))), depth + 1), ...rest };
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

export const isSecret = (schema) => schema.writeOnly === true;

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
  const walk = (of, value) => {
    if (Array.isArray(value)) return value.map((item) => walk(schema.resolve(of.items), item));
    if (value === null || typeof value !== "object") return value;
    const ways = Object.fromEntries(schema.ways(of) ?? []);
    const entries = [];
    for (const [key, item] of Object.entries(value)) {
      const next = schema.resolve(ways[key] ?? of.properties?.[key] ?? of.additionalProperties);
      if (!isSecret(next) && !next.readOnly) entries.push([key, walk(next, item)]);
    }
    return Object.fromEntries(entries);
  };
  return walk(schema.resolve(schema.root), configuration);
}

/** A copy of a configuration with the secrets that were typed, by pointer. */
export function withSecrets(configuration, secrets) {
  const whole = structuredClone(configuration);
  for (const [pointer, value] of secrets) pointers.set(whole, pointer, value);
  return whole;
}
