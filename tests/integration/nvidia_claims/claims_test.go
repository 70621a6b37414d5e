package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	configapi "sigs.k8s.io/dra-driver-nvidia-gpu/api/nvidia.com/resource/v1beta1"
	"sigs.k8s.io/dra-driver-nvidia-gpu/pkg/featuregates"
)

// What the compiled files take from the files left out: those files want modules that are not to be had everywhere.
type (
	GPUMinor      = int
	Flags         struct{ consumableShares string }
	Config        struct{ flags *Flags }
	PreparedClaim struct{ Namespace, Name string }
)

type question struct {
	// What is asked: fields, config or device.
	Ask        string          `json:"ask"`
	Kind       string          `json:"kind"`
	Parameters json.RawMessage `json:"parameters"`
	UUIDs      []string        `json:"uuids"`

	Shares string   `json:"shares"`
	GPU    gpuFact  `json:"gpu"`
	MIG    *migFact `json:"mig"`
}

type gpuFact struct {
	UUID         string `json:"uuid"`
	Minor        int    `json:"minor"`
	MemoryBytes  uint64 `json:"memory_bytes"`
	ProductName  string `json:"product_name"`
	Brand        string `json:"brand"`
	Architecture string `json:"architecture"`
	Capability   string `json:"capability"`
	Driver       string `json:"driver"`
	CUDA         string `json:"cuda"`
	Address      string `json:"address"`
	Root         string `json:"root"`
	NUMANode     int64  `json:"numa_node"`
	Addressing   string `json:"addressing"`
}

type migFact struct {
	UUID    string                      `json:"uuid"`
	Profile string                      `json:"profile"`
	Start   int                         `json:"start"`
	Size    int                         `json:"size"`
	Counts  nvml.GpuInstanceProfileInfo `json:"counts"`
}

type answer struct {
	Error  string              `json:"error"`
	Fields []string            `json:"fields,omitempty"`
	Config any                 `json:"config,omitempty"`
	Limits map[string]string   `json:"limits,omitempty"`
	Device *resourceapi.Device `json:"device,omitempty"`
}

var kinds = map[string]any{
	configapi.GpuConfigKind:        configapi.GpuConfig{},
	configapi.MigDeviceConfigKind:  configapi.MigDeviceConfig{},
	configapi.VfioDeviceConfigKind: configapi.VfioDeviceConfig{},
}

func listFields(of reflect.Type, prefix string) []string {
	var found []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		found = append(found, prefix+name)
		inner := of.Field(i).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && strings.Contains(inner.PkgPath(), "dra-driver") {
			found = append(found, listFields(inner, prefix+name+".")...)
		}
	}
	return found
}

// What their driver does with a configuration between the claim and the device.
func read(q question, a *answer) error {
	decoded, err := runtime.Decode(configapi.StrictDecoder, q.Parameters)
	if err != nil {
		return err
	}
	config, ok := decoded.(configapi.Interface)
	if !ok {
		return fmt.Errorf("no configuration: %T", decoded)
	}
	a.Config = config
	if err := config.Normalize(); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	var sharing configapi.Sharing
	switch each := config.(type) {
	case *configapi.GpuConfig:
		sharing = each.Sharing
	case *configapi.MigDeviceConfig:
		sharing = each.Sharing
	default:
		return nil
	}
	if sharing.IsTimeSlicing() {
		_, err = sharing.GetTimeSlicingConfig()
	}
	if sharing.IsMps() {
		var daemon *configapi.MpsConfig
		if daemon, err = sharing.GetMpsConfig(); err == nil {
			limits := daemon.DefaultPerDevicePinnedMemoryLimit
			a.Limits, err = limits.Normalize(q.UUIDs, daemon.DefaultPinnedDeviceMemoryLimit)
		}
	}
	return err
}

func describe(q question) *resourceapi.Device {
	gpu := &GpuInfo{
		UUID:                  q.GPU.UUID,
		minor:                 q.GPU.Minor,
		memoryBytes:           &q.GPU.MemoryBytes,
		productName:           q.GPU.ProductName,
		brand:                 q.GPU.Brand,
		architecture:          q.GPU.Architecture,
		cudaComputeCapability: q.GPU.Capability,
		driverVersion:         q.GPU.Driver,
		cudaDriverVersion:     q.GPU.CUDA,
		pciBusID:              q.GPU.Address,
		pciBusIDAttr: &deviceattribute.DeviceAttribute{
			Name: deviceattribute.StandardDeviceAttributePCIBusID, Value: resourceapi.DeviceAttribute{StringValue: &q.GPU.Address},
		},
		pcieRootAttr: &deviceattribute.DeviceAttribute{
			Name: deviceattribute.StandardDeviceAttributePCIeRoot, Value: resourceapi.DeviceAttribute{StringValue: &q.GPU.Root},
		},
		numaNodeAttr: &deviceattribute.DeviceAttribute{
			Name: deviceattribute.StandardDeviceAttributeNUMANode, Value: resourceapi.DeviceAttribute{IntValue: &q.GPU.NUMANode},
		},
	}
	if q.GPU.Addressing != "" {
		gpu.addressingMode = &q.GPU.Addressing
	}
	device := AllocatableDevice{Gpu: gpu}
	if q.MIG != nil {
		device = AllocatableDevice{MigStatic: &MigDeviceInfo{
			UUID:           q.MIG.UUID,
			Profile:        q.MIG.Profile,
			ParentUUID:     gpu.UUID,
			GiProfileID:    int(q.MIG.Counts.Id),
			ParentMinor:    gpu.minor,
			PlacementStart: q.MIG.Start,
			PlacementSize:  q.MIG.Size,
			parent:         gpu,
			giProfileInfo:  &q.MIG.Counts,
		}}
	}
	found := device.GetDevice(&Config{flags: &Flags{consumableShares: q.Shares}})
	return &found
}

func reply(q question) (a answer) {
	defer func() {
		if fault := recover(); fault != nil {
			a = answer{Error: fmt.Sprintf("panic: %v", fault)}
		}
	}()
	var err error
	switch q.Ask {
	case "fields":
		a.Fields = listFields(reflect.TypeOf(kinds[q.Kind]), "")
	case "config":
		err = read(q, &a)
	case "device":
		a.Device = describe(q)
	default:
		err = fmt.Errorf("unknown question %q", q.Ask)
	}
	if err != nil {
		a = answer{Error: err.Error()}
	}
	return a
}

func TestClaims(t *testing.T) {
	gates := map[string]bool{}
	for _, each := range []string{"TimeSlicingSettings", "MPSSupport", "PassthroughSupport", "ConsumableShares"} {
		gates[each] = true
	}
	if err := featuregates.FeatureGates().SetFromMap(gates); err != nil {
		t.Fatal(err)
	}
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
		answers = append(answers, reply(each))
	}
	text, err = json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("ANSWERS"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
