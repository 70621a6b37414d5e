// Reads device metadata files by the library of Kubernetes: a question a line, an answer a line.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

type question struct {
	Driver, Claim, PodClaim, Request string
	Content                          string
}

type answer struct {
	Path     string
	Version  string
	Error    string
	Invalid  string
	Metadata v1beta1.DeviceMetadata
}

func read(asked question) (told answer) {
	if asked.PodClaim == "" {
		told.Path = metadata.ResourceClaimFilePath(asked.Driver, asked.Claim, asked.Request)
	} else {
		told.Path = metadata.ResourceClaimTemplateFilePath(asked.Driver, asked.PodClaim, asked.Request)
	}
	var version schema.GroupVersionKind
	var invalid error
	stream := json.NewDecoder(bytes.NewBufferString(asked.Content))
	if err := devicemetadata.DecodeMetadataFromStream(
		stream, &told.Metadata,
		devicemetadata.DecodeMetadataWithValidationResult(&invalid),
		devicemetadata.DecodeMetadataStoreGVKResult(&version),
	); err != nil {
		told.Error = err.Error()
	}
	if invalid != nil {
		told.Invalid = invalid.Error()
	}
	told.Version = version.GroupVersion().String()
	return told
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(read(asked)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
