// Package workflows has one file for each thing that an operator would name:
//
//   - Submit: from a configuration to a deployed build.
//   - Preview: the checks of a submit, without the submit.
//   - Destroy: from a request to an idle deployment.
//   - SchemaBuild: from a snapshot of the module source to its schema.
//
// Workflows decide and never do: every effect is an activity, and every
// arbiter (whose turn it is, whether a request came before, how a build ended)
// is a row in PostgreSQL. So an operator may terminate, cancel or reset any of
// them: a build whose workflow is gone is failed by the sweeper of the
// workers, and a workflow that is reset finds out where its build stands.
//
// Submit and Destroy return early (question.go). The update that starts one is
// answered as soon as the build is recorded; the run goes on to wait for its turn, run the
// deployer and finish the build (build.go). A run that gets no update ends by
// itself and has stored nothing.
//
// A change of these files must replay the histories in testdata, which
// tests/histories records, or be versioned with workflow.GetVersion.
package workflows
