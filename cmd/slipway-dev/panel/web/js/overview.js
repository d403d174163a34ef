import { badge, duration, h, icon, nameOf, swap, trouble, when } from "./dom.js";
import { onlyImported } from "./slipway.js";

const colours = /\u001b\[[0-9;]*[A-Za-z]/g;

/** What runs: state, log, instances, nodes with their SBOMs. */
export class Overview {
  #sboms = [];
  #sbomsOf = null;
  #pending = []; // the builds that run or are queued, newest first
  #pendingAt = null;
  #log = { build: null, text: null };

  constructor(page) {
    this.page = page;
    this.failed = h("div");
    this.status = h("div");
    this.cards = h("div");
    this.output = h("pre", { class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-labelledby": "log-title" });
    this.logTitle = h("h2", { id: "log-title" }, "Log");
    this.logCard = h("section", { class: "card", hidden: true }, this.logTitle, this.output);
    this.element = h("div", { class: "stack" }, this.failed, this.status, this.logCard, this.cards);
  }

  show() {
    this.update();
  }

  update() {
    const { deployment } = this.page;
    this.status = swap(this.status, this.#status());
    this.cards = swap(this.cards, deployment ? h("div", { class: "columns" }, this.#instances(), this.#nodes()) : h("div"));
    this.#placeLog();
    this.#showLog();
    this.#readSboms();
    this.#readPending();
  }

  // While something happens, or went wrong, the log comes first.
  #placeLog() {
    const first = ["building", "destroying", "failed"].includes(this.page.deployment?.state);
    const place = first ? this.cards : null;
    if (this.logCard.nextSibling === place) return;
    this.element.insertBefore(this.logCard, place);
    this.output.scrollTop = this.output.scrollHeight; // what is moved begins at its top
  }

  logged() {
    this.#showLog();
  }

  #status() {
    const { deployment, draft } = this.page;
    if (!deployment) {
      return h("section", { class: "empty" },
        h("h2", { class: "big" }, "Not launched yet"),
        h("p", {}, "This draft has only been saved here. Fill in its configuration and submit it."),
        h("p", {}, h("a", { class: "button primary", href: `#/drafts/${draft.id}/configuration`, "data-key": "edit" }, "Edit the configuration")));
    }
    const { state, since, reason, live, latestBuild: build } = deployment;
    const facts = [
      ["Since", when(since)],
      ["Domain", deployment.domain ?? "–"],
      ["Method", deployment.method ?? "–"],
      ["Live build", live === null ? "none" : `#${live}`],
      ["Latest build", build ? `#${build.number} ${build.action}, ${nameOf(build.status).toLowerCase()}${build.startedAt && build.finishedAt ? ` in ${duration(build.startedAt, build.finishedAt)}` : ""}` : "–"],
    ];
    const runs = ["building", "destroying"].includes(state);
    return h("section", { class: `card status ${state}`, "aria-label": "State" },
      runs ? h("div", { class: "progress", "aria-hidden": "true" }) : null,
      reason ? h("p", { class: state === "failed" ? "reason bad" : "reason" }, state === "failed" ? icon("warn") : null, reason) : null,
      onlyImported(deployment) ? h("p", { class: "reason" },
        "slipway has deployed nothing. What was up before the import stays as it is. Submit the configuration to deploy it; only then can slipway haul it out.")
        : state === "idle" ? h("p", { class: "reason" }, "Nothing is up. Submit the configuration again, or ",
        h("a", { href: `#/drafts/${draft.id}/delete`, "data-key": "remove" }, "delete this record"), ".") : null,
      h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      runs ? h("div", {}, this.#pending.flatMap(({ number }) => [h("button", {
        type: "button", class: "small", "data-key": `cancel-${number}`,
        onclick: () => this.#try(() => this.page.panel.slipway.cancel(draft.id, number)),
      }, `Cancel build #${number}`), " "])) : null);
  }

  async #try(action) {
    try {
      await action();
      this.failed.replaceChildren();
    } catch (problem) {
      this.failed.replaceChildren(trouble(problem));
    }
  }

  #instances() {
    const { submitted = [], deployed = [] } = this.page.deployment.instances ?? {};
    const byName = new Map([...submitted, ...deployed].map((instance) => [instance.name, instance]));
    const up = new Set(deployed.map((instance) => instance.name));
    const list = [...byName.values()].filter((instance) => this.page.deployment.state !== "idle" || up.has(instance.name));
    return h("section", { class: "card", "aria-label": "Instances" }, h("h2", {}, "Instances"),
      list.length === 0 ? h("p", { class: "quiet" }, onlyImported(this.page.deployment) ? "Nothing that slipway deployed." : "Nothing runs.") : h("ul", { class: "rows" }, list.map((instance) => h("li", {},
        h("div", { class: "grow" },
          h("strong", {}, instance.title ?? instance.name),
          h("p", { class: "quiet small" }, instance.kind === "component" ? "Component" : "Application",
            up.has(instance.name) ? "" : " · not up yet")),
        instance.url
          ? up.has(instance.name)
            ? h("a", { href: instance.url, target: "_blank", rel: "noopener noreferrer", class: "open", "data-key": `open-${instance.name}` },
              instance.domains[0] ?? instance.url, icon("out"), h("span", { class: "unseen" }, " opens in a new tab"))
            : h("span", { class: "quiet" }, instance.domains[0])
          : h("span", { class: "quiet small" }, "no page")))));
  }

  #nodes() {
    const { nodes, state } = this.page.deployment;
    const sboms = new Map(this.#sboms.map((sbom) => [sbom.node, sbom]));
    const shown = state === "idle" ? [] : nodes;
    return h("section", { class: "card", "aria-label": "Nodes" }, h("h2", {}, "Nodes"),
      shown.length === 0 ? h("p", { class: "quiet" }, "No nodes.") : h("ul", { class: "rows" }, shown.map((node) => {
        const sbom = sboms.get(node.name);
        return h("li", {},
          h("div", { class: "grow" }, h("strong", { class: "mono" }, node.name), h("p", { class: "quiet small names" }, node.names.join(", ") || "publishes no name")),
          sbom?.status === "ready"
            ? h("button", { type: "button", class: "small", "data-key": `sbom-${node.name}`, "data-sbom": node.name, onclick: () => this.#try(() => this.#download(node.name)) },
              icon("down"), "SBOM", h("span", { class: "unseen" }, ` of ${node.name}`),
              sbom.components === undefined ? null : h("span", { class: "quiet" }, `${sbom.components}`))
            : h("span", { class: "quiet small" }, sbom?.reason ?? "no SBOM yet"));
      })));
  }

  // A download needs the header with the token, so the page fetches it itself.
  async #download(node) {
    const { id, panel } = this.page;
    const url = URL.createObjectURL(await panel.slipway.sbom(id, node));
    h("a", { href: url, download: `${id}-${node}.cdx.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  }

  // The SBOMs are there when the state is; they change with a finished build.
  async #readSboms() {
    const { deployment, panel, id } = this.page;
    const key = deployment && `${deployment.state} ${deployment.live}`;
    if (!deployment || key === this.#sbomsOf) return;
    this.#sbomsOf = key;
    try {
      this.#sboms = await panel.slipway.sboms(id);
      this.update();
    } catch (problem) {
      if (problem.status !== 404) this.failed.replaceChildren(trouble(problem));
    }
  }

  // The latest build may be queued, or cancelled, while one before it runs.
  async #readPending() {
    const { deployment, panel, id, buildEvents } = this.page;
    const latest = deployment?.latestBuild;
    const key = JSON.stringify([deployment?.state, latest, buildEvents]);
    if (key === this.#pendingAt) return;
    this.#pendingAt = key;
    const pending = (list) => list.filter(({ status }) => ["queued", "running"].includes(status));
    const show = (list) => {
      if (key !== this.#pendingAt) return;
      this.#pending = pending(list);
      this.status = swap(this.status, this.#status());
    };
    if (!latest || latest.status === "running" || !["building", "destroying"].includes(deployment.state)) return show(latest ? [latest] : []);
    try {
      show(await panel.slipway.builds(id));
    } catch {
      show([latest]);
    }
  }

  // The log of the latest build: from the channel while it runs, else read once.
  async #showLog() {
    const build = this.page.deployment?.latestBuild;
    this.logCard.hidden = !build;
    if (!build) return;
    this.logTitle.replaceChildren(`Log of build #${build.number} `, badge(build.status));
    if (this.page.log.build === build.number) return this.#print(this.page.log.text, build);
    if (build.finishedAt && this.#log.build !== build.number) {
      this.#log = { build: build.number, text: null };
      try {
        this.#log.text = await this.page.panel.slipway.log(this.page.id, build.number);
      } catch {
        this.#log = { build: null, text: null };
      }
    }
    if (this.page.log.build !== build.number) this.#print(this.#log.build === build.number ? this.#log.text : null, build);
  }

  #print(text, build) {
    const nothing = build.finishedAt ? (text === null ? "Loading …" : "The deployer printed nothing.")
      : build.status === "queued" ? "Waits for its turn." : "Waits for the first line.";
    const plain = text?.replace(colours, "") || nothing;
    if (this.output.textContent === plain) return;
    const atEnd = this.output.scrollTop + this.output.clientHeight >= this.output.scrollHeight - 24;
    this.output.textContent = plain;
    if (atEnd) this.output.scrollTop = this.output.scrollHeight;
  }
}
