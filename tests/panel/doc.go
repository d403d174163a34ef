// Package panel tests front-ends (docs/front-ends.md) in a real browser: the
// example panel of slipway-dev in Chromium, against a whole slipway with a
// secrets server and the example module source. A person signs in, drafts,
// submits, watches and deletes; tabs are closed at bad moments, callbacks are
// lost, destroys fail, and pages of other origins try to join in.
//
// All tests share one stand and one browser, each in a browser context of its
// own, with deployments of its own. Every tab fails its test when a script of
// the page throws, or does what the Content-Security-Policy refuses.
//
// Screenshots go to the folder screenshots, or to SLIPWAY_SCREENSHOTS: to be
// looked at, in light and dark.
package panel
