package ec2

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// AWSConfig returns an SDK configuration for the simulator.
func (s *Sim) AWSConfig() aws.Config {
	return aws.Config{
		Region: s.cfg.Region, BaseEndpoint: aws.String(s.url),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "SIMULATED", SecretAccessKey: "simulated", Source: "EC2 simulator"}, nil
		}),
	}
}
