// Package client calls the deployments API of slipway (seed B).
//
//	c, err := client.New("https://slipway.example.org", token, client.Options{})
//	submitted, err := c.Submit(ctx, "example", configuration, "")
//	err = c.Follow(ctx, "example", client.FollowOptions{Log: true}, func(e client.Event) error {
//		switch data := e.Data.(type) {
//		case deployment.Deployment: // the snapshot, first
//		case deployment.Standing:   // the state changed
//		case deployment.Build:      // a build changed
//		case client.LogText:        // the deployer printed something
//		}
//		return nil
//	})
//
// Its answers are the shapes of schema/deployment.
//
// # Errors
//
// What the API refuses is an *Error, with the code and the details that it
// gave. An API that cannot be reached, or that breaks off its answer, is a
// *ConnectionError. A context that ends gives the error of the context.
//
// # Retries
//
// A call is made once, and its error returned: the caller knows better what is
// worth another try. There are two exceptions, which the contract makes safe:
//
//   - Submit always sends an idempotency key, so a second try is the same
//     build. It tries again while the API is away, for Options.Patience.
//   - Follow connects again when its stream ends, and says where it was, so
//     that there is neither a gap nor a repeat.
//
// Options.Trouble hears of both.
package client
