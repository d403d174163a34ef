package main

import (
	"go.temporal.io/server/temporal"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	uiserver "github.com/temporalio/ui-server/v2/server"
)

func main() { _ = temporal.NewServer; _ = uiserver.NewServer }
