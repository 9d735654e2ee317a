// SPDX-License-Identifier: Apache-2.0

// Command controlplane is one multi-call binary that holds a whole Kubernetes
// control plane. The component to run is taken from the name the binary is
// called by, or else from the first argument:
//
//	controlplane kube-apiserver --etcd-servers=...
//	ln -s controlplane etcd && ./etcd --data-dir=...
//
// The component oracle is no part of a control plane: tests ask it what the
// filters of kube-scheduler say.
//
// It exists for machines on which the official archives cannot be downloaded
// but Go modules can be built. One binary instead of five links the shared
// code once, which saves most of the build time and of the disk space.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

var components = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(args)
		return 0
	},
	"kube-apiserver":          cobraMain(apiserver.NewAPIServerCommand),
	"kube-controller-manager": cobraMain(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          cobraMain(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 kubectlMain,
	"kwok":                    kwokMain,
	"oracle":                  oracle,
}

// cobraMain builds the command only when it is asked for: each of them
// registers flags and metrics of its own, which must not meet in one process.
func cobraMain(build func() *cobra.Command) func([]string) int {
	return func(args []string) int {
		os.Args = args
		return cli.Run(build())
	}
}

func kubectlMain(args []string) int {
	os.Args = args
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints as kubectl does and exits
	}
	return 0
}

// kwokMain does what kwok's own main does: its flags are read in two steps, the
// global ones (configuration files, verbosity) before the command exists.
func kwokMain(args []string) int {
	os.Args = args
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("Read the configuration", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	command.Version = "" // cobra wants a flag --version of its own; Kubernetes has registered one
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Exit", "err", err)
		return 1
	}
	return 0
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if _, known := components[name]; !known && len(os.Args) > 1 {
		name, args = os.Args[1], os.Args[1:]
	}
	run, known := components[name]
	if !known {
		names := make([]string, 0, len(components))
		for component := range components {
			names = append(names, component)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: controlplane COMPONENT [FLAG ...]\ncomponents: %s\n", strings.Join(names, " "))
		os.Exit(2)
	}
	os.Exit(run(args))
}
