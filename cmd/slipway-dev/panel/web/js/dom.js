// Elements from JavaScript. Text is always text: nothing here parses HTML.

/**
 * Makes an element. Attributes that are false, null or undefined are left out;
 * on… are listeners; other functions and objects are not attributes.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const shapes = {
  check: "M3.500 8.500 6.500 11.500 12.500 4.500",
  cross: "M4 4l8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  out: "M6 3.500H3.500v9h9V10M9 3.500h3.500V7M12.500 3.500 7 9",
  down: "M8 2.500v7.500M4.500 7 8 10.500 11.500 7M3 13.500h10",
  warn: "M8 2.500 14 13H2zM8 6.500v3M8 11.200v.1",
  bin: "M3 4.500h10M6 4.500V3h4v1.500M4.500 4.500l.5 8.500h6l.5-8.500",
};

/** An icon, which says nothing that the text beside it does not. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", width: 16, height: 16, class: "icon", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", shapes[name]);
  svg.append(path);
  return svg;
}

/**
 * Shows an element in the place of another. Where nothing would look different
 * the old one stays, so that nothing moves under a finger or a screen reader;
 * else the focus stays where it was.
 */
export function swap(old, next) {
  return old.isEqualNode(next) ? old : replace(old, next);
}

/** swap for what has fields, whose values are no part of how two are compared. */
export function replace(old, next) {
  const focused = old.contains(document.activeElement) ? document.activeElement.closest("[data-key]")?.dataset.key : null;
  old.replaceWith(next);
  if (focused) next.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  return next;
}

/**
 * swap for a list of links. While they are the same links they stay, and only
 * what is in them changes: a link that was replaced between press and release
 * would not be followed.
 */
export function swapLinks(old, next) {
  const links = [...old.querySelectorAll("a")], others = [...next.querySelectorAll("a")];
  if (links.length !== others.length || links.some((link, i) => link.dataset.key !== others[i].dataset.key)) return swap(old, next);
  links.forEach((link, i) => {
    if (link.isEqualNode(others[i])) return;
    for (const { name, value } of others[i].attributes) link.setAttribute(name, value);
    for (const { name } of [...link.attributes]) if (!others[i].hasAttribute(name)) link.removeAttribute(name);
    link.replaceChildren(...others[i].childNodes);
  });
  return old;
}

/** Tells screen readers. */
export function announce(text) {
  document.getElementById("announcements").textContent = text;
}

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const absolute = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

function ago(date) {
  const seconds = (date - Date.now()) / 1000;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return "just now";
}

/** A time, as long ago as it is. */
export function when(text) {
  const date = new Date(text);
  return h("time", { datetime: text, title: absolute.format(date), "data-ago": text }, ago(date));
}

setInterval(() => {
  for (const element of document.querySelectorAll("time[data-ago]")) element.textContent = ago(new Date(element.dataset.ago));
}, 15000);

/** How long something took. */
export function duration(from, to) {
  const seconds = Math.max(0, Math.round((new Date(to) - new Date(from)) / 1000));
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

const looks = {
  draft: ["Draft", "plain"],
  building: ["Building", "busy"],
  active: ["Active", "good"],
  failed: ["Failed", "bad"],
  destroying: ["Destroying", "busy"],
  idle: ["Idle", "plain"],
  unknown: ["Unknown", "plain"],
  queued: ["Queued", "plain"],
  running: ["Running", "busy"],
  succeeded: ["Succeeded", "good"],
  cancelled: ["Cancelled", "plain"],
  superseded: ["Superseded", "plain"],
};

export const nameOf = (state) => looks[state]?.[0] ?? state;

/** The state of a deployment or the status of a build. */
export function badge(state) {
  return h("span", { class: `badge ${looks[state]?.[1] ?? "plain"}`, "data-state": state }, nameOf(state));
}

/** What went wrong, with a way to try again. */
export function trouble(problem, again) {
  return h("div", { class: "notice bad", role: "alert" },
    icon("warn"),
    h("div", {},
      h("p", {}, problem.message),
      problem.requestId ? h("p", { class: "quiet small" }, "Request ", h("code", {}, problem.requestId)) : null,
      again ? h("button", { type: "button", class: "small", onclick: again }, "Try again") : null));
}
