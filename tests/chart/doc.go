// Package chart tests the Helm chart, deploy/chart: what it renders, with the
// real helm (`make helm` builds bin/helm), is sent to a real Kubernetes API
// server, which checks it and, but where a test installs it, keeps nothing.
//
// What the API server cannot know is checked here: that the program accepts the
// variables that its pods get, that the rights are those that every other test
// runs with, whom the NetworkPolicy admits, and what the chart refuses.
package chart
