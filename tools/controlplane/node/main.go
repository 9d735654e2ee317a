// SPDX-License-Identifier: Apache-2.0

// Command node is what a real node of the local cluster runs besides its
// container runtime: kubelet and kube-proxy, chosen as in the control plane's
// binary. It is one of its own so that nobody builds it who has no such node.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if name == "node" && len(os.Args) > 1 {
		name, args = os.Args[1], os.Args[1:]
	}
	os.Args = args
	var command *cobra.Command
	switch name {
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		command = proxy.NewProxyCommand()
	default:
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy [FLAG ...]")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
