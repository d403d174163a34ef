package panel

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// items: what is typed into one item of a list does not get into another one.
func items(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	require.JSONEq(t, `{"texts": ["", "b"], "then": ["c", "b"], "removed": ["b"],
		"numbers": [null, 2], "choices": ["", "y"], "open": [null, {"a": 1}], "inside": [{"name": "n"}, {}]}`, string(eval[json.RawMessage](tab, `(async () => {
		const { Schema } = await import("/js/schema.js");
		const { Form } = await import("/js/form.js");
		const list = (items) => ({ type: "array", items });
		const schema = new Schema({ properties: {
			texts: list({ type: "string" }), numbers: list({ type: "integer" }), choices: list({ enum: ["x", "y"] }),
			open: list({ type: "object" }), inside: list({ type: "object", properties: { name: { type: "string" } } }),
		} });
		const configuration = { texts: ["a", "b"], numbers: [1, 2], choices: ["x", "y"], open: [{}, { a: 1 }], inside: [{ name: "n" }, { name: "m" }] };
		const form = new Form({ schema, configuration, secrets: new Map(), isSet: () => false, changed: () => {} });
		const fields = form.render("");
		const type = (pointer, text) => {
			const input = fields.querySelector("#" + CSS.escape("f" + pointer));
			input.value = text;
			input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input"));
		};
		for (const pointer of ["/texts/0", "/numbers/0", "/choices/0", "/open/0", "/inside/1/name"]) type(pointer, "");
		const { texts, ...rest } = structuredClone(configuration);
		type("/texts/0", "c");
		const then = structuredClone(configuration.texts);
		fields.querySelector("[aria-label='Remove Texts 1']").click();
		return { ...rest, texts, then, removed: configuration.texts };
	})()`)))
}

// pages: what is offered where a deployment is in a state that is rare.
func pages(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	seen := eval[map[string]string](tab, `(async () => {
		const { Overview } = await import("/js/overview.js");
		const { Deletion } = await import("/js/removal.js");
		const seen = {};
		const page = (deployment, builds) => ({
			id: "some", draft: { id: "some" }, buildEvents: 0, log: { build: null, text: "" },
			deployment: { since: "2026-05-01T12:00:00Z", live: null, nodes: [], ...deployment },
			panel: { slipway: { builds: async () => builds, sboms: async () => [], log: async () => "" } },
		});
		const buttons = async (deployment, builds) => {
			const view = new Overview(page(deployment, builds));
			view.show();
			await new Promise((resolve) => setTimeout(resolve));
			return [...view.element.querySelectorAll("[data-key^=cancel]")].map((button) => button.textContent).join(", ");
		};
		const build = (number, status) => ({ number, status, action: "deploy" });
		for (const status of ["queued", "cancelled"]) {
			seen[status] = await buttons({ state: "building", latestBuild: build(2, status) }, [build(2, status), build(1, "running")]);
		}
		seen.running = await buttons({ state: "building", latestBuild: build(2, "running") }, []);
		seen.active = await buttons({ state: "active", latestBuild: build(2, "cancelled") }, []);
		for (const [name, latestBuild] of [["imported", null], ["destroyed", { ...build(2, "succeeded"), action: "destroy" }]]) {
			const of = page({ state: "idle", latestBuild }, []);
			const overview = new Overview(of);
			overview.show();
			seen[name] = overview.status.textContent;
			seen[name + " delete"] = new Deletion(of).element.textContent;
		}
		return seen;
	})()`)
	require.Equal(t, "Cancel build #2, Cancel build #1", seen["queued"])
	require.Equal(t, "Cancel build #1", seen["cancelled"])
	require.Equal(t, "Cancel build #2", seen["running"])
	require.Empty(t, seen["active"])
	for _, of := range []string{"imported", "imported delete"} {
		require.NotContains(t, seen[of], "Nothing is up")
		require.Contains(t, seen[of], "What was up before the import stays as it is")
	}
	require.Contains(t, seen["imported delete"], "deploy it once")
	for _, of := range []string{"destroyed", "destroyed delete"} {
		require.Contains(t, seen[of], "Nothing is up")
	}
}
