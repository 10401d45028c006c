package main

import (
	"context"
	"errors"
	"os"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// onAWS returns AWS.
func onAWS() cloud { return onAWSThrough(sdk.Connect) }

// onAWSThrough returns AWS, which is called through the clients that connect returns for a region.
func onAWSThrough(connect func(ctx context.Context, region string) (sdk.Clients, error)) cloud {
	return cloud{
		name:      "aws",
		nodeClass: nodeclass.Kind,
		legacy: func(args *provision.Args) karpenter.LegacyCloud {
			return nodeclass.Legacy{DefaultInstanceProfile: args.DefaultInstanceProfile}
		},
		provider: func(ctx context.Context, args *provision.Args, s cloudprovider.Settings) (cloudprovider.Provider, error) {
			if s.Region == "" {
				s.Region = os.Getenv("AWS_REGION")
			}
			if s.Region == "" {
				return nil, errors.New("ProvisionArgs: region: required, here or as AWS_REGION")
			}
			clients, err := connect(ctx, s.Region)
			if err != nil {
				return nil, err
			}
			return aws.New(configOf(args, s), clients)
		},
	}
}

func configOf(args *provision.Args, s cloudprovider.Settings) aws.Config {
	overhead := *args.VMMemoryOverheadPercent
	if overhead == 0 {
		overhead = -1 // none; for the provider zero means its default
	}
	return aws.Config{
		Region: s.Region, ClusterName: s.ClusterName, ManagedBy: s.ManagedBy, ClusterEndpoint: s.ClusterEndpoint, ClusterCABundle: s.ClusterCABundle,
		ClusterCIDR: s.ClusterCIDR, KubernetesVersion: s.KubernetesVersion, ServerVersion: s.ServerVersion, VMMemoryOverheadPercent: overhead,
		ReservedENIs: args.ReservedENIs, PrefixDelegation: args.PrefixDelegation, InterruptionQueue: args.InterruptionQueue, DisableDryRun: args.DisableDryRun,
		ZonalShift: args.EnableZonalShift, Hold: s.Hold, Synced: s.Synced, Clock: s.Clock,
	}
}
