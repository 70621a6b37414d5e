package rm

import (
	"encoding/json"
	"os"
	"testing"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
)

type choice struct {
	Devices   []string `json:"devices"`
	Available []string `json:"available"`
	Required  []string `json:"required"`
	Size      int      `json:"size"`
	Sharing   string   `json:"sharing"`
	OneEach   bool     `json:"one_each"`
	IDs       []string `json:"ids"`
}

type outcome struct {
	Devices []string `json:"devices"`
	Error   string   `json:"error"`
	Refusal string   `json:"refusal"`
}

func choose(c choice) outcome {
	devices := Devices{}
	for _, id := range c.Devices {
		devices[id] = &Device{}
		devices[id].ID = id
	}
	resources := spec.ReplicatedResources{
		FailRequestsGreaterThanOne: c.OneEach,
		Resources:                  []spec.ReplicatedResource{{Name: "nvidia.com/gpu", Replicas: 4}},
	}
	config := &spec.Config{}
	if c.Sharing == "mps" {
		config.Sharing.MPS = &resources
	} else {
		config.Sharing.TimeSlicing = resources
	}
	manager := &resourceManager{config: config, resource: "nvidia.com/gpu", devices: devices}
	var result outcome
	if chosen, err := manager.distributedAlloc(c.Available, c.Required, c.Size); err != nil {
		result.Error = err.Error()
	} else {
		result.Devices = chosen
	}
	if err := manager.ValidateRequest(c.IDs); err != nil {
		result.Refusal = err.Error()
	}
	return result
}

func TestChoices(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("QUESTIONS"))
	if err != nil {
		t.Fatal(err)
	}
	var questions []choice
	if err := json.Unmarshal(text, &questions); err != nil {
		t.Fatal(err)
	}
	outcomes := make([]outcome, 0, len(questions))
	for _, each := range questions {
		outcomes = append(outcomes, choose(each))
	}
	text, err = json.Marshal(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("ANSWERS"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
