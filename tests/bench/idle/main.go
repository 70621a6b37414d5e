// A device plugin on gRPC for Go that does nothing: what a pair takes with it, the kubelet and the kernel take.
//
//	(cd tests/bench/idle && go build -o PROGRAM .) && make bench PLUGIN="PROGRAM {dir}"
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	wire "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "idle.sock"
	devices  = 8
)

var options = &wire.DevicePluginOptions{GetPreferredAllocationAvailable: true}

type plugin struct {
	wire.UnimplementedDevicePluginServer
}

func (plugin) GetDevicePluginOptions(context.Context, *wire.Empty) (*wire.DevicePluginOptions, error) {
	return options, nil
}

// One list, which never changes.
func (plugin) ListAndWatch(_ *wire.Empty, stream grpc.ServerStreamingServer[wire.ListAndWatchResponse]) error {
	list := &wire.ListAndWatchResponse{}
	for number := range devices {
		list.Devices = append(list.Devices, &wire.Device{ID: "thing-" + strconv.Itoa(number), Health: wire.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// The first ones, as they come.
func (plugin) GetPreferredAllocation(
	_ context.Context, request *wire.PreferredAllocationRequest,
) (*wire.PreferredAllocationResponse, error) {
	response := &wire.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		first := container.AvailableDeviceIDs[:container.AllocationSize]
		answer := &wire.ContainerPreferredAllocationResponse{DeviceIDs: first}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// A variable that names them.
func (plugin) Allocate(_ context.Context, request *wire.AllocateRequest) (*wire.AllocateResponse, error) {
	response := &wire.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		environment := map[string]string{"THINGS": strings.Join(container.DevicesIds, ",")}
		answer := &wire.ContainerAllocateResponse{Envs: environment}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

func main() {
	directory := filepath.Join(os.Args[1], "device-plugins")
	listening, err := net.Listen("unix", filepath.Join(directory, endpoint))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterDevicePluginServer(server, plugin{})
	go func() { log.Fatal(server.Serve(listening)) }()
	kubelet, err := grpc.NewClient(
		"unix:"+filepath.Join(directory, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		log.Fatal(err)
	}
	_, err = wire.NewRegistrationClient(kubelet).Register(context.Background(), &wire.RegisterRequest{
		Version: wire.Version, Endpoint: endpoint, ResourceName: "example.com/thing", Options: options,
	})
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
