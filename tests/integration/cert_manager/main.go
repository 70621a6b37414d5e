// The controllers of cert-manager that sign by an authority of its own, as one program without a container image.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

var names = []string{
	issuers.ControllerName, approver.ControllerName, ca.CRControllerName, selfsigned.CRControllerName,
	issuing.ControllerName, keymanager.ControllerName, readiness.ControllerName, requestmanager.ControllerName,
	revisionmanager.ControllerName, trigger.ControllerName,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	options := controller.ContextOptions{Kubeconfig: os.Args[1], KubernetesAPIQPS: 50, KubernetesAPIBurst: 100}
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		made, err := controller.Known()[name](factory)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		go func() {
			if err := made.Run(2, ctx); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		}()
	}
	shared, err := factory.Build()
	if err != nil {
		log.Fatal(err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	<-ctx.Done()
}
