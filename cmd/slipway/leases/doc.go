// Package leases is the command "slipway lease": what people and deploy jobs
// do with the leases of the deployment coordination API.
package leases
