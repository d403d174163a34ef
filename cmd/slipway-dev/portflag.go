package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// portFlag is a port that a flag or a variable of the environment sets; the
// flag wins. The variables have no prefix SLIPWAY_, because slipway refuses
// those that it does not know.
type portFlag struct {
	purpose  string
	flag     string
	variable string
	value    int
}

func newPortFlag(flags *pflag.FlagSet, purpose, flag, variable string, fallback int) *portFlag {
	p := &portFlag{purpose: purpose, flag: flag, variable: variable}
	flags.IntVar(&p.value, flag, fallback, fmt.Sprintf("port of the %s, 0 for any free one (variable %s)", purpose, variable))
	return p
}

// resolve looks at the environment where the flag is not given, and picks a
// free port for 0.
func (p *portFlag) resolve(flags *pflag.FlagSet, env lookup) error {
	if text, set := env(p.variable); set && text != "" && !flags.Changed(p.flag) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%s=%q is not a port number", p.variable, text)
		}
		p.value = n
	}
	if p.value == 0 {
		free, err := ports.Free(1)
		if err != nil {
			return err
		}
		p.value = free[0]
	}
	return nil
}

func (p *portFlag) use() ports.Use {
	return ports.Use{For: p.purpose, Port: p.value, Choose: "--" + p.flag + " or " + p.variable}
}

// resolveAndCheck resolves ports and reports every one that is taken.
func resolveAndCheck(flags *pflag.FlagSet, env lookup, all ...*portFlag) error {
	uses, err := resolve(flags, env, all...)
	if err != nil {
		return err
	}
	return ports.Check(uses)
}

func resolve(flags *pflag.FlagSet, env lookup, all ...*portFlag) ([]ports.Use, error) {
	uses := make([]ports.Use, 0, len(all))
	for _, p := range all {
		if err := p.resolve(flags, env); err != nil {
			return nil, err
		}
		uses = append(uses, p.use())
	}
	return uses, nil
}
