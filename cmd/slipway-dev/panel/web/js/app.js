import { announce, h, trouble } from "./dom.js";
import { drafts, session } from "./session.js";
import { Slipway } from "./slipway.js";
import { DraftPage } from "./draft.js";
import { ListPage } from "./list.js";

const main = document.getElementById("main");
const account = document.getElementById("account");

/** What the pages share. */
const panel = { drafts, slipway: null, user: null, go: (hash) => (location.hash = hash) };
let page = null;

async function begin() {
  page?.close();
  page = null;
  let state;
  try {
    state = await session.read();
  } catch (problem) {
    return main.replaceChildren(trouble(problem, begin));
  }
  panel.user = state.user;
  panel.slipway = new Slipway(state.api, async () => {
    try {
      return await session.token();
    } catch (problem) {
      if (problem.status === 401) begin(); // signed out meanwhile
      throw problem;
    }
  });
  account.replaceChildren(state.user ? signedIn(state.user) : "");
  if (state.user) return route();
  showSignIn(state.users);
}

function signedIn(user) {
  return h("div", { class: "account" },
    h("span", { class: "avatar", "aria-hidden": "true" }, user.name.split(" ").map((part) => part[0]).join("")),
    h("span", { class: "who" }, user.name),
    h("button", {
      type: "button", class: "small",
      onclick: async () => {
        await session.signOut();
        location.hash = "#/";
        begin();
      },
    }, "Sign out"));
}

function showSignIn(users) {
  document.title = "Sign in · Harbour panel";
  const failed = h("div");
  main.replaceChildren(h("section", { class: "signin" },
    h("h1", { tabindex: -1 }, "Sign in"),
    h("p", { class: "quiet" }, "Choose who you are. This is an example on a development machine, so there is no password."),
    h("ul", { class: "people" }, users.map((user) => h("li", {},
      h("button", {
        type: "button", "data-user": user.id,
        onclick: async () => {
          try {
            await session.signIn(user.id);
            begin();
          } catch (problem) {
            failed.replaceChildren(trouble(problem));
          }
        },
      },
      h("span", { class: "avatar", "aria-hidden": "true" }, user.name.split(" ").map((part) => part[0]).join("")),
      h("span", {}, h("strong", {}, user.name), h("span", { class: "hint" }, user.role)))))),
    failed));
}

// #/                                     the drafts
// #/drafts/{id}                          one, what runs
// #/drafts/{id}/configuration/{section}  the form; the section may be left out
// #/drafts/{id}/history, …/delete
async function route() {
  if (!panel.user) return;
  const [, kind, id, view = "overview", section = ""] = location.hash.split("/").map(decodeURIComponent);
  if (kind !== "drafts" || !id) {
    if (!(page instanceof ListPage)) open(new ListPage(panel));
  } else if (!(page instanceof DraftPage && page.id === id)) {
    open(new DraftPage(panel, id));
  }
  const shown = page;
  await shown.show(view, section);
  if (shown !== page) return;
  document.title = `${shown.title} · Harbour panel`;
  // The heading is what a person came for; a page that is opened begins there.
  if (document.activeElement === document.body || !main.contains(document.activeElement)) main.querySelector("h1")?.focus();
}

function open(next) {
  page?.close();
  page = next;
  main.replaceChildren(next.element);
}

addEventListener("hashchange", () => {
  announce("");
  route();
});
begin();
