package fabricmanager

import "errors"

var errNoClient = errors.New("built without a client of Fabric Manager")

type noClient struct{}

// NewClient stands where the original has a client of a module that is not to be had everywhere.
func NewClient(string, ConnectParams) Client { return noClient{} }

func (noClient) Init() error                                        { return errNoClient }
func (noClient) Shutdown() error                                    { return nil }
func (noClient) GetSupportedFabricPartitions() ([]Partition, error) { return nil, errNoClient }
func (noClient) ActivateFabricPartition(int) error                  { return errNoClient }
func (noClient) DeactivateFabricPartition(int) error                { return errNoClient }
