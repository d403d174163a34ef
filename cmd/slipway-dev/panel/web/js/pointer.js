// JSON Pointers (RFC 6901) into a configuration.

export const parse = (pointer) =>
  pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

export const child = (pointer, key) => `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

export const parent = (pointer) => pointer.slice(0, pointer.lastIndexOf("/"));

export const isWithin = (pointer, ancestor) => pointer === ancestor || pointer.startsWith(`${ancestor}/`);

const own = (value, key) =>
  value !== null && typeof value === "object" && Object.hasOwn(value, key) ? value[key] : undefined;

export const get = (value, pointer) => parse(pointer).reduce(own, value);

/** Sets a value, undefined removes it. What lies between is made. */
export function set(value, pointer, to) {
  const path = parse(pointer);
  const last = path.pop();
  let at = value;
  for (const key of path) {
    const next = own(at, key);
    if (next === null || typeof next !== "object") {
      if (to === undefined) return;
      put(at, key, {});
    }
    at = own(at, key);
  }
  if (to !== undefined) put(at, last, to);
  else if (Array.isArray(at)) at.splice(Number(last), 1);
  else delete at[last];
}

// Not an assignment, which would do something else for a key "__proto__".
function put(object, key, value) {
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
}
