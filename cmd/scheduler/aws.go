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

// onAWS returns AWS, which is called through the clients that connect returns for a region.
func onAWS(connect func(ctx context.Context, region string) (sdk.Clients, error)) cloud {
	return cloud{
		name:      "aws",
		nodeClass: nodeclass.Kind,
		legacy: func(args *provision.Args) karpenter.LegacyCloud {
			return nodeclass.Legacy{DefaultInstanceProfile: args.DefaultInstanceProfile}
		},
		provider: func(ctx context.Context, s cloudSettings) (cloudprovider.Provider, error) {
			region := s.args.Region
			if region == "" {
				region = os.Getenv("AWS_REGION")
			}
			if region == "" {
				return nil, errors.New("ProvisionArgs: region: required, here or as AWS_REGION")
			}
			clients, err := connect(ctx, region)
			if err != nil {
				return nil, err
			}
			return aws.New(configOf(s, region), clients)
		},
	}
}

func configOf(s cloudSettings, region string) aws.Config {
	overhead := *s.args.VMMemoryOverheadPercent
	if overhead == 0 {
		overhead = -1 // none; for the provider zero means its default
	}
	return aws.Config{
		Region: region, ClusterName: s.args.ClusterName, ManagedBy: s.args.Name, ClusterEndpoint: s.args.ClusterEndpoint, ClusterCABundle: s.args.ClusterCABundle,
		ClusterCIDR: s.args.ClusterCIDR, KubernetesVersion: s.kubernetes, ServerVersion: s.serverVersion, VMMemoryOverheadPercent: overhead,
		ReservedENIs: s.args.ReservedENIs, PrefixDelegation: s.args.PrefixDelegation, InterruptionQueue: s.args.InterruptionQueue, DisableDryRun: s.args.DisableDryRun, ZonalShift: s.args.EnableZonalShift, Hold: s.hold, Synced: s.synced, Clock: s.clock,
	}
}
