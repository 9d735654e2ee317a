// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// filters are kube-scheduler's default filters in their order.
var filters = []string{
	names.NodeUnschedulable,
	names.NodeName,
	names.TaintToleration,
	names.NodeAffinity,
	names.NodePorts,
	names.NodeResourcesFit,
	names.VolumeRestrictions,
	names.NodeVolumeLimits,
	names.VolumeBinding,
	names.VolumeZone,
	names.PodTopologySpread,
	names.InterPodAffinity,
}

// question is one line of the input: a cluster, and a pod that wants a node.
type question struct {
	Pod        *corev1.Pod                     `json:"pod"`
	Nodes      []*corev1.Node                  `json:"nodes"`
	Pods       []*corev1.Pod                   `json:"pods"`
	Namespaces []*corev1.Namespace             `json:"namespaces"`
	Volumes    []*corev1.PersistentVolume      `json:"volumes"`
	Claims     []*corev1.PersistentVolumeClaim `json:"claims"`
	Classes    []*storagev1.StorageClass       `json:"classes"`
	Limits     []*storagev1.CSINode            `json:"limits"`
	Drivers    []*storagev1.CSIDriver          `json:"drivers"`
	Capacities []*storagev1.CSIStorageCapacity `json:"capacities"`
}

// verdict is one entry of the output's lines: a node, and what is against it.
type verdict struct {
	Node    string   `json:"node"`
	Plugin  string   `json:"plugin,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// oracle reads questions from standard input, one JSON document per line, and
// answers each with a line: a list with a verdict for every node, by the filter
// plugins of kube-scheduler in their default configuration.
func oracle([]string) int {
	judge, err := newJudge(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		return 1
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for in.More() {
		var q question
		if err := in.Decode(&q); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			return 1
		}
		if err := encoder.Encode(judge.answer(context.Background(), &q)); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			return 1
		}
	}
	return 0
}

// lister shows the plugins, which are made once, the cluster of the day.
type lister struct{ *schedulercache.Snapshot }

type judge struct {
	plugins []fwk.Plugin
	shown   *lister
	objects informers.SharedInformerFactory
}

func newJudge(ctx context.Context) (*judge, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	arguments := map[string]runtime.Object{}
	for _, entry := range defaults.Profiles[0].PluginConfig {
		arguments[entry.Name] = entry.Args
	}
	// The informers are never started: their stores are filled by hand.
	j := &judge{
		shown:   &lister{schedulercache.NewEmptySnapshot()},
		objects: informers.NewSharedInformerFactory(nil, 0),
	}
	drivers := nodevolumelimits.NewCSIManager(j.objects.Storage().V1().CSINodes().Lister())
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithSnapshotSharedLister(j.shown),
		frameworkruntime.WithSharedCSIManager(drivers),
		frameworkruntime.WithInformerFactory(j.objects))
	if err != nil {
		return nil, err
	}
	registry := plugins.NewInTreeRegistry()
	for _, name := range filters {
		plugin, err := registry[name](ctx, arguments[name], handle)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		j.plugins = append(j.plugins, plugin)
	}
	return j, nil
}

func (j *judge) answer(ctx context.Context, q *question) []verdict {
	j.show(q)
	nodes, err := j.shown.NodeInfos().List()
	if err != nil {
		panic(err)
	}
	verdicts := make([]verdict, 0, len(q.Nodes))
	state, skipped, against := framework.NewCycleState(), map[string]bool{}, map[string]verdict{}
	for _, plugin := range j.plugins {
		prepared, ok := plugin.(fwk.PreFilterPlugin)
		if !ok {
			continue
		}
		chosen, status := prepared.PreFilter(ctx, state, q.Pod, nodes)
		skipped[plugin.Name()] = status.IsSkip()
		for _, node := range q.Nodes {
			_, known := against[node.Name]
			if known || status.IsSkip() {
				continue
			}
			if !status.IsSuccess() {
				against[node.Name] = verdict{node.Name, plugin.Name(), status.Reasons()}
			} else if !chosen.AllNodes() && !chosen.NodeNames.Has(node.Name) {
				against[node.Name] = verdict{node.Name, plugin.Name(), []string{"not chosen"}}
			}
		}
	}
	for _, node := range q.Nodes {
		found, out := against[node.Name]
		if !out {
			found = j.filter(ctx, state, q.Pod, node.Name, skipped)
		}
		verdicts = append(verdicts, found)
	}
	return verdicts
}

func (j *judge) filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, name string, skipped map[string]bool) verdict {
	node, err := j.shown.NodeInfos().Get(name)
	if err != nil {
		panic(err)
	}
	for _, plugin := range j.plugins {
		filter, ok := plugin.(fwk.FilterPlugin)
		if !ok || skipped[plugin.Name()] {
			continue
		}
		if status := filter.Filter(ctx, state, pod, node); !status.IsSuccess() {
			return verdict{name, plugin.Name(), status.Reasons()}
		}
	}
	return verdict{Node: name}
}

// show replaces the cluster that the plugins see.
func (j *judge) show(q *question) {
	j.shown.Snapshot = schedulercache.NewSnapshot(q.Pods, q.Nodes)
	core, storage := j.objects.Core().V1(), j.objects.Storage().V1()
	fill(core.Namespaces().Informer(), q.Namespaces)
	fill(core.PersistentVolumes().Informer(), q.Volumes)
	fill(core.PersistentVolumeClaims().Informer(), q.Claims)
	fill(core.Nodes().Informer(), q.Nodes)
	fill(storage.StorageClasses().Informer(), q.Classes)
	fill(storage.CSINodes().Informer(), q.Limits)
	fill(storage.CSIDrivers().Informer(), q.Drivers)
	fill(storage.CSIStorageCapacities().Informer(), q.Capacities)
}

func fill[T any](informer cache.SharedIndexInformer, objects []T) {
	listed := make([]any, len(objects))
	for i, object := range objects {
		listed[i] = object
	}
	if err := informer.GetIndexer().Replace(listed, ""); err != nil {
		panic(err)
	}
}
