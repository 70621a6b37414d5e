package plugin

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	"github.com/NVIDIA/k8s-device-plugin/internal/cdi"
	"github.com/NVIDIA/k8s-device-plugin/internal/imex"
	"github.com/NVIDIA/k8s-device-plugin/internal/rm"
)

type givenDevice struct {
	Index string   `json:"index"`
	Paths []string `json:"paths"`
}

type question struct {
	Strategies []string               `json:"strategies"`
	IDStrategy string                 `json:"id_strategy"`
	Prefix     string                 `json:"prefix"`
	DevRoot    string                 `json:"dev_root"`
	PassSpecs  bool                   `json:"pass_specs"`
	GDRCopy    bool                   `json:"gdrcopy"`
	GDS        bool                   `json:"gds"`
	MOFED      bool                   `json:"mofed"`
	Extras     []string               `json:"extras"`
	Channels   []string               `json:"channels"`
	Devices    map[string]givenDevice `json:"devices"`
	IDs        []string               `json:"ids"`
}

type answer struct {
	Response *pluginapi.ContainerAllocateResponse `json:"response"`
	Error    string                               `json:"error"`
}

const vendor = "k8s.device-plugin.nvidia.com"

func qualify(class string, id string) string { return vendor + "/" + class + "=" + id }

func ask(q question) answer {
	strategies, err := spec.NewDeviceListStrategies(q.Strategies)
	if err != nil {
		return answer{Error: err.Error()}
	}
	devices := rm.Devices{}
	for id, each := range q.Devices {
		devices[id] = &rm.Device{Device: pluginapi.Device{ID: id}, Index: each.Index, Paths: each.Paths}
	}
	var channels imex.Channels
	for _, id := range q.Channels {
		channels = append(channels, &imex.Channel{ID: id, Path: "/dev/nvidia-caps-imex-channels/channel" + id})
	}
	flags := spec.CommandLineFlags{
		GDRCopyEnabled: &q.GDRCopy, GDSEnabled: &q.GDS, MOFEDEnabled: &q.MOFED, NvidiaDevRoot: &q.DevRoot,
		Plugin: &spec.PluginCommandLineFlags{DeviceIDStrategy: &q.IDStrategy, PassDeviceSpecs: &q.PassSpecs},
	}
	plugin := nvidiaDevicePlugin{
		rm: &rm.ResourceManagerMock{
			DevicesFunc:        func() rm.Devices { return devices },
			GetDevicePathsFunc: func(ids []string) []string { return devices.Subset(ids).GetPaths() },
		},
		config:               &spec.Config{Flags: spec.Flags{CommandLineFlags: flags}},
		deviceListStrategies: strategies,
		cdiHandler: &cdi.InterfaceMock{
			QualifiedNameFunc:     qualify,
			AdditionalDevicesFunc: func() []string { return q.Extras },
		},
		cdiAnnotationPrefix: q.Prefix,
		imexChannels:        channels,
	}
	request := &pluginapi.ContainerAllocateRequest{DevicesIds: q.IDs}
	responses, err := plugin.Allocate(context.Background(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{request},
	})
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Response: responses.ContainerResponses[0]}
}

func TestAnswers(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("QUESTIONS"))
	if err != nil {
		t.Fatal(err)
	}
	var questions []question
	if err := json.Unmarshal(text, &questions); err != nil {
		t.Fatal(err)
	}
	answers := make([]answer, 0, len(questions))
	for _, each := range questions {
		answers = append(answers, ask(each))
	}
	text, err = json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("ANSWERS"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
